"""`checkpoint`: look into a checkpoint, verify it, make one plain file of it."""

from __future__ import annotations

import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import zero
from demos.settings import rank_count, stage_name
from zero import formulas
from zero.checkpoint import CheckpointError


def run(args) -> int:
    """Run the subcommand; the exit code. 1: there is no complete checkpoint, or a broken one."""
    try:
        if args.action == "verify":
            return verify(Path(args.folder))
        if args.action == "export":
            return export(args)
        inspect(args.folder, args.slices)
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def verify(folder: Path) -> int:
    """Every byte of every checkpoint in a folder; one line each."""
    broken = 0
    for path in zero.checkpoint.find_all(folder):
        try:
            files = zero.checkpoint.verify(path)["files"]
            print(f"{path}: complete, {len(files)} files, {size(files)}")
        except CheckpointError as error:
            broken += 1
            print(f"{path}: broken: {error}")
    return 1 if broken else 0


def export(args) -> int:
    """One plain file."""
    if args.file is None:
        raise CheckpointError("export needs the name of the new file: checkpoint export DIR FILE")
    path = zero.checkpoint.export(args.folder, args.file, args.precision)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB, {args.precision}")
    return 0


def inspect(folder: str, with_slices: bool) -> None:
    """What is in the latest checkpoint of a folder."""
    found = zero.checkpoint.inspect(folder)
    parameters = found["parameters"]
    numel = sum(count(p) for p in parameters.values())
    frozen = sum(count(p) for p in parameters.values() if not p["trainable"])
    names = sum(len(p["tied"]) for p in parameters.values())
    optimizer = found["optimizer"]
    scale = found["loss_scale"]
    facts = [
        ("step", f"{found['step']}, of which {found['skipped']} updates were skipped"),
        ("saved by", f"{rank_count(found['world_size'])}, {stage_name(found['stage'])}"),
        ("precision", found["precision"] + (f", loss scale {scale['scale']:g}" if scale else "")),
        ("parameters", f"{formulas.human_count(numel)}, {len(parameters)} tensors"),
        ("frozen", formulas.human_count(frozen) if frozen else "none"),
        ("tied names", str(names) if names else "none"),
        ("buffers", str(len(found["buffers"]) or "none")),
        ("optimizer", optimizer["class"].rpartition(".")[2]),
        ("groups", ", ".join(f"lr {group['lr']:g}" for group in optimizer["groups"])),
        ("scheduler", "yes" if found["scheduler"] else "no"),
        ("extra", shorten(repr(found["extra"]))),
        ("size", f"{size(found['files'])} in {len(found['files'])} files"),
    ]
    print(found["folder"])
    for name, text in facts:
        print(f"{name:12}{text}")
    if with_slices:
        Console(highlight=False).print(slices_table(parameters))


def slices_table(parameters: dict) -> Table:
    """Which elements of which parameter are in which rank's file."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("parameter", "shape", "dtype", "rank: elements"):
        table.add_column(title)
    for name, p in parameters.items():
        parts = [
            f"{int(s['file'][5:10])}: {s['offset']}-{s['offset'] + s['length']}"
            for s in p["slices"]
        ]
        shape = " x ".join(map(str, p["shape"])) or "scalar"
        table.add_row(name, shape, p["dtype"], ", ".join(parts))
    return table


def count(parameter: dict) -> int:
    """Its number of elements."""
    return sum(part["length"] for part in parameter["slices"])


def size(files: dict) -> str:
    """The bytes of all files, in MB."""
    return f"{sum(file['bytes'] for file in files.values()) / 1e6:.2f} MB"


def shorten(text: str, most: int = 60) -> str:
    """The text, or its beginning."""
    return text if len(text) <= most else text[: most - 3] + "..."
