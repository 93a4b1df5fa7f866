"""Which unit will be needed next: remembered from the pass before.

A model runs its units in the same order step after step, forward in one order and backward in
another. `Prefetcher` records each order; when the next pass agrees with it so far, the unit that
follows is gathered before it is asked for. When a pass takes another way, the record is dropped
and nothing is prefetched until it is made anew.
"""

from __future__ import annotations

from .unit import State, Unit


class Prefetcher:
    """The recorded orders of "forward" and "backward" passes, and the unit gathered ahead."""

    def __init__(self):
        self.orders: dict[str, list[Unit]] = {"forward": [], "backward": []}
        self.seen: dict[str, list[Unit]] = {"forward": [], "backward": []}
        self.ahead: Unit | None = None

    def needed(self, direction: str, unit: Unit) -> None:
        """`unit` is gathered now; note it, and let go of a unit that was gathered in vain."""
        seen, order = self.seen[direction], self.orders[direction]
        seen.append(unit)
        if len(seen) > len(order) or order[len(seen) - 1] is not unit:
            self.orders[direction] = []
        if self.ahead is unit:
            self.ahead = None
        elif self.ahead is not None:
            self.drop()

    def start_next(self, direction: str) -> None:
        """Start to gather the unit that followed last time, if none is ahead already."""
        position, order = len(self.seen[direction]), self.orders[direction]
        if self.ahead is None and 0 < position < len(order):
            following = order[position]
            if following.state is State.SHARDED:
                self.ahead = following
                following.start_gather()

    def pass_over(self, direction: str) -> None:
        """The pass has ended: what it did is what the next one is expected to do."""
        self.orders[direction], self.seen[direction] = self.seen[direction], []
        self.drop()

    def forget_pass(self) -> None:
        """The pass was interrupted, or the step is over: what was seen of it counts for nothing."""
        self.seen = {"forward": [], "backward": []}
        self.drop()

    def drop(self) -> None:
        """Release the unit that was gathered ahead and is not used."""
        if self.ahead is not None:
            self.ahead.release()
            self.ahead = None
