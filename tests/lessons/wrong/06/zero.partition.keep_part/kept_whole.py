"""Every rank keeps everything.

check: test_part_by_hand
mistake: kept-whole
"""


def keep_part(x, group):
    return x.reshape(-1).clone()
