"""A backward pass for each output; the second finds the graph freed.

check: test_shared
mistake: one-by-one
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    for o, g in zip(outputs, grads):
        if o.requires_grad and g is not None:
            o.backward(g)
    return [x.grad for x in inputs]
