"""Loading text, characters to numbers, and batches that ranks share without overlap."""

import sys

import pytest
import torch

from zero import text
from zero.text import Batches, TextError, Tokenizer


def numbered(batches: Batches, step: int) -> torch.Tensor:
    """For tokens that are their own positions: the first position of each row."""
    x, y = batches(step)
    assert x.shape == y.shape == (batches.batch, batches.block)
    assert x.dtype == y.dtype == torch.int64
    assert torch.equal(x + 1, y)
    assert torch.equal(x, x[:, :1] + torch.arange(batches.block))
    return x[:, 0]


def test_built_in_text():
    manual = text.load()
    assert len(manual) > 300_000
    assert manual == text.load()
    assert 'The "for" statement' in manual
    assert 80 < Tokenizer(manual).vocab_size < 200


def test_a_python_without_the_built_in_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(TextError, match="--text FILE"):
        text.load()


def test_a_file(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes("\ufeffzwölf\r\n".encode() + b"more " * 300)
    loaded = text.load(file)
    assert loaded.startswith("zwölf\nmore ") and loaded == text.load(str(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"short", "too short: 5 characters"),
        (b"a" * 2000 + b"\xff", "not UTF-8 .at byte 2000"),
    ],
    ids=["missing", "empty", "short", "binary"],
)
def test_a_file_that_cannot_be_used(tmp_path, content, message):
    file = tmp_path / "bad.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TextError, match=message) as caught:
        text.load(file)
    assert "bad.txt" in str(caught.value) and "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(TextError, match="is a folder"):
        text.load(tmp_path)


def test_tokenizer_round_trip():
    tokenizer = Tokenizer("hello, wörld")
    assert tokenizer.characters == " ,dehlorwö"
    tokens = tokenizer.encode("hold")
    assert tokens.tolist() == [4, 6, 5, 2] and tokens.dtype == torch.int64
    assert tokenizer.decode(tokens) == "hold"
    assert tokenizer.encode("").shape == (0,)
    again = Tokenizer(tokenizer.characters)
    assert torch.equal(again.encode("hello, wörld"), tokenizer.encode("hello, wörld"))


def test_unknown_character_is_named():
    with pytest.raises(TextError, match="'z' at position 2"):
        Tokenizer("abc").encode("abz")


def test_split_holds_out_the_end():
    train, validation = text.split(torch.arange(105))
    assert torch.equal(torch.cat((train, validation)), torch.arange(105))
    assert len(validation) == 11


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_join_to_the_batch_of_one_process(world_size):
    tokens = torch.arange(400)
    alone = Batches(tokens, 2 * world_size, 5, seed=3)
    ranks = [Batches(tokens, 2, 5, rank, world_size, seed=3) for rank in range(world_size)]
    for step in range(3 * alone.steps_per_epoch + 1):
        for joined, parts in zip(alone(step), zip(*(r(step) for r in ranks))):
            assert torch.equal(joined, torch.cat(parts))


def test_an_epoch_uses_no_token_twice():
    world_size, block = 3, 5
    ranks = [Batches(torch.arange(500), 2, block, r, world_size) for r in range(world_size)]
    steps = ranks[0].steps_per_epoch
    orders = []
    for epoch in range(3):
        starts = torch.cat(
            [numbered(r, step) for step in range(epoch * steps, (epoch + 1) * steps) for r in ranks]
        )
        gaps = starts.sort().values.diff()
        assert gaps.min() >= block
        assert len(starts) == steps * 2 * world_size
        orders.append(starts)
    assert not torch.equal(orders[0], orders[1]) and not torch.equal(orders[1], orders[2])
    assert len({int(o.min()) % block for o in orders}) > 1, "the windows never shift"


def test_a_batch_depends_on_the_step_alone():
    make = lambda: Batches(torch.arange(300), 2, 4, rank=1, world_size=2, seed=5)  # noqa: E731
    in_order, backwards = make(), make()
    steps = list(range(2 * in_order.steps_per_epoch))
    forward = {step: in_order(step)[0] for step in steps}
    for step in reversed(steps):
        assert torch.equal(backwards(step)[0], forward[step])
    other = Batches(torch.arange(300), 2, 4, rank=1, world_size=2, seed=6)
    assert not torch.equal(other(0)[0], forward[0])


@pytest.mark.parametrize("length", range(20, 41))
def test_windows_stay_inside_the_tokens(length):
    batches = [
        Batches(torch.arange(length), 1, 5, rank, 3, seed) for rank in range(3) for seed in range(9)
    ]
    for b in batches:
        for step in range(2 * b.steps_per_epoch):
            numbered(b, step)


def test_the_fewest_tokens_that_fill_a_step():
    assert Batches(torch.arange(20), 1, 5, 0, 3).steps_per_epoch == 1
    with pytest.raises(TextError, match=r"19 tokens are too few .* at least 20 are needed"):
        Batches(torch.arange(19), 1, 5, 0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0, "block": 5}, "batch is 0"),
        ({"batch": 1, "block": 0}, "block is 0"),
        ({"batch": 1, "block": 5, "world_size": 0}, "world_size is 0"),
        ({"batch": 1, "block": 5, "rank": 2, "world_size": 2}, "rank 2 is outside a world of 2"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Batches(torch.arange(100), **arguments)
