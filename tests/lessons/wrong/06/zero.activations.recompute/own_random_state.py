"""Takes care of the random state alone; autocast is lost.

check: test_autocast
mistake: autocast-lost
"""


def recompute(call, inputs, grads):
    now = torch.get_rng_state()
    if call.conditions.random is not None:
        torch.set_rng_state(call.conditions.random[0])
    with torch.enable_grad():
        outputs, _ = take_apart(call.run(inputs))
    torch.set_rng_state(now)
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
