"""Activation checkpointing, partitioned over tensor-parallel ranks, offloaded (ZeRO-R, section 6).

Backward needs the activations of forward, and they take more memory than anything that ZeRO shards.
Checkpointing keeps of every block only its input, the *checkpoint*, and runs the block again when
backward reaches it: one more forward, about a third more time (Chen et al. 2016, "Training Deep
Nets with Sublinear Memory Cost"). The second run must do what the first did, so it gets the same
random numbers, the same autocast, the same arguments in all their forms.

With tensor parallelism the checkpoint is *replicated*: every rank of the group holds the same
input, bit for bit. So each may keep 1/M of it and gather the rest from the others just before the
block runs again (P_a). That is right over tensor-parallel ranks only: the ranks of a data-parallel
group work on different batches, and none of them could return what another has lost.

What a rank keeps need not be in device memory: it can wait in host memory or in a file (P_a+cpu),
and is fetched one block before it is needed, or in a block reserved beforehand (M_D).

`checkpoint` is for one block, `checkpoint_blocks` for a model.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from . import comm, stores
from .conditions import Conditions
from .nested import take_apart
from .partition import Kept, keep
from .reserve import Reserve


def checkpoint(
    block: Callable,
    *args: object,
    partition: comm.Group = None,
    offload: str | stores.Store | None = None,
    reserve: Reserve | None = None,
    **kwargs: object,
) -> object:
    """block(*args, **kwargs), of whose insides nothing is kept: backward runs it again.

    Arguments and results may be tensors, and lists, tuples, dicts and dataclasses of them, with
    anything else in between. The gradients are bitwise those of the block itself.

    partition: a tensor-parallel group, over which the floating-point arguments are replicated;
        each rank keeps 1/M of them. Backward is then collective.
    offload: "cpu" (pinned host memory; without a CUDA device it is a plain copy), "disk" (a
        temporary file), or a store (see `stores`).
    reserve: keep them in this block of memory.

    Not for `torch.autograd.grad` and double backward, which raise RuntimeError. Raises RuntimeError
    if the block changes an argument in place, TypeError if it returns no tensor, and what a store
    raises; with partition on gloo, MismatchError in backward if the ranks had different arguments.
    """
    tensors, rebuild = take_apart((args, kwargs))
    if not torch.is_grad_enabled() or not _needs_gradient(block, tensors):
        return block(*args, **kwargs)
    store = _choose_store(offload, reserve)
    call = Call(block, rebuild, Conditions(tensors), partition, store)
    # Autograd records a Function only if one of its inputs needs a gradient.
    anchor = torch.empty(0, requires_grad=True)
    outputs = Recompute.apply(call, anchor, *tensors)
    return call.rebuild_outputs(outputs)


def checkpoint_blocks(model: nn.Module, **options) -> nn.Module:
    """Checkpoint every block of `model`, that is every child of a ModuleList; returns the model.

    `options` are `partition`, `offload` and `reserve` of `checkpoint`. Names, weights and results
    stay the same. Call it once, after `parallelize`, before or after `zero.shard`. Raises
    ValueError if there is no ModuleList or if it was called before.
    """
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    blocks = [block for blocks in lists for block in blocks]
    if not blocks:
        raise ValueError(f"{type(model).__name__} has no ModuleList of blocks to checkpoint")
    for block in blocks:
        if "forward" in vars(block):
            raise ValueError(f"a {type(block).__name__} of this model is checkpointed already")
        block.forward = functools.partial(checkpoint, block.forward, **options)
    return model


# --- forward and backward ------------------------------------------------------------------------


class Recompute(torch.autograd.Function):
    """A call of a block that autograd sees as one operation."""

    @staticmethod
    def forward(ctx, call: Call, anchor: Tensor, *tensors: Tensor):
        """Run the block without a graph; keep what is needed to run it again."""
        ctx.call = call
        ctx.set_materialize_grads(False)
        versions = [t._version for t in tensors]
        ctx.save_for_backward(*call.keep(tensors))
        outputs, call.rebuild_outputs = take_apart(call.run(tensors))
        call.conditions.forget_unused_random()
        if [t._version for t in tensors] != versions:
            raise RuntimeError(f"{call.name} changes an argument in place: it cannot run again")
        if not outputs:
            raise TypeError(f"no tensor was found in what {call.name} returned")
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor | None):
        """Run the block again, now with a graph, and go backward through that graph."""
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError(
                "a checkpointed block adds to the .grad of its parameters; use loss.backward() "
                "without `inputs`, not torch.autograd.grad"
            )
        call, last = ctx.call, not torch._C._autograd._get_current_graph_task_keep_graph()
        if call.kept is None:
            raise RuntimeError(
                f"a second backward pass through {call.name}: the first one needed "
                f"retain_graph=True"
            )
        try:
            inputs = call.restore(ctx.saved_tensors, last)
            into_inputs = recompute(call, inputs, grads)
        finally:
            if last:
                call.forget()
        return None, None, *into_inputs


def recompute(
    call: Call, inputs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Run the block again on `inputs`, now with a graph, and go backward through that graph.

    `inputs` are leaves: nothing is behind them. `grads` are the gradients of the tensors that the
    block returned, in order, one for each (whole numbers too), None where none has come. Those of
    weights are added to their `.grad`, as always; those of `inputs` are returned, in order, None
    where there is none.

    The second run, `call.run(inputs)` with all of `inputs` in one list, has the conditions of the
    first, so it draws the same random numbers. Afterwards the random state is what it was before:
    backward must not change what the program draws next. Only the run has these conditions; going
    backward comes after it, outside of them, as it does without a checkpoint.

    One backward pass goes through all outputs together. An output that needs no gradient (a whole
    number, a detached tensor) takes no part, even if one has come for it, nor does an output whose
    gradient is None: what only such outputs depend on gets no gradient, not zeros. In the end
    nothing of the second run is left in memory but gradients.
    """
    with torch.enable_grad(), call.conditions.restored():
        outputs, _ = take_apart(call.run(inputs))
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    return [x.grad for x in inputs]


class Call:
    """One call of a block: what is needed to make it a second time.

    `kept` says for every tensor argument where it is.
    """

    latest: weakref.ref[Call] | None = None

    def __init__(
        self,
        block: Callable,
        rebuild: Callable,
        conditions: Conditions,
        partition: comm.Group,
        store: stores.Store | None,
    ):
        self.block, self.rebuild, self.conditions = block, rebuild, conditions
        self.partition, self.store = partition, store
        self.name = type(getattr(block, "__self__", block)).__name__
        if self.name == "function":
            self.name = block.__name__
        self.kept: list[Kept] | None = None
        self._previous: weakref.ref[Call] | None = None

    @property
    def previous(self) -> Call | None:
        """The call before this one that put something into a store; None if there is none (now).

        Backward goes from the last call to the first, so it needs what that one has put there next.
        """
        return self._previous and self._previous()

    def run(self, tensors: Sequence[Tensor]) -> object:
        """The block's result for these tensor arguments."""
        args, kwargs = self.rebuild(tensors)
        return self.block(*args, **kwargs)

    def keep(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Fill `kept` and the store; return the tensors that autograd is to hold."""
        self.kept = [keep(t, self.partition, self.store) for t in tensors]
        if self.store is not None:
            self._previous, Call.latest = Call.latest, weakref.ref(self)
        return [t for t, kept in zip(tensors, self.kept) if kept.held is None]

    def restore(self, saved: Sequence[Tensor], last: bool) -> list[Tensor]:
        """The tensor arguments again, in order, without a graph behind them.

        What waits in a store is fetched: first this call's own, then, before anything is waited
        for, the previous call's, which arrives while this block is recomputed; in every pass, and
        also if this call has nothing in a store. No other's: each takes memory from then on.
        `saved` are the arguments that autograd has held, in order. `last` says whether this is
        their last backward pass, after which parts may be freed.
        """
        self.fetch()
        if self.previous is not None:
            self.previous.fetch()
        rest = iter(saved)
        return [k.restore(next(rest) if k.held is None else None, last) for k in self.kept]

    def fetch(self) -> None:
        """Start to bring back what is in a store."""
        for k in self.kept or ():
            if k.held is not None:
                k.held.fetch()

    def forget(self) -> None:
        """Backward is over: give all memory back, though the graph may live on."""
        for k in self.kept or ():
            if k.held is not None:
                k.held.free()
        self.kept = self.conditions.random = None


# --- helpers -------------------------------------------------------------------------------------


def _choose_store(
    offload: str | stores.Store | None, reserve: Reserve | None
) -> stores.Store | None:
    if reserve is None:
        return stores.named(offload) if isinstance(offload, str) else offload
    if offload is not None:
        raise ValueError("offload and reserve are two places for one checkpoint; choose one")
    return reserve


def _needs_gradient(block: Callable, tensors: Sequence[Tensor]) -> bool:
    """Can anything in this call need a gradient? Of a plain function one cannot know."""
    module = getattr(block, "__self__", block)
    weights = module.parameters() if isinstance(module, nn.Module) else [None]
    return any(w is None or w.requires_grad for w in [*tensors, *weights])
