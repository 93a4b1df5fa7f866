"""The GPT and the MLP: shapes, causality, start values, the meta device, a loss that falls."""

import math

import pytest
import torch
from torch import nn

from zero import models

VOCAB = 11


def small_gpt(**options) -> models.GPT:
    torch.manual_seed(0)
    return models.GPT(VOCAB, block_size=8, layers=2, heads=2, width=16, **options)


def small_mlp() -> models.MLP:
    torch.manual_seed(0)
    return models.MLP((3, 5, 5, 2))


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def test_logits_and_loss():
    model, x, y = small_gpt(), tokens(3, 8), tokens(3, 8, seed=1)
    logits = model(x)
    assert logits.shape == (3, 8, VOCAB)
    by_hand = -logits.log_softmax(-1).gather(-1, y[..., None]).mean()
    torch.testing.assert_close(model(x, y), by_hand)


def test_the_first_loss_is_that_of_a_uniform_guess():
    loss = small_gpt()(tokens(16, 8), tokens(16, 8, seed=1))
    assert abs(loss.item() - math.log(VOCAB)) < 0.1


def test_no_token_sees_a_later_one():
    model, x = small_gpt(), tokens(1, 8)
    changed = x.clone()
    changed[0, 5] = (changed[0, 5] + 1) % VOCAB
    before, after = model(x), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_attention_is_softmax_of_scaled_products():
    torch.manual_seed(0)
    attention = models.Attention(width=12, heads=3)
    x = torch.randn(2, 5, 12)
    q, k, v = (part.view(2, 5, 3, 4).transpose(1, 2) for part in attention.qkv(x).chunk(3, dim=-1))
    scores = (q @ k.transpose(-1, -2) / 4**0.5).masked_fill(
        torch.ones(5, 5).triu(1).bool(), -torch.inf
    )
    by_hand = attention.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 12))
    torch.testing.assert_close(attention(x), by_hand)


def test_position_matters():
    model = small_gpt()
    logits = model(torch.zeros(1, 2, dtype=torch.int64))
    assert not torch.allclose(logits[:, 0], logits[:, 1])


def test_it_learns_to_count():
    model = small_gpt()
    x = torch.arange(9)[None] + torch.arange(3)[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = model(x[:, :-1], x[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.6  # the first token of a row is not known, the others follow from it
    out = model.generate(torch.tensor([[2, 3]]), 4, temperature=0)
    assert out.tolist() == [[2, 3, 4, 5, 6, 7]]


def test_generate_goes_past_the_block_and_repeats_itself_with_the_same_generator():
    model = small_gpt(dropout=0.5).train()
    first, second = (
        model.generate(tokens(2, 3), 12, generator=torch.Generator().manual_seed(7))
        for _ in range(2)
    )
    assert first.shape == (2, 15) and torch.equal(first, second)
    assert torch.equal(first[:, :3], tokens(2, 3))
    assert model.training


def test_dropout_acts_in_training_only():
    model, x = small_gpt(dropout=0.5), tokens(2, 8)
    assert not torch.equal(model.train()(x), model(x))
    assert torch.equal(model.eval()(x), model(x))


@pytest.mark.parametrize("tied", [False, True])
def test_tied_head_is_one_parameter(tied):
    model = small_gpt(tied=tied)
    names = [name for name, _ in model.named_parameters()]
    assert (model.head.weight is model.wte.weight) == tied
    assert ("head.weight" in names) == (not tied)


def test_start_values():
    torch.manual_seed(0)
    model = models.GPT(200, block_size=64, layers=8, heads=4, width=128)
    stds = {name: p.std().item() for name, p in model.named_parameters() if p.ndim == 2}
    for name, std in stds.items():
        scaled = name.endswith(("proj.weight", "down.weight"))
        assert std == pytest.approx(0.02 / 4 if scaled else 0.02, rel=0.05), name
    for name, p in model.named_parameters():
        if p.ndim == 1:
            assert p.unique().tolist() == [1.0 if "ln" in name and "weight" in name else 0.0], name


@pytest.mark.parametrize(
    "make",
    [small_gpt, lambda: small_gpt(tied=True), small_mlp],
    ids=["gpt", "tied", "mlp"],
)
def test_built_on_meta_and_initialised_module_by_module(make):
    expected = make()
    with torch.device("meta"):
        model = make()
    assert all(p.is_meta for p in model.parameters())
    owners = [m for m in model.modules() if m._parameters]
    model.to_empty(device="cpu")
    if isinstance(model, models.GPT) and expected.head.weight is expected.wte.weight:
        model.head.weight = model.wte.weight
        owners.remove(model.head)  # its weight gets its start values as the embedding's
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(torch.nan)
    torch.manual_seed(0)
    for owner in owners:
        owner.reset_parameters()
    for name, p in expected.named_parameters():
        assert torch.equal(model.get_parameter(name), p), name


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (models.gpt_demo, 0.7e6, 1.0e6),
        (models.gpt_3m, 2.7e6, 3.5e6),
        (models.gpt_30m, 27e6, 33e6),
        (models.gpt_126m, 125e6, 127e6),
    ],
)
def test_sizes(make, low, high):
    with torch.device("meta"):
        model = make(100)
    assert low < sum(p.numel() for p in model.parameters()) < high
    assert 64 <= model.block_size <= 128


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
def test_mlp(activation):
    torch.manual_seed(0)
    model = models.MLP((7, 13, 11, 5), activation)
    assert [type(m) for m in model.children()] == [nn.Linear] * 3
    x, y = torch.randn(4, 7), torch.randn(4, 5)
    act = {"tanh": torch.tanh, "gelu": nn.functional.gelu}[activation]
    by_hand = model.fc3(act(model.fc2(act(model.fc1(x)))))
    torch.testing.assert_close(model(x), by_hand)
    torch.testing.assert_close(model(x, y), ((by_hand - y) ** 2).mean())


def test_a_loss_in_16_bits_is_computed_in_fp32():
    model = small_gpt().bfloat16()
    assert model(tokens(2, 8), tokens(2, 8)).dtype == torch.float32
    assert model(tokens(2, 8)).dtype == torch.bfloat16


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="width 10 is not divisible by 4 heads"):
        models.Attention(10, 4)
    with pytest.raises(ValueError, match="9 tokens, but block_size is 8"):
        small_gpt()(tokens(1, 9))
    with pytest.raises(ValueError, match="three layers need four widths"):
        models.MLP((1, 2, 3))
    with pytest.raises(ValueError, match="'relu': choose"):
        models.MLP(activation="relu")
