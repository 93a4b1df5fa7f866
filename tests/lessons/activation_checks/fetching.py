"""The checks of `zero.activations.Call.restore`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from activation_checks import trainings
from activation_checks.passes import Stack, rows
from course.checks import compare_tensors, compare_values, exercise, fail, require
from zero.activations import Call
from zero.clock import patched
from zero.conditions import Conditions
from zero.nested import take_apart
from zero.partition import Kept
from zero.stores import FileStore

PATH = "zero.activations.Call.restore"


class Diary:
    """A store that writes down what is asked of it: "fetch 2", "wait 2", "free 2"."""

    def __init__(self):
        self.lines: list[str] = []
        self.count = 0

    def put(self, part: Tensor) -> Page:
        self.count += 1
        return Page(self, self.count, part.clone())


class Page:
    """The tensor number `number` in a diary; a verb is noted the first time only."""

    def __init__(self, diary: Diary, number: int, part: Tensor):
        self.diary, self.number, self.part = diary, number, part

    def note(self, verb: str) -> None:
        line = f"{verb} {self.number}"
        if line not in self.diary.lines:
            self.diary.lines.append(line)

    def fetch(self) -> None:
        self.note("fetch")

    def wait(self) -> Tensor:
        self.note("wait")
        return self.part

    def free(self) -> None:
        self.note("free")


def block(x, index, weight, more):
    return x * weight + more["b"] * index


def arguments() -> tuple:
    """Floating-point tensors, which can be moved, between two that autograd keeps itself."""
    x = torch.arange(6.0).view(3, 2).T.requires_grad_()
    weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    return x, torch.tensor([4, 5, 6]), weight, {"b": torch.tensor([7.0, 8.0, 9.0])}


def call_of(block: Callable, args: tuple, store) -> tuple[Call, list[Tensor], list[Tensor]]:
    """A call, its tensor arguments, and what autograd holds for it."""
    tensors, rebuild = take_apart((args, {}))
    call = Call(block, rebuild, Conditions(tensors), None, store)
    with torch.no_grad():
        return call, tensors, call.keep(tensors)


def restore(call: Call, saved: list[Tensor], last: bool, hint: str = "") -> list[Tensor]:
    """restore, as backward calls it; an error in it comes with a hint."""
    with torch.no_grad():
        try:
            got = call.restore(saved, last)
        except (AttributeError, RuntimeError) as error:
            if "detach" in str(error) or "can require gradients" in str(error):
                text = "k.restore got None, or another argument's tensor. For each k with k.held "
                text += "None the next one of `saved` is meant."
                fail(f"{text}\n{type(error).__name__}: {error}", "wrong-argument")
            known = hint if "fetch" in str(error) else ""
            fail(f"{known}\n{type(error).__name__}: {error}".strip(), "previous" if known else "")
    require(got is not None, "Nothing is returned; a list of tensors should be.", "returns-none")
    return list(got)


def compare_arguments(tensors: list[Tensor], got: list[Tensor], where: str) -> None:
    names = ["x", "index", "weight", 'more["b"]']
    compare_values(4, len(got), f"the number of tensors that come back ({where})")
    for i, (name, expected) in enumerate(zip(names, tensors)):
        others = [n for n, t in zip(names, tensors) if t is not expected]
        for other, t in zip(others, (t for t in tensors if t is not expected)):
            if isinstance(got[i], Tensor) and got[i].shape == t.shape and torch.equal(got[i], t):
                text = f"In place of {name}, {other} comes back ({where}). `saved` has only what "
                text += "autograd holds (k.held is None), in order; the others get None."
                fail(text, "wrong-argument")
        compare_tensors(expected.detach(), got[i], f"{name} ({where})")
        text = f"{name}: requires_grad is {got[i].requires_grad}, it was {expected.requires_grad} "
        require(got[i].requires_grad == expected.requires_grad, f"{text}({where}).", "requires")
        require(got[i].is_leaf, f"{name} has a graph behind it ({where}).", "not-a-leaf")


@exercise(PATH)
def test_arguments():
    """All arguments come back in order: some held by autograd, some from a store"""
    for where, store in (("no store", None), ("a store", Diary())):
        Call.latest = None
        call, tensors, saved = call_of(block, arguments(), store)
        hint = "The first call of all has no previous one (self.previous is None)."
        got = restore(call, saved, True, hint)
        compare_arguments(tensors, got, where)


def diary_of(blocks: int, retain_graph: bool = False) -> list[str]:
    """What is asked of the store in one backward pass through so many blocks."""
    Call.latest = None
    diary = Diary()
    loss = Stack({"offload": diary}, blocks)(rows(0, 0))
    before = list(diary.lines)
    require(not before, f"During forward: {before}. Nothing is needed then.", "too-early")
    loss.backward(retain_graph=retain_graph)
    return diary.lines


@exercise(PATH)
def test_ahead():
    """While block 3 is recomputed, the input of block 2 is already on its way"""
    right = ["fetch 3", "fetch 2", "wait 3", "free 3"]
    right += ["fetch 1", "wait 2", "free 2", "wait 1", "free 1"]
    try:
        lines = diary_of(3)
    except AttributeError as error:
        fail(f"The first call of all has no previous one.\n{error}", "previous")
    if lines == right:
        return
    at = {line: i for i, line in enumerate(lines)}
    both = "\nexpected  " + ", ".join(right) + "\ngot       " + ", ".join(lines)
    early = [line for line in ("fetch 1", "wait 1") if at.get(line, 99) < at["wait 3"]]
    text = "All of them are fetched at once: then all are in memory at once, as if there were no "
    require(not early, f"{text}store. One ahead is enough.{both}", "all-at-once")
    text = "Block 2's input is waited for before block 3 has been recomputed."
    require(at["wait 2"] > at["free 3"], f"{text} Fetch it, and go on.{both}", "waits-ahead")
    if at.get("fetch 2", 99) > at["wait 3"]:
        late = at.get("fetch 2", 99) < at["free 3"]
        text = "Block 2's input is fetched only after the wait for block 3's, "
        if late:
            fail(f"{text}so one waits while nothing is being read.{both}", "too-late")
        fail(f"{text}when it is needed: nothing arrives while a block computes.{both}", "not-ahead")
    text = "Block 2's input is asked for before block 3's, which is needed first: a file is read "
    text += "in the order of asking."
    require(at.get("fetch 3", 99) < at["fetch 2"], f"{text}{both}", "own-last")
    fail(f"The store was asked in another order.{both}")


@exercise(PATH)
def test_ahead_in_every_pass():
    """Also in a pass after which another one follows, the next input is on its way"""
    lines = diary_of(3, retain_graph=True)
    right = ["fetch 3", "fetch 2", "wait 3", "fetch 1", "wait 2", "wait 1"]
    text = "backward(retain_graph=True): Block 2's input is not on its way while block 3 is "
    text += f"recomputed. Fetch it whatever `last` says.\nexpected  {', '.join(right)}\n"
    ahead = "fetch 2" in lines and lines.index("fetch 2") < lines.index("wait 3")
    require(ahead, f"{text}got       {', '.join(lines)}", "last-pass-only")


@exercise(PATH)
def test_ahead_of_nothing():
    """A call that has nothing in the store fetches what the one before it has there"""
    Call.latest = None
    diary = Diary()
    before = call_of(block, (torch.ones(3),), diary)[0]
    call, _, saved = call_of(block, (torch.arange(3), nn.Parameter(torch.ones(3))), diary)
    restore(call, saved, True)
    text = "A call had a whole number and a weight as arguments, which stay with autograd; the one "
    text += "before it has a tensor in the store, which was not fetched: it is needed next."
    require("fetch 1" in diary.lines and before.kept, text, "chain-broken")


@exercise(PATH)
def test_previous_gone():
    """A previous call whose result was dropped is not fetched"""
    Call.latest = None
    diary = Diary()
    model = Stack({"offload": diary}, 1)
    dropped = model(rows(0, 0))
    loss = model(rows(1, 0))
    del dropped
    try:
        loss.backward()
    except AttributeError as error:
        text = "The call before this one was dropped without a backward pass, so self.previous is "
        fail(f"{text}None.\n{error}", "previous")
    require("fetch 1" not in diary.lines, "What was dropped has been fetched.", "previous")


@exercise(PATH)
def test_last():
    """Whether this is the last backward pass is passed on"""
    for last in (True, False):
        seen = []

        def wrap(original, seen=seen):
            def noting(kept, tensor, its_last):
                seen.append(its_last)
                return original(kept, tensor, its_last)

            return noting

        Call.latest = None
        call, _, saved = call_of(block, arguments(), Diary())
        with patched(Kept, "restore", wrap):
            restore(call, saved, last)
        text = "k.restore waits, puts parts together and gives the tensor its shape: use it."
        require(len(seen) == 4, text, "not-restored")
        text = f"restore(saved, last={last}): k.restore was told {seen[0]}. With True too early, a "
        text += "second backward pass (retain_graph=True) finds nothing; with False, memory stays."
        require(seen == [last] * 4, text, "last-ignored")


@exercise(PATH)
def test_file():
    """Through a real file, twice backward: the same gradients, and its space is free again"""
    Call.latest = None
    store, grads = FileStore(), []
    for options in (None, {"offload": store}):
        torch.manual_seed(6)
        model = Stack(options)
        loss = model(rows(0, 0))
        loss.backward(retain_graph=True)
        try:
            loss.backward()
        except (AttributeError, RuntimeError) as error:
            text = "After backward(retain_graph=True) a second pass must find everything again. "
            fail(f"{text}What waits in a store is freed by `forget`.\n{error}", "freed-early")
        grads.append([p.grad for p in model.parameters()])
    for i, (expected, got) in enumerate(zip(*grads)):
        compare_tensors(expected, got, f"gradient {i} of {len(grads[0])} after two passes")
    text = f"{store.arena.in_use} bytes of the file are still taken after backward."
    require(store.arena.in_use == 0, text, "not-freed")


@exercise(PATH)
@pytest.mark.parametrize("what", ["bits", "bytes"])
def test_offloads_and_trains(what):
    """Training on groups of one to four ranks, each with its part of the checkpoints in a file"""
    (trainings.trains if what == "bits" else trainings.costs)(PATH, offload=True)
