"""Predictions: the reader writes a number first, then the notebook compares.

    guess = None  # GB
    ...
    predict.compare(guess, computed, "GB")

Nobody is judged: a wrong guess, written down, is what makes the right number stay.
"""

from __future__ import annotations

NEAR = 0.02  # a guess this near, relatively, counts as the same number


def compare(guess: object, answer: object, unit: str = "", what: str = "") -> None:
    """Print the reader's guess (None: there is none yet) beside the computed answer.

    Numbers are compared to 2 %, with how far apart they are; anything else by equality.
    """
    label = f"{what}: " if what else ""
    computed = f"{label}computed {_text(answer)}{' ' + unit if unit else ''}"
    if guess is None:
        print(f"{computed}; no guess yet")
    else:
        print(f"{computed}; your guess {_text(guess)}: {_verdict(guess, answer)}")


def _verdict(guess: object, answer: object) -> str:
    if not (_is_number(guess) and _is_number(answer)):
        return "the same" if guess == answer else "different"
    if abs(guess - answer) <= NEAR * abs(answer):
        return "the same"
    side = "large" if guess > answer else "small"
    if guess <= 0 or answer <= 0:
        return f"too {side}"
    factor = max(guess, answer) / min(guess, answer)
    return f"{factor:.2g} times too {side}" if factor >= 1.5 else f"a little too {side}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: object) -> str:
    if _is_number(value):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return str(value)
