"""What is kept of one argument of a checkpointed block, and how it comes back (P_a).

The argument is replicated: every rank of a tensor-parallel group holds the same. So one copy is
enough for all of them, 1/M on each rank, and an all-gather makes it whole again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from . import comm, stores
from .flat import shard_bounds


def keep_part(x: Tensor, group: comm.Group) -> Tensor:
    """This rank's 1/M of x, which all M ranks of the group have: a flat copy [ceil(numel / M)].

    Rank r of the group takes the r-th range of that length of the elements in their order, with x's
    dtype. Where M does not divide, the last ranks' parts end with zeros. A copy, since a view would
    keep all of x in memory.
    """
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    own = x.reshape(-1)[start:end]
    part = x.new_zeros(end - start)
    part[: own.numel()] = own
    return part


def gather_parts(part: Tensor, shape: torch.Size, group: comm.Group, name: str = "") -> Tensor:
    """x of this shape from every rank's `keep_part` of it, on each rank. Collective.

    One all-gather over the group: a rank sends its part to each of the M - 1 others. `name` goes
    along; with it gloo ranks notice that they do not have parts of the same tensor. The result has
    memory of its own, also in a group of one: `part` stays as it is, and may be freed afterwards.
    """
    m, r, length = comm.world_size(group), comm.rank(group), part.numel()
    flat = part.new_empty(m * length)
    flat[r * length : (r + 1) * length] = part
    comm.all_gather(flat, group=group, name=name)
    return flat[: shape.numel()].view(shape)


@dataclass
class Kept:
    """How one tensor argument was kept, and how it comes back.

    Either autograd holds the tensor itself, or `held` is what was taken of it: all of it, or with
    `group` this rank's part. `order` are its dimensions as they lie in memory, outermost first.
    """

    requires_grad: bool
    held: stores.Held | None = None
    group: comm.Group = None
    shape: torch.Size | None = None  # with the dimensions in that order
    order: list[int] | None = None
    name: str = ""

    def restore(self, tensor: Tensor | None, last: bool) -> Tensor:
        """The argument, a leaf of a new graph; `tensor` is what autograd has held.

        If this is the `last` time, a part is freed as soon as the whole has been gathered.
        """
        if self.held is not None:
            tensor = self.held.wait()
            if self.group is not None:
                tensor = gather_parts(tensor, self.shape, self.group, self.name)
                if last:
                    self.held.free()
            back = sorted(range(len(self.order)), key=self.order.__getitem__)
            tensor = tensor.view(self.shape).permute(back)
        return tensor.detach().requires_grad_(self.requires_grad)


def keep(x: Tensor, group: comm.Group, store: stores.Store | None) -> Kept:
    """Keep x: itself, or this rank's part, here or in the store.

    Parameters stay what they are, for they are in memory anyway; so do integers and booleans.
    """
    in_parts = group is not None and comm.world_size(group) > 1
    movable = x.is_floating_point() and not isinstance(x, nn.Parameter)
    if not movable or (store is None and not in_parts):
        return Kept(x.requires_grad)
    # Strides come back too: another order in memory may mean another kernel, and other roundings.
    order = sorted(range(x.dim()), key=lambda d: -x.stride(d))
    flat = x.detach().permute(order)
    kept = Kept(x.requires_grad, shape=flat.shape, order=order)
    if in_parts:
        kept.group = group
        kept.name = f"a checkpoint, equal on all ranks (sum {_checksum(flat)})"
        part = keep_part(flat, group)
    else:
        part = flat.reshape(-1)
    kept.held = stores.InMemory(part) if store is None else store.put(part)
    return kept


def _checksum(x: Tensor) -> str:
    """In the name of the collective it lets gloo ranks notice that they had different tensors."""
    return "unknown" if x.is_cuda else repr(float(x.sum()))
