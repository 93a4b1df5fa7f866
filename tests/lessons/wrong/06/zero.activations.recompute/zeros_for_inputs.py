"""Gives zeros to inputs that could have a gradient.

check: test_outputs_without_gradient
mistake: zeros-for-none
says: if no gradient has come
"""


def recompute(call, inputs, grads):
    with call.conditions.restored(), torch.enable_grad():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [
        x.grad if x.grad is not None else (torch.zeros_like(x) if x.requires_grad else None)
        for x in inputs
    ]
