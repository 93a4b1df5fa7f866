"""`compare --offload`: optimizer states beside the model or elsewhere, as the system counts memory.

Elsewhere in `compare` the bytes of tensors are counted, exactly. Here it is the memory that each
process occupies, Python, libraries and the allocator's reserve included: what decides whether a
machine can bear the job.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import torch

import zero
from demos import offload_report, settings
from demos.arguments import UsageError
from demos.measure import digest, predictions, train_step
from demos.progress import Bar
from demos.settings import MOMENTS, Training, stage_name
from zero import comm, formulas
from zero.meter import rss

SECONDS = 600.0  # that one run may take
DEFAULT_STAGES = [0, 1]


@dataclass
class Occupied:
    """One rank of one run. Bytes: of the process after the last step, and at its highest.

    `states` are the predicted bytes of the model states, by kind; `slice_states` those of the
    largest slice's optimizer states: slices are updated one by one where states are on disk.
    """

    parameters: int
    losses: list[float]
    weights: str
    states: dict[str, int]
    slice_states: int
    now: int
    peak: int


@dataclass
class Run:
    """A stage, with its optimizer states at a `place` (None: beside the model); all its ranks."""

    stage: int
    place: str | None
    ranks: list[Occupied]

    @property
    def name(self) -> str:
        """DDP; ZeRO-1; ZeRO-1, states on disk; ..."""
        where = {None: "", "cpu": ", states on the host", "disk": ", states on disk"}
        return stage_name(self.stage) + where[self.place]

    @property
    def states_in_memory(self) -> int:
        """Predicted bytes of rank 0's model states that are in its memory, in the update."""
        rank_0 = self.ranks[0]
        optimizer = {None: rank_0.states["optimizer"], "cpu": 0, "disk": rank_0.slice_states}
        return rank_0.states["parameters"] + rank_0.states["gradients"] + optimizer[self.place]


def run(args) -> int:
    """Run the subcommand; the exit code."""
    stages = settings.stages(args, DEFAULT_STAGES)
    check(args, stages)
    training = settings.training(args, args.ranks)
    ways = [(s, place) for s in stages for place in (None, args.offload) if s or not place]
    runs = []
    with Bar(total=len(ways) * training.steps) as bar:
        for way in ways:
            bar.name(stage_name(way[0]))
            how = {"timeout": SECONDS, "live": bar.advance}
            runs.append(Run(*way, zero.launch(measure, args.ranks, training, *way, **how)))
    offload_report.show(training, runs)
    if args.json:
        found = [{"name": r.name, "ranks": [asdict(o) for o in r.ranks]} for r in runs]
        args.json.write_text(json.dumps({"torch": torch.__version__, "runs": found}) + "\n")
        print(f"json: {args.json}")
    return 0


def check(args, stages: list[int]) -> None:
    """Raise UsageError for what cannot be compared."""
    settings.refuse_torchrun("compare")
    if args.activations or args.tp:
        raise UsageError("--offload and --activations are two comparisons; ask for one of them")
    if stages == [0]:
        raise UsageError("plain data parallelism has nothing to offload; add a stage from 1 to 3")
    if args.offload == "cpu" and not torch.cuda.is_available():
        raise UsageError("without a GPU all states are in host memory; choose --offload disk")


def measure(
    rank: int, world_size: int, training: Training, stage: int, place: str | None
) -> Occupied:
    """Train, and look at the memory of the process. Runs on every rank at once."""
    zero.heap.return_large_blocks()  # in every run: memory kept for later counts in none
    model = training.model().to(comm.device())
    opt = training.shard(model, stage, offload_optimizer=place)
    batches = training.batches(rank, world_size)
    losses = []
    for step in range(training.steps):
        losses.append(train_step(model, opt, batches(step)))
        if rank == 0:
            print(step, flush=True)
    opt.zero_grad()
    now, peak = occupied()  # before the digest, which copies weights
    moments = MOMENTS[training.optimizer]
    states, _ = predictions(opt, moments)
    largest = max(s.param.numel() for s in opt.slices)
    return Occupied(
        parameters=sum(bucket.layout.numel for bucket in opt.buckets),
        losses=losses,
        weights=digest(model, opt),
        states=states,
        slice_states=formulas.model_states([largest], 3, 1, opt.precision.name, moments).optimizer,
        now=now,
        peak=peak,
    )


def occupied() -> tuple[int, int]:
    """Bytes now and at the peak: of the process, or of its part of the GPU's memory."""
    if comm.device().type == "cuda":
        return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    return rss()
