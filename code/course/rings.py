"""A ring of ranks in one process: a thread a rank, and a list of everything that they send.

``zero.ring`` asks for one thing only, ``pass_on(chunk)``. Here it hands the chunk to a neighbouring
thread, so that the functions of lesson 03 run on plain lists of tensors, and are graded without
starting processes. Ranks that would wait for ever are told so at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

Sent = list[list[torch.Tensor]]


class RingError(RuntimeError):
    """A rank waits for a chunk that will not come, or gets one of another size."""


class Ring:
    """``size`` ranks, each of which passes chunks on to the next.

    ``sent[rank]`` are copies of the chunks that the rank has sent, in order.
    """

    def __init__(self, size: int):
        self.size = size
        self.sent: Sent = [[] for _ in range(size)]
        self._ended: set[int] = set()
        self._news = threading.Condition()

    def pass_on(self, rank: int, chunk: torch.Tensor) -> torch.Tensor:
        """Send ``chunk`` to the next rank; what the rank before has sent in the same round."""
        if not isinstance(chunk, torch.Tensor):
            raise TypeError(f"pass_on takes a tensor, got {chunk!r}")
        before = (rank - 1) % self.size
        with self._news:
            self.sent[rank].append(chunk.detach().clone())
            number = len(self.sent[rank])
            self._news.notify_all()
            self._news.wait_for(lambda: len(self.sent[before]) >= number or before in self._ended)
            if len(self.sent[before]) < number:
                raise RingError(
                    f"rank {rank} passes on for the {number}. time and waits for rank {before}, "
                    f"which has ended after {number - 1}. All ranks must do equally many rounds."
                )
            arrived = self.sent[before][number - 1].clone()
        if arrived.shape != chunk.shape or arrived.dtype != chunk.dtype:
            raise RingError(
                f"round {number}: rank {rank} sent {list(chunk.shape)}, rank {before} sent "
                f"{list(arrived.shape)}. All ranks must pass on chunks of the same size."
            )
        return arrived

    def end(self, rank: int) -> None:
        """Say that this rank sends nothing more."""
        with self._news:
            self._ended.add(rank)
            self._news.notify_all()


def play(function: Callable, tensors: Sequence[torch.Tensor]) -> tuple[list, Sent]:
    """Run ``function(tensor, rank, world_size, pass_on)`` for all ranks at the same time.

    ``tensors[rank]`` is what each rank has. Returns the ranks' results and what each has sent:
    ``sent[rank][round]``. Raises what the first rank raised; its victims' errors come after it.
    """
    size = len(tensors)
    ring, results, errors = Ring(size), [None] * size, []

    def run(rank: int) -> None:
        try:
            results[rank] = function(tensors[rank], rank, size, lambda c: ring.pass_on(rank, c))
        except BaseException as error:
            errors.append(error)
        finally:
            ring.end(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise min(errors, key=lambda error: isinstance(error, RingError))
    return results, ring.sent


def sent_bytes(sent: Sent) -> list[int]:
    """How many bytes each rank has sent."""
    return [sum(chunk.nbytes for chunk in chunks) for chunks in sent]
