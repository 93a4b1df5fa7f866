"""How many bytes ZeRO keeps and sends, predicted: the one table that everything here reads.

Three kinds of figures, and they are not the same thing:

* **exact**: bytes per rank of this package, padding and element sizes included
  (`model_states`, `wire`). Tests hold the measured bytes against them, to the last byte;
* **the paper's accounting**: Ψ parameters, 16-bit parameters and gradients, K = 12 bytes of
  fp32 optimizer state for each (`paper_bytes`, `paper_volume` and what follows from them);
* **what came after**: ZeRO++ (`zeropp_volume`).

"The paper" is Rajbhandari, Rasley, Ruwase, He: "ZeRO: Memory Optimizations Toward Training
Trillion Parameter Models", SC20. GB means 1e9 bytes, as there. Plain arithmetic: no torch here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}  # of parameters and of gradients on the wire
FP32 = 4
STAGES = (0, 1, 2, 3)
PAPER_MODELS = (7.5e9, 128e9, 1e12)
PAPER_DEGREES = (1, 4, 16, 64, 256, 1024)
PAPER_K = 12  # fp32 master 4 + first moment 4 + second moment 4 bytes a parameter


# --- exact: memory -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Bytes of model states on one rank; `optimizer` is fp32 masters and moments."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """Bytes of all three together."""
        return self.parameters + self.gradients + self.optimizer


def padded(numel: int, world_size: int) -> int:
    """`numel` rounded up to a multiple of the number of ranks: the length of a flat tensor."""
    return -(-numel // world_size) * world_size


def owned(numel: int, world_size: int, rank: int) -> int:
    """How many real elements rank `rank` owns: its shard without the padding in it."""
    shard = padded(numel, world_size) // world_size
    return max(0, min(numel - rank * shard, shard))


def model_states(
    numels: Iterable[int],
    stage: int,
    world_size: int,
    precision: str = "fp32",
    moments: int = 2,
    *,
    rank: int = 0,
    frozen: Iterable[int] = (),
) -> Memory:
    """Bytes that one rank keeps between two steps, before `zero_grad` (section 5 of the paper).

    `numels` are the sizes of the flat tensors (buckets or units) without padding; each is padded
    to a multiple of `world_size` on its own. `moments` is 2 for Adam, 1 for SGD with momentum, 0
    for plain SGD. `frozen` are the sizes of what needs no gradient: at stage 3 of flat tensors,
    sharded like the others; below it of parameters as they are.

    ========== ============== ================== ============================================
    bytes      parameters     gradients          optimizer
    ========== ============== ================== ============================================
    fp32       4              4                  4 a moment; the parameter is its own master
    16-bit     2              2 whole, 4 sharded 4 master + 4 a moment
    stage 0    whole          whole              whole
    stage 1    whole          whole              1/N
    stage 2    whole          1/N                1/N
    stage 3    1/N            1/N                1/N
    ========== ============== ================== ============================================

    A sharded 16-bit gradient is kept as fp32, because micro-batches are added into it. Moments
    belong to real elements only: padding has none, so the last ranks may hold a few bytes less.
    """
    _check(stage, world_size, precision)
    numels, frozen = list(numels), list(frozen)
    size = ELEMENT_BYTES[precision]
    whole = sum(padded(n, world_size) for n in numels)
    shard = whole // world_size
    if stage == 3:
        parameters = shard + sum(padded(n, world_size) for n in frozen) // world_size
    else:
        parameters = whole + sum(frozen)
    mine = sum(numels) if stage == 0 else sum(owned(n, world_size, rank) for n in numels)
    masters = 0 if precision == "fp32" else whole if stage == 0 else shard
    return Memory(
        parameters=size * parameters,
        gradients=size * whole if stage < 2 else FP32 * shard,
        optimizer=FP32 * (masters + moments * mine),
    )


# --- exact: the wire -----------------------------------------------------------------------------


def wire(
    numels: Iterable[int],
    stage: int,
    world_size: int,
    precision: str = "fp32",
    *,
    frozen: Iterable[int] = (),
    micro_batches: int = 1,
) -> dict[str, int]:
    """Bytes that each rank sends in one step, by collective (section 7 of the paper).

    Every reduce-scatter and every all-gather of a flat tensor sends (N-1)/N of its bytes, an
    all-reduce twice that, since it is one of each. `numels` and `frozen` as in `model_states`.
    Stage 3 gathers the parameters twice, before forward and before backward. With k micro-batches
    a step, stages 0 and 1 send once, for they keep whole gradients; stage 2 reduces k times, and
    stage 3 does everything k times.
    """
    _check(stage, world_size, precision)

    def once(sizes: Iterable[int]) -> int:
        values = sum(padded(n, world_size) for n in sizes)
        return ELEMENT_BYTES[precision] * values // world_size * (world_size - 1)

    trained = once(numels)
    if stage == 0:
        return {"all_reduce": 2 * trained}
    reduced = trained if stage == 1 else micro_batches * trained
    gathered = trained if stage < 3 else micro_batches * 2 * (trained + once(frozen))
    return {"reduce_scatter": reduced, "all_gather": gathered}


# --- the paper: model states ---------------------------------------------------------------------


def paper_bytes(parameters: float, stage: int, n: int, k: float = PAPER_K) -> float:
    """Bytes of model states per device in mixed precision (sections 3.1 and 5).

    DDP (2 + 2 + K)Ψ; P_os 4Ψ + KΨ/N; P_os+g 2Ψ + (K + 2)Ψ/N; P_os+g+p (4 + K)Ψ/N.
    """
    _check(stage, n)
    whole = (4 + k, 4, 2, 0)[stage]
    shared = (0, k, k + 2, k + 4)[stage]
    return parameters * (whole + shared / n)


def paper_parts(parameters: float) -> dict[str, float]:
    """Bytes of model states on one device: where DDP's 16 a parameter go (section 3.1).

    Adam in mixed precision: 16-bit "parameters" and 16-bit "gradients"; "master", an fp32 copy of
    the parameters; "moments", two fp32 numbers for each parameter. The dict has these four keys.
    """
    return {
        "parameters": 2 * parameters,
        "gradients": 2 * parameters,
        "master": 4 * parameters,
        "moments": 8 * parameters,
    }


def fall(stage: int, n: int, k: float = PAPER_K) -> float:
    """By how many percent a stage lowers the model states of one device against DDP."""
    return 100 * (1 - paper_bytes(1, stage, n, k) / paper_bytes(1, 0, n, k))


def per_device_table(
    models: Iterable[float] = PAPER_MODELS, degrees: Iterable[int] = PAPER_DEGREES
) -> dict[int, list[list[float]]]:
    """The paper's table 1: degree N -> for each model the bytes at stages 1, 2 and 3."""
    models = list(models)
    return {n: [[paper_bytes(m, s, n) for s in (1, 2, 3)] for m in models] for n in degrees}


def largest_model(
    memory: float, stage: int, n: int, model_parallel: int = 1, k: float = PAPER_K
) -> float:
    """Parameters whose model states just fill `memory` bytes of each device (section 5).

    `n` data-parallel ranks, each a group of `model_parallel` devices that share one replica.
    """
    return model_parallel * memory / paper_bytes(1, stage, n, k)


def largest_model_table(
    memory: float = 32e9, n: int = 64, model_parallel: Iterable[int] = (1, 2, 4, 8, 16)
) -> dict[int, list[float]]:
    """The paper's table 2, theory: model-parallel degree M -> parameters at stages 0 to 3."""
    return {m: [largest_model(memory, stage, n, m) for stage in STAGES] for m in model_parallel}


# --- the paper: communication --------------------------------------------------------------------


def paper_volume(parameters: float, stage: int) -> float:
    """Elements moved per step and device, as the paper counts: an all-reduce is 2Ψ (section 7)."""
    return (3 if stage == 3 else 2) * parameters


def sent(parameters: float, stage: int, n: int) -> float:
    """Elements that each device really sends: a ring keeps 1/N at home."""
    return paper_volume(parameters, stage) * (n - 1) / n


# --- the paper: residual states (ZeRO-R) ---------------------------------------------------------

RECOMPUTE_COST = 1 / 3  # one more forward beside a forward and a backward, which costs two


def activation_values(hidden: int, batch: int, sequence: int, layers: int) -> int:
    """About how many activations a GPT keeps for backward (section 3.2): 12 a token and layer."""
    return 12 * checkpoint_values(hidden, batch, sequence, layers)


def checkpoint_values(hidden: int, batch: int, sequence: int, layers: int) -> int:
    """Activations that remain if only the input of each layer is kept and the rest recomputed."""
    return hidden * batch * sequence * layers


def checkpoint_bytes(
    hidden: int, batch: int, sequence: int, layers: int, model_parallel: int = 1, size: int = 2
) -> float:
    """Bytes of checkpoints per device with P_a over M model-parallel ranks (section 6.1).

    The checkpoints are replicated across the tensor-parallel ranks of one replica, not across
    data-parallel ranks, whose batches differ; so M divides them and N does not. P_a+cpu moves
    what remains to host memory.
    """
    return size * checkpoint_values(hidden, batch, sequence, layers) / model_parallel


def partition_volume(hidden: int, batch: int, sequence: int) -> int:
    """Elements that P_a adds per block: one all-gather of its checkpoint (section 8)."""
    return hidden * batch * sequence


def tensor_parallel_volume(hidden: int, batch: int, sequence: int) -> int:
    """Elements that tensor parallelism itself moves per block (section 8).

    Two all-reduces each in forward, recomputation and backward, every one counted twice.
    """
    return 3 * 2 * 2 * partition_volume(hidden, batch, sequence)


# --- after the paper -----------------------------------------------------------------------------


def zeropp_volume(
    parameters: float, *, qwz: bool = True, hpz: bool = True, qgz: bool = True
) -> dict[str, float]:
    """Values of 16 bits that cross between nodes per step with ZeRO++ (Wang et al., 2023).

    qwZ gathers the weights as int8; hpZ keeps a second copy of them inside each node, so the
    gather before backward stays there; qgZ sends the gradients as int4. All off: ZeRO-3's 3Ψ.
    """
    gather = parameters * (0.5 if qwz else 1)
    return {
        "gather before forward": gather,
        "gather before backward": 0 if hpz else gather,
        "reduce gradients": parameters * (0.25 if qgz else 1),
    }


def hpz_bytes(parameters: float, devices_per_node: int, size: int = 2) -> float:
    """Bytes per device of hpZ's second copy of the parameters, sharded inside the node."""
    return size * parameters / devices_per_node


# --- figures to read -----------------------------------------------------------------------------


def human(amount: float) -> str:
    """Bytes in three digits: "704 B", "41.3 GB", "1.12 TB" (1 GB = 1e9 bytes)."""
    return _short(amount, (" B", " kB", " MB", " GB", " TB", " PB"))


def human_count(amount: float) -> str:
    """A number of parameters in three digits: "174", "1.5B", "1.02T"."""
    return _short(amount, ("", "K", "M", "B", "T"))


def _short(amount: float, units: tuple[str, ...]) -> str:
    step = 0
    # 999.6 would be rounded to four digits, so it already belongs to the next unit.
    while abs(amount) >= 999.5 and step < len(units) - 1:
        amount, step = amount / 1000, step + 1
    if abs(amount) >= 999.5:
        return f"{amount:.0f}{units[step]}"
    # Halves go up, as in the paper's tables: 41.25 is printed 41.3.
    return f"{amount * (1 + 1e-12):.3g}{units[step]}"


def _check(stage: int, world_size: int, precision: str = "fp32") -> None:
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}: use 0 (DDP), 1, 2 or 3")
    if world_size < 1:
        raise ValueError(f"world size {world_size}: there must be at least one rank")
    if precision not in ELEMENT_BYTES:
        raise ValueError(f"unknown precision {precision!r}: use {', '.join(ELEMENT_BYTES)}")
