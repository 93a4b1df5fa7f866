"""Asks for the gradients of the inputs alone; the weights get none.

check: test_gradients
mistake: weights-forgotten
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    return list(torch.autograd.grad([o for o, _ in pairs], inputs, [g for _, g in pairs]))
