"""A parameter whose memory has been given back, and which says so when it is used.

ZeRO-3 frees the storage of a parameter between uses, but leaves its shape. To read it then would
read freed memory. So a released parameter changes its class to `ReleasedParameter`, which answers
what needs no data (shape, dtype, gradient, hooks, repr) and raises for everything else, with the
parameter's name. `torch.nn.UninitializedParameter` changes class in the same way.
"""

from __future__ import annotations

import warnings

import torch
from torch import nn

_READS_DATA = {"data", "T", "mT", "H", "mH", "real", "imag"}
_HARMLESS = {
    "__hash__",
    "dim",
    "element_size",
    "is_contiguous",
    "is_floating_point",
    "is_complex",
    "nelement",
    "numel",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "requires_grad_",
    "size",
    "stride",
}


class ReleasedParameter(nn.Parameter):
    """A parameter that is not in memory on this rank at the moment."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if _needs_data(func):
            names = [a.zero_name for a in _flatten(args) if isinstance(a, ReleasedParameter)]
            what = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
            raise RuntimeError(
                f"{what} needs the data of {', '.join(names)}, which ZeRO-3 has released "
                f"on this rank. A parameter is there only while its unit runs (the block, layer "
                f"or model that gathers it; zero.shard(..., units=[...]) makes smaller units) and "
                f"in `with opt.full_params():`"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __repr__(self) -> str:
        return f"ReleasedParameter({self.zero_name}, shape={tuple(self.shape)}, dtype={self.dtype})"


def mark_released(p: nn.Parameter, name: str) -> None:
    """Let `p` refuse every use of its data."""
    p.zero_name = name
    p.__class__ = ReleasedParameter


def mark_present(p: nn.Parameter) -> None:
    """Let `p` be an ordinary parameter again."""
    p.__class__ = nn.Parameter


def cannot_free(names: list[str]) -> RuntimeError:
    """The error for parameters (some of these) whose memory has been given to somebody else."""
    return RuntimeError(
        f"NumPy or another process was given the memory of one of {', '.join(names[:9])}, so "
        f"ZeRO-3 cannot free it. Give it a copy instead: p.detach().clone().numpy(). The "
        f"parameters have moved to new memory, and the optimizer can be used on"
    )


def refuse_second_order(unit: str) -> None:
    """Inside a backward pass: raise RuntimeError if it was started with create_graph=True.

    The graph that such a pass builds keeps weights of `unit`, which are released behind it; its own
    backward pass has no moment at which they could be gathered again.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"create_graph=True reached {unit}: the second backward pass would need parameters "
            f"that ZeRO-3 releases in the first. Compute the loss and run both passes inside "
            f"`with opt.full_params():`, or use stage 2"
        )


def warn_of_autocast(module: nn.Module, flats: list[torch.Tensor]) -> None:
    """In forward: autograd will keep what autocast makes of `module`'s fp32 weights.

    Those are new tensors, which nobody can release. A module whose forward has been replaced, as
    recomputation does, is given the benefit of the doubt.
    """
    casts = any(
        f.dtype == torch.float32 and torch.is_autocast_enabled(f.device.type) for f in flats
    )
    if casts and "forward" not in vars(module):
        warnings.warn(
            "autocast keeps 16-bit copies of weights from forward to backward, which ZeRO-3 cannot "
            'release: use zero.shard(..., precision="bf16") in its place, or recompute the blocks '
            "with zero.activations.checkpoint_blocks",
            stacklevel=2,
        )


def _needs_data(func) -> bool:
    if func.__name__ in ("__get__", "__set__", "__delete__"):
        return func.__self__.__name__ in _READS_DATA
    return func.__name__ not in _HARMLESS


def _flatten(args: tuple) -> list:
    flat = []
    for a in args:
        flat += list(a) if isinstance(a, (list, tuple)) else [a]
    return flat
