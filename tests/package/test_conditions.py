"""The second run of a block has the autocast and the random numbers of the first."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from zero.activations import checkpoint


def plain(block, *args):
    return block(*args)


@pytest.mark.parametrize("inside", [True, False])
def test_autocast_is_what_it_was(inside):
    """Backward runs inside or outside of the autocast region; one weight is used several times."""

    def gradients(how):
        layer = nn.Linear(5, 5)
        layer.load_state_dict({"weight": torch.eye(5) * 1.234, "bias": torch.full((5,), 0.1)})
        x = torch.randn(7, 5, generator=torch.Generator().manual_seed(2)).requires_grad_()

        def block(x):
            assert layer(x).dtype == torch.bfloat16
            return layer(torch.tanh(layer(x)).float()).float()

        with torch.autocast("cpu", torch.bfloat16):
            once = how(block, x).square().sum()
            if inside:
                once.backward()
        if not inside:
            once.backward()
        grads = [x.grad.clone(), layer.weight.grad.clone(), layer.bias.grad.clone()]
        with torch.autocast("cpu", torch.bfloat16):
            twice = layer(how(layer, how(block, x)).float()).float().square().sum()
        layer.zero_grad()
        twice.backward()
        return grads, layer.weight.grad

    (grads, shared), (expected, expected_shared) = gradients(checkpoint), gradients(plain)
    assert all(map(torch.equal, grads, expected))
    # A weight that several blocks share has its gradients added in fp32, not in bf16.
    assert torch.allclose(shared, expected_shared, rtol=0.02)


def test_autocast_that_was_off_is_off_in_the_second_run():
    layer, dtypes = nn.Linear(5, 5), []

    def block(x):
        dtypes.append(layer(x).dtype)
        return layer(x)

    loss = checkpoint(block, torch.randn(7, 5)).sum()
    with torch.autocast("cpu", torch.bfloat16):
        loss.backward()
    assert dtypes == [torch.float32] * 2


def test_random_state_is_kept_only_if_it_is_needed():
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            return super().forward(x) if self.quiet else F.dropout(super().forward(x))

    for quiet in (True, False):
        block = Spy(3, 3)
        block.quiet = quiet
        out = checkpoint(block, torch.ones(2, 3))
        seen.append(out.grad_fn.call.conditions.random is None)
    assert seen == [True, False]
