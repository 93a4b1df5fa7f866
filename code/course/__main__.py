"""``python -m course check|start|hint|progress|reset|doctor|build``."""

from __future__ import annotations

import argparse
import sys

from course import commands, registry


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit status is returned."""
    given = _parser().parse_args(arguments)
    try:
        return given.run(given) or 0
    except registry.UnknownExercise as error:
        print(error, file=sys.stderr)
        return 64


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m course", description="The course.")
    commands_of = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run, help: str) -> argparse.ArgumentParser:
        sub = commands_of.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        return sub

    sub = command("check", lambda a: commands.exit_status(a.path), "grade one, or all begun")
    sub.add_argument("path", nargs="?", help="an exercise, such as zero.flat.flatten_params")
    sub = command("start", lambda a: commands.start(a.path), "make the file to write in")
    sub.add_argument("path")
    sub = command("hint", lambda a: commands.hint(a.path, a.number), "a hint: 1, 2 or 3")
    sub.add_argument("path")
    sub.add_argument("number", nargs="?", type=int, default=1)
    command("progress", lambda a: commands.progress(), "what is solved, what is open")
    sub = command("reset", lambda a: commands.reset(a.path), "start again; a copy is kept")
    sub.add_argument("path")
    command("doctor", _doctor, "can this machine run the course?")
    sub = command("build", _build, "for authors: make lessons/ and solutions/")
    sub.add_argument("lesson", nargs="*", help="only these: 01_flat")
    sub.add_argument("--check", action="store_true", help="write nothing; fail on any difference")
    sub.add_argument("--no-run", action="store_true", help="do not execute the solutions")
    return parser


def _doctor(given: argparse.Namespace) -> int:
    from zero import doctor

    return doctor.main()


def _build(given: argparse.Namespace) -> int:
    from course import build

    try:
        make = build.check if given.check else build.build
        return make(given.lesson, run=not given.no_run)
    except build.BuildError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
