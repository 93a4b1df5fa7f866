"""Checks of `zero.exchange.all_gather`, on real ranks."""

import functools

import torch
import torch.distributed as dist

from course.checks import (
    compare_tensors,
    compare_values,
    exercise,
    fail,
    on_ranks,
    require,
    same_as,
)
from zero import exchange, messages

BOUNDS = (None, [(0, 1), (1, 5), (5, 6)], [(0, 0), (0, 2), (2, 6)], None)
NAMES = ("even ranges", "ranges of 1, 4 and 1 elements", "an empty range on rank 0", "bf16")
DTYPES = (*[torch.float32] * 3, torch.bfloat16)
DIGESTS = 4  # to each of two peers and from each; settling waits for them


class Spy:
    """A request that notes when it is waited for."""

    def __init__(self, handle, events):
        self.handle, self.events = handle, events

    def wait(self):
        self.events.append("wait")
        return self.handle.wait()


def watch(mesh) -> tuple[list[str], list[int], list[int]]:
    """Note every wait for a request and every settle of this mesh from now on; every tag; and the
    peer of every send.

    Sends are kept: one whose request is dropped may or may not arrive.
    """
    settle, send, receive = mesh.settle, mesh.send, mesh.receive
    events, tags, sent_to, kept = [], [], [], []

    def settling(ticket):
        events.append("settle")
        settle(ticket)

    def sending(tensor, peer, tag):
        tags.append(tag)
        sent_to.append(peer)
        kept.append(Spy(send(tensor, peer, tag), events))
        return kept[-1]

    def receiving(tensor, peer, tag):
        tags.append(tag)
        return Spy(receive(tensor, peer, tag), events)

    mesh.settle, mesh.send, mesh.receive = settling, sending, receiving
    return events, tags, sent_to


def gather_cases(rank, world_size):
    """Of each case: flat, what wait() gave, tags and what they should be, bytes reported and really
    sent, counts of messages, order of events.

    The counts: sends when the function returned, and when all was over; and all messages then.
    """
    from zero.traffic import Traffic

    mesh = messages.mesh(None)
    (events, tags, sent_to), seen = watch(mesh), []
    for bounds, dtype in zip(BOUNDS, DTYPES):
        flat = torch.full((6,), -1.0, dtype=dtype)
        start, end = (bounds or exchange.even_bounds(6, world_size))[rank]
        flat[start:end] = torch.arange(start, end) + 1.0
        ticket = mesh.announce("all_gather", "check", flat)
        for seen_so_far in (events, tags, sent_to):  # those of the digests
            seen_so_far.clear()
        with Traffic() as traffic:
            answer = exchange.all_gather(mesh, ticket, flat, bounds)
            if not isinstance(answer, tuple) or not isinstance(answer[0], messages.Work):
                return repr(answer)
            started, sends = list(events), len(sent_to)
            result = answer[0].wait()
        same = result is flat
        sent = traffic.bytes(floating=True)
        found = sorted(set(tags)), ticket.tag
        counts = sends, len(sent_to), len(tags)
        seen.append((flat, same, found, answer[1], sent, counts, started, list(events)))
    return seen


@functools.cache
def gathered() -> list:
    """The cases on three real ranks, once."""
    by_rank = on_ranks(gather_cases, 3)
    for answer in by_rank:
        if isinstance(answer, str):
            fail(f"It should return a Work and a number of bytes, it returned {answer}", "no-work")
    return by_rank


@exercise("zero.exchange.all_gather")
def test_all_ranges_filled():
    """Three ranks: after wait() every rank's range is filled, in place, whatever the bounds"""
    for rank, cases in enumerate(gathered()):
        for name, case in zip(NAMES, cases):
            empty = same_as(case[0], "not-filled", "places of -1 were not received")
            known = [empty] if (case[0] == -1).any() else []
            expected = (torch.arange(6) + 1.0).to(case[0].dtype)
            compare_tensors(expected, case[0], f"{name}: flat on rank {rank}", known=known)
            require(case[1], "wait() should give flat itself.", "another-tensor")


def mesh_of_a_pair(rank: int) -> messages.Mesh:
    """Of four ranks, 0 and 1 are one group, 2 and 3 another; the mesh of this rank's."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return messages.mesh(pairs[rank // 2])


def gather_in_pairs(rank, world_size):
    mesh = mesh_of_a_pair(rank)
    flat = torch.full((2,), rank + 1.0)
    work, _ = exchange.all_gather(mesh, mesh.announce("all_gather", "check", flat), flat)
    return work.wait()


@exercise("zero.exchange.all_gather")
def test_gather_in_a_group():
    """Four ranks in two pairs: ranks 2 and 3 are the mesh's ranks 0 and 1"""
    for rank, flat in enumerate(on_ranks(gather_in_pairs, 4)):
        pair = torch.tensor([1.0, 2.0] if rank < 2 else [3.0, 4.0])
        compare_tensors(pair, flat, f"flat on rank {rank} of 4, in a group of two")


@exercise("zero.exchange.all_gather")
def test_gather_bytes():
    """Each rank sends its own range to each peer, and reports just these bytes"""
    for rank, cases in enumerate(gathered()):
        for name, bounds, (*_, said, sent, _, _, _) in zip(NAMES, BOUNDS, cases):
            start, end = (bounds or exchange.even_bounds(6, 3))[rank]
            size = 2 if name == "bf16" else 4
            due = 2 * size * (end - start)
            known = [(2 * size * 6, "sends-everything", "the whole of flat goes to every peer")]
            compare_values(due, sent, f"{name}: bytes that rank {rank} sends", known)
            known = [
                (due // 2, "bytes-of-one-peer", "the bytes for one peer"),
                (2 * (end - start), "elements-for-bytes", "elements, not bytes"),
                (2 * 4 * (end - start), "always-4-bytes", "bf16 takes 2 bytes an element"),
                (6 * size, "bytes-of-flat", "the bytes of flat"),
                (6 * size - due // 2, "bytes-received", "the bytes that are received"),
            ]
            compare_values(due, said, f"{name}: bytes that rank {rank} reports", known)


@exercise("zero.exchange.all_gather")
def test_gather_tags():
    """All messages carry the tag of the ticket, so that none is taken for another's"""
    for cases in gathered():
        for name, (_, _, (tags, right), *_) in zip(NAMES, cases):
            text = f"{name}: messages carry the tags {tags}; ticket.tag is {right}. "
            if 0 in tags:
                text += "Tag 0 is that of the digests, which then meets data. "
            require(tags in ([right], []), text, "another-tag")


@exercise("zero.exchange.all_gather")
def test_gather_waits_late():
    """Nothing is waited for before wait(), which settles the ticket first"""
    for cases in gathered():
        for name, (*_, started, events) in zip(NAMES, cases):
            require(not started, f"{name}: it waits before Work.wait() is called.", "waits-early")
            require("settle" in events, f"{name}: mesh.settle(ticket) is missing.", "not-settled")
            require(
                events[0] == "settle",
                f"{name}: it waits for data before mesh.settle(ticket). If the ranks disagree, "
                f"that data never comes, and nobody is told why.",
                "settles-late",
            )


@exercise("zero.exchange.all_gather")
def test_gather_messages():
    """Sends start at once, empty ranges do not travel, and in the end all was waited for"""
    for rank, cases in enumerate(gathered()):
        for name, bounds, (*_, counts, _, events) in zip(NAMES, BOUNDS, cases):
            sends_at_first, sends, messages_in_all = counts
            require(
                sends_at_first == sends,
                f"{name}: rank {rank} sends before it returns {sends_at_first} messages, and "
                f"{sends} in all. What starts in wait() cannot travel while the caller computes.",
                "starts-late",
            )
            sizes = [end - start for start, end in bounds or exchange.even_bounds(6, 3)]
            due = 2 * (sizes[rank] > 0) + sum(size > 0 for size in sizes) - (sizes[rank] > 0)
            require(
                messages_in_all <= due,
                f"{name}: rank {rank} sends and receives {messages_in_all} messages, of which "
                f"{due} have an element in them. Empty ranges need not travel.",
                "sends-nothing",
            )
            waits = events.count("wait") - DIGESTS
            require(
                waits >= messages_in_all,
                f"{name}: rank {rank} has sent and received {messages_in_all} messages, but waited "
                f"for {waits} of them. What it sent may still be on its way when flat changes.",
                "not-waited",
            )
