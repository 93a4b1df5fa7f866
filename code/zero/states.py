"""What a checkpoint keeps of a model and its optimizer: taken from them, and put back.

Of every element of every parameter the checkpoint needs one value, its fp32 master where there is
one (16-bit weights are rounded from it), and the optimizer's states of it. A `Held` is what this
rank has of a parameter; a `Piece` is what it writes. The two differ where all ranks hold the same,
as for everything at stage 0 and for frozen parameters up to stage 2: there each rank writes 1/N.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from . import comm
from .disk import CheckpointError
from .flat import FlatLayout
from .optimizer import ZeroOptimizer


@dataclass
class Held:
    """Elements [offset, offset + len(value)) of parameter `name`, as this rank holds them.

    `value` is a flat tensor, where possible a view of the real weights. `shared`: every rank holds
    the same. `slice` is the parameter by which the inner optimizer knows it; None if it is frozen.
    """

    name: str
    offset: int
    value: torch.Tensor
    shared: bool
    slice: nn.Parameter | None = None


@dataclass
class Piece:
    """Elements [offset, offset + length) of parameter `name`, as this rank writes them.

    `tensors`: flat tensors of `length` elements; "value" holds the weights, the others are states
    of the optimizer. `numbers`: the optimizer's counters of this parameter, as JSON; one that was a
    tensor is a list of its dtype and its value.
    """

    name: str
    offset: int
    tensors: dict[str, torch.Tensor]
    numbers: dict

    @property
    def length(self) -> int:
        return self.tensors["value"].numel()


def held(opt: ZeroOptimizer) -> list[Held]:
    """What this rank holds of all parameters, frozen ones too. Parameters of no elements are left
    out: there is nothing of them to hold."""
    names = keys(opt)
    found = [
        Held(names[s.whole], s.start, s.param.data, not opt.sharded, s.param) for s in opt.slices
    ]
    if opt.shards_frozen:
        for bucket in opt.frozen_buckets:
            of_name = dict(zip(bucket.names, bucket.params, strict=True))
            for s in bucket.layout.slices(opt.rank):
                part = bucket.shard[s.offset : s.offset + s.end - s.start]
                found.append(Held(names[of_name[s.name]], s.start, part, False))
        return found
    frozen = [(name, p) for p, name in names.items() if not p.requires_grad and p.numel()]
    return found + [Held(name, 0, p.data.reshape(-1), True) for name, p in frozen]


def pieces(opt: ZeroOptimizer) -> list[Piece]:
    """What this rank is to write: every element of every parameter is written by one rank."""
    mine = held(opt)
    shared = {h.name: h for h in mine if h.shared}
    layout = FlatLayout([(h.name, h.value.shape) for h in shared.values()], opt.world_size)
    parts = [(h, 0, h.value.numel()) for h in mine if not h.shared]
    parts += [(shared[s.name], s.start, s.end) for s in layout.slices(opt.rank)]
    return [_piece(h, start, end, opt.inner.state.get(h.slice, {})) for h, start, end in parts]


def _piece(h: Held, start: int, end: int, states: dict) -> Piece:
    """Elements [start, end) of what is held, with their states."""
    tensors, numbers = {"value": h.value[start:end]}, {}
    for key, state in states.items():
        if not torch.is_tensor(state):
            numbers[key] = state
        elif state.dim() == 0:
            numbers[key] = [dtype_name(state.dtype), state.item()]
        elif state.shape == h.value.shape:
            tensors[key] = state[start:end]
        else:
            raise CheckpointError(
                f"the optimizer's state {key!r} of {h.name} has shape {tuple(state.shape)}; one "
                f"value for each element, {tuple(h.value.shape)}, was expected"
            )
    return Piece(h.name, h.offset + start, tensors, numbers)


def number(saved: object, device: torch.device) -> object:
    """A counter as the optimizer had it, from what `Piece.numbers` holds."""
    if isinstance(saved, list):
        dtype, value = saved
        return torch.tensor(value, dtype=getattr(torch, dtype), device=device)
    return saved


# --- names ---------------------------------------------------------------------------------------


def part_of(opt: ZeroOptimizer) -> tuple[int, int]:
    """Which part of the model this rank has, of how many: (0, 1) without tensor parallelism."""
    return (
        (0, 1) if opt.tp_group is None else (comm.rank(opt.tp_group), comm.world_size(opt.tp_group))
    )


def keys(opt: ZeroOptimizer) -> dict[nn.Parameter, str]:
    """The name of each parameter in a checkpoint: its own, and behind a "#" the part of the model
    that it belongs to, if tensor parallelism has cut the model."""
    part, parts = part_of(opt)
    return {p: name if parts == 1 else f"{name}#{part}" for p, name in opt.names.items()}


def parameter_table(opt: ZeroOptimizer) -> dict[str, dict]:
    """Every parameter of this rank's part by name: shape, dtype of its saved values, trainable, and
    its other names; with tensor parallelism also which part it is, and how it was cut."""
    masters = {p: b.master.dtype for b in opt.buckets for p in b.params}
    others: dict[nn.Parameter, list[str]] = {}
    for key, tensor in state_keys(opt.model):
        others.setdefault(tensor, []).append(key)
    part, parts = part_of(opt)
    table = {}
    for p, name in keys(opt).items():
        suffix = name.removeprefix(opt.names[p])
        table[name] = {
            "shape": list(p.shape),
            "dtype": dtype_name(masters.get(p, p.dtype)),
            "trainable": p in masters,
            "tied": [key + suffix for key in others.get(p, []) if key + suffix != name],
        }
        if parts > 1:
            cut = getattr(p, "tp_cut", None)
            table[name]["part"] = [part, parts]
            table[name]["cut"] = cut and [cut.dim % p.dim(), cut.length, cut.blocks]
    return table


def buffers(model: nn.Module | None) -> dict[str, torch.Tensor]:
    """The model's persistent buffers by name; one that has two names comes under both."""
    return {key: t for key, t in state_keys(model) if not isinstance(t, nn.Parameter)}


def state_keys(model: nn.Module | None) -> Iterator[tuple[str, torch.Tensor]]:
    """The entries of `model.state_dict()` without their data, which ZeRO-3 may have released.

    Raises CheckpointError, naming the module, for state that is no tensor.
    """
    if model is None:
        return
    for path, module in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for name, p in module._parameters.items():
            if p is not None:
                yield prefix + name, p
        for name, b in module._buffers.items():
            if b is not None and name not in module._non_persistent_buffers_set:
                yield prefix + name, b
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise CheckpointError(
                f"{path or 'the model'} ({type(module).__name__}) has an extra state of its own, "
                f"which a checkpoint cannot hold; keep it in `extra`"
            )


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype's name as text: float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


# --- random numbers ------------------------------------------------------------------------------


def random_states() -> dict[str, torch.Tensor]:
    """The states of torch's random number generators on this rank, uint8."""
    states = {"random/cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["random/cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random(states: dict[str, torch.Tensor]) -> None:
    """Let the random numbers of this rank go on from these states."""
    torch.set_rng_state(states["random/cpu"])
    if "random/cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["random/cuda"])


def fresh_seed(step: int, world_size: int, rank: int) -> int:
    """The seed of a rank that resumes with another number of ranks at `step`, different for each:
    a million times the step, a thousand times the number of ranks, and the rank."""
    return step * 1_000_000 + world_size * 1_000 + rank
