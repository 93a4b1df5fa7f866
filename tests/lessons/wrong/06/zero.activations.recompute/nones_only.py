"""Leaves out gradients that are None, and no outputs.

check: test_detached
mistake: pairs
"""


def recompute(call, inputs, grads):
    with call.conditions.restored(), torch.enable_grad():
        outputs = take_apart(call.run(inputs))[0]
    pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
