"""What the result of a computation depends on beside its arguments and weights.

Dropout draws random numbers, and autocast decides which products are made in 16 bits. To repeat a
computation to the last bit, both must be what they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


class Conditions:
    """What a block's result depends on beside arguments and weights: random state and autocast.

    `random` are the states of the CPU's generator and of those of the arguments' CUDA devices.
    Python's and NumPy's generators are not watched.
    """

    def __init__(self, tensors: Sequence[Tensor]):
        self.devices = sorted({t.device.index for t in tensors if t.is_cuda})
        kinds = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        self.autocasts = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
            for kind in kinds
        ]
        self.random: list[Tensor] | None = self._random_now()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Autocast and random state as at the start; afterwards the random state of now."""
        with contextlib.ExitStack() as stack:
            for kind, dtype, enabled in self.autocasts:
                stack.enter_context(torch.autocast(kind, dtype, enabled))
            if self.random is not None:
                stack.enter_context(torch.random.fork_rng(self.devices))
                torch.set_rng_state(self.random[0])
                for device, state in zip(self.devices, self.random[1:]):
                    torch.cuda.set_rng_state(state, device)
            yield

    def forget_unused_random(self) -> None:
        """If no random number was drawn since the start, keep no state: 5 kB for each block."""
        if all(map(torch.equal, self.random, self._random_now())):
            self.random = None

    def _random_now(self) -> list[Tensor]:
        return [torch.get_rng_state()] + [torch.cuda.get_rng_state(d) for d in self.devices]
