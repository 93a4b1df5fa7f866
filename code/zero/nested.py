"""The tensors inside a module's arguments or output, whatever it packs them into."""

from __future__ import annotations

import copy
import dataclasses
import enum
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence

import numpy as np
import torch
from torch import nn

from . import comm

_warned: set[type] = set()
_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, enum.Enum, np.ndarray, np.generic),
    *(torch.dtype, torch.device, torch.Size, torch.Generator),
)
# What has tensors of its own, which are no data that flows through a module.
_NO_DATA = (
    *(type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType),
    *(nn.Module, torch.optim.Optimizer),
)


def tensors_in(value: object) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples, dicts, dataclasses and other objects, in order.

    Of an object of any other class the attributes are looked at. Plain values, modules and
    functions are passed over. For an object without attributes, whose tensors would stay unseen,
    a warning on rank 0 names the type once.
    """
    return list(_walk(value, {}))


def _walk(value: object, seen: dict[int, object]) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, (*_PLAIN, *_NO_DATA)) or id(value) in seen:
        return
    seen[id(value)] = value  # objects may point at each other in circles
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, (list, tuple, set)):
        parts = list(value)
    else:
        parts = _attributes(value)
    for part in parts:
        yield from _walk(part, seen)


def _attributes(value: object) -> list[object]:
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [n for s in slots for n in ([s] if isinstance(s, str) else s)]
    if not hasattr(value, "__dict__") and not names:
        _warn_unknown(type(value))
    return [getattr(value, n, None) for n in names] + list(getattr(value, "__dict__", {}).values())


def take_apart(
    value: object,
) -> tuple[list[torch.Tensor], Callable[[Sequence[torch.Tensor]], object]]:
    """All tensors in nested lists, tuples, dicts and dataclasses, and what they were taken from.

    The second is a function: given as many tensors, it returns a copy of `value` with these in the
    places of the old ones. It keeps none of the old tensors alive.
    """
    tensors: list[torch.Tensor] = []

    def number(tensor: torch.Tensor) -> _Place:
        tensors.append(tensor)
        return _Place(len(tensors) - 1)

    pattern = _replace(value, torch.Tensor, number)
    return tensors, lambda new: _replace(pattern, _Place, lambda place: new[place.index])


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a tensor was."""

    index: int


def _replace(value: object, kind: type, change: Callable) -> object:
    """A copy of `value` in which everything of this kind is changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replace(part, kind, change) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_replace(part, kind, change) for part in value)
    if isinstance(value, MutableMapping):
        result = copy.copy(value)
        for key, part in value.items():
            result[key] = _replace(part, kind, change)
        return result
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, _Place)):
        result = copy.copy(value)
        for field in dataclasses.fields(value):
            part = _replace(getattr(value, field.name), kind, change)
            object.__setattr__(result, field.name, part)
        return result
    return value


def _warn_unknown(kind: type) -> None:
    if kind not in _warned and comm.rank() == 0:
        warnings.warn(
            f"tensors inside a {kind.__name__} are not seen by ZeRO's hooks; return a list, tuple, "
            f"dict or dataclass instead",
            stacklevel=4,
        )
    _warned.add(kind)
