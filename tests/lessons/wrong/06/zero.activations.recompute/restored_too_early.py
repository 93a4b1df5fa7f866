"""The conditions are restored, and left again before the block runs.

check: test_same_random_numbers
mistake: random-not-restored
"""


def recompute(call, inputs, grads):
    with call.conditions.restored():
        pass
    with torch.enable_grad():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
