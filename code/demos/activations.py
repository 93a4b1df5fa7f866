"""`compare --activations`: the same GPT with its activations kept, recomputed, divided, offloaded.

All modes train in one launch, a step of each in turn, so that their times can be compared. The
ranks form a grid: tensor parallelism over its rows, ZeRO over its columns.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

import torch
from torch import nn

import zero
from demos import settings
from demos.arguments import UsageError
from demos.measure import digest, train_step
from demos.progress import Bar
from demos.settings import Training
from zero import comm, residual
from zero.activations import checkpoint_blocks
from zero.meter import Meter
from zero.tensor_parallel import mesh, parallelize

SECONDS = 600.0  # that all of it may take
DEFAULT_STAGE = 2
DEFAULT_TP = 2


@dataclass
class Kept:
    """One rank in one mode. Bytes of activations: after forward, and the peak of a step.

    `seconds` are those of each step but the first; `timeline` are the bytes of activations alive
    at every change in a step.
    """

    mode: str
    losses: list[float]
    weights: str
    predicted: int
    measured: int
    peak: int
    sent_predicted: dict[str, int]
    sent: dict[str, int]
    seconds: list[float]
    timeline: list[int]


@dataclass
class Comparison:
    """What all ranks found, by mode; the grid that they formed, and the stage of ZeRO."""

    modes: dict[str, list[Kept]]
    dp: int
    tp: int
    stage: int
    parameters: int
    precision: str

    def as_json(self) -> dict:
        """Everything but the timelines."""
        runs = {m: [asdict(r) for r in ranks] for m, ranks in self.modes.items()}
        for ranks in runs.values():
            for rank in ranks:
                del rank["timeline"]
        return {
            "grid": {"dp": self.dp, "tp": self.tp},
            "stage": self.stage,
            "torch": torch.__version__,
            "model": {"parameters": self.parameters},
            "runs": runs,
        }

    def wrong_figures(self) -> list[str]:
        """Where a rank measured other bytes than predicted: one line for each."""
        wrong = []
        for mode, ranks in self.modes.items():
            for number, rank in enumerate(ranks):
                pairs = [("activations", rank.predicted, rank.measured)]
                pairs += [
                    (f"sent for {k}", v, rank.sent[k]) for k, v in rank.sent_predicted.items()
                ]
                wrong += [
                    f"{mode}, rank {number}: {what} {measured:,}, predicted {predicted:,}"
                    for what, predicted, measured in pairs
                    if predicted != measured
                ]
        return wrong

    def bitwise_equal(self) -> bool:
        """Are losses and final weights of every rank the same bits in all modes?"""
        by_mode = [[(r.losses, r.weights) for r in ranks] for ranks in self.modes.values()]
        return all(found == by_mode[0] for found in by_mode)


def run(args) -> int:
    """Run the subcommand; the exit code."""
    from demos import activations_report as report  # draws: matplotlib is slow to import

    modes = args.activations or list(residual.MODES)
    tp = args.tp or DEFAULT_TP
    stages = settings.stages(args, [DEFAULT_STAGE])
    check(args, modes, tp, stages)
    training = settings.training(args, args.ranks // tp)
    model = training.model()
    heads = model.blocks[0].attention.heads
    if heads % tp:
        raise UsageError(f"{heads} heads cannot be divided among --tp {tp} ranks")
    with Bar(total=training.steps) as bar:
        bar.name("activations")
        found = zero.launch(
            measure, args.ranks, training, stages[0], modes, tp, timeout=SECONDS, live=bar.advance
        )
    comparison = Comparison(
        modes={mode: [rank[mode] for rank in found] for mode in modes},
        dp=args.ranks // tp,
        tp=tp,
        stage=stages[0],
        parameters=sum(p.numel() for p in model.parameters()),
        precision=training.precision,
    )
    report.show(comparison)
    if args.figure:
        report.draw(comparison, args.figure)
        print(f"figure: {args.figure}")
    if args.json:
        args.json.write_text(json.dumps(comparison.as_json(), indent=1) + "\n")
        print(f"json: {args.json}")
    # The figures are those of the CPU's kernels; a GPU's may save other tensors.
    return 1 if comparison.wrong_figures() and not torch.cuda.is_available() else 0


def check(args, modes: list[str], tp: int, stages: list[int]) -> None:
    """Raise UsageError for what cannot be compared."""
    settings.refuse_torchrun("compare")
    if len(set(modes)) < len(modes):
        raise UsageError(f"activations {' '.join(modes)}: each only once, please")
    if len(stages) > 1:
        raise UsageError("with --activations name one stage, for example --stages 2")
    if args.model == "mlp":
        raise UsageError("--activations needs a model with blocks: --model gpt")
    if args.precision == "fp16":
        raise UsageError("--activations runs in fp32 or bf16")
    if args.ranks % tp:
        raise UsageError(f"{args.ranks} ranks cannot form rows of {tp}: choose --tp to divide them")


def measure(
    rank: int, world_size: int, training: Training, stage: int, modes: list[str], tp: int
) -> dict[str, Kept]:
    """Train in every mode in turn, measuring. Runs on every rank at once."""
    grid = mesh(world_size // tp, tp)
    dp = grid.get_local_rank("dp")
    batches = training.batches(dp, world_size // tp)
    trained = {mode: build(training, stage, mode, grid) for mode in modes}
    losses: dict[str, list[float]] = {mode: [] for mode in modes}
    seconds: dict[str, list[float]] = {mode: [] for mode in modes}
    for step in range(training.steps):
        for mode, (model, opt) in trained.items():
            comm.barrier()
            start = time.perf_counter()
            losses[mode].append(train_step(model, opt, batches(step)))
            if step or training.steps == 1:  # the first step also makes the optimizer's states
                seconds[mode].append(time.perf_counter() - start)
        if rank == 0:
            print(step, flush=True)
    found = {}
    for mode, (model, opt) in trained.items():
        predicted, sent_predicted = predictions(training, model, mode, tp)
        found[mode] = Kept(
            mode=mode,
            losses=losses[mode],
            weights=digest(model, opt),
            predicted=predicted,
            sent_predicted=sent_predicted,
            seconds=seconds[mode],
            **look(model, opt, batches(training.steps)),
        )
    return found


def build(training: Training, stage: int, mode: str, grid) -> tuple[nn.Module, zero.ZeroOptimizer]:
    """The model, cut over a row and checkpointed; its optimizer, sharded over a column."""
    model = parallelize(training.model().to(comm.device()), grid.get_group("tp"))
    elsewhere = "cpu" if comm.device().type == "cuda" else "disk"
    options = {
        "none": None,
        "checkpoint": {},
        "partition": {"partition": grid.get_group("tp")},
        "offload": {"partition": grid.get_group("tp"), "offload": elsewhere},
    }[mode]
    if options is not None:
        checkpoint_blocks(model, **options)
    return model, training.shard(model, stage, grid.get_group("dp"))


def look(model: nn.Module, opt: zero.ZeroOptimizer, batch: tuple) -> dict:
    """One more step, watched: activations after forward, what was sent for them, the timeline."""
    opt.zero_grad()
    # Copies, because a batch of one is two views of the same tokens, which would count once.
    x, y = (part.to(comm.device(), copy=True) for part in batch)
    with Meter(model, opt) as meter, comm.record() as log:
        meter.watch(x, y)
        loss = model(x, y)
        measured = meter.mark("after forward")["activations"]
        loss.backward()
        meter.mark("after backward")
    return {
        "measured": measured,
        "peak": meter.peaks()["activations"],
        "sent": {
            "tensor parallelism": _sent(log, "tensor-parallel", "parts of the outputs"),
            "checkpoints": _sent(log, "a checkpoint"),
        },
        "timeline": [moment.live["activations"] for moment in meter.timeline()],
    }


def _sent(log: comm.Log, *names: str) -> int:
    return sum(e.bytes for e in log.entries if e.name.startswith(names))


def predictions(
    training: Training, model: nn.Module, mode: str, tp: int
) -> tuple[int, dict[str, int]]:
    """What the formulas say: bytes of activations, and bytes sent for them."""
    size = 4 if training.precision == "fp32" else 2
    width, layers = model.ln_f.normalized_shape[0], len(model.blocks)
    shape = (training.batch, model.block_size, width)
    heads = model.blocks[0].attention.heads * tp
    kept = residual.activations(mode, layers, *shape, heads, model.vocab_size, tp, size=size)
    divided = mode in ("partition", "offload")
    return kept, {
        "tensor parallelism": residual.tensor_parallel_sent(
            mode, layers, *shape, model.vocab_size, tp, size
        ),
        "checkpoints": residual.partition_sent(layers, *shape, tp, size) if divided else 0,
    }
