"""One seed for all: the second run draws the same numbers every time, not the first's.

check: test_same_random_numbers
mistake: random-not-restored
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
