"""A learning rate scheduler's state as JSON, and back.

The state of PyTorch's schedulers consists of numbers, text, lists and dicts, but for one: the
milestones of MultiStepLR are a Counter with numbers as keys. JSON cannot tell it from a dict, nor a
number as key from a text. So a Counter is written as {"Counter": [[key, count], ...]}.
"""

from __future__ import annotations

from collections import Counter

from .manifest import check_json

TAG = "Counter"


def to_json(scheduler: object) -> dict | None:
    """What `scheduler.state_dict()` says, as JSON; None for no scheduler.

    Raises CheckpointError, naming the place, for a value that is not of this kind.
    """
    if scheduler is None:
        return None
    state = _encoded(scheduler.state_dict())
    check_json("the scheduler's state", state)
    return state


def from_json(scheduler: object, state: dict) -> None:
    """Let the scheduler go on from a state that `to_json` has made."""
    scheduler.load_state_dict(_decoded(state))


def _encoded(value: object) -> object:
    if isinstance(value, Counter):
        return {TAG: [list(item) for item in value.items()]}
    if isinstance(value, dict):
        return {key: _encoded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(inner) for inner in value]
    return value


def _decoded(value: object) -> object:
    if isinstance(value, dict):
        if value.keys() == {TAG}:
            return Counter(dict(value[TAG]))
        return {key: _decoded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_decoded(inner) for inner in value]
    return value
