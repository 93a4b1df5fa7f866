"""Gradients on their way: a full bucket leaves, and 1/N of its average comes back.

Shared by ZeRO-2 and ZeRO-3. At most one bucket is on its way at a time, while the next one fills;
so the memory that gradients need does not grow with the model.
"""

from __future__ import annotations

import torch

from . import comm
from .bucket import Bucket
from .optimizer import ZeroOptimizer


class Flight:
    """The bucket whose gradients are being reduce-scattered, if there is one."""

    def __init__(self, opt: ZeroOptimizer):
        self.opt = opt
        self.bucket: Bucket | None = None
        self.work: comm.Work | None = None

    def start(self, bucket: Bucket) -> None:
        """Send the bucket's gradients off; the bucket before lands first. Collective.

        When it has landed, `bucket.close_gradients()` puts zeros where a gradient is missing. Then
        the reduce-scatter is started, and not waited for, into a new tensor like `bucket.master`
        (1-D, this rank's shard). `self.bucket` and `self.work` remember what is on its way.
        """
        self.land()
        bucket.close_gradients()
        shard = torch.empty_like(bucket.master)
        self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, shard, async_op=True)

    def land(self) -> None:
        """Wait for the bucket on its way, if there is one; afterwards there is none.

        `work.wait()` gives the average of this rank's shard. It becomes the bucket's `owned_grad`,
        or is added to it if an earlier micro-batch has left one there. Either way the bucket's
        whole gradients are freed, and `self.bucket` and `self.work` are None again.
        """
        if self.bucket is None:
            return
        bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
        average = work.wait()
        if bucket.owned_grad is None:
            bucket.owned_grad = average
        else:
            bucket.owned_grad.add_(average)
        bucket.free_grad()
