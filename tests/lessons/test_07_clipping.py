"""Grades lesson 07."""

import math

import torch
from torch import nn

from course.checks import (
    compare_tensors,
    compare_values,
    exercise,
    fail,
    on_ranks,
    require,
    same_as,
)
from zero import clip, consensus, precision

INF, NAN = float("inf"), math.nan  # another object than math.inf, as users write it


def close(expected: float, got: object, what: str, known: tuple = ()) -> None:
    """Fail unless `got` is the number `expected`, to 1e-6; NaN equals NaN."""
    if not isinstance(got, float):
        compare_values(expected, got, what)
    if got == expected or (math.isnan(got) and math.isnan(expected)):
        return
    if math.isclose(got, expected, rel_tol=1e-6):
        return
    for wrong, mistake, sentence in known:
        if math.isclose(got, wrong, rel_tol=1e-6) or (math.isnan(got) and math.isnan(wrong)):
            fail(f"{what}: {sentence}.\nexpected  {expected:.7g}\ngot       {got:.7g}", mistake)
    fail(f"{what}:\nexpected  {expected:.7g}\ngot       {got:.7g}")


# --- shard_power ---------------------------------------------------------------------------------


@exercise("zero.clip.shard_power")
def test_power_of_one_slice():
    """The slice [3, -4] reports 25 for p = 2, 7 for p = 1, 91 for p = 3"""
    grad = torch.tensor([3.0, -4.0])
    for p, expected in ((2.0, 25.0), (1.0, 7.0), (3.0, 91.0), (1.5, 3**1.5 + 8.0)):
        known = [(expected ** (1 / p), "root-too-early", "that is the norm; ranks add powers")]
        if p != 2:
            known.append((25.0, "always-two", "that is the power for p = 2"))
        signed = NAN if p == 1.5 else float(3**p + (-4) ** p)
        known += [(signed, "sign-kept", "|g| has no sign")]
        close(expected, clip.shard_power([grad], p), f"shard_power([[3, -4]], {p:g})", known)


@exercise("zero.clip.shard_power")
def test_power_of_several_slices():
    """Several slices, empty ones among them, count together; no slice at all is 0.0"""
    grads = [torch.tensor([1.0, 2.0]), torch.empty(0), torch.tensor([-2.0])]
    last = [(4.0, "last-slice-only", "that is the last slice alone")]
    close(9.0, clip.shard_power(grads, 2.0), "shard_power([[1, 2], [], [-2]], 2)", last)
    close(0.0, clip.shard_power([], 2.0), "shard_power([], 2): a rank that owns nothing")
    close(0.0, clip.shard_power([], INF), "shard_power([], inf): a rank that owns nothing")
    close(5.0, clip.shard_power(iter([torch.tensor([1.0, 2.0])]), 2.0), "slices from a generator")


@exercise("zero.clip.shard_power")
def test_power_for_infinity():
    """For p = inf it is the largest absolute value"""
    grads = [torch.tensor([1.0, -7.0]), torch.tensor([3.0]), torch.empty(0)]
    known = [
        (3.0, "sign-kept", "the largest value, but -7 is larger without its sign"),
        (10.0, "sum-for-max", "the slices' maxima are added"),
        (11.0, "sum-for-max", "the absolute values are added"),
        (INF, "power-of-inf", "|g| to the power of infinity"),
    ]
    close(7.0, clip.shard_power(grads, INF), "shard_power([[1, -7], [3], []], inf)", known)


@exercise("zero.clip.shard_power")
def test_power_in_16_bits():
    """16-bit gradients are added in fp32: nothing overflows, nothing is rounded away"""
    big = torch.full((1000,), 300.0, dtype=torch.float16)
    known = [(INF, "added-in-16-bits", "300 * 300 is more than fp16 can hold")]
    close(9e7, clip.shard_power([big], 2.0), "1,000 times 300 in fp16, p = 2", known)
    ones = torch.ones(4096, dtype=torch.bfloat16)
    close(4096.0, clip.shard_power([ones], 1.0), "4,096 times 1 in bf16, p = 1")
    fine = torch.full((4096,), 1.0078125, dtype=torch.bfloat16)  # its square has more digits
    known = [(4160.0, "added-in-16-bits", "the squares were rounded to bf16")]
    close(4160.25, clip.shard_power([fine], 2.0), "4,096 times 1.0078125 in bf16, p = 2", known)
    huge = torch.tensor([1e200, 1.0], dtype=torch.float64)
    known = [(INF, "fp64-narrowed", "1e200 is more than fp32 can hold; fp64 stays fp64")]
    close(1e200, clip.shard_power([huge], 1.0), "1e200 and 1 in fp64, p = 1", known)


@exercise("zero.clip.shard_power")
def test_power_of_inf_and_nan():
    """inf and NaN are passed on"""
    for p in (1.0, 2.0, INF):
        bad = [torch.tensor([1.0]), torch.tensor([INF]), torch.tensor([2.0])]
        lost = [(2.0, "nonfinite-lost", "inf was lost"), (3.0, "nonfinite-lost", "inf was lost")]
        close(INF, clip.shard_power(bad, p), f"a slice with inf, p = {p:g}", lost)
        bad = [torch.tensor([1.0]), torch.tensor([NAN]), torch.tensor([2.0])]
        got = clip.shard_power(bad, p)
        require(math.isnan(got), f"A slice with NaN, p = {p:g}: got {got}.", "nonfinite-lost")
        got = clip.shard_power([torch.tensor([NAN]), torch.tensor([2.0])], p)
        require(math.isnan(got), f"NaN comes first, p = {p:g}: got {got}.", "nonfinite-lost")


@exercise("zero.clip.shard_power")
def test_power_only_looks():
    """The gradients stay what they are: the optimizer still needs them"""
    for p in (1.0, 2.0, INF):
        for dtype in (torch.float32, torch.bfloat16):
            grad = torch.tensor([3.0, -4.0], dtype=dtype)
            clip.shard_power([grad], p)
            if grad.tolist() != [3.0, -4.0]:
                fail(f"p = {p:g}: the slice [3, -4] became {grad.tolist()}", "gradients-changed")


# --- combine_powers ------------------------------------------------------------------------------


@exercise("zero.clip.combine_powers")
def test_combine():
    """The ranks' powers 9 and 16 give the norm 5"""
    known = [
        (3.5, "mean-of-norms", "the mean of the ranks' norms"),
        (7.0, "sum-of-norms", "the sum of the ranks' norms"),
        (25.0, "root-forgotten", "the power; the root is missing"),
        (math.sqrt(12.5), "averaged", "averaged over ranks, which own different parameters"),
        (4.0, "largest-rank", "the largest rank's norm"),
        (3.0, "own-shard", "rank 0's norm alone"),
    ]
    close(5.0, clip.combine_powers([9.0, 16.0], 2.0), "combine_powers([9, 16], 2)", known)
    close(5.0, clip.combine_powers([0.0, 25.0, 0.0], 2.0), "ranks that own nothing add zero")
    known = [(INF, "narrowed", "1e60 is more than fp32 can hold; Python's numbers are fp64")]
    close(2e30, clip.combine_powers([2e60, 2e60], 2.0), "combine_powers([2e60, 2e60], 2)", known)


@exercise("zero.clip.combine_powers")
def test_combine_other_norms():
    """p = 1, p = 3, and infinity, which takes no root"""
    close(7.0, clip.combine_powers([3.0, 4.0], 1.0), "combine_powers([3, 4], 1)")
    close(5.0, clip.combine_powers([61.0, 64.0], 3.0), "combine_powers([61, 64], 3)")
    close(2**0.05, clip.combine_powers([1.0, 1.0], 20.0), "combine_powers([1, 1], 20)")
    known = [
        (7.0, "sum-for-max", "the maxima are added"),
        (1.0, "root-of-inf", "something to the power 1/inf is 1"),
        (5.0, "sum-for-max", "that is the 2-norm of the maxima"),
        (3.5, "averaged", "the mean of the maxima"),
    ]
    close(4.0, clip.combine_powers([3.0, 4.0], INF), "combine_powers([3, 4], inf)", known)


@exercise("zero.clip.combine_powers")
def test_combine_nonfinite():
    """inf or NaN on one rank is inf or NaN in the norm"""
    close(INF, clip.combine_powers([1.0, INF], 2.0), "combine_powers([1, inf], 2)")
    for p in (2.0, INF):
        for powers in ([1.0, NAN], [NAN, 1.0], [INF, NAN]):
            got = clip.combine_powers(powers, p)
            require(math.isnan(got), f"combine_powers({powers}, {p:g}) is {got}.", "nonfinite-lost")


@exercise("zero.clip.combine_powers")
def test_combine_is_torchs_norm():
    """Any cut of any gradient: the norm that torch computes from the whole"""
    torch.manual_seed(0)
    whole = torch.randn(97)
    p = nn.Parameter(torch.zeros(97))
    p.grad = whole
    for norm_type in (1.0, 2.0, 3.0, INF):
        expected = torch.nn.utils.get_total_norm([whole], norm_type).item()
        for cuts in ((97,), (50, 47), (1, 0, 90, 6)):
            powers = [clip.shard_power([part], norm_type) for part in whole.split(cuts)]
            got = clip.combine_powers(powers, norm_type)
            close(expected, got, f"norm {norm_type:g} of 97 numbers cut into {cuts}")


# --- scale_down ----------------------------------------------------------------------------------


@exercise("zero.clip.scale_down")
def test_scaled_in_place():
    """Shards [3] and [4], norm 5, limit 1: the gradients themselves become 0.6 and 0.8"""
    for start, expected in ((3.0, 0.6), (4.0, 0.8)):
        whole = torch.tensor([start, start])
        grad = whole[:1]
        clip.scale_down([grad], 5.0, 1.0)
        what = f"the shard [{start:g}]"
        if grad.item() == start:
            fail(f"{what} is what it was. Is a copy scaled?", "copy-scaled")
        if math.isclose(grad.item(), 1.0, rel_tol=1e-4):
            fail(f"{what} became 1: it is scaled by its own norm, not the whole one's.", "own-norm")
        compare_tensors(torch.tensor([expected]), grad, what, atol=1e-6)
        text = f"{what} is a view of [{start:g}, {start:g}], which became {whole.tolist()}. "
        text += "A gradient must stay in its memory: change its elements, not its data."
        require(torch.equal(whole, torch.tensor([grad.item(), start])), text, "new-memory")


@exercise("zero.clip.scale_down")
def test_all_slices_scaled():
    """All of a rank's slices are scaled, also if they come from a generator"""
    grads = [torch.ones(2), torch.empty(0), torch.ones(1)]
    clip.scale_down((g for g in grads), 2.0, 1.0)
    for i, grad in enumerate(grads):
        known = [same_as(torch.ones_like(grad), "slice-left-out", "it is what it was")]
        expected = torch.full_like(grad, 1 / (2 + 1e-6))
        compare_tensors(expected, grad, f"slice {i} of 3", atol=1e-6, known=known)


@exercise("zero.clip.scale_down")
def test_small_gradient_left_alone():
    """A gradient below the limit stays as it is, bit for bit"""
    grad = torch.tensor([0.3, 0.4])
    clip.scale_down([grad], 0.5, 1.0)
    if not torch.equal(grad, torch.tensor([0.3, 0.4])):
        fail(f"norm 0.5, limit 1: [0.3, 0.4] became {grad.tolist()}", "scaled-up")


@exercise("zero.clip.scale_down")
def test_like_torch():
    """The factor is torch's: max_norm / (norm + 1e-6), also for a norm at the limit or far above"""
    p = nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([3e-4, 4e-4])
    torch.nn.utils.clip_grad_norm_([p], 1e-4)
    grad = torch.tensor([3e-4, 4e-4])
    clip.scale_down([grad], 5e-4, 1e-4)
    if not torch.allclose(grad, p.grad, rtol=1e-4, atol=0):
        fail(
            f"norm 5e-4, limit 1e-4: torch gives {p.grad.tolist()}, got {grad.tolist()}", "epsilon"
        )
    grad = torch.tensor([3.0, 4.0])
    clip.scale_down([grad], 5.0, 5.0)
    expected = torch.tensor([3.0, 4.0]) * (5.0 / (5.0 + 1e-6))
    compare_tensors(expected, grad, "norm 5, limit 5: the gradient", atol=1e-7)
    if torch.equal(grad, torch.tensor([3.0, 4.0])):
        fail("norm 5, limit 5: the factor is 5 / 5.000001, a little below 1.", "at-the-limit")
    grad = torch.tensor([3e-7, 4e-7])
    clip.scale_down([grad], 5e-7, 1e-6)
    if torch.equal(grad, torch.tensor([3e-7, 4e-7])):
        fail(
            "norm 5e-7, limit 1e-6: the factor is 1e-6 / 1.5e-6, below 1. The factor decides, not "
            "the norm.",
            "norm-decides",
        )
    grad = torch.tensor([3e35, 4e35])
    clip.scale_down([grad], 5e35, 1.0)
    compare_tensors(torch.tensor([0.6, 0.8]), grad, "norm 5e35, limit 1: the gradient")


@exercise("zero.clip.scale_down")
def test_nonfinite_norm():
    """With a norm of inf or NaN nothing is scaled: the step will be skipped"""
    for norm in (INF, NAN):
        grad = torch.tensor([1.0, 2.0])
        clip.scale_down([grad], norm, 1.0)
        if not torch.equal(grad, torch.tensor([1.0, 2.0])):
            fail(f"norm {norm}: [1, 2] became {grad.tolist()}", "nonfinite-scaled")


# --- LossScale.update ----------------------------------------------------------------------------


def trace(events: str, scale: float = 16.0, interval: int = 3) -> list[tuple[float, int]]:
    """(scale, good_steps) after each of the events: "o" an overflow, "." a good step."""
    loss_scale = precision.LossScale(scale, interval)
    seen = []
    for event in events:
        loss_scale.update(event == "o")
        seen.append((loss_scale.scale, loss_scale.good_steps))
    return seen


@exercise("zero.precision.LossScale.update")
def test_halved():
    """An overflow halves the scale"""
    known = [
        ([(32.0, 0)], "wrong-way", "an overflow must make the scale smaller"),
        ([(16.0, 0)], "unchanged", "the scale stays as it was"),
        ([(16.0, 1)], "unchanged", "the overflow counts as a good step"),
    ]
    compare_values([(8.0, 0)], trace("o"), "(scale, good_steps) after an overflow at 16", known)


@exercise("zero.precision.LossScale.update")
def test_doubled():
    """After growth_interval good steps in a row the scale is doubled, and the count starts again"""
    expected = [(16.0, 1), (16.0, 2), (32.0, 0), (32.0, 1), (32.0, 2), (64.0, 0)]
    known = [
        ([(16.0, 1), (16.0, 2), (16.0, 3), (32.0, 0), (32.0, 1), (32.0, 2)], "one-late",
         "one step late"),
        ([(16.0, 1), (16.0, 2), (32.0, 3), (64.0, 4), (128.0, 5), (256.0, 6)], "no-restart",
         "the count does not start again, so the scale doubles every step"),
        ([(16.0, 1), (16.0, 2), (32.0, 3), (32.0, 4), (32.0, 5), (32.0, 6)], "no-restart",
         "the count does not start again, so the scale never doubles again"),
        ([(16.0, i) for i in range(1, 7)], "never-grows", "it never grows"),
    ]  # fmt: skip
    what = "(scale, good_steps) after each of six good steps, interval 3"
    compare_values(expected, trace("......"), what, known)
    for high in (30, 60):
        known = [([(2.0**n, 0)], "capped", "there is no upper limit") for n in range(high + 1)]
        what = f"(scale, good_steps) after a good step at 2^{high}, interval 1"
        compare_values([(2.0 ** (high + 1), 0)], trace(".", 2.0**high, 1), what, known)
    known = [([(2.0, 0)], "rounded", "twice 1.25 is 2.5; a scale need not be a whole number")]
    what = "(scale, good_steps) after a good step at 1.25, interval 1"
    compare_values([(2.5, 0)], trace(".", 1.25, 1), what, known)


@exercise("zero.precision.LossScale.update")
def test_in_a_row():
    """An overflow starts the count again; the scale never falls below 1"""
    expected = [(16.0, 1), (16.0, 2), (8.0, 0), (8.0, 1), (8.0, 2), (16.0, 0)]
    known = [
        ([(16.0, 1), (16.0, 2), (8.0, 2), (16.0, 0), (16.0, 1), (16.0, 2)], "not-in-a-row",
         "good steps before the overflow are counted"),
    ]  # fmt: skip
    what = "(scale, good_steps) after each of: good, good, overflow, three times good"
    compare_values(expected, trace("..o..."), what, known)
    floor = [(1.0, 0), (1.0, 0), (1.0, 0)]
    known = [([(1.0, 0), (0.5, 0), (0.25, 0)], "no-floor", "it falls below 1")]
    compare_values(floor, trace("ooo", scale=2.0), "three overflows, starting at 2", known)
    known = [([(0.75, 0)], "no-floor", "it falls below 1")]
    compare_values([(1.0, 0)], trace("o", scale=1.5), "an overflow at 1.5", known)
    known = [([(1.0, 0)], "rounded", "half of 3 is 1.5; a scale need not be a whole number")]
    compare_values([(1.5, 0)], trace("o", scale=3.0), "an overflow at 3", known)
    expected = [(1.0, 1), (1.0, 2), (1.0, 0), (1.0, 1)]
    known = [([(1.0, 1), (1.0, 2), (1.0, 2), (2.0, 0)], "not-in-a-row", "the count goes on")]
    what = "(scale, good_steps) after each of: good, good, overflow, good, starting at 1"
    compare_values(expected, trace("..o.", scale=1.0), what, known)


# --- agree_finite --------------------------------------------------------------------------------


class FakeSlice:
    """What `agree_finite` may use of a slice."""

    def __init__(self, values):
        self.param = nn.Parameter(torch.zeros(len(values or [0])))
        self.param.grad = None if values is None else torch.tensor(values)


CASES = (  # what it is, the answer, every rank's slices
    ("all finite", True, [[[1.0, -2.0]], [[0.0]], []]),
    ("inf on rank 1", False, [[[1.0]], [[2.0], [1.0, INF]], []]),
    ("NaN on rank 0", False, [[[NAN]], [[2.0]], []]),
    ("a parameter that was not used", True, [[None, [1.0]], [None], [None]]),
    ("inf and -inf, whose sum is NaN, on rank 2", False, [[[1.0]], [], [[INF, -INF]]]),
    ("inf in the first of two slices", False, [[[INF], [1.0]]] * 3),
    ("finite numbers whose sum overflows", True, [[[3e38, 3e38]], [], []]),
)


def agreements(rank, world_size):
    """The answer of this rank to each case, and what it said to the others."""
    from zero import comm

    answers = []
    with comm.record() as log:
        for *_, by_rank in CASES:
            answers.append(consensus.agree_finite([FakeSlice(v) for v in by_rank[rank]], [None]))
    return answers, len(log.entries)


@exercise("zero.consensus.agree_finite")
def test_ranks_agree():
    """Every rank gives the same answer, and the right one"""
    by_rank = on_ranks(agreements, 3)
    for i, (name, expected, _) in enumerate(CASES):
        answers = [answers[i] for answers, _ in by_rank]
        if answers == [not expected] * 3 and i == 0:
            fail("all gradients are finite, and the answer is False", "inverted")
        if len(set(map(str, answers))) > 1:
            fail(f"{name}: the ranks' answers differ: {answers}", "not-agreed")
        compare_values([expected] * 3, answers, f"{name}, rank by rank")


def two_groups(rank, world_size):
    """4 ranks as two pairs across and two along; inf on rank 3. The answer, and who was asked: 0
    for the first group, 1 for the second, None for another."""
    import torch.distributed as dist

    from zero import comm

    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    across, along = pairs[rank // 2], pairs[2 + rank % 2]
    asked, any_rank = [], comm.any_rank

    def noting(flag, *, group=None, name=""):
        asked.append({id(across): 0, id(along): 1}.get(id(group)))
        return any_rank(flag, group=group, name=name)

    comm.any_rank = noting
    slices = [FakeSlice([INF if rank == 3 else 1.0])]
    return consensus.agree_finite(slices, [across, along]), asked


@exercise("zero.consensus.agree_finite")
def test_two_groups():
    """Two groups, one after the other: what the first one found is told to the second"""
    by_rank = on_ranks(two_groups, 4)
    answers = [answer for answer, _ in by_rank]
    if answers[0]:
        fail(
            f"inf on rank 3, pairs (0,1) (2,3), then (0,2) (1,3): answers {answers}. Rank 0 can "
            f"only learn it from rank 2, which learnt it from rank 3.",
            "second-group-not-told",
        )
    compare_values([False] * 4, answers, "rank by rank")
    for rank, (_, asked) in enumerate(by_rank):
        known = [
            (wrong, "whole-world", "all ranks of the job were asked; `groups` are those to ask")
            for wrong in ([None], [None, None])
        ]
        known += [
            ([0, 1, 0, 1], "asked-twice", "each group need be asked only once"),
            ([0, 0, 1, 1], "asked-twice", "each group need be asked only once"),
            ([1, 0], "wrong-order", "the second group is asked first"),
        ]
        compare_values([0, 1], asked, f"the groups that rank {rank} has asked, by place", known)
