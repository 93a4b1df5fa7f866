"""No graph, and every output is sent backward.

check: test_gradients
mistake: no-graph
"""


def recompute(call, inputs, grads):
    with call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    torch.autograd.backward(outputs, grads)
    return [x.grad for x in inputs]
