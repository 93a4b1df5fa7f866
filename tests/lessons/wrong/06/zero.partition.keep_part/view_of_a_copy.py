"""A view of a padded copy of all of x.

check: test_copy
mistake: view
"""


def keep_part(x, group):
    m, r = comm.world_size(group), comm.rank(group)
    length = -(-x.numel() // m)
    padded = x.new_zeros(m * length)
    padded[: x.numel()] = x.reshape(-1)
    return padded[r * length : (r + 1) * length]
