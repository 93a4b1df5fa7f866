"""Copies the gradients; the inputs, which hold the others, end with this backward pass."""


def recompute(call, inputs, grads):
    with call.conditions.restored(), torch.enable_grad():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [
        (o, g.contiguous().clone())
        for o, g in zip(outputs, grads)
        if g is not None and o.requires_grad
    ]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad.clone() if x.grad is not None else None for x in inputs]
