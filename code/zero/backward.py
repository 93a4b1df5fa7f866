"""The end of a backward pass, for stages that must finish something there.

Autograd has no "after backward" hook, but its engine takes callbacks while a pass is running, and
runs them when that pass is over. The place to register one is a hook on the model's output: it is
the first thing to run, and it runs in the outermost pass. (A checkpointed block runs a pass of its
own inside, and a callback registered there would come too early.)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import nn
from torch.autograd import Variable

from .nested import tensors_in


def running() -> bool:
    """Is a backward pass running in this thread?"""
    return torch._C._current_graph_task_id() != -1


def weakly(method: Callable) -> Callable:
    """A function that calls the method and does not keep its object alive.

    For hooks that run after a gradient was accumulated: Python's garbage collector does not see
    through them (torch 2.13), so an object that they hold would never be freed.
    """
    ref = weakref.WeakMethod(method)
    return lambda *args: ref()(*args)


class BackwardEnd:
    """Calls `then` once at the end of every backward pass through `model`.

    `aborted` is called when a new forward pass begins although the last backward pass never came
    to its end: an exception stopped it.
    """

    def __init__(self, model: nn.Module | None, then: Callable, aborted: Callable):
        self.then, self.aborted, self.armed = then, aborted, False
        if model is not None:
            # Functions, because `copy.deepcopy(model)` would copy bound methods, and this object
            # with them. The copy has these hooks too; there they do nothing.
            model.register_forward_pre_hook(lambda m, _: self._forward_begins(m is model))
            model.register_forward_hook(lambda m, _, out: self._watch_output(out, m is model))

    def arm(self) -> None:
        """Ask for the callback; call it from inside a backward pass, any number of times."""
        if not self.armed:
            self.armed = True
            Variable._execution_engine.queue_callback(self._end)

    def disarm(self) -> None:
        """Forget a pass that an exception stopped."""
        self.armed = False

    def _end(self) -> None:
        self.armed = False
        self.then()

    def _forward_begins(self, own: bool) -> None:
        if own and self.armed and not running():
            self.armed = False
            self.aborted()

    def _watch_output(self, output: object, own: bool) -> None:
        for t in tensors_in(output) if own else []:
            if t.requires_grad:
                t.register_hook(lambda grad: self.arm())
