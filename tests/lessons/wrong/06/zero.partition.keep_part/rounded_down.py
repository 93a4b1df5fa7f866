"""numel // M elements each: the rest is lost.

check: test_part_by_hand
mistake: rounded-down
"""


def keep_part(x, group):
    length = x.numel() // comm.world_size(group)
    start = comm.rank(group) * length
    return x.reshape(-1)[start : start + length].clone()
