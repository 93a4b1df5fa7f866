"""What happens to an update when a gradient is inf or NaN: it is not made, on any rank.

A single number out of range would spoil every weight for good. fp16 comes there now and then, while
the loss scale finds its place; so one skipped update is a warning. Many in a row mean that training
has gone wrong, and going on in silence would be the worst that could be done: that is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable


class Skips:
    """Counts the skipped updates: `count` in all, `in_a_row` since the last one that was made.

    `most` is how many in a row are borne. Every rank counts the same, because the ranks agree on
    what is finite before they ask.
    """

    def __init__(self, most: int):
        self.most, self.count, self.in_a_row = most, 0, 0

    def allow(self, finite: bool, step: int, warn: bool, who: Callable[[], str]) -> bool:
        """May the update of this step be made? `warn` says whether this rank speaks for all.

        Raises FloatingPointError on every rank when more than `most` in a row were skipped; `who`,
        which may be collective, names the parameters for it.
        """
        if finite:
            self.in_a_row = 0
            return True
        self.count += 1
        self.in_a_row += 1
        if self.in_a_row > self.most:
            raise FloatingPointError(
                f"{self.in_a_row} updates in a row were skipped: {who()}. "
                f"Lower the learning rate, or look at the data."
            )
        if warn:
            text = f"step {step}: inf or NaN in the gradients or their norm, no update"
            warnings.warn(text, stacklevel=5)  # the line of the caller of `opt.step`
        return False
