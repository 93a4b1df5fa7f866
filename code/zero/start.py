"""Every rank starts from rank 0's weights.

Ranks that build the model from different seeds would otherwise train shards of different models,
glued together: nothing crashes, and the loss still falls. Buckets broadcast the parameters that
they flatten; here is the rest, buffers and frozen parameters.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from . import comm


@torch.no_grad()
def broadcast_from_rank_0(tensors: Iterable[torch.Tensor], group: comm.Group) -> None:
    """Copy rank 0's values of these tensors, of any shape and dtype, to every rank. Collective."""
    for t in tensors:
        as_bytes = t.detach().reshape(-1).contiguous().view(torch.uint8)
        comm.broadcast(as_bytes, group=group, name="start buffers")
        t.data.copy_(as_bytes.view(t.dtype).view(t.shape))
