"""What goes out on the wire, counted below every library: at PyTorch's own communication calls.

`comm.record` is a log that `comm` keeps of itself. `Traffic` asks no one: inside its `with` block
PyTorch hands it every call that reaches `torch.distributed`, whoever made it, this package,
`DistributedDataParallel`, `fully_shard` or a notebook cell.

A send has the bytes of its tensor. How many bytes a built-in collective sends is up to the backend;
here it counts as a ring or a direct exchange does, which is the least that is possible.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from . import comm

# For each call: which argument holds the tensors, and how many times their bytes this rank sends,
# as multiples of 1/N.
_SHARES = {
    "send": (0, lambda n: n),
    "recv_": (0, lambda n: 0),
    "recv_any_source_": (0, lambda n: 0),
    "allreduce_": (0, lambda n: 2 * (n - 1)),
    "allgather_": (1, lambda n: n * (n - 1)),
    "_allgather_base_": (1, lambda n: n * (n - 1)),
    "reduce_scatter_": (0, lambda n: n * (n - 1)),
    "_reduce_scatter_base_": (0, lambda n: n * (n - 1)),
    "alltoall_": (1, lambda n: n - 1),
    "alltoall_base_": (1, lambda n: n - 1),
    "barrier": (0, lambda n: 0),
}


@dataclass(frozen=True)
class Call:
    """One call: `count` elements of `dtype` among `ranks` ranks, `bytes` sent by this one."""

    op: str
    bytes: int
    dtype: torch.dtype
    count: int
    ranks: int


@dataclass
class Traffic(TorchDispatchMode):
    """Log every communication call of this rank inside a `with` block, in order, as `calls`.

    `op` is PyTorch's inner name: "send", "recv_", "allreduce_", "_allgather_base_", ... Raises
    NotImplementedError for a call whose bytes it cannot tell.
    """

    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def bytes(self, op: str | None = None, *, floating: bool | None = None) -> int:
        """Bytes sent, of one op or all; only floating-point data or only other, if asked."""
        return sum(
            call.bytes
            for call in self.calls
            if op in (None, call.op) and floating in (None, call.dtype.is_floating_point)
        )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            self._log(func.overloadpacket.__name__, args)
        return func(*args, **(kwargs or {}))

    def _log(self, op: str, args: tuple) -> None:
        group = _group(args)
        ranks = group.size()
        if op == "broadcast_":
            position, share = 0, ranks * (ranks - 1) if group.rank() == args[2] else 0
        elif op in _SHARES:
            position, share = _SHARES[op][0], _SHARES[op][1](ranks)
        else:
            raise NotImplementedError(f"how many bytes does c10d.{op} send? Add it to _SHARES")
        given = args[position]
        tensors = [given] if isinstance(given, torch.Tensor) else _flat(given)
        sent = sum(t.nbytes for t in tensors) * share // ranks
        self.calls.append(Call(op, sent, tensors[0].dtype, sum(t.numel() for t in tensors), ranks))


def sent_by_op(log: comm.Log) -> dict[str, int]:
    """Bytes of data that this rank sent, by collective, from a `comm.record()` log.

    The keys are those of `formulas.wire`, so the two can be compared; control values (flags,
    norms, digests) are left out.
    """
    totals: dict[str, int] = {}
    for entry in log.entries:
        if entry.kind == "data":
            totals[entry.op] = totals.get(entry.op, 0) + entry.bytes
    return totals


def _flat(nested: list) -> list[torch.Tensor]:
    return [t for item in nested for t in ([item] if torch.is_tensor(item) else _flat(item))]


def _group(args: tuple) -> dist.ProcessGroup:
    """The process group among the arguments of a call; the first script object is it."""
    boxed = next(a for a in args if isinstance(a, torch.ScriptObject))
    return dist.ProcessGroup.unbox(boxed)
