"""ZeRO-2: gradients are sharded as well (P_os+g in the paper, section 5.2).

A rank updates only its own shard, so it needs the averaged gradient of that shard and no other.
Backward makes gradients one by one, last layer first. They are collected in buckets of a fixed
size; when a bucket is full it is reduce-scattered at once, the rank keeps its 1/N of the average,
and the bucket's memory is given back. The full gradients of the model never exist together: at
any time there is the shard, the bucket that fills and the bucket that travels.

Buckets travel in a fixed order, last layer first, although a rank may fill them in another one.
When the backward pass ends, the buckets that are not full (a parameter was not used) follow. So
every rank makes the same collectives, even if its part of the data took another way through the
model.

The price: a reduction after *every* backward pass, where stages 0 and 1 wait for `step`. With k
micro-batches a step, gradients are sent k times.
"""

from __future__ import annotations

import torch
from torch import nn

from .backward import BackwardEnd
from .bucket import Bucket
from .flight import Flight
from .groups import by_dtype, refuse_gradients_set_by_hand
from .stage1 import Zero1


def assign_to_buckets(sizes: list[int], capacity: int) -> list[list[int]]:
    """Divide parameters into buckets; the result lists, bucket by bucket, their positions.

    `sizes` are the parameters' bytes in the order in which gradients become ready. A bucket takes
    neighbours, in this order, as long as they fit into `capacity` bytes together; the first that
    does not fit begins the next bucket. A parameter larger than `capacity` has a bucket of its own.
    No bucket is empty, and without parameters there is none.
    """
    buckets: list[list[int]] = []
    room = 0
    for i, size in enumerate(sizes):
        if not buckets or size > room:
            buckets.append([])
            room = capacity
        buckets[-1].append(i)
        room -= size
    return buckets


class Zero2(Zero1):
    """Gradients and optimizer states sharded; parameters whole on each rank.

    Memory per rank, Ψ parameters with Adam: fp32 4Ψ + 12Ψ/N bytes, 16-bit 2Ψ + 16Ψ/N (the shard's
    gradient is kept in fp32; the paper counts it in 16 bits). While gradients are made, at most two
    buckets besides. Sends Ψ (N-1)/N elements after each backward pass and as many in `step`.

    Parameters have no `grad` after backward, so what reads it (`torch.nn.utils.clip_grad_norm_`,
    for one) must be asked of the optimizer: `opt.clip_grad_norm_`.
    """

    stage = 2

    def make_buckets(self) -> list[Bucket]:
        """Buckets of at most `bucket_bytes`, in the order in which backward fills them."""
        self.flight = Flight(self)
        self.next = 0  # the position of the next bucket to leave in this backward pass
        self.backward_end = BackwardEnd(self.model, self.end_backward, self.backward_aborted)
        buckets = []
        for named in by_dtype(self.names):
            named = named[::-1]
            sizes = [p.numel() * self.precision.param(p.dtype).itemsize for _, p in named]
            for positions in assign_to_buckets(sizes, self.bucket_bytes):
                members = [named[i] for i in positions]
                bucket = Bucket(members, self.group, self.precision, offload=self.offload)
                buckets.append(bucket)
        return buckets

    def on_gradient(self, p: nn.Parameter) -> None:
        """Put the gradient into its bucket; send the buckets whose turn it is."""
        self.backward_end.arm()
        bucket = self.bucket_of[p]
        if bucket is self.flight.bucket or (bucket.grad is None and not p.is_cuda):
            # On a CPU the cores that send are the cores that compute: waiting before a new bucket
            # is allocated costs no overlap, and keeps one bucket less in memory.
            self.flight.land()
        bucket.move_gradient(p)
        self.send_full_buckets()

    def send_full_buckets(self) -> None:
        """Send every bucket that is full and whose turn it is, in the order of `buckets`.

        `next` is the position of the next one to leave. A bucket is full when no parameter is
        `missing` in it. One that is full before its turn waits for the buckets before it.
        """
        while self.next < len(self.buckets) and not self.buckets[self.next].missing:
            self.flight.start(self.buckets[self.next])
            self.next += 1

    def end_backward(self) -> None:
        """The backward pass is over: send what has not been sent.

        A bucket that was sent and holds a gradient again (recomputed blocks that share a parameter
        make a second one) is sent a second time.
        """
        self.flight.land()
        again = [b for b in self.buckets[: self.next] if b.grad is not None]
        for bucket in self.buckets[self.next :] + again:
            self.flight.start(bucket)
        self.flight.land()
        self.next = 0
        self.passes += 1

    def finish_gradients(self) -> None:
        """Nothing is left to average; a bucket that never had a gradient counts as zero."""
        refuse_gradients_set_by_hand(self.names)
        for bucket in self.buckets:
            if bucket.owned_grad is None:
                bucket.owned_grad = torch.zeros_like(bucket.master)

    def forget_gradients(self) -> None:
        """Drop the averages, and whatever an interrupted backward pass has left behind."""
        self.flight.land()
        self.next = 0
        self.backward_end.disarm()
        for bucket in self.buckets:
            bucket.owned_grad = None
            bucket.free_grad()
