"""Checks of `zero.exchange.reduce_scatter`, on real ranks."""

import functools
import weakref
from dataclasses import dataclass

import torch

from course.checks import (
    compare_tensors,
    compare_values,
    exercise,
    fail,
    on_ranks,
    require,
    same_as,
    scaled,
)
from reduce_scatter_checks.gather import mesh_of_a_pair, watch
from zero import exchange, messages

RANKS = 3


@dataclass
class Case:
    """One exchange: `rows[r]` is what rank r has; `piece` elements travel at a time."""

    name: str
    rows: list[list[float]]
    op: str = "sum"
    bounds: list[tuple[int, int]] | None = None
    dtype: torch.dtype = torch.float32
    out: torch.dtype | None = None  # None: this rank's own range of flat
    piece: int = exchange.PIECE
    in_flight: int = exchange.IN_FLIGHT

    def flats(self):
        return [torch.tensor(row).to(self.dtype) for row in self.rows]

    def bounds_(self):
        return self.bounds or exchange.even_bounds(len(self.rows[0]), RANKS)


def counted(numel):
    return [[(i + 1.0) * 10**r for i in range(numel)] for r in range(RANKS)]


CASES = [
    Case("even parts, into flat itself", counted(6)),
    Case("parts of 1, 4 and 1 elements", counted(6), bounds=[(0, 1), (1, 5), (5, 6)]),
    Case("no element for rank 0", counted(6), bounds=[(0, 0), (0, 2), (2, 6)]),
    Case("a mean", counted(6), op="mean", out=torch.float32),
    # In another order than rank 0, 1, 2 the small number is lost beside the large ones.
    Case("1e8 - 1e8 + 1", [[1e8] * 3, [-1e8] * 3, [1.0] * 3], out=torch.float32),
    # In bf16 256 + 1 is 256.
    Case(
        "bf16 into fp32",
        [[256.0] * 3, [1.0] * 3, [2.0] * 3],
        dtype=torch.bfloat16,
        out=torch.float32,
    ),
    # In bf16 256 / 3 is 85.5.
    Case(
        "the mean of bf16 into fp32",
        [[256.0] * 3, [1.0] * 3, [2.0] * 3],
        op="mean",
        dtype=torch.bfloat16,
        out=torch.float32,
    ),
    # 3.0117 in bf16 is 3.0156; with one row rounded first, 3.
    Case("fp32 into bf16", [[1.00390625] * 3] * 3, out=torch.bfloat16),
    Case("many pieces", counted(66), piece=4, in_flight=64),
]


class Buffers:
    """The memory that tensors are received into: `most` are the bytes that existed at once."""

    def __init__(self, mesh):
        self.tensors, self.most = [], 0
        receive = mesh.receive

        def receiving(tensor, peer, tag):
            self.tensors.append(weakref.ref(tensor))
            self.most = max(self.most, self.in_use())
            return receive(tensor, peer, tag)

        mesh.receive = receiving

    def in_use(self):
        """Bytes of those that are still kept."""
        storages = [t().untyped_storage() for t in self.tensors if t() is not None]
        return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


@dataclass
class Seen:
    """One case on one rank."""

    result: torch.Tensor
    out: torch.Tensor
    others: bool  # is what the others own as it was?
    said: int
    sent: int
    early: list[str]
    events: list[str]
    messages: int
    sends: tuple[int, int]  # when the function returned, and in all
    right_tags: bool
    buffers: int


def scatter_cases(rank, world_size):
    """Every case in turn; a text if the answer is no Work and a number."""
    from zero.traffic import Traffic

    mesh, seen = messages.mesh(None), []
    events, tags, sent_to = watch(mesh)
    buffers = Buffers(mesh)
    for case in CASES:
        exchange.PIECE, exchange.IN_FLIGHT = case.piece, case.in_flight
        flat = case.flats()[rank]
        before, (start, end) = flat.clone(), case.bounds_()[rank]
        out = (
            flat[start:end] if case.out is None else torch.full((end - start,), -1, dtype=case.out)
        )
        ticket = mesh.announce("reduce_scatter", "check", flat)
        for seen_so_far in (events, tags, sent_to, buffers.tensors):  # those of the digests
            seen_so_far.clear()
        buffers.most = 0
        with Traffic() as traffic:
            answer = exchange.reduce_scatter(mesh, ticket, flat, out, case.op, case.bounds)
            if not isinstance(answer, tuple) or not isinstance(answer[0], messages.Work):
                return repr(answer)
            early, sends = list(events), len(sent_to)
            result = answer[0].wait()
        before[start:end] = flat[start:end]
        seen.append(
            Seen(
                result=result,
                out=out,
                others=torch.equal(before, flat),
                said=answer[1],
                sent=traffic.bytes(floating=True),
                early=early,
                events=list(events),
                messages=len(tags),
                sends=(sends, len(sent_to)),
                right_tags=set(tags) <= {ticket.tag},
                buffers=buffers.most,
            )
        )
    return seen


@functools.cache
def scattered() -> list[list[Seen]]:
    """The cases on three real ranks, once."""
    by_rank = on_ranks(scatter_cases, RANKS, timeout=20.0)
    for answer in by_rank:
        if isinstance(answer, str):
            fail(f"It should return a Work and a number of bytes, it returned {answer}", "no-work")
    return by_rank


def each():
    """(rank, case, what was seen) of every case on every rank."""
    for rank, cases in enumerate(scattered()):
        for case, seen in zip(CASES, cases, strict=True):
            yield rank, case, seen


def total(rows, op, dtype):
    wide = [row.float() for row in rows]
    added = wide[0]
    for row in wide[1:]:
        added = added + row
    return (added / len(rows) if op == "mean" else added).to(dtype)


@exercise("zero.exchange.reduce_scatter")
def test_parts_are_added_in_rank_order():
    """Three ranks: every rank's part of the sum or mean, rank 0's numbers added first"""
    for rank, case, seen in each():
        start, end = case.bounds_()[rank]
        rows = [flat[start:end] for flat in case.flats()]
        dtype = case.out or case.dtype
        turned = [rows[(rank + d) % RANKS] for d in range(RANKS)]
        peers_first = [*turned[1:], turned[0]]
        known = [
            same_as(rows[rank].to(dtype), "nothing-exchanged", "this rank's own numbers"),
            same_as(total(turned, case.op, dtype), "own-first", "its own numbers are added first"),
            same_as(total(peers_first, case.op, dtype), "own-last", "its own numbers come last"),
        ]
        if dtype == torch.bfloat16:
            narrow = [row.to(dtype) if r == rank else row for r, row in enumerate(rows)]
            narrow = total(narrow, case.op, dtype)
            known.append(same_as(narrow, "rounded-first", "its own numbers are rounded first"))
        if case.dtype == torch.bfloat16:
            added = rows[0] + rows[1] + rows[2]
            known.append(same_as(added.to(dtype), "sixteen-bits", "the sum is made in 16 bits"))
        if case.op == "mean":
            parts = [(row / RANKS).float() for row in rows]
            known.append(
                same_as(
                    sum(parts[1:], parts[0]).to(dtype),
                    "divides-first",
                    "every row is divided before it is added; 16-bit numbers lose digits by that",
                )
            )
            known.append(scaled(RANKS, "sum-for-mean", "summed over the ranks, not averaged"))
        expected = total(rows, case.op, dtype)
        compare_tensors(expected, seen.result, f"{case.name}: rank {rank}'s part", known=known)
        require(
            seen.result is seen.out,
            f"{case.name}: wait() should give `out` itself, not another tensor.",
            "another-tensor",
        )
        # Settling waits for the digests: one from each peer, and one to each.
        digests = 2 * (RANKS - 1) if "settle" in seen.events else 0
        waits = seen.events.count("wait") - digests
        require(
            waits >= seen.messages,
            f"{case.name}: rank {rank} has sent and received {seen.messages} messages, but waited "
            f"for {waits} of them. Those that it sent may still be on their way.",
            "not-waited",
        )
        require(
            seen.others,
            f"{case.name}: rank {rank} has changed what others own of flat. It may be on its way "
            f"to them at that moment.",
            "flat-changed",
        )


def scatter_in_pairs(rank, world_size):
    mesh = mesh_of_a_pair(rank)
    flat = torch.tensor([1.0, 2.0]) * 10**rank
    out, ticket = torch.empty(1), mesh.announce("reduce_scatter", "check", flat)
    return exchange.reduce_scatter(mesh, ticket, flat, out, "sum")[0].wait()


@exercise("zero.exchange.reduce_scatter")
def test_scatter_in_a_group():
    """Four ranks in two pairs: ranks 2 and 3 are the mesh's ranks 0 and 1"""
    sums = (11.0, 22.0, 1100.0, 2200.0)
    for rank, out in enumerate(on_ranks(scatter_in_pairs, 4)):
        what = f"the sum on rank {rank} of 4, in a group of two"
        compare_tensors(torch.tensor([sums[rank]]), out, what)


@exercise("zero.exchange.reduce_scatter")
def test_scatter_bytes():
    """Each rank sends every peer that peer's part, and reports just these bytes"""
    for rank, case, seen in each():
        size, numel = case.dtype.itemsize, len(case.rows[0])
        start, end = case.bounds_()[rank]
        due = size * (numel - (end - start))
        known = [(size * numel * (RANKS - 1), "sends-everything", "all of flat goes to every peer")]
        compare_values(due, seen.sent, f"{case.name}: bytes that rank {rank} sends", known)
        known = [
            (due // size, "elements-for-bytes", "elements, not bytes"),
            (size * numel, "bytes-of-flat", "the bytes of flat, this rank's own part included"),
            (4 * due // size, "always-4-bytes", "bf16 takes 2 bytes an element"),
            (size * (end - start) * (RANKS - 1), "bytes-received", "the bytes that are received"),
        ]
        compare_values(due, seen.said, f"{case.name}: bytes that rank {rank} reports", known)


@exercise("zero.exchange.reduce_scatter")
def test_scatter_waits_late():
    """Nothing is waited for before wait(), which settles the ticket first; all has its tag"""
    for _, case, seen in each():
        name, events = case.name, seen.events
        require(not seen.early, f"{name}: it waits before Work.wait() is called.", "waits-early")
        at_first, in_all = seen.sends
        require(
            at_first == in_all,
            f"{name}: of {in_all} sends {at_first} were started before the function returned. What "
            f"starts in wait() cannot travel while the caller computes.",
            "starts-late",
        )
        require("settle" in events, f"{name}: mesh.settle(ticket) is missing.", "not-settled")
        require(
            events[0] == "settle",
            f"{name}: it waits for data before mesh.settle(ticket). If the ranks disagree, that "
            f"data never comes, and nobody is told why.",
            "settles-late",
        )
        require(
            seen.right_tags,
            f"{name}: a message has another tag than ticket.tag. Two collectives on their way at "
            f"once would take each other's data.",
            "another-tag",
        )


@exercise("zero.exchange.reduce_scatter")
def test_scatter_takes_little_room():
    """A long part is received piece by piece: the buffers do not grow with it"""
    for rank, case, seen in each():
        start, end = case.bounds_()[rank]
        everything = (RANKS - 1) * (end - start) * case.dtype.itemsize
        spare = case.piece * case.dtype.itemsize * (RANKS - 1)  # the piece that is being added
        most = max(case.in_flight, 2 * spare) + spare
        require(
            seen.buffers <= most,
            f"{case.name} (PIECE is {case.piece} elements, IN_FLIGHT {case.in_flight} bytes): "
            f"{seen.buffers} bytes of receive buffers exist at once; all that this rank "
            f"receives is {everything}.",
            "all-at-once",
        )
