"""Goes backward twice; every gradient is added twice.

check: test_gradients
mistake: backward-twice
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs), retain_graph=True)
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
