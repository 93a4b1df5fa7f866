"""Predictions in lessons: what is printed beside a guess."""

import pytest

from course import predict


@pytest.mark.parametrize(
    ("guess", "answer", "printed"),
    [
        (None, 112.0, "computed 112 GB; no guess yet"),
        (112, 112.0, "computed 112 GB; your guess 112: the same"),
        (14, 112.0, "computed 112 GB; your guess 14: 8 times too small"),
        (130.0, 112.0, "computed 112 GB; your guess 130: a little too large"),
        (-4, 4, "computed 4 GB; your guess -4: too small"),
        (0, 4, "computed 4 GB; your guess 0: too small"),
        ((6, 8), (6, 8), "computed (6, 8) GB; your guess (6, 8): the same"),
        ("rank 1", "rank 2", "computed rank 2 GB; your guess rank 1: different"),
        (True, False, "computed False GB; your guess True: different"),
    ],
)
def test_a_guess_beside_the_answer(guess, answer, printed, capsys):
    predict.compare(guess, answer, "GB")
    assert capsys.readouterr().out == printed + "\n"


def test_the_unit_may_be_left_out(capsys):
    predict.compare(None, 1234567, what="elements")
    assert capsys.readouterr().out == "elements: computed 1,234,567; no guess yet\n"
