"""The checks of `zero.bucket.Bucket.make_slices`."""

import pytest
import torch
from torch import nn

from course.checks import compare_tensors, exercise, fail, require, same_as
from zero.bucket import Bucket, ParamSlice
from zero.flat import FlatLayout
from zero.formulas import model_states
from zero1_checks.trainings import ALL_RANKS, NUMEL, trainings, weights_are_right

PATH = "zero.bucket.Bucket.make_slices"
TRAININGS = ("sgd", "adamw", "groups")
SHAPES = {"a": (2, 3), "b": (3,), "c": (2, 2)}
PARTS = [  # of 13 elements on 4 ranks, 4 to a shard: name, start, end, offset
    [("a", 0, 4, 0)],
    [("a", 4, 6, 0), ("b", 0, 2, 2)],
    [("b", 2, 3, 0), ("c", 0, 3, 1)],
    [("c", 3, 4, 0)],
]
WHOLE = [("a", 0, 6, 0), ("b", 0, 3, 6), ("c", 0, 4, 9)]
LAYOUT = "a [2, 3], b [3] and c [2, 2] on 4 ranks"


def bucket_of(rank: int, sharded: bool = True, dtype: torch.dtype = torch.float32) -> Bucket:
    """One rank's bucket of a, b and c, whose elements are 0.001 up to 0.013; no ranks needed."""
    bucket = Bucket.__new__(Bucket)
    bucket.layout = FlatLayout(SHAPES.items(), 4)
    values = torch.arange(1.0, 17) / 1000
    values[13:] = 0.0
    bucket.flat = values.to(dtype)
    views = bucket.layout.views(bucket.flat)
    bucket.names, bucket.params = list(views), [nn.Parameter(v) for v in views.values()]
    bucket.index = {p: i for i, p in enumerate(bucket.params)}
    bucket.group, bucket.rank, bucket.sharded, bucket.trainable = None, rank, sharded, True
    bucket.shard = bucket.owned(bucket.flat)
    bucket.has_master = dtype != torch.float32
    bucket.master = bucket.owned(values).clone() if bucket.has_master else bucket.shard
    return bucket


def slices_of(bucket: Bucket) -> list[ParamSlice]:
    made = bucket.make_slices()
    require(isinstance(made, list), f"make_slices gives {made!r}, not a list.", "not-a-list")
    bad = [s for s in made if not isinstance(s, ParamSlice)]
    require(not bad, f"{str(bad[:1])[1:-1]} in the list is no ParamSlice.", "not-a-slice")
    return made


def four(s: ParamSlice) -> tuple:
    return s.name, s.start, s.end, s.offset


@exercise(PATH)
@pytest.mark.parametrize("rank", range(4))
def test_parts(rank):
    """A slice for each part that the rank owns: name, start, end, offset"""
    expected, got = PARTS[rank], [four(s) for s in slices_of(bucket_of(rank))]
    if got == expected:
        return
    mistake, why = "", ""
    if got == WHOLE or len(got) > len(expected):
        mistake, why = "nothing-sharded", " That is more than this rank owns."
    elif len(got) == 1 and got[0][2] - got[0][1] == 4:
        mistake = "one-parameter"
        why = " One slice for all: then all have one step counter and one weight decay."
    elif len(got) < len(expected):
        mistake, why = "part-missing", " A part is missing."
    elif [g[0::3] for g in got] == [e[0::3] for e in expected]:
        mistake, why = "wrong-range", " start and end count inside the flattened parameter."
    elif [g[:3] for g in got] == [e[:3] for e in expected]:
        mistake, why = "wrong-offset", " The offset counts from the start of this rank's master."
    fail(
        f"Rank {rank} of 4; the parameters are {LAYOUT}.{why}\n"
        f"expected (name, start, end, offset)  {expected}\ngot  {got}",
        mistake,
    )


@exercise(PATH)
@pytest.mark.parametrize("rank", range(4))
def test_elements(rank):
    """Each slice's param holds the elements of its part, in one dimension"""
    bucket = bucket_of(rank)
    for s, (name, start, end, offset) in zip(slices_of(bucket), PARTS[rank]):
        right = bucket.master[offset : offset + end - start].clone()
        shifted = bucket.master[start:end].clone()
        compare_tensors(
            right,
            s.param.detach(),
            f"rank {rank}, the slice of {name} from {start} to {end}",
            atol=0.0,
            known=[
                same_as(shifted, "start-for-offset", "in master it begins at offset, not at start"),
                same_as(right[:-1], "last-missing", "the last element is missing"),
                same_as(bucket.master, "whole-shard", "that is the whole master"),
            ],
        )


@exercise(PATH)
def test_views():
    """What the optimizer writes into a slice stands in the master: a view, not a copy"""
    bucket = bucket_of(1)
    for s in slices_of(bucket):
        with torch.no_grad():
            s.param.fill_(7.0)
    compare_tensors(
        torch.full((4,), 7.0),
        bucket.master,
        "rank 1's master after its slices were filled with 7",
        known=[
            same_as(
                torch.tensor([0.005, 0.006, 0.007, 0.008]),
                "copies",
                "nothing has arrived: the slices are copies",
            )
        ],
    )


@exercise(PATH)
def test_parameters():
    """`param` is an nn.Parameter, `whole` the model's parameter of that name"""
    for rank in range(4):
        bucket = bucket_of(rank)
        for s in slices_of(bucket):
            what = f"Rank {rank}, the slice of {s.name}: "
            is_parameter = isinstance(s.param, nn.Parameter)
            require(is_parameter, f"{what}param is a {type(s.param).__name__}.", "no-parameter")
            right = bucket.params[bucket.names.index(s.name)]
            other = [n for n, p in zip(bucket.names, bucket.params) if p is s.whole]
            text = f"{what}whole is {f'the parameter {other[0]}' if other else repr(s.whole)}."
            require(s.whole is right, text, "wrong-whole")


@exercise(PATH)
def test_master():
    """In 16-bit training the slices view the fp32 master, not the model's parameters"""
    bucket = bucket_of(1, dtype=torch.bfloat16)
    for s in slices_of(bucket):
        require(
            s.param.dtype == torch.float32,
            f"The slice of {s.name} is {s.param.dtype}: it views the 16-bit parameters. The "
            f"optimizer must update self.master.",
            "not-the-master",
        )
        start = s.offset
        right = bucket.master[start : start + s.end - s.start]
        compare_tensors(right, s.param.detach(), f"the slice of {s.name}", atol=0.0)


@exercise(PATH)
def test_not_sharded():
    """With sharded=False (stage 0) a rank owns every parameter as a whole"""
    got = [four(s) for s in slices_of(bucket_of(1, sharded=False))]
    text = f"The parameters are {LAYOUT}, sharded is False.\nexpected  {WHOLE}\ngot       {got}"
    require(got == WHOLE, text, "sharded-anyway")


@exercise(PATH)
@ALL_RANKS
@pytest.mark.parametrize("optimizer", TRAININGS)
def test_slices_train(optimizer, ranks):
    """Training on the slices gives the weights of one process, also with parameter groups"""
    weights_are_right(PATH, TRAININGS, optimizer, ranks)


@exercise(PATH)
@ALL_RANKS
def test_states(ranks):
    """A rank keeps the moments of what it owns, and no more"""
    for rank, by_name in enumerate(trainings(PATH, ranks, TRAININGS)):
        expected = model_states([NUMEL], 1, ranks, rank=rank).optimizer
        got = by_name["adamw"].live["optimizer"]
        text = f"Rank {rank} of {ranks} keeps {got} bytes of moments, {expected} are its share."
        require(got == expected, text, "states")
