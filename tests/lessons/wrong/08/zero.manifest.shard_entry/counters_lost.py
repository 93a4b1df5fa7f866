"""Leaves the numbers out: the step counter starts from zero again.

check: test_slices
mistake: no-numbers
"""


def shard_entry(file, size, sha256, pieces):
    slices = {
        piece.name: {
            "offset": piece.offset,
            "length": piece.length,
            "tensors": {kind: dtype_name(t.dtype) for kind, t in piece.tensors.items()},
        }
        for piece in pieces
    }
    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}
