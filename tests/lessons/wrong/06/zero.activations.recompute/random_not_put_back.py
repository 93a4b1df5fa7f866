"""Sets the random state and leaves it so: later dropouts repeat earlier ones.

check: test_random_numbers_go_on
mistake: random-not-put-back
"""


def recompute(call, inputs, grads):
    if call.conditions.random is not None:
        torch.set_rng_state(call.conditions.random[0])
    with torch.enable_grad():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
