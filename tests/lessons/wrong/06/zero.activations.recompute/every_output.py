"""Sends every output backward, also a whole number.

check: test_outputs_without_gradient
mistake: pairs
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    torch.autograd.backward(outputs, list(grads))
    return [x.grad for x in inputs]
