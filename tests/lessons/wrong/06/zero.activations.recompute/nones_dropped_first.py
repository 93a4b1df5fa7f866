"""Drops the gradients that are None before it pairs them: the rest moves to other outputs.

check: test_places
mistake: shifted
says: output 2's gradient went to output 1
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    come = [g for g in grads if g is not None]
    pairs = [(o, g) for o, g in zip(outputs, come) if o.requires_grad]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
