"""`train`: a small GPT learns to write like the text it is given.

The same function runs in every case: alone, on ranks that it starts, and under torchrun.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

import torch
from torch import nn

import zero
from demos import keep, settings
from demos.arguments import UsageError
from demos.measure import train_step
from demos.settings import Batch, Training
from zero import comm

EVAL_BATCHES = 16  # of each rank, for the validation loss
WARM_UP = 20  # steps in which the learning rate rises
SAMPLE_SEED = 1234


def run(args) -> int:
    """Run the subcommand; the exit code."""
    settings.check_stages([args.stage])
    ranks = _world_size(args)
    training = settings.training(args, ranks)
    training.validation(0, ranks, 1)  # refuses a text of which too little is held out
    kept = keep.asked_for(args, training)
    how = (training, args.stage, args.eval_every, args.clip, args.sample, kept)
    if ranks == 1 and not settings.under_torchrun():
        # Alone, in this process, with all cores.
        comm.init()
        train(0, 1, *how)
    else:
        zero.launch(train, ranks, *how, timeout=None, live=print_at_once)
    comm.shutdown()
    return 0


def _world_size(args) -> int:
    asked = args.ranks
    if not settings.under_torchrun():
        return asked or 2
    given = int(os.environ["WORLD_SIZE"])
    if asked not in (None, given):
        raise UsageError(f"torchrun has started {given} ranks, so --ranks {asked} cannot be had")
    return given


def train(
    rank: int,
    world_size: int,
    training: Training,
    stage: int,
    eval_every: int,
    clip: float | None,
    sample: int,
    kept: keep.Keep,
) -> float:
    """Train on every rank at once; rank 0 prints. The last validation loss, in nats a character."""
    say = print_at_once if rank == 0 else lambda line: None
    model = training.model().to(comm.device())
    opt = training.shard(model, stage)
    batches = training.batches(rank, world_size)
    validation = training.validation(rank, world_size, EVAL_BATCHES)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, rate_of(training.steps))
    characters = training.batch * model.block_size * world_size

    def evaluated(step: int) -> float:
        loss = evaluate(model, validation)
        say(f"step {step:5}   validation loss {loss:.4f}")
        return loss

    say(
        f"{settings.stage_name(stage)}, {training.task}: {settings.rank_count(world_size)}, "
        f"{training.precision}, {characters} characters a step; losses in nats a character"
    )
    done, read = kept.start(training, model, opt, scheduler, say)
    loss = evaluated(done)
    since, steps_since = time.perf_counter(), 0
    for step in range(done + 1, training.steps + 1):
        batch_loss = train_step(model, opt, batches(read), clip)
        read += 1
        if opt.stepped:
            scheduler.step()
        kept.after(step, read, training, model, opt, scheduler, say)
        steps_since += 1
        if step % eval_every and step < training.steps:
            continue
        speed = characters * steps_since / (time.perf_counter() - since)
        say(f"step {step:5}   loss {batch_loss:.4f}   {speed:,.0f} tokens/s")
        loss = evaluated(step)
        since, steps_since = time.perf_counter(), 0
    if sample:
        say("\n" + write(model, training.tokenizer(), sample))
    return loss


def rate_of(steps: int) -> Callable[[int], float]:
    """The learning rate as a part of its maximum, step by step.

    It rises in WARM_UP steps, then falls by a cosine to a tenth.
    """

    def rate(step: int) -> float:
        rise = min(1.0, (step + 1) / WARM_UP)
        return rise * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, step / steps))))

    return rate


@torch.no_grad()
def evaluate(model: nn.Module, batches: list[Batch]) -> float:
    """Mean loss over the batches of all ranks; the same value on each. Collective."""
    model.eval()
    total = sum(model(*(part.to(comm.device()) for part in batch)).float() for batch in batches)
    model.train()
    mine = (total / len(batches)).reshape(1)
    return comm.all_gather_small(mine, name="validation loss").mean().item()


def write(model: nn.Module, tokenizer: zero.text.Tokenizer, count: int) -> str:
    """What the model writes after a line break. All ranks must call it together."""
    generator = torch.Generator(comm.device()).manual_seed(SAMPLE_SEED)
    start = tokenizer.encode("\n" if "\n" in tokenizer.characters else tokenizer.characters[0])
    tokens = model.generate(start[None].to(comm.device()), count, generator=generator)
    return tokenizer.decode(tokens).strip()


def print_at_once(line: str) -> None:
    """Print and flush: the reader follows a run of minutes."""
    print(line, flush=True)
