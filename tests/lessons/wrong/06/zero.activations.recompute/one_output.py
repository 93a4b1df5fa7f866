"""Thinks that a block has one output.

check: test_shared
mistake: one-output
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    if outputs[0].requires_grad and grads[0] is not None:
        outputs[0].backward(grads[0])
    return [x.grad for x in inputs]
