"""The command line's arguments: how they are read, checked and refused.

No torch here, so that `--help` and a mistyped argument answer at once. What only the package can
judge (which stages there are, which optimizers can be sharded) is checked by `demos.settings`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

PRECISIONS = ("fp32", "bf16", "fp16")


class UsageError(Exception):
    """The command line asks for something impossible; the message is one line with a remedy."""


class Parser(argparse.ArgumentParser):
    """An argument parser that refuses in one line, without the usage around it."""

    def error(self, message: str) -> NoReturn:
        sys.exit(complain(self.prog, message))


def complain(program: str, message: str) -> int:
    """Print the one line to stderr; the exit code that goes with it."""
    print(f"{program}: error: {message} (--help lists the arguments)", file=sys.stderr)
    return 2


# --- types ---------------------------------------------------------------------------------------


def count(text: str) -> int:
    """A whole number, at least 1."""
    number = _number(int, text, "a whole number")
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small; it must be at least 1")
    return number


def positive(text: str) -> float:
    """A number above zero."""
    number = _number(float, text, "a number")
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be above 0 and finite")
    return number


def ranks(text: str) -> int:
    """A number of ranks that this machine can bear: each is a process that wants to compute."""
    number, cores = count(text), os.cpu_count() or 1
    most = max(16, 4 * cores)
    if number > most:
        raise argparse.ArgumentTypeError(
            f"{number} ranks on {cores} cores would only wait for each other; at most {most} here"
        )
    return number


def stage_list(text: str) -> list[int]:
    """Stages as in "0,1,2": each is checked later, against those that the package has."""
    return [_number(int, part, "a stage (0, 1, 2 or 3)") for part in text.split(",")]


def output(text: str) -> Path:
    """A file that can be written. Its folder is made if need be."""
    path = Path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"folder {path.parent}: {error.strerror}") from None
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file in it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written; choose another place")
    return path


def _number(kind: type, text: str, what: str):
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None


# --- arguments that several subcommands share ----------------------------------------------------


def add_training(parser: argparse.ArgumentParser, *, steps: int, batch: int, lr: float) -> None:
    """How to train: ranks, steps, batch, precision, optimizer."""
    parser.add_argument("--steps", type=count, default=steps, help="steps (default: %(default)s)")
    parser.add_argument(
        "--batch",
        type=count,
        default=batch,
        help="sequences a rank and step (default: %(default)s)",
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="fp32",
        help="of parameters and gradients (default: %(default)s)",
    )
    parser.add_argument(
        "--optimizer",
        default="AdamW",
        help="AdamW, Adam or SGD, which gets a momentum of 0.9 (default: %(default)s)",
    )
    parser.add_argument(
        "--lr", type=positive, default=lr, help="learning rate (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of start weights and batches")


def add_text(parser: argparse.ArgumentParser) -> None:
    """What to train on."""
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="a UTF-8 text (default: the language reference that ships with Python)",
    )


def add_model(parser: argparse.ArgumentParser, *choices: str) -> None:
    """Which model; the first is the default."""
    text = "gpt has 0.8 million parameters, the larger ones have it in their name"
    if "mlp" in choices:
        text += "; an mlp of 0.1 million learns random numbers"
    parser.add_argument(
        "--model", choices=choices, default=choices[0], help=f"{text} (default: %(default)s)"
    )


def add_ranks(parser: argparse.ArgumentParser, default: int | None, shown: str) -> None:
    """How many processes."""
    parser.add_argument(
        "--ranks", type=ranks, default=default, help=f"processes to start (default: {shown})"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Where the figures go, for other programs."""
    parser.add_argument(
        "--json", type=output, metavar="FILE", help="write all figures to this file"
    )


def add_figure(parser: argparse.ArgumentParser, default: str) -> None:
    """Where the picture goes."""
    parser.add_argument(
        "--figure",
        type=output,
        metavar="FILE",
        default=default,
        help="write the picture, a PNG, to this file (default: %(default)s)",
    )
    parser.add_argument(
        "--no-figure", dest="figure", action="store_const", const=None, help="draw no picture"
    )


def add_activations(parser: argparse.ArgumentParser) -> None:
    """Compare ways to keep activations, not stages."""
    parser.add_argument(
        "--activations",
        nargs="+",
        choices=("none", "checkpoint", "partition", "offload"),
        metavar="MODE",
        help="compare ways to treat activations, at one stage: none, checkpoint (recompute), "
        "partition (over tensor-parallel ranks), offload (the parts, to host memory or a file)",
    )
    parser.add_argument(
        "--tp",
        type=count,
        metavar="RANKS",
        help="tensor-parallel ranks for --activations (default: 2); without modes, all of them",
    )


def add_offload(parser: argparse.ArgumentParser) -> None:
    """Compare memory with optimizer states in it and out of it."""
    parser.add_argument(
        "--offload",
        choices=("cpu", "disk"),
        help="compare the memory of whole processes, with optimizer states beside the model and "
        "in host memory (cpu, with a GPU) or in files (disk); draws no picture",
    )
