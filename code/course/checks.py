"""What graders are written with: failures that teach, and a look at small tensors.

A check is a test function that raises nothing when the work is right. Where it is wrong, say what
was expected, what came, and, where the mistake is known, its name::

    compare_tensors(
        expected, got, "the averaged gradient",
        known=[
            scaled(4, "sum-for-mean", "summed over 4 ranks, not averaged"),
            same_as(local, "nothing-exchanged", "this is rank 0's own gradient"),
        ],
    )

A mistake is a pair: a short name, by which the wrong answers in ``tests/lessons/wrong`` say what
they expect, and one sentence for the learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from course.plugin import exercise

__all__ = [
    "CheckFailed",
    "compare_tensors",
    "compare_values",
    "exercise",
    "fail",
    "on_ranks",
    "require",
    "same_as",
    "scaled",
    "show",
]

SECONDS_ON_RANKS = 40.0
Recogniser = Callable[[Tensor, Tensor], tuple[str, str] | None]


class CheckFailed(AssertionError):
    """A check's verdict: text for the learner, and the name of the mistake if it is a known one."""

    def __init__(self, text: str, mistake: str = ""):
        super().__init__(text)
        self.mistake = mistake


def fail(text: str, mistake: str = "") -> None:
    """End the check: the learner reads ``text``."""
    raise CheckFailed(text, mistake)


def require(condition: bool, text: str, mistake: str = "") -> None:
    """Fail unless the condition holds."""
    if not condition:
        raise CheckFailed(text, mistake)


def compare_values(
    expected: object, got: object, what: str, known: Iterable[tuple[object, str, str]] = ()
) -> None:
    """Fail unless the two are alike, in type too: plain values, tuples, lists of them.

    ``known`` are (wrong value, mistake, sentence); the sentence continues "<what>: ".
    """
    mine = repr(_by_key(got))
    if mine == repr(_by_key(expected)):
        return
    both = f"expected  {expected}\ngot       {show(got)}"
    for value, mistake, sentence in known:
        if mine == repr(_by_key(value)):
            fail(f"{what}: {sentence}.\n{both}", mistake)
    if got is None or (isinstance(got, list) and got and all(g is None for g in got)):
        fail(f"{what}: None comes back. Is a return missing?\n{both}", "returns-none")
    if got == expected or _listed(got) == _listed(expected):
        kinds = f" ({_kind(got)}, not {_kind(expected)})" if type(got) is not type(expected) else ""
        fail(f"{what}: right, but of another type{kinds}.\n{both}", "wrong-type")
    if type(got) is not type(expected):
        fail(f"{what} should be {_kind(expected)}, it is {_kind(got)}.\n{both}", "wrong-type")
    fail(f"{what}:\n{both}")


def compare_tensors(
    expected: Tensor,
    got: object,
    what: str,
    *,
    atol: float = 1e-6,
    known: Iterable[Recogniser] = (),
) -> None:
    """Fail unless ``got`` is a tensor of the same shape and dtype, within ``atol`` of ``expected``.

    ``known`` recognises mistakes (:func:`scaled`, :func:`same_as`, or a function of your own that
    takes expected and got and gives a mistake and a sentence, or None); some are always tried. The
    sentence continues "<what>: ".
    """
    if not isinstance(got, Tensor):
        compare_values(expected, got, what)
    if got.dtype != expected.dtype:
        fail(f"{what} has dtype {got.dtype}, it should have {expected.dtype}.", "wrong-dtype")
    if _equal(expected, got, atol):
        return
    for recognise in (*known, *_ALWAYS):
        found = recognise(expected, got)
        if found:
            mistake, sentence = found
            fail(f"{what}: {sentence}.\n{_both(expected, got)}", mistake)
    fail(
        f"{what}: wrong numbers.\n{_both(expected, got)}\n{_first_difference(expected, got, atol)}"
    )


def scaled(factor: float, mistake: str, sentence: str) -> Recogniser:
    """Recognise a result that is ``factor`` times the right one."""

    def recognise(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
        if expected.any() and _equal(expected * factor, got, 1e-5 * max(1.0, factor)):
            return mistake, f"every number is {_times(factor)}: {sentence}"
        return None

    return recognise


def same_as(wrong: Tensor, mistake: str, sentence: str) -> Recogniser:
    """Recognise a result that equals ``wrong``: what a known mistake gives."""

    def recognise(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
        return (mistake, sentence) if _equal(wrong, got, 1e-6) else None

    return recognise


def on_ranks(function: Callable, world_size: int, *args, timeout: float = SECONDS_ON_RANKS) -> list:
    """``function(rank, world_size, *args)`` on real ranks; their results in rank order.

    A rank that raises, waits for ever or does not end becomes a RankError, which the report shows,
    as it shows what the ranks print.
    """
    from zero.launch import launch

    return launch(function, world_size, *args, timeout=timeout)


def show(value: object, first: int = 8) -> str:
    """A value on one line; of a tensor its shape, its dtype if it is not float32, some numbers."""
    if not isinstance(value, Tensor):
        text = repr(value)
        return text if len(text) <= 100 else text[:97] + "..."
    flat = value.detach().flatten()
    numbers = ", ".join(f"{x:.4g}" for x in flat[:first].tolist())
    more = f", ... {flat.numel() - first} more" if flat.numel() > first else ""
    dtype = "" if value.dtype == torch.float32 else f" {str(value.dtype).removeprefix('torch.')}"
    return f"{list(value.shape)}{dtype}: {numbers}{more}"


def _another_shape(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
    if got.shape == expected.shape:
        return None
    if got.numel() == expected.numel() and torch.equal(got.flatten(), expected.flatten()):
        return "wrong-shape", "the right numbers in another shape"
    sizes = f"{list(got.shape)} instead of {list(expected.shape)}"
    return "wrong-shape", f"the shape is {sizes}"


def _not_finite(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
    bad = int((~torch.isfinite(got)).sum())
    return ("not-finite", f"{bad} of {got.numel()} numbers are NaN or infinite") if bad else None


def _nothing_there(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
    return None if got.any() else ("all-zero", "all zeros; nothing was written")


def _another_order(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
    if torch.equal(got.flatten().sort().values, expected.flatten().sort().values):
        return "wrong-order", "the right numbers in another order"
    return None


def _constant_factor(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
    largest = expected.abs().argmax()
    factor = (got.flatten()[largest] / expected.flatten()[largest]).item()
    # One number alone is a multiple of any other: that it is twice or half of it says something.
    if not factor or (expected.count_nonzero() == 1 and not _simple(factor)):
        return None
    return scaled(factor, "wrong-scale", "a factor is missing or stands there twice")(expected, got)


_ALWAYS: tuple[Recogniser, ...] = (
    _another_shape,
    _not_finite,
    _nothing_there,
    _another_order,
    _constant_factor,
)


def _equal(a: Tensor, b: Tensor, atol: float) -> bool:
    if a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(a.detach(), b.detach().to(a.dtype), rtol=1e-5, atol=atol)


def _both(expected: Tensor, got: Tensor) -> str:
    return f"expected  {show(expected)}\ngot       {show(got)}"


def _first_difference(expected: Tensor, got: Tensor, atol: float) -> str:
    a, b = expected.flatten().double(), got.detach().flatten().double()
    wrong = (~torch.isclose(b, a, rtol=1e-5, atol=atol)).nonzero().flatten().tolist()
    at = wrong[0]
    return (
        f"{len(wrong)} of {a.numel()} differ, the first at place {at}: "
        f"expected {a[at]:.6g}, got {b[at]:.6g}"
    )


def _simple(factor: float) -> bool:
    """Is this, or one divided by this, a whole number?"""
    return any(round(f) and abs(f - round(f)) < 1e-4 for f in (factor, 1 / factor))


def _times(factor: float) -> str:
    if factor == -1:
        return "negative"
    return (
        f"{factor:.4g} times too large" if factor > 1 else f"{factor:.4g} times what it should be"
    )


def _by_key(value: object) -> object:
    """The value with dicts in the order of their keys: that of their making means nothing."""
    if isinstance(value, dict):
        return {key: _by_key(value[key]) for key in sorted(value, key=repr)}
    return type(value)(map(_by_key, value)) if type(value) in (list, tuple) else value


def _listed(value: object) -> object:
    """The value with lists in place of tuples."""
    return [_listed(v) for v in value] if isinstance(value, (list, tuple)) else value


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
