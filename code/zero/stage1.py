"""ZeRO-1: the optimizer states are sharded (P_os in the paper, section 5.1).

Adam keeps two moments for every weight, and in mixed precision an fp32 master copy: 12 of the 16
bytes a parameter costs. Plain data parallelism keeps them on every rank, although every rank
would compute the same update from them. Here each rank keeps them for its own 1/N of the flat
buffer and updates only that. A step is three moves:

    reduce-scatter   each rank receives the average of the gradients in its range
    update           each rank's optimizer updates the weights in its range
    all-gather       each rank receives the ranges that the others have updated

An all-reduce is a reduce-scatter and an all-gather; we have put the update between the two. So
ZeRO-1 sends exactly the bytes of plain data parallelism.
"""

from __future__ import annotations

from torch import nn

from . import comm
from .bucket import Bucket
from .groups import by_dtype
from .optimizer import ZeroOptimizer


class Zero1(ZeroOptimizer):
    """Optimizer states sharded over the ranks; parameters and gradients whole on each.

    Memory per rank, Ψ parameters with Adam: fp32 4Ψ + 4Ψ + 8Ψ/N bytes, 16-bit 2Ψ + 2Ψ + 12Ψ/N.
    Sends 2Ψ (N-1)/N elements a step.
    """

    stage = 1

    def make_buckets(self) -> list[Bucket]:
        """One bucket for each dtype; this rank owns 1/N of it."""
        lists = by_dtype(self.names)
        return [Bucket(n, self.group, self.precision, offload=self.offload) for n in lists]

    def on_gradient(self, p: nn.Parameter) -> None:
        """Keep the gradient in the flat buffer; it waits there for `step`."""
        self.bucket_of[p].keep_gradient(p)

    def finish_gradients(self) -> None:
        """Reduce-scatter: leave in `owned_grad` the average of this rank's range.

        In fp32 it is made in place, in the rank's own range of the flat gradients. 16-bit
        gradients are summed into an fp32 shard, which lives until the update is done.
        """
        for bucket in self.buckets:
            bucket.complete_gradients()
            shard = bucket.owned(bucket.grad)
            if bucket.has_master:
                shard = shard.new_empty(shard.shape, dtype=bucket.master.dtype)
            bucket.owned_grad = self.reduce_bucket(bucket, out=shard)

    def publish(self) -> None:
        """All-gather: every rank's updated range of the parameters, in place."""
        works = []
        for bucket in self.buckets:
            bucket.refresh_shard()
            if bucket.has_master and bucket.grad is not None:
                bucket.drop_owned_grad()  # the whole 16-bit gradients stay, until zero_grad
            name = f"parameters {bucket.names[0]}.."
            works.append(comm.all_gather(bucket.flat, group=self.group, name=name, async_op=True))
        for work in works:
            work.wait()
