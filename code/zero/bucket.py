"""A bucket: parameters that share one flat buffer, and this rank's shard of it.

The model's parameters become views into `flat`. What this rank's optimizer updates is `master`:
in fp32 training a view of the rank's own range of `flat`, in 16-bit training an fp32 copy of it.
The optimizer does not see one long tensor but a list of slices, one for every parameter that
crosses the rank's range, each a Parameter that views `master`. So weight decay by group, a step
counter for each parameter, and parameters that were not used in a step work as they do in PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from . import comm
from .flat import FlatLayout, Slice
from .offload import Offload
from .precision import Precision


@dataclass
class ParamSlice:
    """What this rank's optimizer holds of one parameter.

    `param` [end - start] views elements [start, end) of the flattened master of the parameter
    called `name`, which is the model's parameter `whole`.
    """

    name: str
    start: int
    end: int
    param: nn.Parameter
    whole: nn.Parameter
    offset: int


class Bucket:
    """One flat buffer. `named` are (name, parameter) of one dtype; all ranks must pass the same.

    With `sharded=False` (plain data parallelism) every rank owns the whole buffer. With
    `resident=False` (ZeRO-3) the shard is memory of its own, so that `flat` can be freed.

    Attributes: `layout`; `flat` [padded_numel] and `shard` [owned] in the model's dtype; `master`
    [owned] in the optimizer's dtype, the same tensor as `shard` where no master copy is needed;
    `slices`; `grad`, the gradients of the whole bucket or None; `owned_grad` [owned], the averaged
    gradient of what this rank owns, or None.
    """

    def __init__(
        self,
        named: list[tuple[str, nn.Parameter]],
        group: comm.Group,
        precision: Precision,
        sharded: bool = True,
        resident: bool = True,
        offload: Offload | None = None,
    ):
        self.names = [name for name, _ in named]
        self.params = [p for _, p in named]
        self.index = {p: i for i, p in enumerate(self.params)}
        self.group, self.sharded = group, sharded
        self.rank = comm.rank(group)
        self.layout = FlatLayout(((n, p.shape) for n, p in named), comm.world_size(group))
        self.trainable = self.params[0].requires_grad
        original = self._pack(self.params)
        comm.broadcast(original, group=group, name="start weights")
        self.flat = original.to(precision.param(original.dtype))
        self.shard = self.owned(self.flat)
        self.offload = offload or Offload()
        if not resident:
            self.shard = self.offload.place_shard(self.shard.clone())
        wants_master = precision.param_dtype is not None or self.offload.needs_master(self.flat)
        self.has_master = self.trainable and wants_master
        self.master = self.shard
        if self.has_master:
            master = self.owned(original).to(precision.master(original.dtype), copy=True)
            self.master = self.offload.place_master(master)
        self._point_params_into(self.flat)
        self.resident = resident
        self._note_versions()
        self.slices = self.make_slices() if self.trainable else []
        self.grad: torch.Tensor | None = None
        self.owned_grad: torch.Tensor | None = None
        self.missing = set(self.params)  # parameters without a gradient in this backward pass

    def owned(self, flat: torch.Tensor) -> torch.Tensor:
        """This rank's range of a buffer laid out like `flat`: a view."""
        return self.layout.shard(flat, self.rank) if self.sharded else flat

    def move(self) -> None:
        """Give `flat` new memory, not filled yet; whoever sees the old one keeps what is there."""
        with torch.inference_mode(False), torch.no_grad():
            self.flat = torch.empty_like(self.flat)
            self._point_params_into(self.flat)

    def check_views(self) -> None:
        """Raise RuntimeError, naming the parameter, if one in memory is no view of `flat` any more.

        `model.double()`, `model.to(...)` and `p.data = ...` give a parameter data of its own, which
        the optimizer would never update.
        """
        if not self.flat.untyped_storage().nbytes():
            return  # released: nobody can exchange the data then
        start, size = self.flat.data_ptr(), self.flat.element_size()
        for p, span in zip(self.params, self.layout.spans, strict=True):
            moved = p.numel() and p.data_ptr() != start + span.start * size
            if moved or p.dtype != self.flat.dtype:
                raise RuntimeError(
                    f"the data of parameter {span.name} was exchanged after sharding (by "
                    f"model.to(), .double() or p.data = ...), so that the optimizer would not "
                    f"update it. Convert the model before zero.shard; write values with p.copy_()"
                )

    def refresh_shard(self) -> None:
        """After an update of `master`: copy it into the shard, rounded to the model's dtype.

        Where the two are one tensor there is nothing to copy. Where they are not, the average is a
        tensor of its own too: it is dropped now if the whole gradients are kept beside it.
        """
        if self.has_master:
            self.shard.copy_(self.master, non_blocking=True)
            self._note_versions()
            if self.grad is not None:
                self.drop_owned_grad()
        self.offload.release(self.shard, self.master)

    def refresh_master(self) -> None:
        """Make the master equal to the shard, after the model's weights were written by hand."""
        if self.has_master:
            self.master.copy_(self.shard)
            self._note_versions()
            self.offload.release(self.master)

    def adopt_edits(self) -> None:
        """Take weights that were written by hand into the master; `refresh_shard` would undo them.

        Where the value is still that of the master, rounded, the master is left alone: it knows
        more digits. Each rank looks for itself, so all must have written the same. Not seen is what
        goes through `p.data`. At ZeRO-3 weights can be written only inside of
        `full_params(write_back=True)`, which sees to it.
        """
        if not (self.has_master and self.resident):
            return
        for s in self.slices:
            if s.whole._version != self._versions[s.whole]:
                found = s.whole.detach().reshape(-1)[s.start : s.end]
                edited = found != s.param.to(found)
                s.param.copy_(
                    torch.where(edited, found.to(s.param.dtype), s.param.to(found.device))
                )
        self._note_versions()

    def owned_parts(self) -> list[Slice]:
        """What this rank owns of each parameter, in flat order; nothing empty.

        With `sharded=False` that is every parameter as a whole.
        """
        if self.sharded:
            return self.layout.slices(self.rank)
        spans = [s for s in self.layout.spans if s.end > s.start]
        return [Slice(s.name, 0, s.end - s.start, s.start) for s in spans]

    def make_slices(self) -> list[ParamSlice]:
        """A Parameter for every part of a parameter that this rank owns: a view of `master`.

        `self.owned_parts()` lists the parts in flat order; each has a `name`, the range
        [`start`, `end`) of elements inside the flattened parameter, and its `offset` in
        `self.master` [owned], which is one-dimensional and holds this rank's elements only. For
        each part return a `ParamSlice(name, start, end, param, whole, offset)`, in the same order:

        * `param` is an `nn.Parameter` that shares the memory of its elements in `self.master`: what
          the optimizer writes into it stands in the master, with no copy;
        * `whole` is the model's parameter of that name. `self.names` and `self.params` are lists of
          all names and parameters of the bucket, one beside the other.
        """
        whole = dict(zip(self.names, self.params, strict=True))
        made = []
        for part in self.owned_parts():
            elements = self.master[part.offset : part.offset + part.end - part.start]
            param = nn.Parameter(elements)
            made.append(
                ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
            )
        return made

    def keep_gradient(self, p: nn.Parameter) -> None:
        """Move `p.grad` into its place in `grad`, and leave `p.grad` as a view of it.

        A second micro-batch then accumulates in place.
        """
        view = self.grad_views()[self.index[p]]
        if p.grad.data_ptr() != view.data_ptr() or p.grad.dtype != view.dtype:
            if p.dtype != view.dtype:
                self.check_views()
            view.copy_(p.grad)
            p.grad = view

    def move_gradient(self, p: nn.Parameter) -> None:
        """Move `p.grad` into its place in `grad`, and leave nothing in `p.grad`.

        A parameter can come twice in one backward pass (recomputed blocks that share it): its
        second gradient is added.
        """
        view = self.grad_views()[self.index[p]]
        if p in self.missing:
            view.copy_(p.grad)
            self.missing.remove(p)
        else:
            view.add_(p.grad)
        p.grad = None

    def close_gradients(self) -> None:
        """Make `grad` ready to be averaged, and await the next backward pass's gradients."""
        views = self.grad_views()
        for p in self.missing:
            views[self.index[p]].zero_()
        self.grad[self.layout.numel :].zero_()
        self.missing = set(self.params)

    def complete_gradients(self) -> None:
        """Make `grad` ready to be averaged: zero where this rank has no gradient.

        Another rank may have one; the average counts the missing one as zero.
        """
        for p, view in zip(self.params, self.grad_views(), strict=True):
            if p.grad is None:
                view.zero_()
            else:
                self.keep_gradient(p)
        self.grad[self.layout.numel :].zero_()

    def grad_views(self) -> list[torch.Tensor]:
        """One view of `grad` for each parameter, in its shape; `grad` is made when it is None."""
        if self.grad is None:
            self.grad = self.flat.new_empty(self.layout.padded_numel)
            self._views = list(self.layout.views(self.grad).values())
        return self._views

    def drop_owned_grad(self) -> None:
        """Give the memory of the averaged gradient back, after the update."""
        for s in self.slices:
            s.param.grad = None
        self.owned_grad = None

    def free_grad(self) -> None:
        """Give the memory of `grad` back."""
        self.grad, self._views = None, []
        self.missing = set(self.params)

    def _pack(self, params: list[nn.Parameter]) -> torch.Tensor:
        padding = params[0].new_zeros(self.layout.padding)
        return torch.cat([p.detach().reshape(-1) for p in params] + [padding])

    def _note_versions(self) -> None:
        """A tensor's version counts the writes to it. Ours go through `flat`, and do not count."""
        if self.resident:
            self._versions = {p: p._version for p in self.params}

    def _point_params_into(self, flat: torch.Tensor) -> None:
        for p, view in zip(self.params, self.layout.views(flat).values(), strict=True):
            p.data = view
