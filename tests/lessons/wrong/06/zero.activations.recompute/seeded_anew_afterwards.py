"""Puts another random state in place afterwards.

check: test_random_numbers_go_on
mistake: random-not-put-back
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    torch.manual_seed(0)
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
