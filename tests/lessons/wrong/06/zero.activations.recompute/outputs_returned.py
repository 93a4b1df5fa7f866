"""Returns what the block computes.

check: test_gradients
mistake: outputs-returned
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return outputs
