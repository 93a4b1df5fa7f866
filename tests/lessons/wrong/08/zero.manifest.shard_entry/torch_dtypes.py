"""Puts torch dtypes in, which JSON does not know.

check: test_slices
mistake: not-json
"""


def shard_entry(file, size, sha256, pieces):
    slices = {
        piece.name: {
            "offset": piece.offset,
            "length": piece.length,
            "tensors": {kind: t.dtype for kind, t in piece.tensors.items()},
            "numbers": piece.numbers,
        }
        for piece in pieces
    }
    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}
