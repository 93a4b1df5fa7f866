"""Ranks with different amounts of data: the average over all of it, and a common end."""

import pytest
import torch
from torch import nn

import zero
from helpers import (
    ADAMW,
    STAGES,
    Together,
    assert_equal_to_reference,
    even_rows,
    full_weights,
    loss_of,
    m0,
    on_ranks,
    reference,
    rows,
    sharded,
    train_sharded,
    weights,
)
from zero.batches import join, token_mean

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]


# --- ranks with different amounts of data --------------------------------------------------------


def tokens_case(rank, n):
    """Rank 0: 4 tokens of loss 1. Rank 1: 1 token of loss 5. Then rank 1 has none."""
    losses = torch.ones(4) if rank == 0 else torch.full((1,), 5.0)
    mine = token_mean(losses.sum(), losses.numel())
    without = token_mean(losses.sum() * (rank == 0), torch.tensor(4 if rank == 0 else 0))
    try:
        token_mean(losses.sum(), 0)
        text = "no error"
    except ValueError as error:
        text = str(error)
    return mine.item(), losses.mean().item(), without.item(), text


def test_mean_over_tokens_of_all_ranks():
    """(case B9)"""
    mine, plain, without, texts = zip(*on_ranks(tokens_case, 2))
    assert sum(mine) / 2 == pytest.approx(1.8)
    assert sum(plain) / 2 == 3.0
    assert sum(without) / 2 == pytest.approx(1.0)
    assert all("the ranks have [0, 0] tokens" in text for text in texts)


def uneven_tokens_case(rank, n, stage):
    """Rank r of 3 takes 1, 3, 4 of the 8 rows."""
    model, opt = sharded(rank, n, stage)
    mine = (slice(0, 1), slice(1, 4), slice(4, 8))[rank]
    for step in range(4):
        x, y = (t[mine] for t in rows(step))
        row_losses = nn.functional.mse_loss(model(x), y, reduction="none").mean(1)
        token_mean(row_losses.sum(), len(x)).backward()
        opt.step()
        opt.zero_grad()
    return full_weights(model, opt)


uneven_tokens = Together(uneven_tokens_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_training_on_uneven_shares(stage):
    assert_equal_to_reference(uneven_tokens(3, stage), reference())


LENGTHS = {2: (5, 4), 3: (1, 3, 2)}


def join_case(rank, n, stage):
    model, opt = sharded(rank, n, stage)
    batches = [even_rows(step, rank, n) for step in range(LENGTHS[n][rank])]
    seen = []
    for (x, y), weight in join(iter(batches)):
        (loss_of(model, x, y) * weight).backward()
        opt.step()
        opt.zero_grad()
        seen.append((next(i for i, b in enumerate(batches) if b[0] is x), weight))
    return full_weights(model, opt), seen


joins = Together(join_case, BY_STAGE)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("stage", STAGES)
def test_ranks_with_different_numbers_of_batches(stage, n):
    """(case B17) All end together; a step averages over the ranks that still have data."""
    lengths = LENGTHS[n]
    model = m0()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    for step in range(max(lengths)):
        having = [rank for rank in range(n) if step < lengths[rank]]
        losses = [loss_of(model, *even_rows(step, rank, n)) for rank in having]
        (sum(losses) / len(having)).backward()
        optimizer.step()
        optimizer.zero_grad()
    by_rank = joins(n, stage)
    assert_equal_to_reference([w for w, _ in by_rank], weights(model))
    for rank, (_, seen) in enumerate(by_rank):
        for step, (batch, weight) in enumerate(seen):
            assert batch == min(step, lengths[rank] - 1)
            having = sum(step < length for length in lengths)
            assert weight == (n / having if step < lengths[rank] else 0.0)
        assert len(seen) == max(lengths)


def empty_join_case(rank, n):
    nothing = list(join([]))
    try:
        return nothing, list(join([0] if rank == 0 else []))
    except ValueError as error:
        return nothing, str(error)


def test_joining_without_any_batch():
    for nothing, text in on_ranks(empty_join_case, 2):
        assert nothing == []
        assert text == "ranks [1] have no batch at all; each needs one to take part"


def test_joining_alone_changes_nothing():
    assert list(join([3, 4])) == [(3, 1.0), (4, 1.0)]
    assert token_mean(torch.tensor(6.0), 3).item() == 2.0


def leaver_case(rank, n, stage):
    model, opt = sharded(rank, n, stage)
    train_sharded(model, opt, 5 if rank == 0 else 4)


@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_that_leaves_early_is_named(stage):
    """(case B17) Without `join`: an error that names the step and who left, not a hang."""
    with pytest.raises(zero.RankError, match=r"rank 1 (had returned|has left)") as error:
        on_ranks(leaver_case, 2, stage, timeout=20)
    assert "step 5" in str(error.value)
