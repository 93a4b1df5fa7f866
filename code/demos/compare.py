"""`compare`: the same model on the same data with plain data parallelism and with ZeRO.

Each stage trains on fresh ranks, from the same start weights and on the same batches. What differs
is what a rank keeps and what it sends; what must not differ is the result.
"""

from __future__ import annotations

import json

import zero
from demos import activations, figure, offload, settings, table
from demos.measure import measure
from demos.progress import Bar
from demos.results import Comparison, Run, wrong_figures
from zero.front import STAGES

SECONDS = 600.0  # that one stage may take


def run(args) -> int:
    """Run the subcommand; the exit code."""
    if args.offload:
        return offload.run(args)
    if args.activations or args.tp:
        return activations.run(args)
    stages = settings.stages(args, list(STAGES))
    settings.refuse_torchrun("compare")
    training = settings.training(args, args.ranks)
    comparison = compare(training, stages, args.ranks)
    table.show(comparison)
    if args.figure:
        figure.draw(comparison, args.figure)
        print(f"figure: {args.figure}")
    if args.json:
        args.json.write_text(json.dumps(comparison.as_json(), indent=1) + "\n")
        print(f"json: {args.json}")
    return 0 if not wrong_figures(comparison) else 1


def compare(training: settings.Training, stages: list[int], ranks: int) -> Comparison:
    """Train and measure at each stage, with a progress bar in a terminal."""
    runs = []
    with Bar(total=len(stages) * training.steps) as bar:
        for stage in stages:
            bar.name(settings.stage_name(stage))
            found = zero.launch(measure, ranks, training, stage, timeout=SECONDS, live=bar.advance)
            runs.append(Run(stage, training.precision, found))
    return Comparison(ranks, training.task, runs)
