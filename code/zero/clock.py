"""Where the seconds of a step go: forward, backward, communication, optimizer.

Measured from outside, without a line in the training code: `Clock` puts itself around the model's
forward, `backward`, `opt.step` and the collectives of `comm`, and takes itself away again. Each
second is counted once, for the innermost of them: a gradient exchange inside backward is
communication, and not backward.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from . import comm
from .timeline import Event

PARTS = ("forward", "backward", "communication", "optimizer", "other")
COLLECTIVES = ("reduce_scatter", "all_gather", "all_reduce", "broadcast", "all_gather_small")


@contextlib.contextmanager
def patched(owner: Any, name: str, wrap: Callable[[Callable], Callable]) -> Iterator[None]:
    """Replace `owner.name` by `wrap(owner.name)` inside a `with` block.

    `owner` is a module, a class or an object; an inherited attribute is only covered, and shows
    again afterwards.
    """
    own = name in vars(owner)
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


class Clock:
    """Split the time of the steps inside a `with` block.

        with Clock(model, opt) as clock:
            train(...)
        print(clock.per_step())

    `seconds` maps each of PARTS to its seconds in total, `steps` counts the calls of `opt.step`,
    `events` is the time line. What activation recomputation runs again counts as backward; waiting
    for slower ranks counts as communication. On CUDA each border waits for the device, so that
    work is counted where it was ordered; this slows training down a little.
    """

    def __init__(self, model: nn.Module, opt: torch.optim.Optimizer):
        self.model, self.opt = model, opt
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.steps = 0
        self.events: list[Event] = []
        self._running: list[tuple[str, float]] = []  # part and its start, innermost last
        self._since = 0.0  # when the innermost one last began or went on
        self._started: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._undo = contextlib.ExitStack()

    def per_step(self) -> dict[str, float]:
        """Seconds of each part for one step, and their sum as "step"."""
        steps = max(self.steps, 1)
        split = {part: seconds / steps for part, seconds in self.seconds.items()}
        return {**split, "step": sum(split.values())}

    # --- the block -------------------------------------------------------------------------------

    def __enter__(self) -> Clock:
        put = self._undo.enter_context
        before = self.model.register_forward_pre_hook(self._before_forward, prepend=True)
        after = self.model.register_forward_hook(self._after_forward, always_call=True)
        self._undo.callback(before.remove)
        self._undo.callback(after.remove)
        # Tensor.backward looks this function up each time it is called.
        put(patched(torch.autograd, "backward", self._timed("backward", "backward")))
        put(patched(self.opt, "step", self._timed("optimizer", "optimizer")))
        for op in COLLECTIVES:
            put(patched(comm, op, self._timed("communication", op)))
        put(patched(comm.Work, "wait", self._timed_wait))
        self._begin("other")
        return self

    def __exit__(self, *exception: object) -> None:
        self._undo.close()
        self._finish("", write=False)

    def _before_forward(self, *_: object) -> None:
        self._begin("forward")

    def _after_forward(self, *_: object) -> None:
        self._finish("forward")

    # --- wrapping --------------------------------------------------------------------------------

    def _timed(self, part: str, name: str) -> Callable[[Callable], Callable]:
        def wrap(function: Callable) -> Callable:
            @functools.wraps(function)
            def timed(*args: Any, **kwargs: Any) -> Any:
                start = self._begin(part)
                label = f"{name} {kwargs.get('name', '')}".strip()
                result = None
                try:
                    result = function(*args, **kwargs)
                finally:
                    pending = isinstance(result, comm.Work)
                    self._finish(label, write=not pending)
                    self.steps += part == "optimizer"
                if pending:
                    self._started[result] = (label, start)
                return result

            return timed

        return wrap

    def _timed_wait(self, wait: Callable) -> Callable:
        @functools.wraps(wait)
        def timed_wait(work: comm.Work) -> Any:
            self._begin("communication")
            label, start = self._started.pop(work, ("", 0.0))
            try:
                return wait(work)
            finally:
                end = self._finish(label, write=False)
                if label:
                    self._write("communication", label, start, end)

        return timed_wait

    # --- counting --------------------------------------------------------------------------------

    def _begin(self, part: str) -> float:
        now = self._settle()
        self._running.append((part, now))
        return now

    def _finish(self, name: str, write: bool = True) -> float:
        now = self._settle()
        part, start = self._running.pop()
        # A collective that is made of collectives is one event.
        if write and all(part != outer for outer, _ in self._running):
            self._write(part, name, start, now)
        return now

    def _settle(self) -> float:
        """Give the time since the last border to the part that has been running."""
        now = self._now()
        if self._running:
            self.seconds[self._running[-1][0]] += now - self._since
        self._since = now
        return now

    def _write(self, part: str, name: str, start: float, end: float) -> None:
        self.events.append(Event(part, name, comm.rank(), start, end))

    @staticmethod
    def _now() -> float:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter()
