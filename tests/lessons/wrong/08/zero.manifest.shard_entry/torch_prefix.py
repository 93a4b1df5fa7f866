"""Names dtypes "torch.float32".

check: test_slices
mistake: torch-prefix
"""


def shard_entry(file, size, sha256, pieces):
    slices = {
        piece.name: {
            "offset": piece.offset,
            "length": piece.length,
            "tensors": {kind: str(t.dtype) for kind, t in piece.tensors.items()},
            "numbers": piece.numbers,
        }
        for piece in pieces
    }
    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}
