"""Does not expect that no gradient has come at all.

check: test_outputs_without_gradient
mistake: pairs
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
