"""The manifest: what a checkpoint consists of, so that nothing has to be guessed when it is read.

`manifest.json` lists every file with its size and sha256, and every parameter with the slices that
make it up. It is written last and ends with a checksum of itself. So a folder without it is no
checkpoint, and with it anything missing, cut short or altered is found out:

    {"schema": 1, "step": 100, "stage": 2, "precision": "bf16", "world_size": 2, ...,
     "parameters": {"0.weight": {"shape": [13, 7], "dtype": "float32", "trainable": true,
        "tied": [], "slices": [{"file": "rank-00000.safetensors", "offset": 0, "length": 87,
         "tensors": {"value": "float32", "exp_avg": "float32", ...},
         "numbers": {"step": ["float32", 100.0]}}, ...]}, ...},
     "files": {"rank-00000.safetensors": {"bytes": 1888, "sha256": "90f2..."}, ...},
     "sha256": "5e0d..."}

In the file, the tensor "exp_avg" of the slice of "0.weight" is called "exp_avg/0.weight".
`schema.py` checks a manifest before anything in it is believed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from . import disk
from .disk import BrokenCheckpoint, CheckpointError
from .states import Piece, dtype_name

NAME = "manifest.json"
SCHEMA = 1
LONGEST = 1 << 30  # bytes; a longer manifest is taken for a mistake, and not read
SEAL = b',\n "sha256": "'


def file_of(rank: int) -> str:
    """The name of a rank's shard file."""
    return f"rank-{rank:05}.safetensors"


def shard_entry(file: str, size: int, sha256: str, pieces: list[Piece]) -> dict:
    """What one rank contributes to the manifest: its file, and which part of what lies in it.

    The result holds "file", "bytes", "sha256", and "slices": for each parameter's name where the
    piece lies in the whole flattened parameter, whatever the shard it came from ("offset" and
    "length", in elements), its "tensors" by name with their dtypes ("float32"), and its "numbers".
    A piece may be empty ("length" 0), and the order of the names does not matter.
    """
    slices = {
        piece.name: {
            "offset": piece.offset,
            "length": piece.length,
            "tensors": {kind: dtype_name(t.dtype) for kind, t in piece.tensors.items()},
            "numbers": piece.numbers,
        }
        for piece in pieces
    }
    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}


def assemble(head: dict, entries: list[dict]) -> dict:
    """The manifest from what all ranks know (`head`) and the entry of each rank's shard.

    With tensor parallelism rank 0 knows only its part of the model; the entry of one rank of each
    other part then brings the "parameters" of that part and, by group, their names ("params").
    """
    table, groups = dict(head["parameters"]), head["optimizer"]["groups"]
    for entry in entries:
        table |= entry.get("parameters", {})
        for group, names in zip(groups, entry.get("params", [])):
            group["params"] += names
    parameters = {name: {**entry, "slices": []} for name, entry in table.items()}
    for entry in entries:
        for name, part in entry["slices"].items():
            parameters[name]["slices"].append({"file": entry["file"], **part})
    for parameter in parameters.values():
        parameter["slices"].sort(key=lambda part: part["offset"])
    files = {e["file"]: {"bytes": e["bytes"], "sha256": e["sha256"]} for e in entries}
    return {**head, "schema": SCHEMA, "parameters": parameters, "files": files}


def to_bytes(manifest: dict) -> bytes:
    """The manifest as JSON, whose last entry is the sha256 of all bytes before it."""
    body = json.dumps(manifest, indent=1).removesuffix("\n}").encode()
    return body + SEAL + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def read(folder: Path) -> dict:
    """The manifest of a checkpoint, with its checksum verified; `schema.check` must come next.

    Raises BrokenCheckpoint, naming the file, if it is missing, cut short or altered.
    """
    path = folder / NAME
    with disk.reading(path) as file:
        size = file.seek(0, 2)
        if size > LONGEST:
            raise BrokenCheckpoint(f"{path}: {size} bytes are too many for a manifest")
        file.seek(0)
        raw = file.read(size)
    body, _, seal = raw.rpartition(SEAL)
    expected = hashlib.sha256(body).hexdigest()
    if seal != expected.encode() + b'"\n}\n':
        raise BrokenCheckpoint(
            f"{path}: altered or cut short; it ends with {seal[:64].decode(errors='replace')!r}, "
            f"the sha256 of its content is {expected}"
        )
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BrokenCheckpoint(f"{path}: not JSON ({error!s:.100})") from None
    if type(found) is not dict:
        raise BrokenCheckpoint(f"{path}: it must be an object, not {found!r:.40}")
    return found


def check_json(name: str, value: object) -> None:
    """Raise CheckpointError, naming the place in it, if `value` cannot be kept as JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if type(key) is not str:
                raise CheckpointError(f"{name} has the key {key!r}; JSON has only text as keys")
            check_json(f"{name}[{key!r}]", inner)
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            check_json(f"{name}[{i}]", inner)
    elif not isinstance(value, (type(None), bool, int, float, str)):
        raise CheckpointError(
            f"{name} is a {type(value).__name__}; a checkpoint keeps only numbers, text, lists and "
            f"dicts there, so that loading it never runs code"
        )
