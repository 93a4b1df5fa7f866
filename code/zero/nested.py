"""The tensors inside a module's arguments or output, whatever it packs them into."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import torch

_warned: set[type] = set()
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


def tensors_in(value: object) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples, named tuples, dicts and dataclasses, in order.

    Plain values are passed over. For a container of another type, whose tensors stay unseen, a
    warning names the type once.
    """
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, _PLAIN):
        return []
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, (list, tuple, set)):
        parts = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, f.name) for f in dataclasses.fields(value)]
    else:
        _warn_unknown(type(value))
        return []
    return [t for part in parts for t in tensors_in(part)]


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
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(
            f"tensors inside a {kind.__name__} are not seen by ZeRO's hooks; return a list, tuple, "
            f"dict or dataclass instead",
            stacklevel=4,
        )
