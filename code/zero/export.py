"""A checkpoint as one plain file: weights that an ordinary model loads, without ranks or optimizer.

    python code/main.py checkpoint export runs/a weights.safetensors --precision bf16

    model.load_state_dict(safetensors.torch.load_file("weights.safetensors"), strict=True)

Runs in one process without `torch.distributed`, and never holds more than a few MB of the weights.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from . import disk, shards
from .disk import CheckpointError
from .find import Found, alone, find
from .manifest import file_of

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def export(folder: str | Path, file: str | Path, precision: str = "fp32") -> Path:
    """Write all weights and buffers of a checkpoint, or of the latest in `folder`, to `file`.

    The names are those of `model.state_dict()`; tied weights come under each of theirs. Parameters
    are converted to `precision`, "fp32", "bf16" or "fp16", unless they are integers; buffers keep
    their dtype. Every byte of the checkpoint is verified first. An existing `file` is replaced,
    once the new one is complete. Returns its path. Raises CheckpointError.
    """
    if precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise CheckpointError(f"precision={precision!r} is unknown; choose one of {known}")
    found = find(Path(folder).absolute(), "latest", alone, "export")
    if found is None:
        raise CheckpointError(f"{folder} holds no checkpoint")
    file = Path(file)
    plan = _plan(found.manifest, PRECISIONS[precision])
    half_done = file.with_name(f".{file.name}.part")
    half_done.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        stack.callback(half_done.unlink, missing_ok=True)
        with disk.Writer(half_done) as out:
            out.write(shards.header((name, dtype, shape) for name, dtype, shape, _ in plan))
            for _, dtype, _, parts in plan:
                for where, key, length in parts:
                    _copy(found, where, key, length, dtype, out)
        disk.rename(half_done, file)
        disk.sync(file.absolute().parent)
    return file


def _plan(manifest: dict, wanted: torch.dtype) -> list[tuple]:
    """Every tensor of the new file: name, dtype, shape, parts; a part is (file, key, length)."""
    plan = []
    for name, entry in manifest["parameters"].items():
        dtype = getattr(torch, entry["dtype"])
        dtype = wanted if dtype.is_floating_point else dtype
        parts = [(s["file"], f"value/{name}", s["length"]) for s in entry["slices"]]
        for key in (name, *entry["tied"]):
            plan.append((key, dtype, tuple(entry["shape"]), parts))
    for name, entry in manifest["buffers"].items():
        shape = tuple(entry["shape"])
        parts = [(file_of(0), f"buffer/{name}", torch.Size(shape).numel())]
        plan.append((name, getattr(torch, entry["dtype"]), shape, parts))
    return sorted(plan, key=lambda tensor: -tensor[1].itemsize)  # see shards.write_shard


def _copy(found: Found, file: str, key: str, length: int, dtype: torch.dtype, out) -> None:
    """Append one tensor of a shard file to `out`, a few MB at a time."""
    stored = shards.read_header(found.folder / file)[key]
    with disk.reading(found.folder / file) as opened:
        for first in range(0, length, shards.PIECE // 8):
            values = torch.empty(min(shards.PIECE // 8, length - first), dtype=dtype)
            shards.read_into(opened, stored, first, values)
            out.write(memoryview(values.view(torch.uint8).numpy()))
