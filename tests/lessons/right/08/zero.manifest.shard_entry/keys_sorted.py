"""The keys come in another order, that of the alphabet; a dict is found by its keys."""


def shard_entry(file, size, sha256, pieces):
    slices = {}
    for piece in sorted(pieces, key=lambda p: p.name):
        tensors = {kind: dtype_name(t.dtype) for kind, t in sorted(piece.tensors.items())}
        slices[piece.name] = {
            "length": piece.length,
            "numbers": dict(sorted(piece.numbers.items())),
            "offset": piece.offset,
            "tensors": tensors,
        }
    return {"bytes": size, "file": file, "sha256": sha256, "slices": slices}
