"""Gives the inputs to call.run one by one.

check: test_gradients
mistake: inputs-unpacked
"""


def recompute(call, inputs, grads):
    with call.conditions.restored(), torch.enable_grad():
        outputs = take_apart(call.run(*inputs))[0]
    torch.autograd.backward(outputs, grads)
    return [x.grad for x in inputs]
