"""`ZeroOptimizer`: what the stages share.

A stage decides three things: when gradients are averaged and where they end up
(`finish_gradients`), what this rank updates (its slices), and how the updated weights reach the
model on every rank (`publish`). `step` is those three in a row:

    reduce-scatter the gradients  ->  update the shard  ->  all-gather the parameters

Everything else here is the same for stages 0 to 3: which parameters are managed and in what
format, equal start weights, parameter groups, clipping, the loss scale, and the refusal to apply
an update with inf or NaN in it. To its user it is a `torch.optim.Optimizer`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

from . import clip, comm, heap
from .backward import weakly
from .bucket import Bucket, ParamSlice
from .consensus import agree_finite, agree_used, name_nonfinite
from .edit import full_params
from .groups import (
    after_loading,
    check_elementwise,
    check_hyper,
    check_unchanged,
    inner_optimizer,
    named_parameters,
    outer_groups,
    tensor_parallel_group,
)
from .kinds import tensors_by_kind
from .offload import Offload
from .precision import LossScale, policy
from .skip import Skips
from .start import broadcast_from_rank_0


class ZeroOptimizer(torch.optim.Optimizer):
    """An elementwise optimizer whose work is divided among the ranks of `group`.

    All ranks must create it together, with the same model, and call `step`, `clip_grad_norm_` and
    `backward` on it equally often. Rank 0's parameters and buffers are copied to every rank first.

    model: a module, or (stages 0 to 2) an iterable of parameters. optimizer: an elementwise
    optimizer class; `hyper` are its arguments. params: parameter groups as PyTorch takes them.
    precision: "fp32", "bf16" or "fp16". max_skips: how many updates in a row may be skipped for
    inf or NaN before `step` raises FloatingPointError. offload_optimizer, offload_params (stage 3):
    "cpu" or "disk", with files in `offload_folder` (see `offload.py`).

    Raises ValueError for a parameter that cannot be managed, an unknown precision, buckets without
    room, an optimizer that is not elementwise, and groups that leave a trainable parameter out.
    """

    stage: int
    sharded = True  # does each rank own only a part?
    shards_frozen = False  # are frozen parameters divided too?

    def __init__(
        self,
        model: nn.Module | Iterable[nn.Parameter],
        optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
        *,
        params: list[dict] | None = None,
        precision: str = "fp32",
        group: comm.Group = None,
        bucket_bytes: int = 25_000_000,
        naive_reduce: bool = False,
        max_skips: int = 100,
        offload_optimizer: str | None = None,
        offload_params: str | None = None,
        offload_folder: str | None = None,
        pin_memory: bool = False,
        **hyper,
    ):
        self._ready = False
        self.precision = policy(precision)
        check_elementwise(optimizer)
        if not bucket_bytes >= 1:
            raise ValueError(f"bucket_bytes={bucket_bytes} leaves no room; the default is 25000000")
        comm.init()
        self.model = model if isinstance(model, nn.Module) else None
        self.group, self.rank, self.world_size = group, comm.rank(group), comm.world_size(group)
        self.bucket_bytes, self.naive_reduce = bucket_bytes, naive_reduce
        self.offload = Offload(offload_optimizer, offload_params, offload_folder, pin_memory)
        heap.keep_freed_blocks()  # buckets and gathered parameters come and go in every step
        self.names = named_parameters(model)
        self.trainable = [p for p in self.names if p.requires_grad]
        self.tp_group = tensor_parallel_group(self.names, group)
        self.groups = [group] if self.tp_group is None else [group, self.tp_group]
        groups = outer_groups(self.names, params)
        check_hyper(optimizer, groups, hyper)
        for p in self.names:  # from here on the model is changed
            p._zero_owner = self
        self._start_equal()
        self.frozen_buckets: list[Bucket] = []
        self.buckets: list[Bucket] = self.make_buckets()
        self.bucket_of = {p: b for b in self.buckets for p in b.params}
        self.slices: list[ParamSlice] = [s for b in self.buckets for s in b.slices]
        self.inner = inner_optimizer(optimizer, groups, self.slices, hyper)
        for mine, inner in zip(groups, self.inner.param_groups, strict=True):
            mine.update({k: v for k, v in inner.items() if k != "params"})
        super().__init__(groups, dict(self.inner.defaults))
        if offload_optimizer == "disk":
            heap.trim()  # the weights that the model was built with have been freed

        self.loss_scale = LossScale() if self.precision.scaled else None
        self.stepped = True  # did the last `step` change the weights?
        self.steps = 0  # calls of `step`, skipped ones included
        self.skips = Skips(max_skips)  # updates skipped for inf or NaN
        self._reduced = self._scaled = False  # are this step's gradients averaged? its loss scaled?
        self._clippable = True  # False: finite gradients, so large that their norm is inf
        self._used: set[nn.Parameter] = set()  # parameters with a gradient on this rank
        self.passes = 0  # backward passes since zero_grad whose gradients are averaged already
        self.unapplied = False  # has this rank gradients that no step has used?
        for p in self.trainable:
            p.register_post_accumulate_grad_hook(weakly(self._on_gradient))
        if self.model is not None:
            self.model.register_load_state_dict_post_hook(after_loading(self))
        self._ready = True

    # --- what a stage defines -----------------------------------------------------------------

    def make_buckets(self) -> list[Bucket]:
        """The flat buffers of this stage."""
        raise NotImplementedError

    def on_gradient(self, p: nn.Parameter) -> None:
        """`p.grad` has just been accumulated, in the middle of a backward pass."""
        raise NotImplementedError

    def finish_gradients(self) -> None:
        """Leave in every bucket's `owned_grad` the average over the ranks. Collective."""
        raise NotImplementedError

    def publish(self) -> None:
        """Bring the updated masters into the model's parameters on every rank. Collective."""
        raise NotImplementedError

    # --- the optimizer's interface --------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable | None = None):
        """Average the gradients, update this rank's shard, share the result. Collective.

        If any gradient on any rank is inf or NaN, or the norm is by which they were to be clipped,
        nothing moves on any rank: no weight, no moment,
        no counter; `stepped` is then False. So guard a scheduler with it:
        `if opt.stepped: scheduler.step()`. Returns what `closure` returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.reduce()
        self.steps += 1
        finite = agree_finite(self.slices, self.groups) and self._clippable
        if self.loss_scale is not None:
            self.loss_scale.update(overflow=not finite)
        self.stepped = self.skips.allow(finite, self.steps, self.rank == 0, self._nonfinite)
        if self.stepped:
            for mine, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
                inner.update({k: v for k, v in mine.items() if k != "params"})
            self.adopt_edits()
            self.offload.update(self.inner, [s.param for s in self.slices])
            self.publish()
        self.unapplied = False
        return loss

    @torch.no_grad()
    def reduce(self) -> None:
        """Average the gradients over the ranks, once a step; `clip_grad_norm_` and `step` call it.

        Afterwards each slice that belongs to a used parameter has its part of the average as
        `grad`. A parameter that no rank used keeps None, and so is not touched by the update.
        """
        if self._reduced:
            self._check_not_dropped()
            return
        if self.loss_scale is not None and not self._scaled:
            raise RuntimeError("fp16 needs a scaled loss: call opt.scale(loss).backward()")
        check_unchanged(self.names, set(self.trainable), self.buckets)
        self.finish_gradients()
        self._used.update(p for p in self.trainable if p.grad is not None)
        used = agree_used(self.trainable, self._used, self.group)
        factor = 1.0 if self.loss_scale is None else 1.0 / self.loss_scale.scale
        for bucket in self.buckets:
            if factor != 1.0:
                bucket.owned_grad.mul_(factor)
            for s in bucket.slices:
                part = bucket.owned_grad[s.offset : s.offset + s.param.numel()]
                s.param.grad = part.to(s.param.device) if s.whole in used else None
        self._reduced = True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients. Call it between `step` and the next backward pass."""
        for p in self.trainable:
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad.zero_()
        for s in self.slices:
            s.param.grad = None
        self.forget_gradients()
        if set_to_none:
            self._used.clear()
        self._reduced = self._scaled = self.unapplied = False
        self._clippable = True
        self.passes = 0

    @property
    def skipped(self) -> int:
        """How many updates were skipped so far, for inf or NaN in the gradients."""
        return self.skips.count

    def forget_gradients(self) -> None:
        """Reset what a stage keeps of gradients between backward passes."""

    @torch.no_grad()
    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> torch.Tensor:
        """Scale the averaged gradients so that their norm over all ranks is at most `max_norm`.

        Collective. Returns the norm before clipping, fp32, the same on every rank; `grad_norm()`
        gives the one after. A norm of inf or NaN scales nothing: `step` will skip the update, or,
        with `error_if_nonfinite`, RuntimeError names the parameters on every rank. Raises
        ValueError for a `max_norm` or `norm_type` that is not above 0.

        `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)` does not do this: at stages 0 and
        1 it sees one rank's gradients before the average, at stages 2 and 3 none.
        """
        if not max_norm > 0:
            raise ValueError(f"max_norm={max_norm} must be positive")
        norm = self.grad_norm(norm_type)
        self._clippable &= math.isfinite(norm)  # the same on every rank, as the norm is
        clip.scale_down(self._grads(), norm, max_norm)
        if error_if_nonfinite and not math.isfinite(norm):
            raise RuntimeError(f"the gradient norm is {norm}: {self._nonfinite()}")
        return torch.tensor(norm, device=comm.device())

    def grad_norm(self, norm_type: float = 2.0) -> float:
        """The norm of the averaged gradients as they are now, over all ranks. Collective."""
        if not norm_type > 0:
            raise ValueError(f"norm_type={norm_type} must be positive: 2.0, 1.0, math.inf, ...")
        self.reduce()
        whole, cut = self._grads(cut=False), self._grads(cut=True)
        return clip.global_norm(
            whole, float(norm_type), self.group, self.sharded, cut=cut, tp_group=self.tp_group
        )

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale: in fp16 call `opt.scale(loss).backward()`."""
        self._scaled = True
        return loss if self.loss_scale is None else self.loss_scale.apply(loss)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """For loops written for DDP: around all but the last micro-batch of a step.

        Stages 0 and 1 communicate only in `step`, so there is nothing to hold back. Stages 2 and 3
        average after every backward pass, because keeping whole gradients is what they avoid; the
        result is the same, up to rounding.
        """
        yield

    def full_params(self, write_back: bool = False) -> contextlib.AbstractContextManager[None]:
        """A context with whole weights to read; with `write_back`, rank 0's edits are kept.

        Collective. Without `write_back`, an edit raises RuntimeError on every rank at the end.
        """
        return full_params(self, write_back)

    def gather_all(self) -> None:
        """Bring all parameters into memory, where a stage does not keep them there."""

    def release_all(self) -> None:
        """Undo `gather_all`."""

    def backward_aborted(self) -> None:
        """An exception stopped the last backward pass half-way: drop what it has left.

        Raises RuntimeError if earlier micro-batches of this step are averaged already: the two
        cannot be told apart any more.
        """
        if self.passes:
            raise RuntimeError(
                "a backward pass was interrupted after others of the same step were complete; "
                "call opt.zero_grad() and repeat all micro-batches of the step"
            )
        self.forget_gradients()

    @torch.no_grad()
    def adopt_edits(self) -> None:
        """Let weights count that were written by hand since the last step, also in 16 bits."""
        for bucket in self.buckets:
            bucket.adopt_edits()

    @torch.no_grad()
    def load_masters(self) -> None:
        """Make the masters equal to the model's parameters, after these were written by hand."""
        for bucket in self.buckets:
            bucket.refresh_master()

    def tensors(self) -> dict[str, list[torch.Tensor]]:
        """The model states this rank keeps, by kind; tensors may share storage."""
        return tensors_by_kind(self)

    def state_dict(self):
        """Refused: one rank's part looks like a checkpoint and is none."""
        raise RuntimeError(
            f"state_dict() of a ZeRO stage {self.stage} optimizer would hold rank {self.rank}'s "
            f"shard only. Save with zero.checkpoint.save(folder, model, opt, step) on all ranks."
        )

    def load_state_dict(self, state_dict):
        """Refused, as `state_dict` is."""
        raise RuntimeError("load with zero.checkpoint.load(folder, model, opt) on all ranks")

    def add_param_group(self, param_group: dict) -> None:
        """Refused after construction: the shards are cut."""
        if self._ready:
            raise RuntimeError("parameters cannot be added to shards that are cut; shard again")
        super().add_param_group(param_group)

    # --- shared parts ---------------------------------------------------------------------------

    def reduce_bucket(
        self, bucket: Bucket, out: torch.Tensor, async_op: bool = False
    ) -> torch.Tensor | comm.Work:
        """Average `bucket.grad` over the ranks; this rank's part comes into `out`. Collective.

        With `naive_reduce`, by an all-reduce of which all but the own part is thrown away.
        """
        name = f"gradients of {bucket.names[0]}.., step {self.steps + 1}"
        if self.naive_reduce:
            comm.all_reduce(bucket.grad, group=self.group, name=name)
            out = out.copy_(bucket.owned(bucket.grad))
            return comm.Work(out, []) if async_op else out
        return comm.reduce_scatter(bucket.grad, out, group=self.group, name=name, async_op=async_op)

    def _on_gradient(self, p: nn.Parameter) -> None:
        if p.grad.is_sparse:
            raise ValueError(f"{self.names[p]} has a sparse gradient; use sparse=False")
        if self._reduced:
            raise RuntimeError(
                "a backward pass after step() or clip_grad_norm_(): the gradients are already "
                "averaged. Call opt.zero_grad() first."
            )
        self._used.add(p)
        self.unapplied = True
        self.on_gradient(p)

    def _check_not_dropped(self) -> None:
        if any(bucket.owned_grad is None for bucket in self.buckets):
            raise RuntimeError(
                "step() has used these gradients, and 16-bit training does not keep them: call "
                "opt.zero_grad() and loss.backward() before the next step()"
            )

    def _start_equal(self) -> None:
        frozen = [p for p in self.names if not (p.requires_grad or self.shards_frozen)]
        buffers = list(self.model.buffers()) if self.model else []
        broadcast_from_rank_0(buffers + frozen, self.group)
        for p in frozen:
            p.data = p.data.to(self.precision.param(p.dtype))

    def _nonfinite(self) -> str:
        return name_nonfinite(self.names, self.trainable, self.slices, self.groups)

    def _grads(self, cut: bool | None = None) -> list[torch.Tensor]:
        """The slices' gradients; of parameters that tensor parallelism has cut, or has not."""
        return [
            s.param.grad
            for s in self.slices
            if s.param.grad is not None and cut in (None, hasattr(s.whole, "tp_cut"))
        ]
