"""The collectives of ZeRO on flat tensors, with a log of every byte that this rank sends.

Four verbs are all that ZeRO needs: all-reduce, reduce-scatter, all-gather, broadcast. Each works
on one-dimensional contiguous tensors, and every rank of the group must call the same verb with
the same size, dtype and name, in the same order.

On NCCL the verbs are PyTorch's own. On gloo they are built from plain sends (`exchange.py`),
because gloo's reduce-scatter is an all-reduce inside: it sends twice the bytes. Built from sends
they also add in rank order, so an element's sum has the same bits whatever the size of the
message it travels in. That is why fp32 training on gloo is bitwise equal across the ZeRO stages
(with one micro-batch a step, and without clipping, which add up in another order at each stage).
NCCL's order of addition depends on the size, so there the stages agree to rounding.

Before the data of a collective, each gloo rank sends its peers eight bytes: a digest of what it
is about to do. If the digests differ, every rank raises `MismatchError` with the list of what
each rank wanted, where gloo itself would hang, abort, or silently add the wrong tensors.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from . import exchange, messages
from .messages import CommError, MismatchError, Work

__all__ = ["CommError", "Entry", "Log", "MismatchError", "Work", "record"]

Group = dist.ProcessGroup | None
_logs: list[Log] = []


@dataclass
class Entry:
    """One collective as this rank saw it.

    `bytes` are the bytes that this rank sent; `count` is the number of elements of the whole flat
    tensor; `kind` is "data" for tensors and "control" for flags, norms and digests.
    """

    op: str
    bytes: int
    dtype: torch.dtype
    count: int
    kind: str = "data"
    name: str = ""


@dataclass
class Log:
    """What `record` collects: `entries` in the order in which the collectives were started."""

    entries: list[Entry] = field(default_factory=list)

    def bytes(self, kind: str = "data", op: str | None = None) -> int:
        """Bytes that this rank sent, of one kind, optionally of one operation."""
        return sum(e.bytes for e in self.entries if e.kind == kind and op in (None, e.op))

    def count(self, op: str | None = None) -> int:
        """How many collectives carried data, optionally of one operation."""
        return sum(e.kind == "data" and op in (None, e.op) for e in self.entries)


@contextlib.contextmanager
def record() -> Iterator[Log]:
    """Log every collective that starts inside the `with` block on this rank."""
    recording = Log()
    _logs.append(recording)
    try:
        yield recording
    finally:
        _logs.remove(recording)


def log(op: str, sent: int, flat: torch.Tensor, kind: str = "data", name: str = "") -> None:
    """Note a collective in every log that is being recorded; `sent` are this rank's bytes."""
    for recording in _logs:
        recording.entries.append(Entry(op, sent, flat.dtype, flat.numel(), kind, name))


# --- the world -----------------------------------------------------------------------------------


def init(
    backend: str | None = None,
    *,
    timeout: float = 300.0,
    quiet: bool = False,
    init_method: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> None:
    """Join the other ranks, once; every rank must call it. A second call does nothing.

    Where the ranks come from: the arguments, or the environment that torchrun and `zero.launch`
    set (RANK, WORLD_SIZE, LOCAL_RANK); with neither, this process is a world of one. `backend` is
    chosen when None: NCCL where every rank of this host has a CUDA device of its own, else gloo.
    No wait on another rank takes longer than `timeout` seconds.
    """
    if dist.is_initialized():
        return
    env = os.environ
    alone = rank is None and "RANK" not in env
    rank = int(env.get("RANK", 0)) if rank is None else rank
    world_size = int(env.get("WORLD_SIZE", 1)) if world_size is None else world_size
    backend, reason = _choose_backend(backend, int(env.get("LOCAL_WORLD_SIZE", world_size)))
    if backend == "nccl":
        torch.cuda.set_device(int(env.get("LOCAL_RANK", rank)))
    where = {"store": dist.HashStore()} if alone else {"init_method": init_method}
    limit = datetime.timedelta(seconds=timeout)
    dist.init_process_group(backend, rank=rank, world_size=world_size, timeout=limit, **where)
    messages.calm_network_threads()
    if rank == 0 and not quiet:
        ranks = "1 rank" if world_size == 1 else f"{world_size} ranks"
        how = "NCCL's own collectives" if backend == "nccl" else "collectives made of sends"
        print(f"zero: {backend}, {ranks} ({reason}); {how}", flush=True)


def _choose_backend(backend: str | None, local_ranks: int) -> tuple[str, str]:
    if backend is not None:
        return backend, "as asked"
    devices = torch.cuda.device_count()
    if not devices:
        return "gloo", "on the CPU: this machine has no CUDA device"
    if devices < local_ranks or not dist.is_nccl_available():
        return "gloo", f"on the CPU: {devices} CUDA devices for {local_ranks} ranks of this host"
    return "nccl", "a CUDA device for each rank"


def leave() -> None:
    """Tell the other ranks that this one calls no further collective; it does not wait for them."""
    if dist.is_initialized() and dist.get_world_size() > 1 and _has("cpu:gloo"):
        messages.mesh(None)
        messages.leave_groups()


def shutdown() -> None:
    """Leave the world; every rank should call it when training is over."""
    if dist.is_initialized():
        leave()
        dist.destroy_process_group()


def rank(group: Group = None) -> int:
    """This process's rank in the group, 0 without a world."""
    return dist.get_rank(group) if dist.is_initialized() else 0


def world_size(group: Group = None) -> int:
    """The number of ranks in the group, 1 without a world."""
    return dist.get_world_size(group) if dist.is_initialized() else 1


def device() -> torch.device:
    """Where this rank's tensors belong: its CUDA device under NCCL, else the CPU."""
    if dist.is_initialized() and _has("cuda:nccl"):
        bound = dist.group.WORLD.bound_device_id  # what init_process_group(device_id=...) was given
        return bound or torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _has(way: str) -> bool:
    """Has the world this backend for tensors on this device? Its backend's name may be no help."""
    return way in dist.get_backend_config()


# --- the four verbs ------------------------------------------------------------------------------


def reduce_scatter(
    flat: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    op: str = "mean",
    group: Group = None,
    name: str = "",
    async_op: bool = False,
) -> torch.Tensor | Work:
    """Reduce `flat` [numel] over the ranks; each rank receives its 1/N of the result.

    numel must be divisible by N. `out` [numel/N] may be fp32 for a 16-bit `flat`, and on the host
    for one on a GPU. On gloo 16-bit numbers are added in fp32, then divided, and rounded once; NCCL
    divides before it adds, in its own order and in 16 bits. By default `out` is this rank's own
    range of `flat` (in place). `op` is "mean" or "sum". With `async_op` a `Work` is returned, whose
    `wait()` gives `out`; until then neither tensor may be touched.

    Sends (N-1)/N * numel * element size bytes.
    """
    n, r = world_size(group), rank(group)
    _check_flat("reduce_scatter", flat, n)
    shard = flat.numel() // n
    if out is None:
        out = flat[r * shard : (r + 1) * shard]
    if n == 1:
        log("reduce_scatter", 0, flat, name=name)
        return _done(out if out.data_ptr() == flat.data_ptr() else out.copy_(flat), async_op)
    if flat.is_cuda:
        work = _nccl_reduce_scatter(flat, out, op, group)
        sent = flat.nbytes // n * (n - 1)
    else:
        mesh = messages.mesh(group)
        ticket = mesh.announce("reduce_scatter", name, flat)
        work, sent = exchange.reduce_scatter(mesh, ticket, flat, out, op)
    log("reduce_scatter", sent, flat, name=name)
    return work if async_op else work.wait()


def all_gather(
    flat: torch.Tensor, *, group: Group = None, name: str = "", async_op: bool = False
) -> torch.Tensor | Work:
    """Fill `flat` [numel] in place: rank r contributes its range [r*numel/N, (r+1)*numel/N).

    numel must be divisible by N. Sends (N-1)/N * numel * element size bytes.
    """
    n = world_size(group)
    _check_flat("all_gather", flat, n)
    if n == 1:
        log("all_gather", 0, flat, name=name)
        return _done(flat, async_op)
    if flat.is_cuda:
        work = _nccl_all_gather(flat, group)
        sent = flat.nbytes // n * (n - 1)
    else:
        mesh = messages.mesh(group)
        ticket = mesh.announce("all_gather", name, flat)
        work, sent = exchange.all_gather(mesh, ticket, flat)
    log("all_gather", sent, flat, name=name)
    return work if async_op else work.wait()


def all_reduce(
    flat: torch.Tensor, *, op: str = "mean", group: Group = None, name: str = ""
) -> torch.Tensor:
    """Reduce `flat` [numel] over the ranks in place; every rank has the whole result.

    On gloo it is what the name hides: a reduce-scatter, then an all-gather. Any numel; `op` is
    "mean", "sum" or "max". Sends 2 (N-1)/N * numel * element size bytes if N divides numel.
    """
    n = world_size(group)
    _check_flat("all_reduce", flat, 1)
    sent = 0
    if n > 1 and flat.is_cuda:
        dist.all_reduce(flat, _nccl_op(op), group=group)
        sent = 2 * flat.nbytes // n * (n - 1)
    elif n > 1:
        mesh = messages.mesh(group)
        ticket = mesh.announce("all_reduce", name, flat)
        bounds = exchange.even_bounds(flat.numel(), n)
        own = flat[slice(*bounds[mesh.rank])]
        work, sent = exchange.reduce_scatter(mesh, ticket, flat, own, op, bounds)
        work.wait()
        work, more = exchange.all_gather(mesh, ticket, flat, bounds)
        work.wait()
        sent += more
    log("all_reduce", sent, flat, name=name)
    return flat


def broadcast(
    flat: torch.Tensor, *, src: int = 0, group: Group = None, name: str = ""
) -> torch.Tensor:
    """Give every rank of the group the tensor of rank `src` (a rank of the group), in place."""
    n = world_size(group)
    _check_flat("broadcast", flat, 1)
    sent = 0
    if n > 1 and flat.is_cuda:
        dist.broadcast(flat, group_src=src, group=group)
        sent = flat.nbytes
    elif n > 1:
        mesh = messages.mesh(group)
        ticket = mesh.announce("broadcast", f"{name} from {src}", flat)
        work, sent = exchange.broadcast(mesh, ticket, flat, src)
        work.wait()
    log("broadcast", sent, flat, name=name)
    return flat


# --- small values --------------------------------------------------------------------------------


def all_gather_small(values: torch.Tensor, *, group: Group = None, name: str = "") -> torch.Tensor:
    """Every rank's `values` [n] as rows of one tensor [N, n]: flags, counts, norms.

    Logged as "control": these few bytes are no part of ZeRO's traffic formulas. What a rank then
    computes from the rows is bitwise the same on every rank.
    """
    n = world_size(group)
    if n > 1 and not values.is_cuda:
        rows = exchange.all_gather_small(messages.mesh(group), name, values.contiguous())
    else:
        rows = values.repeat(n, 1)
        if n > 1:
            _nccl_all_gather(rows.view(-1), group).wait()
    log("all_gather_small", values.nbytes * (n - 1), values, "control", name)
    return rows


def any_rank(flag: bool, *, group: Group = None, name: str = "") -> bool:
    """True on every rank if `flag` is true on at least one."""
    mine = torch.tensor([flag], dtype=torch.uint8, device=device())
    return bool(all_gather_small(mine, group=group, name=name).any())


def barrier(group: Group = None) -> None:
    """Return once every rank of the group has come here."""
    any_rank(False, group=group, name="barrier")


# --- helpers -------------------------------------------------------------------------------------


def _check_flat(op: str, flat: torch.Tensor, n: int) -> None:
    if flat.dim() != 1 or not flat.is_contiguous():
        raise ValueError(
            f"{op} needs a flat tensor (one dimension, contiguous); this one has shape "
            f"{tuple(flat.shape)} and strides {flat.stride()}. Use x.reshape(-1)."
        )
    if flat.numel() % n:
        raise ValueError(
            f"{op} cuts the tensor into {n} equal shards, but {flat.numel()} elements are not "
            f"divisible by {n}. Pad it to {-(-flat.numel() // n) * n} elements."
        )


def _done(result: torch.Tensor, async_op: bool) -> torch.Tensor | Work:
    return Work(result, []) if async_op else result


def _nccl_op(op: str) -> dist.ReduceOp.RedOpType:
    return {"mean": dist.ReduceOp.AVG, "sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}[op]


def _nccl_reduce_scatter(flat: torch.Tensor, out: torch.Tensor, op: str, group: Group) -> Work:
    # torch 2.13 renamed reduce_scatter_tensor to reduce_scatter_single and warns at the old name.
    collective = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    same = (out.dtype, out.device) == (flat.dtype, flat.device)
    wire = out if same else torch.empty_like(out, dtype=flat.dtype, device=flat.device)
    handle = collective(wire, flat, op=_nccl_op(op), group=group, async_op=True)
    return Work(out, [handle], finish=None if wire is out else lambda: out.copy_(wire))


def _nccl_all_gather(flat: torch.Tensor, group: Group) -> Work:
    collective = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    own = flat.chunk(world_size(group))[rank(group)]
    return Work(flat, [collective(flat, own, group=group, async_op=True)])
