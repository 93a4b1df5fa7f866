"""A new tensor in place of the old one: the parameters still view the old storage.

check: test_allocates
mistake: new-buffer
"""

import torch


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    self.state = State.GATHERING
    for b in self.buckets:
        b.flat = torch.empty(b.flat.shape, dtype=b.flat.dtype)
        b.owned(b.flat).copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
