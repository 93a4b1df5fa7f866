"""Leaves out pieces without elements.

check: test_slices
mistake: empty-left-out
"""


def shard_entry(file, size, sha256, pieces):
    slices = {
        p.name: {
            "offset": p.offset,
            "length": p.length,
            "tensors": {n: dtype_name(t.dtype) for n, t in p.tensors.items()},
            "numbers": p.numbers,
        }
        for p in pieces
        if p.length
    }
    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}
