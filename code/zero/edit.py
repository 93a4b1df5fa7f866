"""Looking at whole weights, and editing them, while they are sharded."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from . import comm

if TYPE_CHECKING:
    from .optimizer import ZeroOptimizer

PIECE = 1 << 20  # elements that are copied at a time, to be compared


@contextlib.contextmanager
def full_params(opt: ZeroOptimizer, write_back: bool) -> Iterator[None]:
    """Gather all parameters for the block; see `ZeroOptimizer.full_params`."""
    buckets = opt.buckets + opt.frozen_buckets
    with torch.no_grad():
        opt.gather_all()
        before = [_checksum(b.flat) for b in buckets]
    try:
        yield
        with torch.no_grad():
            if write_back:
                for b in buckets:
                    comm.broadcast(b.flat, group=opt.group, name="edited weights")
                    b.shard.copy_(b.owned(b.flat))
                opt.load_masters()
            else:
                after = [_checksum(b.flat) for b in buckets]
                if comm.any_rank(after != before, group=opt.group, name="edited"):
                    raise RuntimeError(
                        "weights were changed inside full_params() without write_back=True: the "
                        "change would be lost, or would differ between ranks"
                    )
            for b in buckets:
                b.check_views()
    finally:
        opt.release_all()


def _checksum(flat: torch.Tensor) -> int:
    """Of the bytes in their order: also a change that only moves values must be noticed."""
    value = 0
    for piece in flat.split(PIECE):
        # A copy: torch never again resizes a storage that it has shown to NumPy.
        value = zlib.crc32(piece.to("cpu", copy=True).view(torch.uint8).numpy(), value)
    return value
