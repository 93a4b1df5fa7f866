"""Is this a manifest? Every field is checked before anything is read, or moved, because of it.

Anybody can write a file with a right checksum. So names of files are compared with those that there
must be, never followed; sizes are compared with the files' own before memory is taken for them; and
the slices of each parameter must tile it exactly. All errors are BrokenCheckpoint and name the
field.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch

from . import manifest as manifest_
from . import shards
from .disk import BrokenCheckpoint
from .precision import POLICIES
from .states import dtype_name

MOST_RANKS = 1 << 20
DTYPE_NAMES = tuple(map(dtype_name, shards.CODES))


def check(manifest: dict, folder: Path) -> None:
    """Raise BrokenCheckpoint unless `manifest`, read from `folder`, makes sense by itself."""
    where = str(folder / manifest_.NAME)
    if manifest.get("schema") != manifest_.SCHEMA:
        raise BrokenCheckpoint(
            f"{where}: schema is {manifest.get('schema')!r:.40}, this version reads "
            f"{manifest_.SCHEMA}"
        )
    world_size = _field(manifest, "world_size", int, where)
    if not 1 <= world_size <= MOST_RANKS:
        raise BrokenCheckpoint(f"{where}: world_size is {world_size}")
    for name in ("step", "steps", "skipped", "skips_in_a_row"):
        _count(manifest, name, where)
    _one_of(manifest, "stage", (0, 1, 2, 3), where)
    _one_of(manifest, "precision", tuple(POLICIES), where)
    _files(manifest, world_size, where)
    names: set[str] = set()
    for name, entry in _field(manifest, "parameters", dict, where).items():
        _parameter(name, entry, manifest["files"], names, f"{where}: parameters[{name!r}]")
    parts = {tuple(entry.get("part", (0, 1))) for entry in manifest["parameters"].values()}
    if parts != {(i, len(parts)) for i in range(len(parts))} or not parts:
        raise BrokenCheckpoint(f"{where}: the parameters are of parts {sorted(parts)!r:.100}")
    for name, entry in _field(manifest, "buffers", dict, where).items():
        place = f"{where}: buffers[{name!r}]"
        _shape(_as(dict, entry, place), place)
        _one_of(entry, "dtype", DTYPE_NAMES, place)
        _new(name, names, place)
    _optimizer(manifest, f"{where}: optimizer")
    _loss_scale(manifest, where)
    if manifest.get("scheduler") is not None:
        _field(manifest, "scheduler", dict, where)
    _has(manifest, "extra", where)


def check_file(manifest: dict, folder: Path, file: str) -> None:
    """Raise BrokenCheckpoint unless a shard file is what the manifest says, byte for byte."""
    path, entry = folder / file, manifest["files"][file]
    size = shards.size_of(path)
    if size != entry["bytes"]:
        raise BrokenCheckpoint(f"{path}: {size} bytes, the manifest says {entry['bytes']}")
    check_content(manifest, folder, file)
    found = shards.sha256_of(path)
    if found != entry["sha256"]:
        raise BrokenCheckpoint(f"{path}: sha256 is {found}, the manifest says {entry['sha256']}")


def check_content(manifest: dict, folder: Path, file: str) -> dict[str, shards.Stored]:
    """The tensors of a shard file by name, after a check that they are those of the manifest."""
    path = folder / file
    found = shards.read_header(path)
    expected: dict[str, tuple[str, tuple]] = {}
    for name, parameter in manifest["parameters"].items():
        for part in parameter["slices"]:
            if part["file"] == file:
                for kind, dtype in part["tensors"].items():
                    expected[f"{kind}/{name}"] = dtype, (part["length"],)
    if file == manifest_.file_of(0):
        for name, entry in manifest["buffers"].items():
            expected[f"buffer/{name}"] = entry["dtype"], tuple(entry["shape"])
    states = {key for key in found if key.startswith("random/")}
    if "random/cpu" not in states:
        raise BrokenCheckpoint(f"{path}: the random state, random/cpu, is missing")
    if odd := set(found).symmetric_difference(expected) - states:
        key = min(odd)
        problem = "is missing" if key in expected else "is not in the manifest"
        raise BrokenCheckpoint(f"{path}: tensor {key} {problem}")
    for key, (dtype, shape) in expected.items():
        have = found[key]
        if (dtype_name(have.dtype), have.shape) != (dtype, shape):
            raise BrokenCheckpoint(
                f"{path}: {key} is {dtype_name(have.dtype)} {list(have.shape)}, the manifest says "
                f"{dtype} {list(shape)}"
            )
    return found


# --- parts ---------------------------------------------------------------------------------------


def _files(manifest: dict, world_size: int, where: str) -> None:
    files = _field(manifest, "files", dict, where)
    # Comparing two lengths first: a huge world_size must not make a huge set.
    if len(files) != world_size or set(files) != set(map(manifest_.file_of, range(world_size))):
        raise BrokenCheckpoint(
            f"{where}: files are {sorted(files)!r:.100}; {world_size} ranks write "
            f"{manifest_.file_of(0)} to {manifest_.file_of(world_size - 1)}"
        )
    for name, entry in files.items():
        place = f"{where}: files[{name!r}]"
        _count(_as(dict, entry, place), "bytes", place)
        if not re.fullmatch("[0-9a-f]{64}", _field(entry, "sha256", str, place)):
            raise BrokenCheckpoint(f"{place}: sha256 is {entry['sha256']!r:.80}")


def _parameter(name: str, entry: object, files: dict, names: set[str], where: str) -> None:
    numel = _shape(_as(dict, entry, where), where)
    _one_of(entry, "dtype", DTYPE_NAMES, where)
    trainable = _field(entry, "trainable", bool, where)
    for key in (name, *_texts(entry, "tied", where)):
        _new(key, names, where)
    if "part" in entry:
        _part(entry, f"{where}: part")
    end, used = 0, set()
    slices = _field(entry, "slices", list, where)
    for i, part in enumerate(slices):
        place = f"{where}.slices[{i}]"
        _slice(_as(dict, part, place), files, entry["dtype"], trainable, place)
        if part["offset"] != end or part["length"] < 1 or part["file"] in used:
            raise BrokenCheckpoint(
                f"{place}: [{part['offset']}, {part['offset'] + part['length']}) in "
                f"{part['file']} does not continue at {end}, in another file"
            )
        end += part["length"]
        used.add(part["file"])
        for key in ("tensors", "numbers"):
            if part[key] != slices[0][key]:
                raise BrokenCheckpoint(f"{place}: {key} differ from those of the first slice")
    if end != numel:
        raise BrokenCheckpoint(f"{where}: its slices hold {end} elements, its shape has {numel}")


def _part(entry: dict, where: str) -> None:
    """Which part of a tensor-parallel model, of how many; along which dimension it was cut."""
    if [type(n) for n in _as(list, entry["part"], where)] != [int, int]:
        raise BrokenCheckpoint(f"{where} is {entry['part']!r:.60}")
    _has(entry, "cut", where)
    if entry["cut"] is None:
        return
    cut = _as(list, entry["cut"], f"{where}: cut")
    sound = [type(n) for n in cut] == [int] * 3 and 0 <= cut[0] < len(entry["shape"])
    if not sound or not (0 <= cut[1] < 1 << 63 and 0 < cut[2] < 1 << 31):
        raise BrokenCheckpoint(f"{where}: cut is {cut!r:.60}")


def _slice(part: dict, files: dict, dtype: str, trainable: bool, where: str) -> None:
    if _field(part, "file", str, where) not in files:
        raise BrokenCheckpoint(f"{where}: file {part['file']!r:.100} is none of the files")
    _count(part, "offset", where)
    _count(part, "length", where)
    kinds = _field(part, "tensors", dict, where)
    for kind in kinds:
        _one_of(kinds, kind, DTYPE_NAMES, f"{where}: tensors")
    if kinds.get("value") != dtype or (len(kinds) > 1 and not trainable) or "random" in kinds:
        raise BrokenCheckpoint(f"{where}: tensors are {kinds!r:.100}, dtype is {dtype}")
    numbers = _field(part, "numbers", dict, where)
    if numbers and not trainable:
        raise BrokenCheckpoint(f"{where}: numbers of a frozen parameter: {numbers!r:.60}")
    for key, value in numbers.items():
        if not _is_number(value):
            raise BrokenCheckpoint(f"{where}: the number {key!r} is {value!r:.60}")


def _is_number(value: object) -> bool:
    """None, or a finite number; or [dtype, number], as a tensor without dimensions is written."""
    kinds = (type(None), bool, int, float)
    if type(value) is list and len(value) == 2 and value[0] in DTYPE_NAMES:
        dtype, value = getattr(torch, value[0]), value[1]
        kinds = (int, float) if dtype.is_floating_point else (int,)
        kinds = (bool,) if dtype is torch.bool else kinds
    return type(value) in kinds and abs(value or 0) < 1 << 63  # NaN is not below anything


def _optimizer(manifest: dict, where: str) -> None:
    optimizer = _field(manifest, "optimizer", dict, where.rpartition(":")[0])
    _field(optimizer, "class", str, where)
    left = {name for name, p in manifest["parameters"].items() if p["trainable"]}
    for i, group in enumerate(_field(optimizer, "groups", list, where)):
        place = f"{where}: groups[{i}]"
        for name in _texts(_as(dict, group, place), "params", place):
            if name not in left:
                raise BrokenCheckpoint(
                    f"{place}: {name!r:.60} is no trainable parameter, or comes twice"
                )
            left.remove(name)
        _alike([manifest["parameters"][name]["slices"] for name in group["params"]], place)
    if left:
        raise BrokenCheckpoint(f"{where}: {min(left)!r} is in no group")


def _alike(parameters: list[list[dict]], where: str) -> None:
    """Parameters of one group have the same states, those at least that have any."""
    first = None
    for part in (slices[0] for slices in parameters if slices):
        numbers = part["numbers"].items()
        state = {k: v[0] if type(v) is list else type(v).__name__ for k, v in numbers}
        state |= dict.fromkeys(part["tensors"].keys() - {"value"}, "tensor")
        first = first or state
        if state and state != first:
            raise BrokenCheckpoint(f"{where}: some have the states {first}, others {state}")


def _loss_scale(manifest: dict, where: str) -> None:
    _has(manifest, "loss_scale", where)
    scale = manifest["loss_scale"]
    if scale is None:
        return
    place = f"{where}: loss_scale"
    for name in ("good_steps", "growth_interval"):
        _count(_as(dict, scale, place), name, place)
    value = scale.get("scale")
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise BrokenCheckpoint(f"{place}: scale is {value!r:.60}; it must be above 0 and finite")


# --- fields --------------------------------------------------------------------------------------


def _as(kind: type, value: object, where: str):
    if type(value) is not kind:  # exactly: True is an int for isinstance
        raise BrokenCheckpoint(f"{where} is {value!r:.60}, not {kind.__name__}")
    return value


def _has(parent: dict, name: str, where: str) -> None:
    if name not in parent:
        raise BrokenCheckpoint(f"{where}: {name} is missing")


def _field(parent: dict, name: str, kind: type, where: str):
    _has(parent, name, where)
    return _as(kind, parent[name], f"{where}: {name}")


def _count(parent: dict, name: str, where: str) -> None:
    value = _field(parent, name, int, where)
    if not 0 <= value < 1 << 63:
        raise BrokenCheckpoint(f"{where}: {name} is {value:.3g}; it must be from 0 to 2^63 - 1")


def _one_of(parent: dict, name: str, known: tuple, where: str) -> None:
    value = _field(parent, name, type(known[0]), where)
    if value not in known:
        raise BrokenCheckpoint(f"{where}: {name} is {value!r:.60}; it must be one of {known}")


def _texts(parent: dict, name: str, where: str) -> list[str]:
    return [_as(str, text, f"{where}: {name}") for text in _field(parent, name, list, where)]


def _shape(entry: dict, where: str) -> int:
    """The number of elements of a "shape"."""
    numbers = [_as(int, n, f"{where}: shape") for n in _field(entry, "shape", list, where)]
    if any(n < 0 for n in numbers) or len(numbers) > 64 or math.prod(numbers) >= 1 << 63:
        raise BrokenCheckpoint(f"{where}: shape is {numbers!r:.100}")
    return math.prod(numbers)


def _new(name: str, names: set[str], where: str) -> None:
    if name in names:
        raise BrokenCheckpoint(f"{where}: the name {name!r:.60} comes twice")
    names.add(name)
