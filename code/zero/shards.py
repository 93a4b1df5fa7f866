"""Shard files: named tensors in one file, written and read piece by piece.

The format is safetensors, which every tool of the field reads and which can hold no code:

    8 bytes         length of the header, little-endian
    header          JSON: {"name": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}, ...}
    the tensors     one after the other, without gaps

The library's own writer wants all tensors in memory a second time, and its reader gives whole
tensors. Here a shard goes to the disk in pieces of a few MB, and `read_into` takes the range of a
tensor that a rank needs and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch

from . import disk
from .disk import BrokenCheckpoint

PIECE = 4 << 20  # bytes that are copied, hashed or converted at a time
LONGEST_HEADER = 100 << 20  # what the safetensors library accepts

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}

Release = Callable[[torch.Tensor], None]  # called with a tensor that has been written or read


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its dtype and shape, and the range of bytes [start, end) of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


# --- writing -------------------------------------------------------------------------------------


def header(tensors: Iterable[tuple[str, torch.dtype, tuple[int, ...]]]) -> bytes:
    """The first bytes of a file with these tensors (name, dtype, shape), in this order."""
    entries, end = {}, 0
    for name, dtype, shape in tensors:
        start, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = {
            "dtype": CODES[dtype],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors then start at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text


def write_shard(path: Path, tensors: dict[str, torch.Tensor], release: Release) -> tuple[int, str]:
    """Write tensors, on any device, to a new file; its size in bytes and its sha256.

    At most PIECE bytes are copied at a time, and `release` is called with each tensor when it has
    been written. OSError if the disk is full or read-only.
    """
    # Wide elements first: every tensor then starts at a multiple of its element's size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    with disk.Writer(path) as file:
        file.write(header((name, t.dtype, tuple(t.shape)) for name, t in ordered))
        for _, tensor in ordered:
            raw = tensor.detach().reshape(-1).view(torch.uint8)
            for piece in raw.split(PIECE) if raw.numel() else ():
                file.write(memoryview(piece.cpu().numpy()))
            release(tensor)
    return file.size, file.sha256


# --- reading -------------------------------------------------------------------------------------


def sha256_of(path: Path) -> str:
    """The sha256 of a file, read piece by piece."""
    digest = hashlib.sha256()
    with disk.reading(path) as file:
        while data := file.read(PIECE):
            digest.update(data)
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """The size of a file in bytes."""
    with disk.reading(path) as file:
        return file.seek(0, 2)


def read_header(path: Path) -> dict[str, Stored]:
    """What is in a file. Raises BrokenCheckpoint, naming it, if that is not a sound header."""
    with disk.reading(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            raise BrokenCheckpoint(f"{path}: a header of {length} bytes in a file of {size}")
        text = file.read(length)
    try:
        found = {
            name: _stored(entry, 8 + length)
            for name, entry in json.loads(text).items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenCheckpoint(f"{path}: its header makes no sense ({error!r:.100})") from None
    end = 8 + length
    for name, stored in sorted(found.items(), key=lambda item: (item[1].start, item[1].end)):
        bytes_of_shape = math.prod(stored.shape) * stored.dtype.itemsize
        if stored.start != end or stored.end - stored.start != bytes_of_shape:
            raise BrokenCheckpoint(
                f"{path}: tensor {name} of {bytes_of_shape} bytes is said to lie at "
                f"[{stored.start}, {stored.end}), where {end} should be its start"
            )
        end = stored.end
    if end != size:
        raise BrokenCheckpoint(f"{path}: its tensors end at byte {end}, the file at {size}")
    return found


def _stored(entry: dict, begin: int) -> Stored:
    start, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not all(type(n) is int and n >= 0 for n in (*shape, start, end)):
        raise ValueError("a negative number, or none")
    return Stored(DTYPES[entry["dtype"]], shape, begin + start, begin + end)


def read_into(file: BinaryIO, stored: Stored, first: int, out: torch.Tensor) -> None:
    """Fill `out` [n], on any device, with the elements [first, first + n) of a stored tensor.

    Values are converted to the dtype of `out`. Reads these elements' bytes and no others.
    """
    width = stored.dtype.itemsize
    file.seek(stored.start + first * width)
    for part in out.split(PIECE // 8) if out.numel() else ():
        raw = torch.empty(part.numel() * width, dtype=torch.uint8)
        view = memoryview(raw.numpy())
        while len(view):
            count = file.readinto(view)
            if not count:
                raise BrokenCheckpoint(f"{file.name} ends too early")
            view = view[count:]
        part.copy_(raw.view(stored.dtype))
