"""Leaves the hash out: a flipped bit will never be noticed.

check: test_file
mistake: no-hash
"""


def shard_entry(file, size, sha256, pieces):
    slices = {
        piece.name: {
            "offset": piece.offset,
            "length": piece.length,
            "tensors": {kind: dtype_name(t.dtype) for kind, t in piece.tensors.items()},
            "numbers": piece.numbers,
        }
        for piece in pieces
    }
    return {"file": file, "bytes": size, "slices": slices}
