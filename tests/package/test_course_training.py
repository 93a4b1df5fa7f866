"""The small trainings that graders use: the oracle, and the same on real ranks."""

import pytest
import torch

from course.checks import CheckFailed, compare_tensors, compare_values, same_as, scaled
from course.training import OPTIMIZERS, compare_weights, oracle, train_on_ranks


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_package_agrees_with_the_oracle(optimizer):
    runs = train_on_ranks(1, optimizer, 3)
    compare_weights(oracle(optimizer, 3), runs)
    numel, shard = 174, 58
    for run in runs:
        assert run.sent == 2 * (numel - shard) * 4
        assert run.live["parameters"] == run.live["gradients"] == 4 * numel
        assert run.live["optimizer"] == {"sgd": 4, "adamw": 8}[optimizer] * shard
        assert run.total == sum(run.live.values()) <= run.peak


def test_a_known_mistake_in_the_weights_is_named():
    runs = train_on_ranks(0, "adamw", 2, weight_decay=0.0)
    without = oracle("adamw", 2, weight_decay=0.0)
    with pytest.raises(CheckFailed, match="no weight decay") as caught:
        compare_weights(
            oracle("adamw", 2),
            runs,
            known=lambda name: [same_as(without[name], "no-decay", "no weight decay")],
        )
    assert caught.value.mistake == "no-decay"


RIGHT = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("got", "mistake", "said"),
    [
        (4 * RIGHT, "sum-for-mean", "every number is 4 times too large: summed over 4 ranks"),
        (3 * RIGHT, "wrong-scale", "every number is 3 times too large"),
        (-RIGHT, "wrong-scale", "every number is negative"),
        (RIGHT.T, "wrong-order", "another order"),
        (RIGHT.reshape(-1), "wrong-shape", "the right numbers in another shape"),
        (RIGHT[:1], "wrong-shape", r"\[1, 2\] instead of \[2, 2\]"),
        (RIGHT.double(), "wrong-dtype", "float64"),
        (RIGHT * float("nan"), "not-finite", "4 of 4 numbers are NaN"),
        (0 * RIGHT, "all-zero", "nothing was written"),
        (RIGHT + torch.tensor([0, 1.0]), "", "2 of 4 differ, the first at place 1"),
        (None, "returns-none", "Is a return missing"),
        ([1.0], "wrong-type", "should be a Tensor, it is a list"),
    ],
)
def test_what_a_wrong_tensor_is_told(got, mistake, said):
    known = [scaled(4, "sum-for-mean", "summed over 4 ranks, not averaged")]
    with pytest.raises(CheckFailed, match=said) as caught:
        compare_tensors(RIGHT, got, "the gradient", known=known)
    assert caught.value.mistake == mistake


@pytest.mark.parametrize(
    ("got", "mistake"), [(2.5, ""), (0.5, "wrong-scale"), (4.0, "wrong-scale")]
)
def test_of_one_number_only_a_simple_factor_is_told(got, mistake):
    with pytest.raises(CheckFailed) as caught:
        compare_tensors(torch.tensor([0, 1.0]), torch.tensor([0, got]), "the gradient")
    assert caught.value.mistake == mistake


def test_what_is_right_passes():
    compare_tensors(RIGHT, RIGHT + 1e-7, "the gradient")
    compare_tensors(RIGHT[:, :0], RIGHT[:, :0], "an empty tensor")
    compare_values((0, 2), (0, 2), "bounds")


@pytest.mark.parametrize("got", [(0.0, 2.0), [0, 2], None, (0, 3)])
def test_what_a_wrong_value_is_told(got):
    with pytest.raises(CheckFailed, match=r"expected  \(0, 2\)\ngot  "):
        compare_values((0, 2), got, "bounds")
