"""Sends zeros into outputs to which no gradient has come.

check: test_outputs_without_gradient
mistake: zeros-for-none
"""


def recompute(call, inputs, grads):
    with call.conditions.restored(), torch.enable_grad():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [
        (o, torch.zeros_like(o) if g is None else g)
        for o, g in zip(outputs, grads)
        if o.requires_grad
    ]
    if pairs and any(g is not None for g in grads):
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
