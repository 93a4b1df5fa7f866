"""Keeps the values of the counters and not their dtypes.

check: test_slices
mistake: numbers-changed
"""


def shard_entry(file, size, sha256, pieces):
    slices = {
        piece.name: {
            "offset": piece.offset,
            "length": piece.length,
            "tensors": {kind: dtype_name(t.dtype) for kind, t in piece.tensors.items()},
            "numbers": {name: value for name, (_, value) in piece.numbers.items()},
        }
        for piece in pieces
    }
    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}
