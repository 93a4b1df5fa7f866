"""Also makes small gradients larger.

check: test_small_gradient_left_alone
mistake: scaled-up
"""


def scale_down(grads, norm, max_norm):
    if math.isfinite(norm):
        for grad in grads:
            grad.mul_(max_norm / (norm + 1e-6))
