"""The allocator behind the reserve and the offload file, and what it shows about fragmentation."""

import gc

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import on_ranks
from zero import models
from zero.activations import checkpoint_blocks
from zero.meter import Meter
from zero.reserve import ALIGNMENT, Arena, Reserve, aligned, replay
from zero.tensor_parallel import parallelize

UNIT = ALIGNMENT


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 5 * UNIT), st.just(None)), max_size=40), st.randoms())
def test_ranges_never_overlap_and_nothing_is_lost(requests, random):
    """A number asks for so many bytes; None gives a random range back."""
    arena, taken = Arena(20 * UNIT), {}
    for nbytes in requests:
        if nbytes is None and taken:
            start = random.choice(list(taken))
            arena.give_back(start)
            del taken[start]
        elif nbytes:
            try:
                start = arena.take(nbytes)
            except MemoryError:
                assert arena.largest_hole < nbytes
                continue
            end = start + aligned(nbytes)
            assert end <= 20 * UNIT and start % UNIT == 0
            assert all(end <= s or e <= start for s, e in taken.items())
            taken[start] = end
        assert arena.in_use == sum(e - s for s, e in taken.items())
        free = sum(end - start for start, end in arena.holes())
        assert free + arena.in_use == 20 * UNIT
    for start in taken:
        arena.give_back(start)
    assert arena.holes() == [(0, 20 * UNIT)], "neighbouring holes must have joined"


def test_first_fit():
    arena = Arena(10 * UNIT)
    a, b, c = (arena.take(n * UNIT) for n in (2, 1, 3))
    assert (a, b, c) == (0, 2 * UNIT, 3 * UNIT)
    arena.give_back(a)
    assert arena.take(UNIT) == 0
    assert arena.take(2 * UNIT) == 6 * UNIT
    assert arena.holes() == [(UNIT, 2 * UNIT), (8 * UNIT, 10 * UNIT)]
    with pytest.raises(MemoryError, match=rf"{7 * UNIT} of {10 * UNIT} bytes .* {2 * UNIT}$"):
        arena.take(3 * UNIT)  # three units are free, but not in one piece


def test_an_arena_without_end():
    arena = Arena()
    starts = [arena.take(UNIT) for _ in range(3)]
    for start in starts:
        arena.give_back(start)
    assert arena.take(1000 * UNIT) == 0
    assert arena.top == 1000 * UNIT


def test_a_reserve_holds_tensors_of_every_kind():
    reserve = Reserve(1 << 12)
    parts = [torch.randn(33).to(dtype) for dtype in (torch.float64, torch.bfloat16, torch.float32)]
    held = [reserve.put(p) for p in [*parts, torch.empty(0)]]
    for h, p in zip(held, parts):
        tensor = h.wait()
        assert torch.equal(tensor, p) and tensor.dtype == p.dtype
        assert tensor.untyped_storage().data_ptr() == reserve.block.untyped_storage().data_ptr()
    held[0].free()
    held[0].free()  # twice is once
    del held, h
    gc.collect()
    assert reserve.arena.in_use == 0


def test_two_tensors_in_a_reserve_do_not_disturb_each_other():
    """Autograd must not take a write to one place for a change of the tensor in another."""
    reserve = Reserve(1 << 12)
    held = reserve.put(torch.ones(4))
    place = held.wait().requires_grad_()
    out = place.square().sum()
    reserve.put(torch.zeros(4))
    out.backward()
    assert torch.equal(place.grad, torch.full((4,), 2.0))


def test_long_lived_among_short_lived_tensors_cost_space():
    """Each block: an inner tensor of 4 comes, its checkpoint of 1 stays, the inner one goes.

    When the inner ones grow from block to block, none fits into the hole that the last one left.
    """

    def run(reserved):
        for block in range(8):
            yield 2 * block, (4 + block) * UNIT
            if not reserved:
                yield 2 * block + 1, UNIT
            yield 2 * block, 0

    scattered, together = replay(run(reserved=False)), replay(run(reserved=True))
    assert scattered.in_use == 8 * UNIT and together.in_use == 0
    assert together.top == 11 * UNIT, "the largest inner tensor, again and again in one place"
    assert together.top + 8 * UNIT < scattered.top


def holes_after_forward(rank, world_size, reserved):
    """Bytes in holes between tensors after a GPT's forward pass, with partitioned checkpoints."""
    layers, batch, time, width = 6, 4, 16, 32
    torch.manual_seed(0)
    model = parallelize(models.GPT(11, time, layers, heads=4, width=width), None)
    reserve = Reserve(layers * batch * time * width * 4 // world_size) if reserved else None
    checkpoint_blocks(model, partition=dist.group.WORLD, reserve=reserve)
    x = torch.randint(11, (batch, time))
    with Meter(model) as meter:
        if reserve is not None:
            meter.watch(reserve.block)
        loss = model(x, x)
        arena = replay(meter.changes())
        assert meter.current <= arena.in_use < meter.current * 1.05, "replayed is what lives"
    del loss
    return sum(end - start for start, end in arena.holes() if end is not None)


def test_a_reserve_leaves_no_holes_in_a_real_run():
    scattered, together = (on_ranks(holes_after_forward, 2, r)[0] for r in (False, True))
    assert scattered > 8 * 1024  # one checkpoint of a rank has 4096 bytes
    assert together < 1024
