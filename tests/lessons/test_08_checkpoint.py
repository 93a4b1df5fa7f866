"""Grades lesson 08."""

import itertools
import random
from pathlib import Path
from types import SimpleNamespace

import torch
from checkpoint_checks.committing import *  # noqa: F403

from course.checks import compare_values, exercise, fail, on_ranks, require
from zero import manifest, reshard

# --- shard_entry ---------------------------------------------------------------------------------


def piece(name, offset, length, dtype=torch.float32):
    tensors = {"value": torch.zeros(length, dtype=dtype), "exp_avg": torch.zeros(length)}
    numbers = {"step": ["float32", 7.0]}
    return SimpleNamespace(
        name=name, offset=offset, length=length, tensors=tensors, numbers=numbers
    )


@exercise("zero.manifest.shard_entry")
def test_file():
    """File, size and hash are those that were given"""
    entry = manifest.shard_entry("rank-00001.safetensors", 1888, "90f2", [])
    if entry is None:
        fail("None comes back. Is a return missing?", "returns-none")
    expected = {"file": "rank-00001.safetensors", "bytes": 1888, "sha256": "90f2", "slices": {}}
    known = [
        ({**expected, "slices": []}, "slices-list", "slices are found by name: a dict"),
        ({k: expected[k] for k in ("file", "bytes", "slices")}, "no-hash", "the hash is missing"),
        ({k: expected[k] for k in ("file", "sha256", "slices")}, "no-size", "the size is missing"),
    ]
    compare_values(expected, entry, "no pieces", known)


@exercise("zero.manifest.shard_entry")
def test_slices():
    """Each piece: where it lies in the whole parameter, its tensors' dtypes, its numbers"""
    pieces = [piece("a.weight", 87, 4), piece("a.bias", 0, 3, torch.bfloat16)]
    pieces.insert(1, piece("a.none", 5, 0))
    slices = manifest.shard_entry("f", 1, "0", pieces)["slices"]
    text = "slices leaves out a.none, a piece without elements. Its numbers are needed, too."
    require(sorted(slices) != ["a.bias", "a.weight"], text, "empty-left-out")
    require(
        sorted(slices) == ["a.bias", "a.none", "a.weight"],
        f"slices has the keys {sorted(slices)}, the pieces are a.bias, a.none and a.weight.",
        "piece-lost",
    )
    for p in pieces:
        got, what = slices[p.name], f'slices["{p.name}"]'
        require(isinstance(got, dict), f"{what} is {got!r}, not a dict.", "wrong-type")
        known = [
            (None, "no-offset", "it is missing: nobody can tell where the piece belongs"),
            (0, "offset-in-shard", "that is its place in the shard, not in the parameter"),
        ]
        if p.offset:
            compare_values(p.offset, got.get("offset"), f'{what}["offset"]', known)
        compare_values(p.offset, got.get("offset"), f'{what}["offset"]')
        known = [(p.offset + p.length, "end-for-length", "that is the end, not the length")]
        known += [(p.length * 4, "bytes-for-elements", "that is bytes; elements are asked for")]
        compare_values(p.length, got.get("length"), f'{what}["length"]', known)
        dtypes = {"value": "float32", "exp_avg": "float32"}
        if p.name == "a.bias":
            dtypes["value"] = "bfloat16"
        as_torch = {k: f"torch.{v}" for k, v in dtypes.items()}
        known = [
            (as_torch, "torch-prefix", 'a dtype is named "float32", without "torch."'),
            ({k: t.dtype for k, t in p.tensors.items()}, "not-json", "JSON knows no dtypes"),
            (list(dtypes), "no-dtypes", "the dtypes are missing"),
        ]
        swapped = dict.fromkeys(dtypes, dtypes["value"])
        known += [
            (None, "no-dtypes", "it is missing: nobody knows what to read from the file"),
            ({k: list(t.shape) for k, t in p.tensors.items()}, "no-dtypes", "those are shapes"),
        ]
        if swapped != dtypes:
            known.append((swapped, "one-dtype", "each tensor has a dtype of its own"))
        compare_values(dtypes, got.get("tensors"), f'{what}["tensors"]', known)
        step = p.numbers["step"][1]
        known = [
            (None, "no-numbers", "they are missing: the step counter would be lost"),
            ({}, "no-numbers", "they are missing: the step counter would be lost"),
            ({"step": step}, "numbers-changed", "piece.numbers is JSON already; pass it on"),
            (p.numbers["step"], "numbers-changed", "that is one counter; pass all of them on"),
        ]
        compare_values(p.numbers, got.get("numbers"), f'{what}["numbers"]', known)


# --- copies --------------------------------------------------------------------------------------


def plan(offset, length, saved):
    """The plan as a list of tuples (source, start, target, length), sorted."""
    found = reshard.copies(offset, length, saved)
    if found is None:
        fail("None comes back. Is a return missing?", "returns-none")
    return sorted((c.source, c.start, c.target, c.length) for c in found)


@exercise("zero.reshard.copies")
def test_same_ranks():
    """The same cut: one copy"""
    known = [
        ([(0, 0, 0, 4), (1, 0, 4, 4)], "takes-all", "everything is copied, also what others own"),
        ([(1, 4, 0, 4)], "start-not-relative", "start counts from the beginning of the slice"),
        ([(1, 0, 4, 4)], "target-not-relative", "target counts from the beginning of the wanted"),
        ([(1, 4, 4, 4)], "start-not-relative", "start counts from the beginning of the slice"),
        ([(0, 0, -4, 0), (1, 0, 0, 4)], "empty-copy", "a copy of no elements"),
        ([(0, 4, 0, 0), (1, 0, 0, 4)], "empty-copy", "a copy of no elements"),
        ([(1, i, i, 1) for i in range(4)], "element-by-element", "one copy for a slice is enough"),
    ]
    compare_values(
        [(1, 0, 0, 4)], plan(4, 4, [(0, 4), (4, 4)]), "copies(4, 4, [(0, 4), (4, 4)])", known
    )


@exercise("zero.reshard.copies")
def test_fewer_and_more():
    """From 3 ranks to 2, and from 2 to 3"""
    saved = [(0, 5), (5, 5), (10, 2)]
    known = [
        ([(1, 1, 0, 6), (2, 0, 4, 2)], "too-long", "the copy reads past the end of its slice"),
        ([(1, 1, 0, 4)], "one-slice", "the second slice is missing"),
        ([(1, 1, 0, 4), (2, 0, 0, 2)], "target-not-relative", "the second overwrites the first"),
    ]
    compare_values([(1, 1, 0, 4), (2, 0, 4, 2)], plan(6, 6, saved), f"copies(6, 6, {saved})", known)
    saved = [(0, 6), (6, 6)]
    compare_values([(0, 4, 0, 2), (1, 0, 2, 2)], plan(4, 4, saved), f"copies(4, 4, {saved})")
    compare_values([(0, 2, 0, 3)], plan(2, 3, saved), f"copies(2, 3, {saved})")


@exercise("zero.reshard.copies")
def test_any_order():
    """Saved slices in any order, also empty ones; empty wishes, parameters of one element"""
    saved = [(10, 2), (0, 5), (5, 5)]
    got = plan(4, 8, saved)
    compare_values([(0, 0, 6, 2), (1, 4, 0, 1), (2, 0, 1, 5)], got, f"copies(4, 8, {saved})")
    for saved in ([(0, 0), (0, 5), (5, 5)], [(0, 5), (5, 5), (5, 0)]):
        right = [(i, 0, o, n) for i, (o, n) in enumerate(saved) if n]
        left_out = [(i, *rest) for i, (_, *rest) in enumerate(right)]
        last = {o: i for i, (o, _) in enumerate(saved)}
        known = [
            (left_out, "wrong-source", "source counts all of saved, also slices without elements"),
            ([(last[o], s, o, n) for _, s, o, n in right], "wrong-source",
             "two slices begin at the same place; source must be the one with elements"),
        ]  # fmt: skip
        compare_values(right, plan(0, 10, saved), f"copies(0, 10, {saved})", known)
    compare_values([], plan(3, 0, saved), "copies(3, 0, ...): nothing is wanted")
    compare_values([(0, 0, 0, 1)], plan(0, 1, [(0, 1)]), "one element")


def cut(draw: random.Random, numel: int) -> list[tuple[int, int]]:
    """[0, numel) in up to five slices, as (offset, length)."""
    inner = (draw.randint(0, numel) for _ in range(draw.randint(0, 4)))
    places = sorted({0, numel, *inner})
    return [(a, b - a) for a, b in itertools.pairwise(places)]


@exercise("zero.reshard.copies")
def test_random_cuts():
    """Any cut to any other: every element arrives once, at its place"""
    draw = random.Random(0)
    for _ in range(200):
        numel = draw.randint(1, 30)
        saved, wanted = cut(draw, numel), cut(draw, numel)
        draw.shuffle(saved)
        for a, length in wanted:
            b = a + length
            out = [None] * (b - a)
            for source, start, target, length in plan(a, b - a, saved):
                begin, count = saved[source]
                inside = start >= 0 and start + length <= count and 0 <= target <= b - a - length
                require(inside, f"copies({a}, {b - a}, {saved}) leaves its slice.", "out-of-bounds")
                for i in range(length):
                    out[target + i] = begin + start + i
            if out != list(range(a, b)):
                fail(f"copies({a}, {b - a}, {saved}) brings elements {out}.", "wrong-elements")


# --- all together, on ranks ----------------------------------------------------------------------


def save_and_load(rank, world_size, root, saving):
    """Save after two steps, or load and return weights and moments by name and place."""
    import zero
    from course import training

    model = training.small_model(rank)
    opt = zero.shard(model, 3 if world_size == 3 else 1, lr=1e-2)
    if saving:
        for step in range(2):
            x, y = training.batch(step, rank)
            torch.nn.functional.mse_loss(model(x), y).backward()
            opt.step()
            opt.zero_grad()
        zero.checkpoint.save(root, model, opt, step=2)
    else:
        zero.checkpoint.load(root, model, opt)
    states = {}
    for s in opt.slices:
        kept = {"value": s.param.detach(), "exp_avg": opt.inner.state[s.param]["exp_avg"]}
        for kind, tensor in kept.items():
            for i, number in enumerate(tensor.tolist()):
                states[s.name, kind, s.start + i] = number
    return states


def resumes(tmp_path: Path) -> None:
    """Saved by 3 ranks at stage 3, loaded by 2 at stage 1: the same numbers."""
    root = str(tmp_path / "run")
    before, after = {}, {}
    for states in on_ranks(save_and_load, 3, root, True):
        before.update(states)
    names = [p.name for p in Path(root).iterdir() if p.name.startswith("step-")]
    compare_values(["step-00000002"], names, "the checkpoints in the folder")
    for states in on_ranks(save_and_load, 2, root, False):
        after.update(states)
    require(before.keys() == after.keys(), "Elements are missing after loading.", "wrong-elements")
    wrong = [key for key in before if before[key] != after[key]]
    require(not wrong, f"{len(wrong)} numbers differ, the first is {wrong[:1]}", "wrong-elements")


@exercise("zero.manifest.shard_entry")
def test_entry_resumes(tmp_path):
    """A checkpoint of 3 ranks, loaded on 2: weights and moments are the same"""
    resumes(tmp_path)


@exercise("zero.commit.commit")
def test_commit_resumes(tmp_path):
    """A checkpoint of 3 ranks, loaded on 2: weights and moments are the same"""
    resumes(tmp_path)


@exercise("zero.reshard.copies")
def test_copies_resume(tmp_path):
    """A checkpoint of 3 ranks, loaded on 2: weights and moments are the same"""
    resumes(tmp_path)
