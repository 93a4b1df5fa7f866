"""The formulas give the figures of the literature, and add up by themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zero import formulas as f

# GB per device, (P_os, P_os+g, P_os+g+p) for 7.5B, 128B and 1T: table 1 of the paper.
TABLE_1 = {
    1: [(120, 120, 120), (2048, 2048, 2048), (16000, 16000, 16000)],
    4: [(52.5, 41.3, 30), (896, 704, 512), (7000, 5500, 4000)],
    16: [(35.6, 21.6, 7.5), (608, 368, 128), (4750, 2875, 1000)],
    64: [(31.4, 16.6, 1.88), (536, 284, 32), (4187, 2218, 250)],
    256: [(30.4, 15.4, 0.47), (518, 263, 8), (4046, 2054, 62.5)],
    1024: [(30.1, 15.1, 0.12), (513, 257, 2), (4011, 2013, 15.6)],
}
# Billions of parameters, (DDP, P_os, P_os+g, P_os+g+p), 32 GB, N = 64: table 2, theory.
TABLE_2 = {
    1: (2, 7.6, 14.4, 128),
    2: (4, 15.2, 28.8, 256),
    4: (8, 30.4, 57.6, 512),
    8: (16, 60.8, 115.2, 1024),
    16: (32, 121.6, 230.4, 2048),
}


def last_digit(printed: float) -> float:
    """The size of the last digit that the paper printed; it cuts some figures, rounds others."""
    text = f"{printed:g}"
    return 10.0 ** -len(text.partition(".")[2])


# --- the paper -----------------------------------------------------------------------------------


def test_table_of_memory_per_device():
    table = f.per_device_table()
    assert list(table) == list(TABLE_1)
    for n, models in TABLE_1.items():
        for ours, theirs in zip(table[n], models, strict=True):
            for got, printed in zip(ours, theirs, strict=True):
                assert abs(got / 1e9 - printed) < last_digit(printed), (n, got, printed)


def test_table_of_the_largest_model():
    table = f.largest_model_table()
    assert list(table) == list(TABLE_2)
    for m, row in TABLE_2.items():
        assert [p / 1e9 for p in table[m]] == pytest.approx(row, rel=0.01)


@pytest.mark.parametrize(("stage", "limit"), [(0, 16), (1, 4), (2, 2), (3, 0)])
def test_limits_for_many_ranks(stage, limit):
    assert f.paper_bytes(1, stage, 10**9) == pytest.approx(limit, abs=1e-6)


def test_every_stage_is_ddp_on_one_rank():
    assert {f.paper_bytes(7, stage, 1) for stage in f.STAGES} == {7 * 16}


def test_zero3_is_linear_in_the_ranks():
    assert f.paper_bytes(7, 3, 64) * 64 == f.paper_bytes(7, 3, 1)


def test_seven_billion_parameters():
    parts = f.paper_parts(7e9)
    assert parts == {"parameters": 14e9, "gradients": 14e9, "master": 28e9, "moments": 56e9}
    assert sum(parts.values()) == f.paper_bytes(7e9, 0, 8) == 112e9


def test_fall_of_zero1():
    assert f.paper_bytes(1, 1, 8) == 5.5
    assert f.fall(1, 8) == pytest.approx(65.6, abs=0.05)
    assert f.paper_bytes(1, 1, 64) == pytest.approx(4.19, abs=0.005)
    assert f.fall(1, 64) == pytest.approx(73.8, abs=0.05)


def test_seventy_billion_parameters():
    assert f.paper_bytes(70e9, 0, 64) == 1.12e12
    assert f.paper_bytes(70e9, 3, 64) == 17.5e9


def test_activations_of_gpt2():
    gpt2 = {"hidden": 1600, "batch": 32, "sequence": 1024, "layers": 48}
    assert 2 * f.activation_values(**gpt2) == pytest.approx(60e9, rel=0.01)
    assert f.checkpoint_bytes(**gpt2) == pytest.approx(5e9, rel=0.01)
    assert pytest.approx(0.33, abs=0.01) == f.RECOMPUTE_COST


@pytest.mark.parametrize(("stage", "volume"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_volume_as_the_paper_counts(stage, volume):
    assert f.paper_volume(1e9, stage) == volume * 1e9
    assert f.sent(1e9, stage, 4) == volume * 0.75e9
    assert f.sent(1e9, stage, 1) == 0


def test_partitioned_activations():
    shape = {"hidden": 1024, "batch": 8, "sequence": 512}
    whole = f.checkpoint_bytes(**shape, layers=24)
    assert whole == 8 * 512 * 1024 * 24 * 2
    assert f.checkpoint_bytes(**shape, layers=24, model_parallel=16) == whole / 16
    assert f.partition_volume(**shape) / f.tensor_parallel_volume(**shape) < 0.1


def test_zeropp():
    assert sum(f.zeropp_volume(1e9).values()) == 0.75e9
    assert sum(f.zeropp_volume(1e9, qwz=False, hpz=False, qgz=False).values()) == 3e9
    # Half the bytes in the gather; none for the gather before backward; a quarter in the reduce.
    assert sum(f.zeropp_volume(1e9, hpz=False, qgz=False).values()) == 2e9
    assert sum(f.zeropp_volume(1e9, qwz=False, qgz=False).values()) == 2e9
    assert sum(f.zeropp_volume(1e9, qwz=False, hpz=False).values()) == 2.25e9
    assert f.hpz_bytes(7e9, 8) == 7e9 * 2 / 8


# --- exact ---------------------------------------------------------------------------------------

M0 = 7 * 13 + 13 + 13 * 5 + 5


def test_m0_by_hand():
    """174 parameters on 4 ranks: padded to 176, 44 a shard (cases A2, D1)."""
    assert f.padded(M0, 4) == 176
    assert f.model_states([M0], 0, 4) == f.Memory(176 * 4, 176 * 4, 174 * 8)
    assert f.model_states([M0], 1, 4) == f.Memory(176 * 4, 176 * 4, 44 * 8)
    assert f.model_states([M0], 2, 4) == f.Memory(176 * 4, 44 * 4, 44 * 8)
    assert f.model_states([M0], 3, 4) == f.Memory(44 * 4, 44 * 4, 44 * 8)
    assert f.model_states([M0], 0, 4, "bf16") == f.Memory(176 * 2, 176 * 2, 176 * 4 + 174 * 8)
    assert f.model_states([M0], 1, 4, "bf16") == f.Memory(176 * 2, 176 * 2, 44 * 12)
    assert f.model_states([M0], 2, 4, "bf16") == f.Memory(176 * 2, 44 * 4, 44 * 12)
    assert f.model_states([M0], 3, 4, "fp16") == f.Memory(44 * 2, 44 * 4, 44 * 12)


def test_last_rank_has_no_moments_for_the_padding():
    assert f.model_states([M0], 1, 4, rank=3).optimizer == 42 * 8
    assert f.model_states([M0], 1, 4, "bf16", rank=3).optimizer == 44 * 4 + 42 * 8
    assert [f.owned(1, 4, r) for r in range(4)] == [1, 0, 0, 0]


def test_every_flat_tensor_has_its_own_padding():
    assert f.model_states([5, 5], 3, 4).parameters == 4 * (2 + 2)
    assert f.wire([5, 5], 1, 4)["reduce_scatter"] == 4 * 12


@pytest.mark.parametrize(("moments", "optimizer"), [(0, 0), (1, 44 * 4), (2, 44 * 8)])
def test_moments_of_the_optimizer(moments, optimizer):
    assert f.model_states([M0], 2, 4, moments=moments).optimizer == optimizer


def test_frozen_parameters_have_no_other_state():
    with_frozen = f.model_states([16], 1, 4, frozen=[8])
    assert with_frozen == f.Memory(4 * (16 + 8), 4 * 16, 8 * 4)
    assert f.model_states([16], 1, 4, frozen=[5]).parameters == 4 * (16 + 5)
    assert f.model_states([16], 3, 4, frozen=[5]).parameters == 4 * (4 + 2)
    assert f.wire([16], 2, 4, frozen=[8]) == f.wire([16], 2, 4)
    assert f.wire([16], 3, 4, frozen=[8])["all_gather"] == 2 * 4 * 18


def test_wire_by_hand():
    once = 4 * 132  # each rank sends 3 of its 4 shards of 44 values
    assert f.wire([M0], 0, 4) == {"all_reduce": 2 * once}
    assert f.wire([M0], 1, 4) == {"reduce_scatter": once, "all_gather": once}
    assert f.wire([M0], 2, 4) == f.wire([M0], 1, 4)
    assert f.wire([M0], 3, 4) == {"reduce_scatter": once, "all_gather": 2 * once}
    assert f.wire([M0], 3, 4, "bf16") == {"reduce_scatter": once // 2, "all_gather": once}
    assert set(f.wire([M0], 2, 1).values()) == {0}


@pytest.mark.parametrize(
    ("stage", "times"),
    [
        (0, {"all_reduce": 1}),
        (1, {"reduce_scatter": 1, "all_gather": 1}),
        (2, {"reduce_scatter": 4, "all_gather": 1}),
        (3, {"reduce_scatter": 4, "all_gather": 4}),
    ],
)
def test_wire_with_micro_batches(stage, times):
    one = f.wire([M0], stage, 4)
    assert f.wire([M0], stage, 4, micro_batches=4) == {op: one[op] * times[op] for op in one}


sizes = st.lists(st.integers(0, 1000), min_size=1, max_size=5)


@given(sizes, st.integers(1, 9), st.sampled_from(f.STAGES), st.sampled_from(["fp32", "bf16"]))
def test_ranks_own_everything_once(numels, n, stage, precision):
    """Moments over all ranks are those of one process; no rank holds more than rank 0."""
    ranks = [f.model_states(numels, stage, n, precision, rank=r) for r in range(n)]
    copies = n if stage == 0 else 1
    masters = 0 if precision == "fp32" else sum(f.padded(x, n) for x in numels)
    assert sum(m.optimizer for m in ranks) == copies * (8 * sum(numels) + 4 * masters)
    assert max(m.total for m in ranks) == ranks[0].total


@given(st.integers(1, 10**6).map(lambda n: n * 64), st.sampled_from(f.STAGES))
def test_exact_agrees_with_the_paper(numel, stage):
    """Without padding, 16-bit training differs in one point: our gradient shard is fp32."""
    exact = f.model_states([numel], stage, 64, "bf16").total
    extra = 2 * numel / 64 if stage >= 2 else 0
    assert exact == pytest.approx(f.paper_bytes(numel, stage, 64) + extra, rel=1e-12)
    assert sum(f.wire([numel], stage, 64, "bf16").values()) == 2 * f.sent(numel, stage, 64)


# --- figures to read and errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (704, "704 B"),
        (999.6, "1 kB"),
        (41.25e9, "41.3 GB"),
        (112e9, "112 GB"),
        (1.12e12, "1.12 TB"),
        (17.5e9, "17.5 GB"),
        (5e18, "5000 PB"),
    ],
)
def test_human(amount, text):
    assert f.human(amount) == text


def test_human_count():
    assert [f.human_count(x) for x in (174, 1.5e9, 128e9, 1.024e12)] == [
        "174",
        "1.5B",
        "128B",
        "1.02T",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([8], 4, 2), "unknown stage 4"),
        (([8], 1, 0), "world size 0"),
        (([8], 1, 2, "int8"), "unknown precision 'int8'"),
    ],
)
def test_errors_name_the_value(arguments, message):
    for formula in (f.model_states, f.wire):
        with pytest.raises(ValueError, match=message):
            formula(*arguments)
