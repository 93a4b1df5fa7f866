"""Checks of `zero.ring`, on threads and on real ranks."""

import torch

from course.checks import compare_tensors, compare_values, exercise, on_ranks, same_as
from course.rings import play, sent_bytes
from reduce_scatter_checks.sums import (
    check_keeps_little,
    check_left_alone,
    check_sent,
    check_sums,
    counted,
    on_ring,
)
from zero import ring


@exercise("zero.ring.ring_reduce_scatter")
def test_sum_on_two_ranks():
    """Two ranks, [1, 2, 3, 4] and ten times that: rank 0 gets [11, 22], rank 1 gets [33, 44]"""
    check_sums(ring.ring_reduce_scatter, 2, 4)


@exercise("zero.ring.ring_reduce_scatter")
def test_sum_on_more_ranks():
    """3, 4 and 5 ranks: every rank gets the whole sum of its own chunk"""
    for n, numel in ((3, 6), (4, 8), (5, 10)):
        check_sums(ring.ring_reduce_scatter, n, numel)


@exercise("zero.ring.ring_reduce_scatter")
def test_sum_sends_little():
    """Every rank sends N-1 chunks of numel/N elements, and no more"""
    for n in (3, 4):
        known = (
            (2 * (n - 1) * 3, "all-reduce", "That is what an all-reduce sends"),
            ((n - 1) * 3 * n, "sends-everything", "Whole tensors travel; one chunk is enough"),
            (n * 3, "one-round-too-many", f"{n - 1} rounds are enough"),
        )
        flats = counted(n, 3 * n)
        check_sent(ring.ring_reduce_scatter, n, flats, n - 1, 3, known)


@exercise("zero.ring.ring_reduce_scatter")
def test_sum_input_left_alone():
    """flat stays as it is, the result is new and small; alone nothing is sent; dtypes stay"""
    for n in (1, 3):
        check_left_alone(ring.ring_reduce_scatter, counted(n, 6))
    check_keeps_little(ring.ring_reduce_scatter)
    check_sent(ring.ring_reduce_scatter, 1, counted(1, 4), 0, 0)
    whole = [torch.arange(4) + 10 * r for r in range(2)]
    results, sent = play(ring.ring_reduce_scatter, whole)
    compare_tensors(torch.tensor([10, 12]), results[0], "whole numbers, rank 0 of 2")
    known = [([8, 8], "another-dtype", "they travel as another dtype, of 4 bytes")]
    compare_values([16, 16], sent_bytes(sent), "bytes sent by each of 2 ranks, int64", known)


@exercise("zero.ring.ring_reduce_scatter")
def test_sum_on_real_ranks():
    """Three real ranks: the same sums, the same bytes"""
    flats = counted(3, 12)
    for rank, (got, sent) in enumerate(on_ranks(on_ring, 3, "ring_reduce_scatter")):
        compare_tensors(sum(flats).chunk(3)[rank], got, f"rank {rank} of 3 processes")
        compare_values(2 * 4 * 4, sent, f"bytes that rank {rank} of 3 processes sends")


# --- ring_all_gather -----------------------------------------------------------------------------


def check_gathered(n: int, k: int) -> None:
    shards = [torch.arange(k) + 1.0 + 10 * r for r in range(n)]
    results, _ = play(ring.ring_all_gather, shards)
    for rank in [*range(1, n), 0]:  # rank 0 alone does not tell all mistakes apart
        arrival = torch.cat([shards[(rank - i) % n] for i in range(n)])
        reverse = torch.cat([shards[(rank + 1 + i) % n] for i in range(n)])
        turned = torch.cat([shards[(rank + i) % n] for i in range(n)])
        alone = torch.cat([shards[rank]] * n)
        twice = torch.cat([shards[r if r == rank else (rank - 1) % n] for r in range(n)])
        mirrored = torch.cat([shards[(2 * rank - r) % n] for r in range(n)])
        known = [
            same_as(arrival, "arrival-order", "in the order of arrival, not of the ranks"),
            same_as(reverse, "arrival-order", "in the reverse order of arrival, not of the ranks"),
            same_as(turned, "arrival-order", "it begins with the own shard, not with rank 0's"),
            same_as(alone, "nothing-received", "the own shard, again and again"),
            same_as(twice, "not-passed-on", "only the neighbour's shard ever arrives"),
            same_as(mirrored, "wrong-way", "each shard stands at the place of another rank"),
        ]
        expected = torch.cat(shards)
        what = f"{n} ranks: the result of rank {rank}"
        compare_tensors(expected, results[rank], what, known=known)


@exercise("zero.ring.ring_all_gather")
def test_gather_on_two_ranks():
    """Two ranks, [1] and [11]: both get [1, 11]"""
    check_gathered(2, 1)


@exercise("zero.ring.ring_all_gather")
def test_gather_on_more_ranks():
    """3, 4 and 5 ranks: all shards, in rank order"""
    for n, k in ((3, 1), (4, 2), (5, 3)):
        check_gathered(n, k)


@exercise("zero.ring.ring_all_gather")
def test_gather_sends_little():
    """Every rank sends N-1 shards, and no more"""
    for n in (4, 5):
        shards = [torch.full((3,), float(r)) for r in range(n)]
        known = (
            (n * 3, "one-round-too-many", f"{n - 1} rounds are enough"),
            (3 * n * (n - 1) // 2, "sends-everything", "All that is known travels each round"),
            ((n - 1) * 3 * n, "sends-everything", "Whole tensors travel; one shard is enough"),
        )
        check_sent(ring.ring_all_gather, n, shards, n - 1, 3, known)


@exercise("zero.ring.ring_all_gather")
def test_gather_input_left_alone():
    """shard stays as it is, the result is new; one rank alone sends nothing; dtypes stay"""
    for n in (1, 3):
        check_left_alone(ring.ring_all_gather, counted(n, 2))
    check_sent(ring.ring_all_gather, 1, counted(1, 4), 0, 0)
    results, _ = play(ring.ring_all_gather, [torch.tensor([1]), torch.tensor([2])])
    compare_tensors(torch.tensor([1, 2]), results[1], "whole numbers, rank 1 of 2")


@exercise("zero.ring.ring_all_gather")
def test_gather_on_real_ranks():
    """Three real ranks: the same result, the same bytes"""
    expected = torch.cat([(torch.arange(4) + 1.0) * 10**r for r in range(3)])
    for rank, (got, sent) in enumerate(on_ranks(on_ring, 3, "ring_all_gather")):
        compare_tensors(expected, got, f"rank {rank} of 3 processes")
        compare_values(2 * 4 * 4, sent, f"bytes that rank {rank} of 3 processes sends")


# --- naive_reduce_scatter ------------------------------------------------------------------------


@exercise("zero.ring.naive_reduce_scatter")
def test_naive_sums():
    """2, 3 and 4 ranks: every rank gets the whole sum of its own chunk"""
    for n, numel in ((2, 4), (3, 6), (4, 8)):
        check_sums(ring.naive_reduce_scatter, n, numel)


@exercise("zero.ring.naive_reduce_scatter")
def test_naive_sends_twice():
    """It is an all-reduce: every rank sends 2 (N-1) chunks"""
    for n in (3, 4):
        known = (
            ((n - 1) * 2, "not-naive", "That is the reduce-scatter; an all-reduce is asked for"),
            ((n - 1) * 2 * n, "sends-everything", "Whole tensors travel"),
        )
        check_sent(ring.naive_reduce_scatter, n, counted(n, 2 * n), 2 * (n - 1), 2, known)


@exercise("zero.ring.naive_reduce_scatter")
def test_naive_keeps_one_chunk():
    """The result holds the memory of one chunk, and flat stays as it is"""
    check_keeps_little(ring.naive_reduce_scatter)
    check_left_alone(ring.naive_reduce_scatter, counted(3, 6))
    check_left_alone(ring.naive_reduce_scatter, counted(1, 2))
