"""The collectives: right to the last bit, in the bytes they claim, and refused when misused."""

import math
import os
import time
import types

import pytest
import torch
import torch.distributed as dist

from helpers import Together, on_ranks
from zero import comm, exchange, messages

WORLDS = (1, 2, 3, 4)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def values(rank: int, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers of very different sizes, so that a sum depends on the order of its terms."""
    generator = torch.Generator().manual_seed(1000 * rank + numel)
    size = 10.0 ** torch.randint(-3, 4, (numel,), generator=generator)
    return (torch.randn(numel, generator=generator) * size).to(dtype)


def expected_sum(n: int, numel: int, dtype: torch.dtype, op: str = "mean", out=None):
    """Rank 0's term first, in fp32 at least, rounded once."""
    wide = torch.promote_types(dtype, torch.float32)
    total = values(0, numel, dtype).to(wide)
    for rank in range(1, n):
        total = total + values(rank, numel, dtype).to(wide)
    return (total / n if op == "mean" else total).to(out or dtype)


# --- values --------------------------------------------------------------------------------------


def reduce_scatter_case(rank, n, dtype, op, out_dtype, piece):
    flat = values(rank, 20 * n, dtype)
    before = flat.clone()
    out = torch.empty(20, dtype=out_dtype)
    usual, exchange.PIECE = exchange.PIECE, piece
    try:
        result = comm.reduce_scatter(flat, out, op=op)
    finally:
        exchange.PIECE = usual
    return result.clone(), result is out, torch.equal(flat, before)


REDUCE_SCATTERS = [
    (dtype, op, out, piece)
    for dtype in DTYPES
    for op in ("mean", "sum")
    for out in dict.fromkeys((dtype, torch.promote_types(dtype, torch.float32)))
    for piece in (1 << 18, 3)
]
reduce_scatters = Together(reduce_scatter_case, REDUCE_SCATTERS)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("dtype", "op", "out", "piece"), REDUCE_SCATTERS)
def test_reduce_scatter(n, dtype, op, out, piece):
    by_rank = reduce_scatters(n, dtype, op, out, piece)
    want = expected_sum(n, 20 * n, dtype, op, out).chunk(n)
    for rank, (result, is_out, input_kept) in enumerate(by_rank):
        assert result.dtype == out
        assert torch.equal(result, want[rank]), "not the sum in rank order, rounded once"
        assert is_out
        assert input_kept


def test_the_order_of_the_sum_matters_here():
    """Otherwise the bitwise comparisons above would show nothing."""
    backwards = values(2, 60) + values(1, 60) + values(0, 60)
    assert not torch.equal(backwards / 3, expected_sum(3, 60, torch.float32))


def in_place_case(rank, n):
    flat = values(rank, 8 * n)
    result = comm.reduce_scatter(flat)
    return flat, result.data_ptr() == flat[8 * rank :].data_ptr()


@pytest.mark.parametrize("n", WORLDS)
def test_reduce_scatter_in_place_changes_the_own_range_only(n):
    for rank, (flat, in_place) in enumerate(on_ranks(in_place_case, n)):
        want = values(rank, 8 * n)
        want[8 * rank : 8 * rank + 8] = expected_sum(n, 8 * n, torch.float32).chunk(n)[rank]
        assert torch.equal(flat, want)
        assert in_place


def all_reduce_case(rank, n, numel, dtype, op):
    flat = values(rank, numel, dtype)
    result = comm.all_reduce(flat, op=op)
    return flat, result is flat


ALL_REDUCES = [
    (numel, dtype, op)
    for numel in (0, 1, 2, 3, 7, 40)
    for dtype in (torch.float32, torch.bfloat16)
    for op in ("mean", "sum", "max")
]
all_reduces = Together(all_reduce_case, ALL_REDUCES)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("numel", "dtype", "op"), ALL_REDUCES)
def test_all_reduce_of_any_size(n, numel, dtype, op):
    if op == "max":
        want = torch.stack([values(r, numel, dtype) for r in range(n)]).amax(0)
    else:
        want = expected_sum(n, numel, dtype, op)
    for flat, is_result in all_reduces(n, numel, dtype, op):
        assert torch.equal(flat, want)
        assert is_result


def gather_case(rank, n, numel, dtype):
    own = numel // n
    flat = torch.zeros(numel, dtype=dtype)
    flat[rank * own : (rank + 1) * own] = torch.arange(rank * own, (rank + 1) * own).to(dtype)
    comm.all_gather(flat)
    sent = torch.full((3,), rank, dtype=dtype)
    comm.broadcast(sent, src=n - 1)
    small = comm.all_gather_small(torch.tensor([rank, 7], dtype=dtype))
    return flat, sent, small, comm.any_rank(rank == n - 1), comm.any_rank(False)


GATHERS = [(k * 12, d) for k in (0, 1, 5) for d in (*DTYPES, torch.int64, torch.uint8)]
gathers = Together(gather_case, GATHERS)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("numel", "dtype"), GATHERS)
def test_all_gather_broadcast_and_small_values(n, numel, dtype):
    for flat, sent, small, someone, nobody in gathers(n, numel, dtype):
        assert torch.equal(flat, torch.arange(numel).to(dtype))
        assert sent.tolist() == [n - 1] * 3
        assert small.tolist() == [[rank, 7] for rank in range(n)]
        assert small.dtype == dtype
        assert (someone, nobody) == (True, False)


def large_case(rank, n):
    """Longer than one piece, with receive buffers for two pieces only."""
    exchange.IN_FLIGHT = 1
    flat = values(rank, 3 * exchange.PIECE + 8 * n - (3 * exchange.PIECE) % n)
    want = expected_sum(n, flat.numel(), torch.float32)
    mine = comm.reduce_scatter(flat.clone())
    comm.all_reduce(flat)
    return torch.equal(mine, want.chunk(n)[rank]), torch.equal(flat, want)


@pytest.mark.parametrize("n", (2, 3))
def test_messages_longer_than_a_piece(n):
    assert on_ranks(large_case, n) == [(True, True)] * n


# --- several at once -----------------------------------------------------------------------------


def async_case(rank, n):
    a, b = values(rank, 6 * n), values(rank, 10 * n)
    gathered = torch.zeros(n)
    gathered[rank] = rank + 1
    works = [
        comm.reduce_scatter(a, name="a", async_op=True),
        comm.reduce_scatter(b, name="b", async_op=True),
        comm.all_gather(gathered, name="c", async_op=True),
    ]
    results = [work.wait().clone() for work in reversed(works)]
    return results, [work.wait().clone() for work in reversed(works)]


@pytest.mark.parametrize("n", WORLDS)
def test_collectives_in_flight_are_waited_for_in_any_order(n):
    for rank, (once, twice) in enumerate(on_ranks(async_case, n)):
        gathered, b, a = once
        assert torch.equal(a, expected_sum(n, 6 * n, torch.float32).chunk(n)[rank])
        assert torch.equal(b, expected_sum(n, 10 * n, torch.float32).chunk(n)[rank])
        assert gathered.tolist() == list(range(1, n + 1))
        assert all(torch.equal(x, y) for x, y in zip(once, twice, strict=True))


def group_case(rank, n):
    groups = [dist.new_group([1, 3]), dist.new_group([0, 2])]
    mine = groups[0] if rank in (1, 3) else groups[1]
    flat = torch.tensor([float(rank), 10.0 * rank])
    own = comm.reduce_scatter(flat.clone(), group=mine, op="sum").item()
    comm.all_reduce(flat, group=mine, op="sum")
    sent = torch.tensor([float(rank)])
    comm.broadcast(sent, src=1, group=mine)
    rows = comm.all_gather_small(torch.tensor([rank]), group=mine)
    shape = comm.rank(mine), comm.world_size(mine)
    return shape, own, flat.tolist(), sent.item(), rows.flatten().tolist()


def test_groups_smaller_than_the_world():
    assert on_ranks(group_case, 4) == [
        ((0, 2), 2.0, [2.0, 20.0], 2.0, [0, 2]),
        ((0, 2), 4.0, [4.0, 40.0], 3.0, [1, 3]),
        ((1, 2), 20.0, [2.0, 20.0], 2.0, [0, 2]),
        ((1, 2), 40.0, [4.0, 40.0], 3.0, [1, 3]),
    ]


# --- bytes ---------------------------------------------------------------------------------------


def log_case(rank, n):
    with comm.record() as outer:
        comm.reduce_scatter(torch.zeros(12, dtype=torch.bfloat16), torch.zeros(12 // n), name="g")
        with comm.record() as inner:
            comm.all_gather(torch.zeros(24), name="p")
        comm.all_reduce(torch.zeros(36, dtype=torch.float64))
        comm.all_reduce(torch.zeros(1))
        comm.broadcast(torch.zeros(5), src=0)
        comm.all_gather_small(torch.zeros(3))
    comm.all_gather(torch.zeros(n))
    rows = [(e.op, e.bytes, e.dtype, e.count, e.kind, e.name) for e in outer.entries]
    sums = outer.bytes(), outer.bytes("control"), outer.bytes(op="all_reduce"), outer.count()
    return rows, sums, [e.op for e in inner.entries], outer.count("all_reduce")


@pytest.mark.parametrize("n", WORLDS)
def test_every_byte_is_in_the_log(n):
    for rank, (rows, sums, inner, all_reduces) in enumerate(on_ranks(log_case, n)):
        peers = n - 1
        # One element on n ranks: rank 0 owns it and sends the sum, the others send their term.
        one = 4 * peers if rank == 0 else 4
        want = [
            ("reduce_scatter", 12 * 2 * peers // n, torch.bfloat16, 12, "data", "g"),
            ("all_gather", 24 * 4 * peers // n, torch.float32, 24, "data", "p"),
            ("all_reduce", 2 * 36 * 8 * peers // n, torch.float64, 36, "data", ""),
            ("all_reduce", one if n > 1 else 0, torch.float32, 1, "data", ""),
            ("broadcast", 20 * peers if rank == 0 else 0, torch.float32, 5, "data", ""),
            ("all_gather_small", 12 * peers, torch.float32, 3, "control", ""),
        ]
        assert rows == want
        data = [row[1] for row in want if row[4] == "data"]
        assert sums == (sum(data), 12 * peers, data[2] + data[3], 5)
        assert inner == ["all_gather"]
        assert all_reduces == 2


# --- misuse --------------------------------------------------------------------------------------


def misuse_case(rank, n):
    texts = []
    for call in (
        lambda: comm.all_gather(torch.zeros(2, 2)),
        lambda: comm.all_reduce(torch.zeros(8)[::2]),
        lambda: comm.reduce_scatter(torch.zeros(7)),
        lambda: comm.all_gather(torch.zeros(7)),
    ):
        try:
            call()
            texts.append("no error")
        except ValueError as error:
            texts.append(str(error))
    comm.all_reduce(torch.zeros(3))  # the refusals came before anything was sent
    return texts


def test_tensors_that_are_not_flat_or_not_divisible():
    for texts in on_ranks(misuse_case, 2):
        assert "(2, 2)" in texts[0] and "reshape(-1)" in texts[0]
        assert "strides (2,)" in texts[1]
        assert "7 elements are not divisible by 2. Pad it to 8" in texts[2]
        assert "7 elements are not divisible by 2. Pad it to 8" in texts[3]


def test_a_world_of_one_needs_no_group():
    assert (comm.rank(), comm.world_size()) == (0, 1)
    flat = torch.ones(3)
    assert comm.all_reduce(flat) is flat
    assert comm.reduce_scatter(flat, op="sum").tolist() == [1, 1, 1]
    assert comm.all_gather(flat, async_op=True).wait() is flat
    assert comm.broadcast(flat) is flat
    assert comm.all_gather_small(torch.tensor([5])).tolist() == [[5]]
    assert not comm.any_rank(False)
    comm.barrier()


# --- 16 bit --------------------------------------------------------------------------------------


def half_case(rank, n):
    """fp16 gradients at both ends of the format: 20000 and the smallest number above zero."""
    tiny = 2.0**-24
    flat = torch.tensor([20000.0, tiny], dtype=torch.float16).repeat(n)
    in_place = comm.reduce_scatter(flat.clone())
    wide = comm.reduce_scatter(flat, torch.zeros(2))
    everywhere = comm.all_reduce(flat)[:2]
    return [t.float().tolist() for t in (in_place, wide, everywhere)]


def test_mean_of_fp16_neither_overflows_nor_underflows():
    """(case B8) Summed first, 4 x 20000 is inf in fp16; divided first, 2^-24 / 4 is 0."""
    for results in on_ranks(half_case, 4):
        assert results == [[20000.0, 2.0**-24]] * 3


def test_on_nccl_a_shard_is_received_beside_the_gradients(monkeypatch):
    """Also where it belongs on the host, as with offload_optimizer="cpu": NCCL knows no host."""
    received = []

    def collective(out, flat, **_):
        received.append((out.device, out.dtype))

    monkeypatch.setattr(dist, "reduce_scatter_single", collective, raising=False)
    flat = torch.empty(8, dtype=torch.bfloat16, device="meta")  # the GPU of this test
    for out in (torch.empty(4), torch.empty(4, dtype=torch.bfloat16), torch.empty_like(flat[:4])):
        assert comm._nccl_reduce_scatter(flat, out, "mean", None).result is out
    assert received == [(flat.device, flat.dtype)] * 3


def test_sums_of_16_bit_are_made_in_fp32():
    """256 terms of 1 after 256: in bf16 each addition would be lost."""
    rows = [torch.tensor([256.0], dtype=torch.bfloat16)]
    rows += [torch.ones(1, dtype=torch.bfloat16) for _ in range(256)]
    out = torch.empty(1, dtype=torch.bfloat16)
    exchange.add_in_rank_order(rows, out, "sum")
    assert out.item() == 512.0


def test_nan_and_inf_survive():
    rows = [torch.tensor([math.nan, math.inf, 1.0]), torch.tensor([1.0, 1.0, -math.inf])]
    for op in ("sum", "mean", "max"):
        out = torch.empty(3)
        exchange.add_in_rank_order(rows, out, op)
        assert math.isnan(out[0])
        assert out[1] == math.inf
        assert out[2] == (1.0 if op == "max" else -math.inf)


# --- worlds that end, begin, and are not of gloo -------------------------------------------------


def left_case(rank, n, before):
    """Rank 0 takes part in `before` collectives, and leaves."""
    for _ in range(before):
        comm.barrier()
    start = time.monotonic()
    if rank == 0:
        comm.leave()
        time.sleep(5.0)  # it has left, and lives
        return "", 0.0
    try:
        comm.all_reduce(torch.ones(3), name="sum")
    except comm.CommError as error:
        return str(error), time.monotonic() - start
    return "no error", 0.0


@pytest.mark.parametrize(("n", "before"), [(2, 0), (2, 2), (3, 1)])
def test_who_waits_for_a_rank_that_has_left_is_told(n, before):
    for rank, (text, seconds) in enumerate(on_ranks(left_case, n, before)[1:], 1):
        assert text == f"rank 0 has left while rank {rank} waits in all_reduce(sum, 3 x float32)"
        assert seconds < 4.0


def new_world_case(rank, n, folder):
    """The world is destroyed, as scripts do it; two of the three make a new one."""
    comm.all_reduce(torch.ones(3))
    dist.destroy_process_group()
    if rank == 2:
        return None
    how = {"init_method": f"file://{folder}/new", "rank": 1 - rank, "world_size": 2}
    dist.init_process_group("gloo", **how)
    flat = torch.arange(4.0) * (comm.rank() + 1)
    found = comm.rank(), comm.all_reduce(flat, op="sum").tolist()
    comm.shutdown()
    assert not dist.is_initialized()
    return found


def test_a_new_world_after_the_old_one(tmp_path):
    found = on_ranks(new_world_case, 3, tmp_path)
    assert found == [(1, [0.0, 3.0, 6.0, 9.0]), (0, [0.0, 3.0, 6.0, 9.0]), None]


def many_worlds_case(rank, n, folder):
    """Open files of this process after each of four worlds."""
    comm.shutdown()
    files = []
    for world in range(4):
        how = {"init_method": f"file://{folder}/{world}", "rank": rank, "world_size": n}
        dist.init_process_group("gloo", **how)
        comm.barrier()
        comm.shutdown()
        files.append(len(os.listdir("/proc/self/fd")))
    return files


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux")
def test_worlds_that_are_over_leave_nothing_behind(tmp_path):
    for files in on_ranks(many_worlds_case, 2, tmp_path):
        assert len(set(files)) == 1, files


def test_a_group_that_is_gone_needs_no_word(monkeypatch):
    class Gone:
        def leave(self):
            raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(messages, "_meshes", {"gone": Gone()})
    messages.leave_groups()
    assert not messages._meshes


def without_the_cpu_case(rank, n):
    """A group that, like NCCL's, has no way for tensors on the CPU."""
    group = dist.new_group(backend="cuda:gloo")
    try:
        comm.all_reduce(torch.ones(3), group=group)
    except comm.CommError as error:
        return str(error)


def test_tensors_on_the_cpu_and_ranks_that_talk_over_nccl():
    for text in on_ranks(without_the_cpu_case, 2):
        assert "model.to(zero.comm.device())" in text and 'backend="gloo"' in text


def test_the_device_of_a_world_that_others_have_made(monkeypatch):
    """Its backend's name may be "undefined", and its device not be the current one."""
    world = types.SimpleNamespace(bound_device_id=None)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: "undefined")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    config = "cpu:gloo"
    monkeypatch.setattr(dist, "get_backend_config", lambda: config)
    assert comm.device() == torch.device("cpu")
    config = "cpu:gloo,cuda:nccl"
    monkeypatch.setattr(type(dist.group), "WORLD", world)
    assert comm.device() == torch.device("cuda", 0)
    world.bound_device_id = torch.device("cuda", 3)
    assert comm.device() == torch.device("cuda", 3)
