"""Reports the norm of the shard; norms do not add up.

check: test_power_of_one_slice
mistake: root-too-early
"""


def shard_power(grads, norm_type):
    grads = [g.float().reshape(-1) for g in grads if g.numel()]
    if not grads:
        return 0.0
    return torch.linalg.vector_norm(torch.cat(grads), norm_type).item()
