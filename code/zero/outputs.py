"""The tensors through which a module's results leave it: not only what `forward` returns.

A module may also leave a tensor in one of its attributes (the auxiliary loss of a mixture of
experts, say), put it into a list that it was given, or have a submodule whose output a hook of the
user takes away. A loss made of such a tensor sends gradients into the module past its output.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from .nested import tensors_in

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_CONTAINERS = (list, tuple, dict)


class Leaving:
    """Watches one forward pass of `modules[0]`; the others are inside it. `given`: its arguments.

    Without `active` (no graph is made) nothing is watched but the arguments.
    """

    def __init__(self, modules: list[nn.Module], given: object, active: bool):
        self.modules, self.given, self.active = modules, given, active
        self.inputs = tensors_in(given)
        self.taken: list[torch.Tensor] = []
        hooked = [m for m in modules[1:] if m._forward_hooks] if active else []
        self.handles = [m.register_forward_hook(self._look) for m in hooked]

    def _look(self, module: nn.Module, args: tuple, output: object) -> None:
        self.taken += tensors_in(output)

    def close(self, output: object) -> list[torch.Tensor]:
        """The pass is over and returned `output`: all tensors with a gradient that it produced."""
        for handle in self.handles:
            handle.remove()
        if not self.active:
            return []
        before = {id(t) for t in self.inputs}
        found = tensors_in(output) + self.taken
        found += [t for t in tensors_in(self.given) if id(t) not in before]
        found += [t for m in self.modules for t in _left_in(m)]
        return [t for t in {id(t): t for t in found}.values() if t.requires_grad]


def _left_in(module: nn.Module) -> Iterator[torch.Tensor]:
    """Tensors in the module's own attributes, each once in its life."""
    for name, value in vars(module).items():
        if name in _OF_EVERY_MODULE or not isinstance(value, (torch.Tensor, *_CONTAINERS)):
            continue
        for t in tensors_in(value):
            if t.grad_fn is not None and not hasattr(t, "zero_seen"):
                t.zero_seen = True
                yield t
