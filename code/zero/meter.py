"""Bytes that live on this rank, by kind, at every moment: measured from outside.

A tensor is a view; the memory belongs to its *storage*. `Meter` follows storages. Inside its
`with` block PyTorch hands it every operation (a `TorchDispatchMode`), in forward, in backward and
in the optimizer, on whatever thread backward runs. Each storage that an operation returns or
takes is followed by a weak reference, so it is counted once however many views it has, and its
end is noticed the moment the last view is gone. Storages that are resized in place, as ZeRO-3
does with parameters that are not needed now, are noticed too.

The total never relies on anybody's word. Only the names of the kinds come from elsewhere: from
`model.parameters()`, from `.grad`, from the optimizer's states, from the module in which a tensor
was created. What no one claims is called "activations".

Not seen: memory that a fused kernel uses inside one operation, the buffers of gloo and NCCL, and
Python itself. `rss` gives what the operating system says about the whole process, `Meter.cuda_peak`
what CUDA's allocator says.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from .clock import Clock, patched
from .timeline import KINDS, Event, History, Moment
from .traffic import sent_by_op

__all__ = ["KINDS", "Clock", "Event", "Meter", "Moment", "rss", "sent_by_op"]

# Temporary tensors that nobody claims belong to what creates them: the module, or the function in
# it, of the innermost frame outside torch.
_CREATORS = {
    "zero.adam": "optimizer",
    "zero.bucket": "parameters",
    "zero.bucket.grad_views": "gradients",
    "zero.comm": "communication",
    "zero.exchange": "communication",
    "zero.messages": "communication",
    "zero.flight": "gradients",
}


class _Storage:
    """One followed storage; `serial` is its number in the history."""

    __slots__ = ("nbytes", "ref", "serial")

    def __init__(self, serial: int, ref: weakref.ref):
        self.serial, self.ref, self.nbytes = serial, ref, 0


class Meter(TorchDispatchMode):
    """Follow all tensor memory of this rank inside a `with` block.

        with Meter(model, opt) as meter:
            train(...)
            print(meter.live(), meter.peak)

    `model` (a module) and `opt` (any torch optimizer) are what exists already; `watch` adds more.
    Other tensors made before the block count from their first use in it. Metering makes a
    small model about twice as slow: measure time in another run, with `Clock`.

    `current` and `peak` are total bytes; `cuda_peak` is the CUDA allocator's peak since the start
    of the block, or None if that is not in use. After the block nothing new is seen, only what is
    freed.
    """

    def __init__(self, model: nn.Module | None = None, opt: torch.optim.Optimizer | None = None):
        super().__init__()
        self.current = self.peak = 0
        self._live: dict[int, _Storage] = {}  # by the address of the storage
        self._history = History()
        self._models: list[weakref.ref[nn.Module]] = []
        self._opts: list[weakref.ref[torch.optim.Optimizer]] = []
        self._undo = contextlib.ExitStack()
        self._open = False
        self.watch(model, opt)

    # --- the block -------------------------------------------------------------------------------

    def __enter__(self) -> Meter:
        self._open = True
        if torch.cuda.is_initialized():  # to ask for the peak would start CUDA
            torch.cuda.reset_peak_memory_stats()
        self._undo.enter_context(patched(torch.UntypedStorage, "resize_", self._seeing_resize))
        for model in self._alive(self._models):
            self._hook_gradients(model)
        self.mark("start")
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.mark("end")
        self._open = False
        self._undo.close()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(issubclass(t, FakeTensor) for t in types):
            return func(*args, **kwargs)  # DTensor tries an operation out on shapes without memory
        if any(t not in (torch.Tensor, nn.Parameter) for t in types):
            return NotImplemented  # a subclass (DTensor) unwraps first; its parts come here then
        for tensor in _tensors_in((args, kwargs)):
            self._follow(tensor)
        result = func(*args, **kwargs)
        for tensor in _tensors_in(result):
            self._follow(tensor, created=True)
        return result

    # --- what the caller asks --------------------------------------------------------------------

    def watch(self, *things: nn.Module | torch.optim.Optimizer | torch.Tensor | None) -> None:
        """Count these and what they hold from now on, whoever made them and when.

        Modules and optimizers are held weakly and read again at every `live` and `mark`.
        """
        for thing in things:
            if isinstance(thing, nn.Module):
                self._models.append(weakref.ref(thing))
                if self._open:
                    self._hook_gradients(thing)
            elif isinstance(thing, torch.optim.Optimizer):
                self._opts.append(weakref.ref(thing))
            else:
                for tensor in _tensors_in(thing):
                    self._follow(tensor)
        self._label()

    def live(
        self, model: nn.Module | None = None, opt: torch.optim.Optimizer | None = None
    ) -> dict[str, int]:
        """Bytes alive now, by kind; the sum is `current`. Watches `model` and `opt` if given."""
        self.watch(model, opt)
        self.touch()
        totals = dict.fromkeys(KINDS, 0)
        for storage in list(self._live.values()):
            totals[self._history.kinds[storage.serial]] += storage.nbytes
        return totals

    def mark(self, name: str) -> dict[str, int]:
        """Write a named moment into the timeline, as "after forward"; what was alive then."""
        live = self.live()
        self._history.mark(name)
        return live

    def touch(self) -> None:
        """Read the sizes of all followed storages again, after a change that no one could see."""
        for storage in list(self._live.values()):
            alive = storage.ref()
            if alive is not None:
                self._resize(storage, alive.nbytes())

    def timeline(self) -> list[Moment]:
        """Every change in order, and the marks between them."""
        return self._history.moments()

    def changes(self) -> list[tuple[int, int]]:
        """Every change in order: the number of the storage, and its bytes from then on."""
        return self._history.changes()

    def peaks(self) -> dict[str, int]:
        """The highest bytes of each kind; they need not have come at the same moment."""
        return self._history.peaks()

    def at_peak(self) -> dict[str, int]:
        """Bytes by kind at the first moment of the highest total; the sum is `peak`."""
        return self._history.at_peak().live

    @property
    def cuda_peak(self) -> int | None:
        """Peak bytes of CUDA's allocator since the start of the block; None if it is not in use."""
        return torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None

    # --- following storages ----------------------------------------------------------------------

    def _follow(self, tensor: torch.Tensor, kind: str | None = None, created: bool = False) -> None:
        # A parameter that ZeRO-3 has released refuses to be used; looking at its storage is no use.
        with torch._C.DisableTorchFunctionSubclass():
            for part in _plain_parts(tensor):
                self._follow_storage(part.untyped_storage(), kind, created)

    def _follow_storage(
        self, alive: torch.UntypedStorage, kind: str | None = None, created: bool = False
    ) -> None:
        if alive.device.type == "meta":  # shapes without memory
            return
        key = alive._cdata
        storage = self._live.get(key)
        if storage is None:
            # The wrapper object of a storage lives as long as the storage itself, also when only
            # autograd holds it, so this reference ends with the memory.
            ref = weakref.ref(alive, partial(self._freed, key))
            serial = self._history.add(_kind_of_creator() if created else "activations")
            storage = self._live[key] = _Storage(serial, ref)
        if kind is not None:
            self._history.claim(storage.serial, kind)
        self._resize(storage, alive.nbytes())

    def _resize(self, storage: _Storage, nbytes: int) -> None:
        if nbytes != storage.nbytes:
            self.current += nbytes - storage.nbytes
            self.peak = max(self.peak, self.current)
            storage.nbytes = nbytes
            self._history.change(storage.serial, nbytes)

    def _freed(self, key: int, _: weakref.ref) -> None:
        self._resize(self._live.pop(key), 0)

    def _seeing_resize(self, resize_):
        """`UntypedStorage.resize_` is no operation of the dispatcher, so the meter looks on."""

        def resize_and_look(storage: torch.UntypedStorage, nbytes: int):
            result = resize_(storage, nbytes)
            self._follow_storage(storage)
            return result

        return resize_and_look

    # --- names -----------------------------------------------------------------------------------

    def _hook_gradients(self, model: nn.Module) -> None:
        """Name gradients as they arrive: ZeRO-2 may have taken them away by the next `mark`."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                handle = parameter.register_hook(partial(self._follow, kind="gradients"))
                self._undo.callback(handle.remove)

    def _label(self) -> None:
        for model in self._alive(self._models):
            self._label_parameters(model.parameters())
        for opt in self._alive(self._opts):
            if hasattr(opt, "tensors"):
                states = opt.tensors()
            else:
                self._label_parameters(p for g in opt.param_groups for p in g["params"])
                states = _states_of(opt)
            for kind, tensors in states.items():
                for tensor in tensors:
                    self._follow(tensor, kind)

    def _label_parameters(self, parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            self._follow(parameter, "parameters")
            if parameter.grad is not None:
                self._follow(parameter.grad, "gradients")

    @staticmethod
    def _alive(refs: list[weakref.ref]) -> list[Any]:
        return [thing for ref in refs if (thing := ref()) is not None]


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))


def _plain_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that really hold memory: of a DTensor its local part."""
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            part = getattr(tensor, name)
            if isinstance(part, torch.Tensor):  # a DTensor names its device mesh too
                yield from _plain_parts(part)
    elif (
        tensor.layout is torch.strided
    ):  # the parts of a sparse tensor were followed at their birth
        yield tensor


def _states_of(opt: torch.optim.Optimizer) -> dict[str, list[torch.Tensor]]:
    """The states of a plain torch optimizer: moments, and step counters (scalars) apart."""
    tensors = list(_tensors_in(list(opt.state.values())))
    return {
        "optimizer": [t for t in tensors if t.dim()],
        "counters": [t for t in tensors if not t.dim()],
    }


def _kind_of_creator() -> str:
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("torch.optim"):
            return "optimizer"
        subclass = frame.f_code.co_name == "__torch_dispatch__"  # of a meter, in any module
        if module != __name__ and not subclass and module.split(".")[0] != "torch":
            function = f"{module}.{frame.f_code.co_name}"
            return _CREATORS.get(function) or _CREATORS.get(module, "activations")
        frame = frame.f_back
    return "activations"


# --- beside the meter ----------------------------------------------------------------------------


def rss() -> tuple[int, int]:
    """Bytes of memory that this process occupies now, and at its peak, as the system counts.

    Libraries, Python and the allocator's reserve are in it, so it is no measure of tensors.
    """
    try:
        with open("/proc/self/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return tuple(int(fields[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))
    except OSError:  # no /proc: macOS, which counts the peak only, in bytes
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak, peak
