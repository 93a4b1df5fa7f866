"""What the checks of the ring functions share."""

import torch

from course.checks import compare_tensors, compare_values, fail, require, same_as, scaled
from course.rings import play, sent_bytes


def counted(n: int, numel: int) -> list[torch.Tensor]:
    """What each rank has: rank r's element i is 10^r * (i + 1), so every part shows in the sum."""
    return [(torch.arange(numel) + 1.0) * 10**r for r in range(n)]


def known_sums(flats: list[torch.Tensor], rank: int) -> list:
    """Recognisers of wrong sums of chunk ``rank``."""
    n = len(flats)
    sums = sum(flats).chunk(n)
    own = [flat.chunk(n)[rank] for flat in flats]
    text = "a part of your own tensor; what arrives is not added"
    found = [same_as(part, "nothing-added", text) for part in flats[rank].chunk(n)]
    found += [
        same_as(sum(flats), "whole-sum", "the sum of everything, not of one chunk"),
        scaled(1 / n, "mean-for-sum", f"divided by {n}; it is the sum that is asked for"),
    ]
    for other in set(range(n)) - {rank}:
        text = f"that is the sum of chunk {other}, which rank {other} owns"
        found.append(same_as(sums[other], "wrong-owner", text))
    for missing in range(n):
        text = f"the part of rank {missing} is missing"
        found.append(same_as(sums[rank] - own[missing], "part-missing", text))
        text = f"the part of rank {missing} is in it twice"
        found.append(same_as(sums[rank] + own[missing], "part-twice", text))
    return found


def check_sums(function, n: int, numel: int) -> None:
    flats = counted(n, numel)
    results, _ = play(function, [flat.clone() for flat in flats])
    for rank, got in enumerate(results):
        what = f"{n} ranks, {numel} elements: the result of rank {rank}"
        expected = sum(flats).chunk(n)[rank]
        compare_tensors(expected, got, what, known=known_sums(flats, rank))


def check_sent(function, n: int, tensors: list, rounds: int, chunk: int, known: tuple = ()) -> None:
    """Every rank must call pass_on ``rounds`` times with ``chunk`` elements (fp32)."""
    _, sent = play(function, tensors)
    for rank, chunks in enumerate(sent):
        what = f"{n} ranks: what rank {rank} sends, in elements, round by round"
        sizes = [c.numel() for c in chunks]
        for total, mistake, sentence in known:
            if sum(sizes) == total and sizes != [chunk] * rounds:
                fail(f"{what}: {sizes}. {sentence}.", mistake)
        compare_values([chunk] * rounds, sizes, what)
    compare_values([rounds * chunk * 4] * n, sent_bytes(sent), f"{n} ranks: bytes sent by each")


def check_left_alone(function, tensors: list) -> None:
    """The input keeps its values, and the result is a tensor of its own."""
    before = [t.clone() for t in tensors]
    results, _ = play(function, tensors)
    for rank, (old, new, got) in enumerate(zip(before, tensors, results)):
        if not torch.equal(old, new):
            fail(
                f"rank {rank}'s input was {old.tolist()}, now it is {new.tolist()}.",
                "input-changed",
            )
        shared = got.untyped_storage().data_ptr() == new.untyped_storage().data_ptr()
        few = "one rank" if len(tensors) == 1 else f"{len(tensors)} ranks"
        text = f"With {few} the result shares its memory with the input."
        require(not shared, text, "shares-memory")


def check_keeps_little(function) -> None:
    """The result is no view of a larger tensor."""
    results, _ = play(function, counted(4, 8))
    kept = results[0].untyped_storage().nbytes()
    if kept > 8:
        fail(
            f"The result has 2 elements, 8 bytes, and keeps {kept} bytes alive: it is a view of a "
            f"larger tensor.",
            "keeps-everything",
        )


def on_ring(rank, world_size, name):
    """The learner's function on real ranks: the result, and floating-point bytes below us."""
    from zero import ring
    from zero.traffic import Traffic

    tensor = (torch.arange(12) + 1.0) * 10**rank
    tensor = tensor[:4].clone() if name == "ring_all_gather" else tensor
    with Traffic() as traffic:
        got = getattr(ring, name)(tensor, rank, world_size, ring.neighbours())
    return got, traffic.bytes("send", floating=True)
