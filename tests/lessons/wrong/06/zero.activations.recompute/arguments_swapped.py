"""Swaps outputs and gradients; the block had its graph.

check: test_gradients
mistake:
says: in recompute
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    return list(torch.autograd.grad([g for _, g in pairs], inputs, [o for o, _ in pairs]))
