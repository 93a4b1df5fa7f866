"""The command line: `python code/main.py` compares, `python code/main.py COMMAND --help` explains.

Each subcommand is a module of `demos`, which is imported when it is asked for: its arguments stand
here, its `run(args)` does the work and returns the exit code.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from demos import arguments
from demos.arguments import Parser, UsageError, complain


def compare_arguments(parser: Parser) -> None:
    """Arguments of `compare`."""
    parser.add_argument(
        "--stages",
        type=arguments.stage_list,
        nargs="+",
        metavar="STAGE",
        help="0 is plain data parallelism, 1 to 3 are ZeRO's stages (default: all)",
    )
    arguments.add_model(parser, "gpt", "gpt-3m", "gpt-30m", "gpt-126m", "mlp")
    arguments.add_ranks(parser, 4, "4")
    arguments.add_training(parser, steps=20, batch=4, lr=1e-3)
    arguments.add_activations(parser)
    arguments.add_offload(parser)
    arguments.add_text(parser)
    arguments.add_json(parser)
    arguments.add_figure(parser, default="runs/compare.png")


def train_arguments(parser: Parser) -> None:
    """Arguments of `train`."""
    parser.add_argument(
        "--stage", type=int, default=2, help="0 is plain data parallelism (default: %(default)s)"
    )
    arguments.add_model(parser, "gpt", "gpt-3m", "gpt-30m")
    arguments.add_ranks(parser, None, "2; under torchrun its ranks")
    arguments.add_training(parser, steps=600, batch=8, lr=3e-3)
    arguments.add_text(parser)
    parser.add_argument(
        "--eval-every",
        type=arguments.count,
        default=100,
        metavar="STEPS",
        help="steps between two looks at the validation loss (default: %(default)s)",
    )
    parser.add_argument(
        "--clip",
        type=arguments.positive,
        metavar="NORM",
        help="scale gradients down to this norm (default: never)",
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=300,
        metavar="CHARACTERS",
        help="length of the text that the model writes at the end (default: %(default)s)",
    )
    add_keeping(parser)


def add_keeping(parser: Parser) -> None:
    """Checkpoints of `train`."""
    parser.add_argument("--save", metavar="DIR", help="save checkpoints in this folder")
    parser.add_argument(
        "--save-every",
        type=arguments.count,
        metavar="STEPS",
        help="steps between two checkpoints (default: 100); the last step is saved too",
    )
    parser.add_argument(
        "--async-save", action="store_true", help="write checkpoints while training goes on"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="DIR",
        help="go on from the latest checkpoint in DIR (without DIR: where --save puts them)",
    )


def checkpoint_arguments(parser: Parser) -> None:
    """Arguments of `checkpoint`."""
    parser.add_argument(
        "action",
        choices=("inspect", "verify", "export"),
        help="show what is in it; check every byte; write all weights to one plain file",
    )
    parser.add_argument(
        "folder", metavar="DIR", help="a checkpoint, or the folder that train --save names"
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="of export: the new file")
    parser.add_argument(
        "--precision",
        choices=arguments.PRECISIONS,
        default="fp32",
        help="of export: the format of the weights (default: %(default)s)",
    )
    parser.add_argument(
        "--slices",
        action="store_true",
        help="of inspect: list which elements of each parameter are in which file",
    )


def bench_arguments(parser: Parser) -> None:
    """Arguments of `bench`."""
    parser.add_argument(
        "--models",
        choices=("3m", "30m"),
        nargs="+",
        help="3 million parameters on 4 ranks, 30 million on 2 (default: both)",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.count,
        default=15,
        help="timed steps of each system (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="WORD",
        help="only systems with one of these words in their name, beside DDP",
    )
    arguments.add_text(parser)
    arguments.add_json(parser)
    arguments.add_figure(parser, default="runs/bench.png")


def profile_arguments(parser: Parser) -> None:
    """Arguments of `profile`."""
    parser.add_argument(
        "--stage", type=int, default=3, help="0 is plain data parallelism (default: %(default)s)"
    )
    arguments.add_model(parser, "gpt", "gpt-3m", "gpt-30m", "mlp")
    arguments.add_ranks(parser, 4, "4")
    arguments.add_training(parser, steps=1, batch=4, lr=1e-3)
    arguments.add_text(parser)
    arguments.add_figure(parser, default="runs/profile.png")


@dataclass(frozen=True)
class Command:
    """A subcommand: what it is for, its module, its arguments."""

    summary: str
    module: str
    add_arguments: Callable[[Parser], None]


COMMANDS = {
    "compare": Command(
        "train the same model with plain data parallelism and with ZeRO, and compare (default)",
        "demos.compare",
        compare_arguments,
    ),
    "train": Command(
        "train a small GPT on text; alone, on ranks of its own, or under torchrun",
        "demos.train",
        train_arguments,
    ),
    "checkpoint": Command(
        "look into a checkpoint of train, verify it, make one plain file of it",
        "demos.checkpoint",
        checkpoint_arguments,
    ),
    "bench": Command(
        "time a step beside DDP, ZeroRedundancyOptimizer, fully_shard and DeepSpeed",
        "demos.bench",
        bench_arguments,
    ),
    "profile": Command(
        "one step on a time line: what each rank does when, and what is in memory",
        "demos.profile",
        profile_arguments,
    ),
}


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="main.py",
        description="ZeRO from scratch: what it saves, what it sends, and that it trains the same.",
        epilog="Without a command it compares. Each command has its own --help.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.summary, description=command.summary)
        command.add_arguments(sub)
        sub.add_argument(
            "--mine",
            action="store_true",
            help="run on the pieces that you have written yourself (in mine/) where there are any",
        )
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; its exit code. 1 is a failure on the ranks, 2 a wrong argument."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        argv.insert(0, "compare")
    args = parser().parse_args(argv)
    if args.mine:
        use_mine()
    command = importlib.import_module(COMMANDS[args.command].module)
    import zero

    try:
        code = command.run(args)
        sys.stdout.flush()
        return code
    except (UsageError, zero.text.TextError) as error:
        return complain(f"main.py {args.command}", str(error))
    except (zero.RankError, zero.disk.CheckpointError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes stdout once more at its end
        return 1


def use_mine() -> None:
    """Put the learner's pieces into the package, before anything of it has been imported."""
    from course.mine import use_mine as put_in_place

    print(put_in_place(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
