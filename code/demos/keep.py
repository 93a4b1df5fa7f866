"""`train --save` and `--resume`: checkpoints on the way, and where in the text to go on."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from torch import nn

import zero
from demos.arguments import UsageError
from demos.settings import Training

EVERY = 100  # steps between two checkpoints, unless --save-every says otherwise


@dataclass(frozen=True)
class Keep:
    """Where checkpoints go (`save`) and come from (`resume`); None is nowhere."""

    save: str | None
    every: int
    resume: str | None
    background: bool

    def start(self, training: Training, model: nn.Module, opt, scheduler, say) -> tuple[int, int]:
        """Resume, if that was asked for. The steps done, and the steps' batches read. Collective.

        On another number of ranks, or with another batch, a step reads another number of sequences;
        the data goes on behind the last sequence that was read.
        """
        if self.resume is None:
            return 0, 0
        at = zero.checkpoint.load(self.resume, model, opt, scheduler=scheduler)
        say(f"step {at.step:5}   resumed from {at.folder}")
        return at.step, -(-at.extra["sequences"] // (training.batch * opt.world_size))

    def after(self, step: int, read: int, training: Training, model, opt, scheduler, say) -> None:
        """A step is over, and `read` batches have been read: save if it is time to. Collective."""
        last = step == training.steps
        if self.save is None or (step % self.every and not last):
            return
        extra = {
            "sequences": read * training.batch * opt.world_size,
            "characters": training.tokenizer().characters,
        }
        path = zero.checkpoint.save(
            *(self.save, model, opt, step, extra), scheduler=scheduler, async_save=self.background
        )
        if last and self.background:
            path = zero.checkpoint.wait()
        say(f"step {step:5}   " + (f"saved {path}" if path else "being saved in the background"))


def asked_for(args, training: Training) -> Keep:
    """What the command line asks for. Raises UsageError for folders that cannot be used."""
    if args.save is None:
        for value, name in ((args.save_every, "--save-every"), (args.async_save, "--async-save")):
            if value:
                raise UsageError(f"{name} needs --save DIR")
    else:
        _check_writable(args.save)
    resume = args.save if args.resume == "" else args.resume
    if args.resume == "" and resume is None:
        raise UsageError("--resume needs a folder, or --save DIR to take it from there")
    if resume is not None:
        _check_resumable(resume, training)
    return Keep(args.save, args.save_every or EVERY, resume, args.async_save)


def _check_resumable(folder: str, training: Training) -> None:
    """Is there a checkpoint, and of a model that reads the same characters?"""
    try:
        candidates = zero.checkpoint.find_all(folder)
    except zero.checkpoint.CheckpointError as error:
        raise UsageError(f"--resume: {error}") from None
    with contextlib.suppress(zero.checkpoint.CheckpointError):  # `load` finds a complete one
        extra = zero.checkpoint.inspect(candidates[0])["extra"]
        if not isinstance(extra, dict) or "characters" not in extra:
            raise UsageError(f"--resume: {candidates[0]} was not saved by train")
        if extra["characters"] != training.tokenizer().characters:
            raise UsageError(
                f"--resume: {candidates[0]} was trained on a text with other characters; name that "
                f"text with --text"
            )


def _check_writable(folder: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--save: {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--save: {folder} cannot be written; choose another place")
