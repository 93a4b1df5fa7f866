"""The tensors inside a module's arguments or output, whatever it packs them into."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping

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


def _warn_unknown(kind: type) -> None:
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(
            f"tensors inside a {kind.__name__} are not seen by ZeRO's hooks; return a list, tuple, "
            f"dict or dataclass instead",
            stacklevel=4,
        )
