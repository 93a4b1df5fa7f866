"""Counts the gradients that have come, and takes so many of the first outputs.

check: test_places
mistake: shifted
says: output 2's gradient went to output 1
"""


def recompute(call, inputs, grads):
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    come = [g for g in grads if g is not None]
    if come:
        torch.autograd.backward(outputs[: len(come)], come)
    return [x.grad for x in inputs]
