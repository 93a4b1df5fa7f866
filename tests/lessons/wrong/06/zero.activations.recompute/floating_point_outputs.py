"""Thinks that every floating-point output needs a gradient.

check: test_detached
mistake: pairs
"""


def recompute(call, inputs, grads):
    with call.conditions.restored(), torch.enable_grad():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.is_floating_point()]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
