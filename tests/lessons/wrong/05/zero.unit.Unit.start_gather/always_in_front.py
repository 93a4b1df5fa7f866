"""Every rank puts its shard in front.

check: test_values
mistake: own-place
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    self.state = State.GATHERING
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        b.flat[: b.shard.numel()].copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
