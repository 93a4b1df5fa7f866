"""Counts offsets from the beginning of the shard.

check: test_slices
mistake: offset-in-shard
"""


def shard_entry(file, size, sha256, pieces):
    slices, offset = {}, 0
    for piece in pieces:
        slices[piece.name] = {
            "offset": offset,
            "length": piece.length,
            "tensors": {kind: dtype_name(t.dtype) for kind, t in piece.tensors.items()},
            "numbers": piece.numbers,
        }
        offset += piece.length
    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}
