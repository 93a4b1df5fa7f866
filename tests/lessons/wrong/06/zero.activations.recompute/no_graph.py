"""Runs the block as backward finds autograd: without a graph.

check: test_gradients
mistake: no-graph
"""


def recompute(call, inputs, grads):
    with call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]
