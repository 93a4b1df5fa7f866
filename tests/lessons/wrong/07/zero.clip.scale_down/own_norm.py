"""Each rank scales by the norm of its own shard.

check: test_scaled_in_place
mistake: own-norm
"""


def scale_down(grads, norm, max_norm):
    for grad in grads:
        own = torch.linalg.vector_norm(grad).item()
        if math.isfinite(norm) and own > max_norm:
            grad.mul_(max_norm / (own + 1e-6))
