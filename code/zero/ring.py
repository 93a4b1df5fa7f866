"""Reduce-scatter and all-gather on a ring, and the naive reduce-scatter: the textbook versions.

On a ring every rank only ever sends to the next rank and receives from the one before. In each of
N-1 rounds a chunk of numel/N elements moves one rank on. Nobody sends more than

    (N-1) * numel/N elements

whatever N is: the cost per rank does not grow with the number of ranks. That is why libraries for
GPUs use rings. `exchange.py`, which training uses on gloo, sends as many bytes without rounds, and
adds in rank order; a ring adds each chunk in another order, starting with another rank.

Every function takes `pass_on`, the one thing a ring can do: `pass_on(chunk)` sends a tensor to the
next rank and returns the one that came from the rank before, of the same size. `neighbours` makes
it for real ranks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from . import comm, messages

PassOn = Callable[[torch.Tensor], torch.Tensor]


def ring_reduce_scatter(
    flat: torch.Tensor, rank: int, world_size: int, pass_on: PassOn
) -> torch.Tensor:
    """The sum over all ranks of chunk `rank` of `flat` [numel]; returns a new tensor [numel/N].

    It has `flat`'s dtype, in which the chunks travel too, and is no view of a larger tensor.
    `world_size` is N. numel must be divisible by N; chunk c is elements c*numel/N up to
    (c+1)*numel/N, and rank c is its owner. A chunk's sum travels: it starts at the rank after its
    owner, and every rank that it passes adds its own part, until it reaches its owner after N-1
    rounds. So each rank calls `pass_on` N-1 times, with numel/N elements. With one rank nothing is
    sent, and the result is a copy. Collective: every rank calls it with a `flat` of the same size.
    `flat` is not changed.
    """
    chunks = flat.chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    for round in range(1, world_size):
        arrived = pass_on(travelling)
        travelling = arrived + chunks[(rank - 1 - round) % world_size]
    return travelling


def ring_all_gather(
    shard: torch.Tensor, rank: int, world_size: int, pass_on: PassOn
) -> torch.Tensor:
    """All ranks' shards [numel/N], in rank order, as one new tensor [numel].

    Each rank sends its own shard first, then what it received in the round before, so after N-1
    rounds of `pass_on` every shard has come round. With one rank nothing is sent. Collective: every
    rank calls it with a shard of the same size. `shard` is not changed.
    """
    shards = {rank: shard}
    travelling = shard
    for round in range(1, world_size):
        travelling = pass_on(travelling)
        shards[(rank - round) % world_size] = travelling
    return torch.cat([shards[r] for r in range(world_size)])


def naive_reduce_scatter(
    flat: torch.Tensor, rank: int, world_size: int, pass_on: PassOn
) -> torch.Tensor:
    """The same result as `ring_reduce_scatter` by an all-reduce of which one chunk is kept.

    The all-reduce is `ring_reduce_scatter` and then `ring_all_gather`: every rank has the whole
    sum [numel]. What comes back is a new tensor [numel/N] that does not keep the whole sum in
    memory. It sends twice as many bytes: 2 (N-1)/N * numel elements. `flat` is not changed.
    """
    own = ring_reduce_scatter(flat, rank, world_size, pass_on)
    everything = ring_all_gather(own, rank, world_size, pass_on)
    return everything.chunk(world_size)[rank].clone()


def neighbours(group: comm.Group = None, name: str = "ring") -> PassOn:
    """`pass_on` between the real ranks of `group` on gloo; every call is logged by its bytes."""
    mesh = messages.mesh(group)
    following, before = (mesh.rank + 1) % mesh.size, (mesh.rank - 1) % mesh.size

    def pass_on(chunk: torch.Tensor) -> torch.Tensor:
        if mesh.size == 1:
            return chunk.clone()
        ticket = mesh.announce("pass_on", name, chunk)
        arrived = torch.empty_like(chunk)
        handles = [
            mesh.receive(arrived, before, ticket.tag),
            mesh.send(chunk.contiguous(), following, ticket.tag),
        ]
        mesh.settle(ticket)
        mesh.wait(handles, ticket)
        comm.log("pass_on", chunk.nbytes, chunk, name=name)
        return arrived

    return pass_on
