"""Drops the outputs that need no gradient before it pairs them: the rest meets other gradients.

check: test_places
mistake: shifted
says: output 2's gradient did not go to output 2
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    outputs = [o for o in outputs if o.requires_grad]
    pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
