"""Goes backward from the sum of the outputs.

check: test_gradients
mistake: grads-ignored
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
        sum(o.sum() for o in outputs if o.requires_grad).backward()
    return [x.grad for x in inputs]
