"""Checks of `add_in_rank_order`: what an all-reduce does to the rows it has received."""

import pytest
import torch

from course.checks import compare_tensors, exercise, fail, on_ranks, require, same_as, scaled
from zero.exchange import add_in_rank_order

from . import ranks

NAN = float("nan")
EMPTY = -7.0  # what stands in out beforehand


def rows_of(*numbers: list[float], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.tensor(row, dtype=dtype) for row in numbers]


def combined(rows: list[torch.Tensor], op: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    out = torch.full_like(rows[0], EMPTY, dtype=dtype or rows[0].dtype)
    add_in_rank_order(list(rows), out, op)
    return out


def fp32(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


FOUR = [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0], [1000.0, 6000.0]]
UNFILLED = same_as(
    fp32([EMPTY, EMPTY]),
    "out-not-filled",
    "out still holds what was in it before; `out = ...` only gives a new meaning to your name, "
    "out.copy_(...) fills the tensor",
)


@exercise("zero.exchange.add_in_rank_order")
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sum(ranks):
    """The sum of the rows of 2, 3 and 4 ranks comes into out"""
    rows = rows_of(*FOUR[:ranks])
    expected = torch.stack(rows).sum(0)
    compare_tensors(
        expected,
        combined(rows, "sum"),
        f"out for the sum of {ranks} rows",
        known=[
            UNFILLED,
            same_as(rows[-1], "last-row-only", "that is the last row alone"),
            same_as(rows[0] + rows[1], "two-rows-only", "that is the first two rows"),
            same_as(expected + EMPTY, "adds-to-out", "what was in out before is added too"),
            scaled(1 / ranks, "mean-for-sum", f'divided by {ranks}, but op is "sum"'),
        ],
    )


@exercise("zero.exchange.add_in_rank_order")
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_mean(ranks):
    """The mean is the sum divided by the number of rows"""
    rows = rows_of(*FOUR[:ranks])
    compare_tensors(
        torch.stack(rows).mean(0),
        combined(rows, "mean"),
        f"out for the mean of {ranks} rows",
        known=[
            UNFILLED,
            scaled(ranks, "sum-for-mean", f"summed over {ranks} rows, not averaged"),
            scaled(ranks / 4, "divided-by-4", f"divided by 4, but there are {ranks} rows"),
            scaled(ranks / 2, "divided-by-2", f"divided by 2, but there are {ranks} rows"),
            scaled(1 / ranks, "divided-twice", f"divided by {ranks} twice"),
        ],
    )


@exercise("zero.exchange.add_in_rank_order")
def test_max():
    """The largest, element by element"""
    rows = rows_of([1.0, -20.0], [3.0, -30.0], [2.0, -10.0])
    total = torch.stack(rows).sum(0)
    compare_tensors(
        torch.tensor([3.0, -10.0]),
        combined(rows, "max"),
        'out for op "max"',
        known=[
            UNFILLED,
            same_as(total, "sum-for-max", "that is the sum"),
            same_as(total / 3, "sum-for-max", "that is the mean"),
        ],
    )
    for first, second in ((NAN, 1.0), (1.0, NAN)):
        got = combined(rows_of([first], [second]), "max")
        text = f'Of {first} and {second} op "max" makes {got.item()}; NaN must not be lost.'
        require(bool(got.isnan()), text, "nan-lost")


@exercise("zero.exchange.add_in_rank_order")
def test_rows_stay():
    """The rows stay as they are"""
    rows = rows_of(*FOUR)
    for op in ("sum", "mean", "max"):
        add_in_rank_order(rows, torch.zeros(2), op)
        require(len(rows) == 4, "The list rows has become shorter.", "list-changed")
        for rank, (row, before) in enumerate(zip(rows, rows_of(*FOUR))):
            if not torch.equal(row, before):
                fail(
                    f"rows[{rank}] has changed: it was {before.tolist()}, it is {row.tolist()}. "
                    f"Add into a tensor of your own: `total += row` on a row changes the row.",
                    "rows-changed",
                )


@exercise("zero.exchange.add_in_rank_order")
@pytest.mark.parametrize("own", [0, 1, 2])
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_out_is_a_row(op, own):
    """out may be the memory of one of the rows"""
    rows = rows_of(*FOUR[:3])
    stacked = torch.stack(rows)
    expected = {"sum": stacked.sum(0), "mean": stacked.mean(0), "max": stacked.amax(0)}[op]
    add_in_rank_order(rows, rows[own], op)
    if not torch.allclose(expected, rows[own]):
        fail(
            f"rows[{own}] is passed as out too, and the {op} is wrong then: something is written "
            f"into out before all rows have been read.\n"
            f"expected  {expected.tolist()}\ngot       {rows[own].tolist()}",
            "written-too-early",
        )


@exercise("zero.exchange.add_in_rank_order")
def test_order():
    """fp32 rows are added one by one, rank 0 first"""
    rows = rows_of([1e8, 1.0], [1.0, 1e8], [-1e8, 1.0], [1.0, -1e8])
    compare_tensors(
        torch.tensor([1.0, 0.0]),
        combined(rows, "sum"),
        "out for the sum of [1e8, 1], [1, 1e8], [-1e8, 1], [1, -1e8]",
        known=[
            same_as(fp32([0.0, 1.0]), "backwards", "the last rank's row is taken first"),
            same_as(fp32([0.0, 0.0]), "in-pairs", "rows are added in pairs, then the pairs"),
            same_as(
                fp32([2.0, 2.0]),
                "too-wide",
                "added in fp64; fp32 rows are added in fp32, so that every stage has the same bits",
            ),
        ],
    )


@exercise("zero.exchange.add_in_rank_order")
def test_order_of_many():
    """Nine rows are added one by one too: the same bits"""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randn(1000, generator=draw) for _ in range(9)]
    expected = rows[0].clone()
    for row in rows[1:]:
        expected += row
    got = combined(rows, "sum")
    other = int((got != expected).sum())
    if other and torch.allclose(got, expected, atol=1e-5):
        fail(
            f"The sum of nine rows of random numbers is right to six digits, but in {other} of "
            f"1000 places the last bits are others: the rows were not added one by one. "
            f"(torch.sum over stacked rows adds in groups.)",
            "in-groups",
        )
    compare_tensors(expected, got, "the sum of nine rows")


@exercise("zero.exchange.add_in_rank_order")
def test_64_bits():
    """Rows of 64 bits are added in 64 bits"""
    rows = rows_of([1.0], [1e-12], dtype=torch.float64)
    got = combined(rows, "sum").item()
    text = f"The sum of the fp64 rows [1] and [1e-12]: expected {1 + 1e-12!r}, got {got!r}."
    require(got == 1 + 1e-12, text, "narrowed" if got == 1.0 else "")


@exercise("zero.exchange.add_in_rank_order")
def test_16_bits_are_added_in_fp32():
    """Rows of 16 bits are added in fp32"""
    rows = rows_of([256.0], *[[1.0]] * 7, dtype=torch.bfloat16)
    compare_tensors(
        torch.tensor([264.0], dtype=torch.bfloat16),
        combined(rows, "sum"),
        "the sum of 256 and seven times 1 in bf16",
        known=[
            same_as(
                torch.tensor([256.0], dtype=torch.bfloat16),
                "added-in-16-bits",
                "added in bf16, where 256 + 1 is 256",
            )
        ],
    )


@exercise("zero.exchange.add_in_rank_order")
@pytest.mark.parametrize(("number", "what"), [(40000.0, "overflow"), (2.0**-24, "underflow")])
def test_16_bits_are_divided_last(number, what):
    """The mean of 16-bit rows neither overflows nor underflows"""
    rows = rows_of(*[[number]] * 4, dtype=torch.float16)
    got = combined(rows, "mean").item()
    mistake, why = "", "is wrong"
    if got == float("inf"):
        mistake, why = "overflow", "overflows: the sum is more than fp16 can hold; add in fp32"
    if got == 0.0:
        mistake, why = "underflow", "underflows: a quarter of it is 0 in fp16; divide last, in fp32"
    text = f"The mean of four fp16 rows [{number:.4g}] {why}.\nexpected  {number:.4g}"
    require(got == number, f"{text}\ngot       {got:.4g}", mistake)


@exercise("zero.exchange.add_in_rank_order")
def test_divided_once():
    """The mean is the sum divided by N: the same bits, also for N = 3"""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randn(1000, generator=draw) for _ in range(3)]
    expected = (rows[0] + rows[1] + rows[2]) / 3
    got = combined(rows, "mean")
    other = int((got != expected).sum())
    if other and torch.allclose(got, expected, atol=1e-5):
        fail(
            f"The mean of three rows of random numbers is right to six digits, but in {other} of "
            f"1000 places the last bits are others: divide the sum by 3. Times 1 / 3 rounds twice, "
            f"and so does dividing every row.",
            "rounded-twice",
        )
    compare_tensors(expected, got, "the mean of three rows")


@exercise("zero.exchange.add_in_rank_order")
def test_rounded_once():
    """An fp32 out receives the fp32 result of 16-bit rows"""
    rows = rows_of([256.0], [1.0], dtype=torch.bfloat16)
    compare_tensors(
        torch.tensor([128.5]),
        combined(rows, "mean", torch.float32),
        "the mean of 256 and 1, from bf16 rows into an fp32 out",
        known=[same_as(fp32([128.0]), "rounded-twice", "rounded to 16 bits on the way")],
    )


@exercise("zero.exchange.add_in_rank_order")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_real_ranks(size):
    """An all-reduce on real ranks, which calls your function, gives everybody the mean"""
    everybody = torch.arange(7.0) + torch.arange(1.0, size + 1)[:, None] ** 2
    for rank, got in enumerate(on_ranks(ranks.averaged, size, everybody)):
        what = f"what rank {rank} of {size} has after an all-reduce"
        compare_tensors(everybody.mean(0), got, what)
