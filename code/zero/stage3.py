"""ZeRO-3: the parameters are sharded as well (P_os+g+p in the paper, section 5.3).

At rest a rank holds 1/N of everything. The model is divided into units (its blocks), and a unit's
whole parameters are on a rank only while the unit computes:

    before a unit's forward     gather its parameters          (all-gather, Ψ in all)
    after it                    release them
    before its backward         gather them again              (all-gather, Ψ)
    after it                    reduce its gradients           (reduce-scatter, Ψ)
                                release it

So a step sends 3Ψ instead of 2Ψ, and there is nothing to publish after the update: the next gather
brings the new weights. One unit ahead is gathered early (prefetch), in the order of the pass
before; so two units are in memory at a time, and the network works while the processor does.

The moments come from hooks: before and after each unit's forward, on its outputs (their gradient
arrives: the unit's backward begins) and on its inputs (their gradient is complete: it is over).
Units that cannot tell when they are over (no input needs a gradient, a parameter was not used) are
closed when the whole backward pass ends.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .backward import BackwardEnd, running
from .bucket import Bucket
from .cut import cut
from .flight import Flight
from .groups import refuse_gradients_set_by_hand
from .meta import allocate_on_demand, materialize
from .optimizer import ZeroOptimizer
from .outputs import Leaving
from .prefetch import Prefetcher
from .released import cannot_free, refuse_second_order, warn_of_autocast
from .unit import Unit


class Call:
    """One forward pass through a unit's module, as its backward pass will need to know it."""

    def __init__(self, unit: Unit, inputs: list[torch.Tensor], over: Callable[[Call], None]):
        self.unit, self.over = unit, over
        self.begun = False  # has the backward pass reached it?
        self.inputs = self.waiting = len(inputs)  # waiting: their gradient is not complete
        self.handles = [t.register_hook(self._input_done) for t in inputs]

    def _input_done(self, grad: torch.Tensor) -> None:
        self.waiting -= 1
        if self.waiting == 0:
            for handle in self.handles:  # an input may be a leaf that outlives this graph
                handle.remove()
            self.over(self)


class Zero3(ZeroOptimizer):
    """Parameters, gradients and optimizer states sharded.

    Memory per rank, Ψ parameters with Adam: fp32 16Ψ/N bytes, 16-bit 18Ψ/N (fp32 gradients of the
    shard), and at most two neighbouring units in full. Sends 3Ψ (N-1)/N elements a step.

    units: module classes that become units; by default the blocks (see `cut.find_units`). init: for
    a model on the meta device, called with each module that holds parameters to set its values; by
    default the module's own `reset_parameters()`. The full model then never exists on any rank.

    Outside of its module's forward and backward a parameter has no data and no `grad`, so what
    reads these (`torch.nn.utils.clip_grad_norm_`, for one) must be asked of the optimizer. Under
    `torch.autocast` 16-bit copies of all weights stay until backward: `precision` is the way here.
    """

    stage = 3
    shards_frozen = True

    def __init__(
        self,
        model: nn.Module,
        optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
        *,
        units: list[type] | None = None,
        init: Callable[[nn.Module], None] | None = None,
        **options,
    ):
        if not isinstance(model, nn.Module):
            raise ValueError("stage 3 gathers modules; give it the model, not its parameters")
        self.unit_classes, self.init = units, init
        self.on_demand = allocate_on_demand(model)
        super().__init__(model, optimizer, **options)

    # --- units ----------------------------------------------------------------------------------

    def make_buckets(self) -> list[Bucket]:
        """Cut the model into units, one after the other, and release each as soon as it is cut."""
        self.flight = Flight(self)
        self.prefetcher = Prefetcher()
        self.backward_end = BackwardEnd(self.model, self.end_backward, self.backward_aborted)
        self.pinned = False  # inside `full_params`: nothing is released
        self.begun: list[Call] = []  # calls that the running backward pass has reached
        parts = cut(self.model, self.unit_classes)
        self.units: list[Unit] = []
        for part in parts:
            if self.on_demand:
                materialize(part.module, part.own, self.init)
            named = [(self.names[p], p) for p in part.own]
            how = self.group, self.precision, self.offload, lambda: self.steps + 1
            self.units.append(Unit(part.name, part.module, named, *how))
        self.unit_of = {p: u for u in self.units for b in u.buckets for p in b.params}
        for part, unit in zip(parts, self.units, strict=True):
            owners = [self.unit_of[p] for p in part.tied]
            unit.needs = list(dict.fromkeys([unit, *owners]))
            self._hook(unit, part.modules)
        self.model.register_forward_hook(lambda m, *_: self._model_done(m), always_call=True)
        self.frozen_buckets = [b for u in self.units for b in u.frozen]
        return [b for u in self.units for b in u.trainable]

    def _hook(self, unit: Unit, modules: list[nn.Module]) -> None:
        calls: list[tuple] = []  # (Call or None, Leaving) of each running pass, innermost last

        @torch.compiler.disable  # what gathers and releases is not to be compiled
        def before(module, args, kwargs):
            if module is unit.module:  # and no copy of it, which has its hooks
                leaving = Leaving(modules, [args, kwargs], torch.is_grad_enabled())
                calls.append((self.before_forward(unit, leaving.inputs), leaving))

        @torch.compiler.disable
        def after(module, args, output):
            if module is not unit.module or not calls:
                return output
            call, leaving = calls.pop()
            try:
                output = output if self.pinned else unit.copy_views(output)
            finally:  # whatever happens, release the unit
                self.after_forward(unit, call, leaving.close(output))
            return output

        unit.module.register_forward_pre_hook(before, with_kwargs=True)
        # always_call: also when forward raises, so that an exception leaves nothing gathered.
        unit.module.register_forward_hook(after, always_call=True)

    # --- the moments ----------------------------------------------------------------------------

    def before_forward(self, unit: Unit, inputs: list[torch.Tensor]) -> Call | None:
        """Gather the unit; start to gather the next. In a recomputation it may be there already."""
        recomputing = running()
        if not recomputing:
            self.prefetcher.needed("forward", unit)
        for u in unit.needs:
            u.running += 1
            u.gather()
        if not recomputing:
            self.prefetcher.start_next("forward")
        if not torch.is_grad_enabled():
            return None
        if not recomputing:
            warn_of_autocast(unit.module, [bucket.flat for bucket in unit.trainable])
        return Call(unit, [t for t in inputs if t.requires_grad], self.backward_over)

    def after_forward(self, unit: Unit, call: Call | None, outputs: list[torch.Tensor]) -> None:
        """Release the unit, and let the gradient of its outputs, which have one, call it back."""
        for t in outputs:
            t.register_hook(lambda grad: self._output_gradient(call))
        for u in unit.needs:
            u.running -= 1
            if outputs and running():
                u.open = True  # recomputed: its backward comes right now
        self._release(*unit.needs)

    def _output_gradient(self, call: Call) -> None:
        """The gradient of an output has arrived; the first one begins the unit's backward."""
        if not self.pinned:
            refuse_second_order(call.unit.name)
        self.backward_end.arm()
        if not call.begun:
            call.begun = True
            self.begun.append(call)
            self.before_backward(call)

    def before_backward(self, call: Call) -> None:
        """The backward of `call.unit` is about to begin: bring its parameters here. Collective.

        * Tell `self.prefetcher.needed("backward", call.unit)`, so that it learns the order.
        * For every unit `u` in `call.unit.needs` (the unit, and the owners of weights tied into
          it): set `u.open`, so that nobody releases it before `close`; if `call.waiting` is not 0
          (the number of inputs whose gradient is not computed yet), add `call` to the set
          `u.backward_calls`, so that `u` is not closed before they are; then `u.gather()`.
        * Call `self.prefetcher.start_next("backward")`, which starts to gather the unit that
          comes next (in the first step it knows none), after all that is needed now, but only if
          exactly one of `self.units` has `open` set: never three in memory, unless one of them owns
          a tied weight.
        """
        self.prefetcher.needed("backward", call.unit)
        for u in call.unit.needs:
            u.open = True
            if call.waiting:
                u.backward_calls.add(call)
            u.gather()
        if sum(u.open for u in self.units) == 1:
            self.prefetcher.start_next("backward")

    def on_gradient(self, p: nn.Parameter) -> None:
        """Put the gradient into the unit's bucket; close the unit if it was the last one."""
        self.backward_end.arm()
        bucket, unit = self.bucket_of[p], self.unit_of[p]
        if bucket is self.flight.bucket:
            self.flight.land()
        unit.open = True
        bucket.move_gradient(p)
        self.close_if_done(unit)

    def backward_over(self, call: Call) -> None:
        """The gradients of all inputs of a call are complete: nothing is left to compute in it."""
        for u in call.unit.needs:
            u.backward_calls.discard(call)
            self.close_if_done(u)

    def end_backward(self) -> None:
        """The whole backward pass is over: close the units that could not tell that they were."""
        for unit in reversed(self.units):
            if unit.open:
                self.close(unit)
        self.flight.land()
        self.prefetcher.pass_over("backward")
        for call in self.begun:
            call.begun, call.waiting = False, call.inputs  # it may run again (retain_graph)
        self.begun = []
        self.passes += 1

    def _model_done(self, module: nn.Module) -> None:
        if module is self.model and not running():
            self.prefetcher.pass_over("forward")

    # --- transitions ----------------------------------------------------------------------------

    def close_if_done(self, unit: Unit) -> None:
        if unit.open and not unit.missing and not unit.backward_calls:
            self.close(unit)
            self.prefetcher.start_next("backward")

    def close(self, unit: Unit) -> None:
        """The unit's backward is over: send its gradients off, release its parameters. Collective.

        * `unit.open` becomes False, and the set `unit.backward_calls` empty.
        * `self.flight.start(bucket)` for every bucket of `unit.trainable`, in order: it starts the
          reduce-scatter of `bucket.grad`, with zeros for missing gradients, also if this rank has
          none at all (None): another may have some. It lands the one that was on its way before;
          nobody waits for this one here.
        * `self._release(unit)`, which releases the unit unless somebody still needs it (a forward
          pass that runs, `full_params`, or `unit.open`).
        """
        unit.open = False
        unit.backward_calls.clear()
        for bucket in unit.trainable:
            self.flight.start(bucket)
        self._release(unit)

    def _release(self, *units: Unit) -> None:
        """Release each of these that nobody needs any more.

        Raises RuntimeError, afterwards, for parameters whose memory cannot be freed. They are in
        new memory then, so that the optimizer can go on.
        """
        units = [u for u in units if not (self.pinned or u.open or u.running)]
        shown = [b for u in units for b in u.shown]
        for bucket in shown:
            bucket.move()
        for unit in units:
            unit.release()
        if shown:
            raise cannot_free([name for b in shown for name in b.names])

    # --- what the optimizer asks of a stage -----------------------------------------------------

    def finish_gradients(self) -> None:
        """Nothing is left to average; a bucket that never had a gradient counts as zero."""
        refuse_gradients_set_by_hand(self.names)
        for bucket in self.buckets:
            if bucket.owned_grad is None:
                bucket.owned_grad = torch.zeros_like(bucket.master)

    def publish(self) -> None:
        """Only a 16-bit shard must be refreshed; the next gather brings it to the others."""
        for bucket in self.buckets:
            bucket.refresh_shard()

    def forget_gradients(self) -> None:
        """Drop the averages, and whatever an interrupted backward pass has left behind."""
        self.flight.land()
        self.prefetcher.forget_pass()
        self.backward_end.disarm()
        self.begun = []
        for unit in self.units:
            unit.open = False
            unit.backward_calls.clear()
            for bucket in unit.trainable:
                bucket.owned_grad = None
                bucket.free_grad()
        self._release(*self.units)

    def gather_all(self) -> None:
        """Every unit in full, until `release_all`; collective."""
        self.pinned = True
        self.prefetcher.drop()  # else it would release the unit when another one is needed first
        for unit in self.units:
            unit.gather()

    def release_all(self) -> None:
        """Back to shards only."""
        self.pinned = False
        self._release(*self.units)
