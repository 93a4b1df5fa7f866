"""Flat buffers: whatever the shapes and the number of ranks, nothing is lost, doubled or moved."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import m0
from zero.flat import FlatLayout, flatten_params, shard_bounds, unflatten_into

shapes = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), max_size=8)
world_sizes = st.integers(1, 9)
relaxed = settings(deadline=None, max_examples=150)


def module_of(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32) -> nn.Module:
    """A module whose parameters have these shapes; all elements differ."""
    module, first = nn.Module(), 1
    for i, shape in enumerate(shapes):
        numel = torch.Size(shape).numel()
        values = torch.arange(first, first + numel, dtype=dtype).view(shape)
        module.register_parameter(f"p{i}", nn.Parameter(values))
        first += numel
    return module


def layout_of(shapes: list[tuple[int, ...]], world_size: int) -> FlatLayout:
    return FlatLayout(((f"p{i}", shape) for i, shape in enumerate(shapes)), world_size)


# --- who owns what -------------------------------------------------------------------------------


@relaxed
@given(numel=st.integers(0, 1000), world_size=st.integers(1, 70))
def test_shards_tile_the_padded_buffer(numel, world_size):
    bounds = [shard_bounds(numel, world_size, rank) for rank in range(world_size)]
    assert bounds[0][0] == 0
    assert all(left[1] == right[0] for left, right in itertools.pairwise(bounds))
    assert len({end - start for start, end in bounds}) == 1, "shards of different lengths"
    assert 0 <= bounds[-1][1] - numel < world_size, "more padding than needed, or elements lost"


@pytest.mark.parametrize(("numel", "world_size", "rank"), [(-1, 2, 0), (4, 0, 0), (4, 2, 2)])
def test_impossible_shards_are_refused(numel, world_size, rank):
    with pytest.raises(ValueError, match=f"numel={numel}.*world_size={world_size}.*rank={rank}"):
        shard_bounds(numel, world_size, rank)


@relaxed
@given(shapes=shapes, world_size=world_sizes)
def test_spans_lie_end_to_end(shapes, world_size):
    layout = layout_of(shapes, world_size)
    ends = [0]
    for span, shape in zip(layout.spans, shapes, strict=True):
        assert (span.start, span.shape) == (ends[-1], shape)
        ends.append(span.start + torch.Size(shape).numel())
    assert [span.end for span in layout.spans] == ends[1:]
    assert layout.numel == ends[-1]
    assert layout.padded_numel == layout.numel + layout.padding
    assert layout.padded_numel == layout.shard_numel * world_size
    assert 0 <= layout.padding < world_size


@relaxed
@given(shapes=shapes, world_size=world_sizes)
def test_the_slices_of_all_ranks_rebuild_every_parameter(shapes, world_size):
    layout = layout_of(shapes, world_size)
    values = torch.arange(1, layout.padded_numel + 1)
    rebuilt: dict[str, list[int]] = {span.name: [] for span in layout.spans}
    for rank in range(world_size):
        shard = layout.shard(values, rank)
        assert shard.numel() == layout.shard_numel
        for s in layout.slices(rank):
            assert s.start < s.end
            assert len(rebuilt[s.name]) == s.start, "a slice is missing, doubled or out of order"
            rebuilt[s.name] += shard[s.offset : s.offset + s.end - s.start].tolist()
    for name, view in layout.views(values).items():
        assert rebuilt[name] == view.reshape(-1).tolist()


@relaxed
@given(shapes=shapes, world_size=world_sizes)
def test_views_cover_all_but_the_padding(shapes, world_size):
    layout = layout_of(shapes, world_size)
    flat = torch.zeros(layout.padded_numel)
    for i, (view, shape) in enumerate(zip(layout.views(flat).values(), shapes, strict=True)):
        assert view.shape == shape
        view.fill_(i + 1)
    want = [i + 1 for i, shape in enumerate(shapes) for _ in range(torch.Size(shape).numel())]
    assert flat.tolist() == want + [0] * layout.padding


def test_a_small_example():
    """The picture in the module's docstring: a of 6, b of 3, four ranks."""
    layout = FlatLayout([("a", (2, 3)), ("b", (3,))], 4)
    assert (layout.numel, layout.padded_numel, layout.shard_numel, layout.padding) == (9, 12, 3, 3)
    owned = [[(s.name, s.start, s.end, s.offset) for s in layout.slices(r)] for r in range(4)]
    assert owned == [[("a", 0, 3, 0)], [("a", 3, 6, 0)], [("b", 0, 3, 0)], []]


# --- to a flat tensor and back -------------------------------------------------------------------


@relaxed
@given(shapes=shapes, extra=st.integers(0, 3))
def test_round_trip(shapes, extra):
    module = module_of(shapes)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    objects = list(module.parameters())
    flat = flatten_params(module)
    assert flat.tolist() == list(range(1, flat.numel() + 1))

    target = torch.cat([flat, torch.zeros(extra)])
    unflatten_into(module, target)
    assert all(p is q for p, q in zip(module.parameters(), objects, strict=True))
    for name, p in module.named_parameters():
        assert p.shape == before[name].shape
        assert torch.equal(p, before[name])
    target += 0.5
    for name, p in module.named_parameters():
        assert torch.equal(p, before[name] + 0.5), f"{name} is a copy, not a view of the buffer"
    assert target[flat.numel() :].tolist() == [0.5] * extra


def test_flatten_copies():
    module = m0()
    flat = flatten_params(module)
    assert flat.numel() == 174
    assert not flat.requires_grad
    flat.zero_()
    assert all(bool(p.any()) for p in module.parameters())


def test_shapes_without_elements_and_without_dimensions():
    module = module_of([(), (0, 3), (2,), (3, 0)])
    flat = flatten_params(module)
    assert flat.tolist() == [1, 2, 3]
    unflatten_into(module, flat * 10)
    assert [tuple(p.shape) for p in module.parameters()] == [(), (0, 3), (2,), (3, 0)]
    assert module.p0.item() == 10


def test_parameters_that_are_not_contiguous():
    """Elements come in the order of the indices, not in that of the memory."""
    module = nn.Module()
    module.w = nn.Parameter(torch.arange(6.0).view(2, 3).t())
    flat = flatten_params(module)
    assert flat.tolist() == [0, 3, 1, 4, 2, 5]
    unflatten_into(module, flat)
    assert torch.equal(module.w, torch.arange(6.0).view(2, 3).t())
    assert module.w.data_ptr() == flat.data_ptr()


def test_tied_parameters_come_once_and_stay_tied():
    module = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    module["b"].weight = module["a"].weight
    flat = flatten_params(module)
    assert flat.numel() == 9 + 3 + 3
    unflatten_into(module, flat)
    assert module["b"].weight is module["a"].weight
    assert module["b"].weight.data_ptr() == flat.data_ptr()


def test_gradients_reach_parameters_that_are_views():
    module = m0()
    expected = m0()
    unflatten_into(module, flatten_params(module))
    x = torch.ones(2, 7)
    module(x).sum().backward()
    expected(x).sum().backward()
    for p, q in zip(module.parameters(), expected.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype):
    module = module_of([(2, 2), (3,)], dtype)
    flat = flatten_params(module)
    assert flat.dtype == dtype
    unflatten_into(module, flat)
    assert module.p1.tolist() == [5, 6, 7]


def test_no_parameters():
    assert flatten_params(nn.Tanh()).shape == (0,)
    unflatten_into(nn.Tanh(), torch.empty(0))


# --- refusals ------------------------------------------------------------------------------------


def test_mixed_dtypes_are_refused_by_name():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, dtype=torch.float64))
    names = r"0\.weight.*float32.*1\.weight.*float64"
    with pytest.raises(ValueError, match=names):
        flatten_params(module)
    with pytest.raises(ValueError, match=names):
        unflatten_into(module, torch.empty(12))


def test_mixed_devices_are_refused_by_name():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(ValueError, match=r"0\.weight.*cpu.*1\.weight.*meta"):
        flatten_params(module)


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        (torch.empty(173), "at least 174 elements, got shape .173"),
        (torch.empty(2, 87), "at least 174 elements, got shape .2, 87"),
        (torch.empty(174, dtype=torch.float64), "float64.*float32"),
        (torch.empty(174, device="meta"), "meta.*cpu"),
    ],
)
def test_flat_tensors_that_do_not_fit_are_refused(flat, message):
    module = m0()
    before = flatten_params(module)
    with pytest.raises(ValueError, match=message):
        unflatten_into(module, flat)
    assert torch.equal(flatten_params(module), before)
