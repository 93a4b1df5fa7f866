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

import torch
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
        """Reduce-scatter: leave in every bucket's `owned_grad` the average of this rank's range.

        For each bucket in turn, on every rank alike, `bucket.complete_gradients()` makes the flat
        `bucket.grad` [padded_numel] whole: where this rank has no gradient, it stands at zero. Then
        `self.reduce_bucket(bucket, out)` averages it over the ranks, writes this rank's part into
        the tensor `out` [owned] and returns it: a reduce-scatter.

        Which tensor is `out`? In fp32 training no new one: the rank's own range of `bucket.grad`,
        the view `bucket.owned(bucket.grad)`. Where `bucket.has_master` (16-bit training) a new one
        of the same length, in the dtype of `bucket.master`, because 16-bit numbers are summed in
        fp32 and the sum should not be rounded again.
        """
        for bucket in self.buckets:
            bucket.complete_gradients()
            out = bucket.owned(bucket.grad)
            if bucket.has_master:
                out = torch.empty_like(out, dtype=bucket.master.dtype)
            bucket.owned_grad = self.reduce_bucket(bucket, out)

    def publish(self) -> None:
        """All-gather: give every rank the ranges of the parameters that the others have updated.

        The optimizer has just updated `bucket.master`. For each bucket in turn, on every rank
        alike, `bucket.refresh_shard()` copies it into this rank's range of `bucket.flat`, the
        model's parameters (in fp32 training it stands there already). Then
        `comm.all_gather(bucket.flat, group=self.group)` fills the ranges of all other ranks, in
        place. The model's parameters are views of `bucket.flat` and stay so.

        `comm.all_gather(..., async_op=True)` returns a `Work` at once, so that the buckets can
        travel together; its `wait()` must have returned before anybody reads the parameters.
        """
        works = []
        for bucket in self.buckets:
            bucket.refresh_shard()
            name = f"parameters {bucket.names[0]}.."
            works.append(comm.all_gather(bucket.flat, group=self.group, name=name, async_op=True))
        for work in works:
            work.wait()
