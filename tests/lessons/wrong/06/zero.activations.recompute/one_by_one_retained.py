"""A backward pass for each output, on a graph that is kept: weights get their gradient in pieces.

check: test_shared
mistake: one-by-one
"""


def recompute(call, inputs, grads):
    with call.conditions.restored(), torch.enable_grad():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
    for o, g in pairs:
        o.backward(g, retain_graph=True)
    return [x.grad for x in inputs]
