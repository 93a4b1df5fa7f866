"""Averages that stay right when ranks hold different amounts of data.

Gradients are averaged over the ranks: every rank counts the same, whether its batch holds one
token or a thousand. That is the mean over all data only if all ranks hold equally much. The two
helpers here scale the loss so that it is again:

* `token_mean`: ranks hold different numbers of tokens (or rows) in one step;
* `join`: ranks hold different numbers of batches, and the shorter ones must not stop, because
  every collective needs all ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch

from . import comm

Batch = TypeVar("Batch")
_END = object()


def token_mean(
    loss_sum: torch.Tensor, tokens: int | torch.Tensor, group: comm.Group = None
) -> torch.Tensor:
    """The loss whose gradient, averaged over the ranks, is that of the mean over all tokens.

    loss_sum: the *sum* of the losses of this rank's tokens (a scalar). tokens: how many they are;
    0 is allowed. Returns loss_sum * N / (tokens of all ranks). Collective: 8 bytes to each peer.

    Rank 0 with 4 tokens of loss 1 and rank 1 with 1 token of loss 5: (4 + 5) / 5 = 1.8, where the
    mean of the ranks' means is (1 + 5) / 2 = 3.

    Raises ValueError, on all ranks, if no rank has a token or a count is negative.
    """
    count = torch.tensor([int(tokens)], device=comm.device())
    counts = comm.all_gather_small(count, group=group, name="tokens").flatten().tolist()
    if min(counts) < 0 or sum(counts) == 0:
        raise ValueError(f"the ranks have {counts} tokens; at least one of them must have some")
    return loss_sum * (len(counts) / sum(counts))


def join(batches: Iterable[Batch], group: comm.Group = None) -> Iterator[tuple[Batch, float]]:
    """This rank's batches, each with a weight for its loss; all ranks end after the longest one.

        for (x, y), weight in join(batches):
            (loss(model(x), y) * weight).backward()
            opt.step()
            opt.zero_grad()

    A rank that has run out repeats its last batch with weight 0, so that it takes part in every
    collective and adds nothing. The others' weight is N / (ranks that still have data): the
    averaged gradient is the mean over those ranks. Collective: one byte to each peer a step.

    Raises ValueError, on all ranks, if some ranks have no batch at all and others have.
    """
    source, last = iter(batches), _END
    n = comm.world_size(group)
    for step in itertools.count():
        batch = next(source, _END)
        has = torch.tensor([batch is not _END], dtype=torch.uint8, device=comm.device())
        flags = comm.all_gather_small(has, group=group, name="has a batch").flatten().tolist()
        if not any(flags):
            return
        if step == 0 and not all(flags):
            empty = [r for r, flag in enumerate(flags) if not flag]
            raise ValueError(f"ranks {empty} have no batch at all; each needs one to take part")
        last = last if batch is _END else batch
        yield last, 0.0 if batch is _END else n / sum(flags)
