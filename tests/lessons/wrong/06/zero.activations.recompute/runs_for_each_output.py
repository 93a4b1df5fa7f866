"""Runs the block again for each output.

check: test_shared
mistake: runs-again
"""


def recompute(call, inputs, grads):
    for i, g in enumerate(grads):
        with torch.enable_grad(), call.conditions.restored():
            outputs, _ = take_apart(call.run(inputs))
        if outputs[i].requires_grad and g is not None:
            outputs[i].backward(g)
    return [x.grad for x in inputs]
