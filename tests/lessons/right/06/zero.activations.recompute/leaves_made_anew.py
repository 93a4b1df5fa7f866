"""Runs on leaves of its own, outside of the conditions goes backward by numbers."""


def recompute(call, inputs, grads):
    leaves = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
    with torch.enable_grad():
        with call.conditions.restored():
            outputs = take_apart(call.run(leaves))[0]
        live = {
            i: g for i, g in enumerate(grads) if g is not None and outputs[i].grad_fn is not None
        }
        if live:
            torch.autograd.backward([outputs[i] for i in live], list(live.values()))
    return [x.grad for x in leaves]
