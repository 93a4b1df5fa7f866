"""Messages between the ranks of a group, and how they notice that they disagree.

Every rank sends each peer directly: N-1 messages out, N-1 in. Before the data of a collective goes
a *digest* of what this rank is about to do, under tag 0 (`Mesh.announce`); the messages of the
collective itself carry a tag made from the digest. Two ranks that disagree on what comes next can
therefore never take each other's data for their own: they find out from the digests.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable

import torch
import torch.distributed as dist

TEXT_BYTES = 512
RIDERS = 15  # numbers of 8 bytes that may travel with a digest

waiting_in = ""  # the collective in which this rank waits: for reports made by another thread
LEFT = -1  # in place of a digest: this rank takes part in nothing any more


class CommError(RuntimeError):
    """A collective failed on this rank; the text says which one and what to do."""


class MismatchError(CommError):
    """The ranks disagree on the next collective; the text lists what each of them wanted."""


class Work:
    """A collective that has been started. `wait()` finishes it and returns its result.

    `handles` are torch's own requests. `finish` is called once after them, for what remains to be
    done with the received data.
    """

    def __init__(self, result: torch.Tensor, handles: list, finish: Callable | None = None):
        self.result, self.handles, self.finish = result, handles, finish

    def wait(self) -> torch.Tensor:
        """Block until the collective is done (at most the group's timeout); the result tensor."""
        handles, finish, self.handles, self.finish = self.handles, self.finish, [], None
        for handle in handles:
            handle.wait()
        if finish is not None:
            finish()
        return self.result


class Ticket:
    """One announced collective: its number in its group, its tag, and what came from the peers.

    `rows` [N, 1 + RIDERS], int64: every rank's digest, to be compared once, and what rides on it.
    """

    def __init__(self, text: str, number: int, tag: int, rows: torch.Tensor, handles: list):
        self.text, self.number, self.tag = text, number, tag
        self.rows, self.handles = rows, handles


class Request:
    """A message on its way. It keeps the tensor alive, which torch's own handle does not."""

    def __init__(self, handle: dist.Work, tensor: torch.Tensor):
        self.handle, self.tensor = handle, tensor

    def wait(self) -> None:
        """Block until the tensor may be used again; RuntimeError if the peer is gone."""
        self.handle.wait()


class Mesh:
    """Direct sends and receives between the ranks of one group."""

    def __init__(self, group: dist.ProcessGroup | None):
        if "cpu:" not in dist.get_backend_config(group):
            raise CommError(
                f"a tensor on the CPU cannot travel: the ranks talk over "
                f"{dist.get_backend(group)}. Move the model with model.to(zero.comm.device()) "
                f'before zero.shard, or start the ranks with backend="gloo"'
            )
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        # Start with the next rank up, so that not everybody sends to rank 0 first.
        self.peers = [(self.rank + d) % self.size for d in range(1, self.size)]
        self.announced = 0
        self.unsettled: deque[Ticket] = deque()  # in the order of their announcement
        self.unawaited: list[Request] = []  # dropped, they might never arrive
        calm_network_threads()

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Request:
        handle = dist.isend(tensor, group=self.group, group_dst=peer, tag=tag)
        return Request(handle, tensor)

    def receive(self, tensor: torch.Tensor, peer: int, tag: int) -> Request:
        handle = dist.irecv(tensor, group=self.group, group_src=peer, tag=tag)
        return Request(handle, tensor)

    def announce(
        self, op: str, name: str, flat: torch.Tensor, riders: torch.Tensor | None = None
    ) -> Ticket:
        """Tell the peers what this rank is about to do; `settle` compares.

        `riders` is a tensor of at most 8 * RIDERS bytes that travels in the same message.
        """
        text = f"{op}({name or 'unnamed'}, {flat.numel()} x {_dtype(flat)})"
        if os.environ.get("ZERO_DEBUG") == "1":
            text += f" at {_caller()}"
        digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
        rows = torch.full((self.size, 1 + RIDERS), digest)
        own = rows[self.rank, :1]
        if riders is not None:
            own = rows[self.rank, : 1 + -(-riders.nbytes // 8)]
            own[1:].view(torch.uint8)[: riders.nbytes] = riders.view(torch.uint8)
        # What arrives may be shorter than the place for it: a digest alone, or with riders.
        handles = [self.receive(rows[p], p, 0) for p in self.peers]
        handles += [self.send(own, p, 0) for p in self.peers]
        self.announced += 1
        ticket = Ticket(text, self.announced, 2 + digest % (1 << 30), rows, handles)
        self.unsettled.append(ticket)
        return ticket

    def settle(self, ticket: Ticket) -> None:
        """Compare the digests of all ranks, once a ticket; all ranks raise if they differ.

        Collectives that began before it are compared first, also those that nobody has waited for
        yet: the first disagreement is the one to tell.
        """
        while ticket.handles:
            self._compare(self.unsettled.popleft())

    def _compare(self, ticket: Ticket) -> None:
        handles, ticket.handles = ticket.handles, []
        received, sent = handles[: self.size - 1], handles[self.size - 1 :]
        self.wait(received, ticket)  # these first: a rank that has left takes none of ours
        digests = ticket.rows[:, 0].tolist()
        left = [rank for rank, digest in enumerate(digests) if digest == LEFT]
        if left:
            self.unawaited += sent
            who = f"rank {left[0]} has" if len(left) == 1 else f"ranks {left} have"
            raise CommError(f"{who} left while rank {self.rank} waits in {ticket.text}")
        self.wait(sent, ticket)
        if len(set(digests)) > 1:
            raise MismatchError(self._explain(ticket))

    def leave(self) -> None:
        """Tell the peers that this rank calls no further collective, so that none waits for it."""
        notice = torch.full((1,), LEFT)
        self.unawaited += [self.send(notice, p, 0) for p in self.peers]

    def wait(self, handles: list, ticket: Ticket) -> None:
        """Wait for requests; a lost or silent peer becomes a CommError naming the collective."""
        global waiting_in
        waiting_in = ticket.text
        try:
            for handle in handles:
                handle.wait()
            waiting_in = ""
        except RuntimeError as error:
            raise CommError(
                f"rank {self.rank} lost its peers in {ticket.text}: another rank has ended, or did "
                f"not come here in time ({str(error).splitlines()[0][:120]})"
            ) from error

    def _explain(self, ticket: Ticket) -> str:
        rows = torch.zeros(self.size, TEXT_BYTES, dtype=torch.uint8)
        encoded = ticket.text.encode()[:TEXT_BYTES]
        rows[self.rank, : len(encoded)] = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
        handles = [self.receive(rows[p], p, 1) for p in self.peers]
        handles += [self.send(rows[self.rank].clone(), p, 1) for p in self.peers]
        for handle in handles:
            handle.wait()
        texts = [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in rows]
        lines = [f"  rank {r}: {t}" for r, t in enumerate(texts)]
        return (
            f"the ranks disagree on their collective number {ticket.number}:\n"
            + "\n".join(lines)
            + "\nEvery rank must call the same collectives in the same order, with the same sizes."
        )


def calm_network_threads() -> None:
    """Keep gloo's network threads from taking the core away from the thread they then wait for.

    A network thread wakes when a message arrives. Where threads outnumber cores, the kernel likes
    to run it in place of the thread that is just sending; that one holds the connection's lock, and
    gloo polls for the lock until its time slice is over. As a *batch* thread it does not preempt.
    On two cores it makes small exchanges of two ranks ten times as fast. Linux only.
    """
    with contextlib.suppress(OSError, AttributeError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/comm") as file:
                of_gloo = file.read().startswith("gloo")
            if of_gloo:
                os.sched_setscheduler(int(thread), os.SCHED_BATCH, os.sched_param(0))


_left: list[Mesh] = []  # those that were left last: what they have said is still on its way
_meshes: dict[dist.ProcessGroup, Mesh] = {}


def mesh(group: dist.ProcessGroup | None) -> Mesh:
    """The mesh of a group, made at its first use."""
    group = dist.group.WORLD if group is None else group  # another one in each new world
    if group not in _meshes:
        _meshes[group] = Mesh(group)
    return _meshes[group]


def leave_groups() -> None:
    """Leave every group: peers that still wait for this rank get a CommError that says so."""
    for m in _meshes.values():
        with contextlib.suppress(RuntimeError):  # of a world that is gone, or a peer
            m.leave()
    _left[:] = _meshes.values()
    _meshes.clear()


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _caller() -> str:
    """The innermost line outside this package, as file:line."""
    frame = sys._getframe(1)
    here = os.path.dirname(__file__)
    while frame and os.path.dirname(frame.f_code.co_filename) == here:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else "?"
