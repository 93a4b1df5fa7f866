"""Gives zeros where there is no gradient.

check: test_outputs_without_gradient
mistake: zeros-for-none
says: inputs that need none
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [torch.zeros_like(x) if x.grad is None else x.grad for x in inputs]
