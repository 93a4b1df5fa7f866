"""Reduce-scatter, all-gather and broadcast built from plain sends: the collectives used on gloo.

Every rank sends each peer that peer's part, directly: N-1 messages out, N-1 in. (A ring sends
the same number of bytes in N-1 rounds; `ring.py` has one to compare with.) The received parts
are added in rank order, rank 0 first, whoever adds them, so the sum of an element has the same
bits in every stage and every bucket size. `messages.py` has the sends, and
the digests that go ahead of them.
"""

from __future__ import annotations

from collections import deque

import torch

from .messages import RIDERS, Mesh, Ticket, Work

PIECE = 1 << 18  # elements added at a time: a few such pieces fit into a core's cache
IN_FLIGHT = 32 << 20  # bytes of receive buffers that one reduce-scatter holds at most

Bounds = list[tuple[int, int]]


def even_bounds(numel: int, size: int) -> Bounds:
    """`size` ranges that tile [0, numel): equal ones where size divides numel."""
    shard = -(-numel // size)
    return [(min(r * shard, numel), min((r + 1) * shard, numel)) for r in range(size)]


def in_pieces(part: torch.Tensor) -> list[torch.Tensor]:
    """Views of a flat tensor, of PIECE elements each, the last one shorter; none if it is empty."""
    return list(part.split(PIECE)) if part.numel() else []


# --- the collectives -----------------------------------------------------------------------------


def reduce_scatter(
    mesh: Mesh,
    ticket: Ticket,
    flat: torch.Tensor,
    out: torch.Tensor,
    op: str,
    bounds: Bounds | None = None,
) -> tuple[Work, int]:
    """Start to send every peer its part of `flat` and to add what the peers send for ours.

    `bounds[r]` is the (start, end) of rank r's part; without bounds they are
    `even_bounds(flat.numel(), mesh.size)`. Parts may be empty: nothing is sent or received for
    those. Every part travels as `in_pieces(part)`, at most PIECE elements each, in order, with the
    tag `ticket.tag`.

    What the peers send for a piece of ours is received into new tensors like it. These and our own
    piece are the N rows that `add_in_rank_order(rows, target, op)` adds, `target` being the same
    piece of `out` [end - start]. `out` may be the rank's own range of `flat`, or of another dtype;
    what others own of `flat` stays as it is. A long part is not received all at once: as many
    pieces are on their way as fit into IN_FLIGHT bytes of buffers, two from each peer if these are
    more.

    Returns a `Work` and the bytes that this rank sends. All sends are started here, and nothing is
    waited for: the work's `wait()` calls `mesh.settle(ticket)`, then receives and adds, and waits
    in the end for what was sent; its result is `out`. Collective.
    """
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[mesh.rank]
    handles = [
        mesh.send(part, peer, ticket.tag)
        for peer in mesh.peers
        for part in in_pieces(flat[slice(*bounds[peer])])
    ]
    pending: deque[tuple[list, list[torch.Tensor], torch.Tensor]] = deque()
    inputs, outputs = deque(in_pieces(flat[start:end])), deque(in_pieces(out))

    def post() -> None:
        own = inputs.popleft()
        rows = [own if r == mesh.rank else torch.empty_like(own) for r in range(mesh.size)]
        received = [mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers]
        pending.append((received, rows, outputs.popleft()))

    def finish() -> None:
        mesh.settle(ticket)
        while pending:
            received, rows, target = pending.popleft()
            mesh.wait(received, ticket)
            add_in_rank_order(rows, target, op)
            if inputs:
                post()
        mesh.wait(handles, ticket)

    piece_bytes = PIECE * flat.element_size() * (mesh.size - 1)
    for _ in range(min(len(inputs), max(2, IN_FLIGHT // piece_bytes))):
        post()
    sent = flat.element_size() * (flat.numel() - (end - start))
    return Work(out, [], finish), sent


def add_in_rank_order(rows: list[torch.Tensor], out: torch.Tensor, op: str) -> None:
    """Write into `out` the sum of `rows`, added in rank order: rows[0] + rows[1], + rows[2], ...

    `rows[r]` came from rank r: two or more tensors of one shape and dtype, which must stay as they
    are. `out` has their shape and keeps its own dtype. It may be the memory of one of the rows: in
    a collective a rank's part of the result replaces its own part of the input. `op` is "sum",
    "mean" (the sum divided by the number of rows) or "max" (the largest, element by element; NaN
    if one of them is NaN).

    16-bit rows are converted to fp32 before they are added; rows of 32 or 64 bits are added as
    they are. The division comes after the sum and the rounding to `out` last, so that 16-bit
    gradients neither overflow nor underflow.
    """
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    combine = torch.maximum if op == "max" else torch.add
    total = combine(rows[0].to(wide), rows[1].to(wide))
    for row in rows[2:]:
        combine(total, row.to(wide), out=total)
    if op == "mean":
        torch.div(total, len(rows), out=out)
    else:
        out.copy_(total)


def all_gather(
    mesh: Mesh, ticket: Ticket, flat: torch.Tensor, bounds: Bounds | None = None
) -> tuple[Work, int]:
    """Start to send this rank's range of `flat` to every peer and to receive theirs in place.

    `bounds[r]` is the (start, end) of rank r's range; without bounds they are
    `even_bounds(flat.numel(), mesh.size)`. Ranges may be empty: those are neither sent nor
    received. Messages carry the tag `ticket.tag`.

    Returns a `Work` and the bytes that this rank sends. All sends are started here, and nothing is
    waited for: the work's `wait()` calls `mesh.settle(ticket)`, then `mesh.wait(handles, ticket)`
    for all requests, those of its sends too, and its result is `flat`, in which every rank's range
    is then filled. Collective.
    """
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    own = flat[slice(*bounds[mesh.rank])]
    parts = {p: flat[slice(*bounds[p])] for p in mesh.peers}
    handles = [mesh.receive(part, p, ticket.tag) for p, part in parts.items() if part.numel()]
    if own.numel():
        handles += [mesh.send(own, p, ticket.tag) for p in mesh.peers]

    def finish() -> None:
        mesh.settle(ticket)
        mesh.wait(handles, ticket)

    return Work(flat, [], finish), own.nbytes * len(mesh.peers)


def all_gather_small(mesh: Mesh, name: str, values: torch.Tensor) -> torch.Tensor:
    """Every rank's `values` [n] as rows [N, n]; a few bytes travel with the digest."""
    if values.nbytes <= 8 * RIDERS:
        ticket = mesh.announce("all_gather_small", name, values, riders=values)
        mesh.settle(ticket)
        riders = ticket.rows[:, 1:].contiguous().view(torch.uint8)
        return riders[:, : values.nbytes].contiguous().view(values.dtype)
    ticket = mesh.announce("all_gather_small", name, values)
    rows = values.new_empty(mesh.size, values.numel())
    rows[mesh.rank] = values
    all_gather(mesh, ticket, rows.view(-1))[0].wait()
    return rows


def broadcast(mesh: Mesh, ticket: Ticket, flat: torch.Tensor, src: int) -> tuple[Work, int]:
    """Start to send `flat` from rank `src` to every other rank, in place."""
    if not flat.numel():
        handles = []
    elif mesh.rank == src:
        handles = [mesh.send(flat, p, ticket.tag) for p in mesh.peers]
    else:
        handles = [mesh.receive(flat, src, ticket.tag)]

    def finish() -> None:
        mesh.settle(ticket)
        mesh.wait(handles, ticket)

    return Work(flat, [], finish), flat.nbytes * len(mesh.peers) if mesh.rank == src else 0
