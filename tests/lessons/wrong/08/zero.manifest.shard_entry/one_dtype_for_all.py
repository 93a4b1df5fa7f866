"""Takes the value's dtype for that of the moments.

check: test_slices
mistake: one-dtype
"""


def shard_entry(file, size, sha256, pieces):
    slices = {
        piece.name: {
            "offset": piece.offset,
            "length": piece.length,
            "tensors": {kind: dtype_name(piece.tensors["value"].dtype) for kind in piece.tensors},
            "numbers": piece.numbers,
        }
        for piece in pieces
    }
    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}
