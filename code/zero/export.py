"""A checkpoint as one plain file: weights that an ordinary model loads, without ranks or optimizer.

    python code/main.py checkpoint export runs/a weights.safetensors --precision bf16

    model.load_state_dict(safetensors.torch.load_file("weights.safetensors"), strict=True)

Runs in one process without `torch.distributed`, and holds no more than a few MB of the weights; of
a tensor-parallel model, whose parts are put together again, one parameter at a time.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path

import torch

from . import disk, shards
from .disk import CheckpointError
from .find import alone, find
from .manifest import file_of

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Source:
    """Where the values of a tensor lie: its shape, and (file, name there, length) of each piece."""

    shape: list[int]
    pieces: list[tuple[str, str, int]]


@dataclass
class Exported:
    """A tensor of the new file, and where it comes from: one source, or the parts of a parameter
    that was cut as `cut` (dimension, length, blocks) says."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    sources: list[Source]
    cut: list[int] | None = None


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
            out.write(shards.header((t.name, t.dtype, t.shape) for t in plan))
            for tensor in plan:
                _write(found.folder, tensor, out)
        disk.rename(half_done, file)
        disk.sync(file.absolute().parent)
    return file


def _plan(manifest: dict, wanted: torch.dtype) -> list[Exported]:
    """The tensors of the new file, in its order."""
    plan: dict[str, Exported] = {}
    for name, entry in manifest["parameters"].items():
        source = Source(
            entry["shape"], [(s["file"], f"value/{name}", s["length"]) for s in entry["slices"]]
        )
        dtype = getattr(torch, entry["dtype"])
        dtype = wanted if dtype.is_floating_point else dtype
        for key in (name, *entry["tied"]):
            if "part" in entry:
                key = key.rpartition("#")[0]
            if key not in plan:
                shape, cut = list(entry["shape"]), entry.get("cut")
                if cut:
                    shape[cut[0]] = cut[1]
                plan[key] = Exported(key, dtype, tuple(shape), [source], cut)
            elif entry["cut"]:  # else every part has the same
                plan[key].sources.append(source)
    for name, entry in manifest["buffers"].items():
        shape = tuple(entry["shape"])
        source = Source(shape, [(file_of(0), f"buffer/{name}", math.prod(shape))])
        plan[name] = Exported(name, getattr(torch, entry["dtype"]), shape, [source])
    return sorted(plan.values(), key=lambda t: -t.dtype.itemsize)  # see shards.write_shard


def _write(folder: Path, tensor: Exported, out: disk.Writer) -> None:
    """Append one tensor to the new file."""
    if tensor.cut is None:
        for values in _values(folder, tensor.sources[0], tensor.dtype):
            out.write(_bytes(values))
        return
    empty = [torch.empty(0, dtype=tensor.dtype)]
    parts = [
        torch.cat([*empty, *_values(folder, source, tensor.dtype)]).view(source.shape)
        for source in tensor.sources
    ]
    whole = put_together(parts, *tensor.cut)
    if whole.shape != tensor.shape:
        raise CheckpointError(f"the parts of {tensor.name} do not make up {tensor.shape}")
    out.write(_bytes(whole.reshape(-1)))


def put_together(parts: list[torch.Tensor], dim: int, length: int, blocks: int) -> torch.Tensor:
    """The whole tensor from the parts that `parts.take` has cut of it, `length` long in `dim`."""
    rows = [part.movedim(dim, 0).tensor_split(blocks) for part in parts]
    return torch.cat([row[b] for b in range(blocks) for row in rows]).movedim(0, dim)


def _values(folder: Path, source: Source, dtype: torch.dtype):
    """The values of a source, flat, converted to `dtype`, a few MB at a time."""
    for file, key, length in source.pieces:
        stored = shards.read_header(folder / file)[key]
        with disk.reading(folder / file) as opened:
            for first in range(0, length, shards.PIECE // 8):
                values = torch.empty(min(shards.PIECE // 8, length - first), dtype=dtype)
                shards.read_into(opened, stored, first, values)
                yield values


def _bytes(values: torch.Tensor) -> memoryview:
    return memoryview(values.contiguous().view(torch.uint8).numpy())
