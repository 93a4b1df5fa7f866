"""Grades lesson 04."""

import gc
import weakref

import torch
from torch import nn

from course import training
from course.checks import (
    compare_tensors,
    compare_values,
    exercise,
    fail,
    on_ranks,
    require,
    same_as,
)
from zero import flight, stage2

# --- assign_to_buckets ---------------------------------------------------------------------------


@exercise("zero.stage2.assign_to_buckets")
def test_neighbours():
    """Neighbours share a bucket as long as they fit"""
    known = [
        ([[0], [1], [2], [3], [4]], "one-each", "every parameter has a bucket of its own"),
        ([[0, 1, 2, 3, 4]], "one-bucket", "all parameters are in one bucket"),
        ([[0, 1, 2], [3, 4]], "overfull", "12 bytes are in a bucket of 8"),
        ([[0], [1, 2], [3, 4]], "not-filled", "a bucket takes less than fits"),
        ([[4], [2, 3], [0, 1]], "wrong-order", "backward fills them from the first size on"),
        ([[4, 3], [2, 1], [0]], "wrong-order", "backward fills them from the first size on"),
        ([[4, 4], [4, 4], [4]], "sizes-returned", "these are sizes; positions are asked for"),
    ]
    got = stage2.assign_to_buckets([4, 4, 4, 4, 4], 8)
    compare_values([[0, 1], [2, 3], [4]], got, "sizes 4, 4, 4, 4, 4, capacity 8", known)


@exercise("zero.stage2.assign_to_buckets")
def test_exact_fit():
    """What fits exactly, fits"""
    known = [([[0], [1], [2]], "exact-refused", "3 + 5 bytes fit into 8")]
    got = stage2.assign_to_buckets([3, 5, 8], 8)
    compare_values([[0, 1], [2]], got, "sizes 3, 5, 8, capacity 8", known)


@exercise("zero.stage2.assign_to_buckets")
def test_too_large():
    """A parameter larger than the capacity has a bucket of its own, and nothing is lost"""
    known = [
        ([[0], [2]], "large-dropped", "the large one is in no bucket"),
        ([[0, 2], [1]], "reordered", "2 does not follow 0: buckets would not fill in order"),
        ([[0, 1], [2]], "overfull", "20 bytes were put to others"),
        ([[0], [1, 2]], "overfull", "something was put to the large one"),
        ([[0, 1, 2]], "overfull", "22 bytes are in a bucket of 8"),
        ([[0], [], [1], [2]], "empty-bucket", "there is an empty bucket"),
    ]
    got = stage2.assign_to_buckets([1, 20, 1], 8)
    compare_values([[0], [1], [2]], got, "sizes 1, 20, 1, capacity 8", known)
    known = [([[], [0]], "empty-bucket", "there is an empty bucket")]
    compare_values([[0]], stage2.assign_to_buckets([20], 8), "sizes 20, capacity 8", known)
    known = [([[]], "empty-bucket", "there is an empty bucket")]
    compare_values([], stage2.assign_to_buckets([], 8), "no sizes", known)


@exercise("zero.stage2.assign_to_buckets")
def test_order_is_kept():
    """A small one that would fit into an earlier bucket still goes into the last"""
    known = [([[0, 2], [1]], "reordered", "2 does not follow 0: buckets would not fill in order")]
    got = stage2.assign_to_buckets([5, 6, 2], 8)
    compare_values([[0], [1, 2]], got, "sizes 5, 6, 2, capacity 8", known)


@exercise("zero.stage2.assign_to_buckets")
def test_without_elements():
    """A parameter without elements takes no room, also where it comes first"""
    known = [
        ([[0], [1]], "empty-alone", "0 bytes and 4 fit into 8"),
        ([[0, 1]], "overfull", "20 bytes are in a bucket of 8"),
    ]
    compare_values(
        [[0, 1]], stage2.assign_to_buckets([0, 4], 8), "sizes 0, 4, capacity 8", known[:1]
    )
    compare_values(
        [[0], [1]], stage2.assign_to_buckets([0, 20], 8), "sizes 0, 20, capacity 8", known[1:]
    )
    compare_values(
        [[0, 1]], stage2.assign_to_buckets([8, 0], 8), "sizes 8, 0, capacity 8", known[:1]
    )


# --- a bucket and its optimizer, without ranks ---------------------------------------------------


class StandIn:
    """Takes the place of an object of the package, and has only what the docstring names."""

    def __getattr__(self, name):
        text = f"the check has a stand-in here, without `{name}`; the docstring names what there is"
        raise AttributeError(text)


class FakeWork:
    """A reduction on its way, to a shard of two elements."""

    def __init__(self, journal, value):
        self.journal, self.value = journal, value

    def wait(self):
        self.journal.append(f"wait {self.value}")
        return torch.full((2,), float(self.value))


class FakeOptimizer(StandIn):
    """Notes the reductions that are asked for, and where the averages are to go."""

    def __init__(self):
        self.journal, self.outs = [], []

    def reduce_bucket(self, bucket, out, async_op=False):
        self.journal.append(f"reduce {bucket.name}")
        self.outs.append(out)
        work = FakeWork(self.journal, len(self.journal))
        return work if async_op else work.wait()


class FakeBucket(StandIn):
    """What `Flight` may use of a bucket."""

    def __init__(self, name, journal):
        self.name, self.journal = name, journal
        self.master = torch.zeros(2, dtype=torch.float64)
        self.grad, self.owned_grad, self.missing = torch.ones(4), None, set()

    def close_gradients(self):
        self.journal.append(f"close {self.name}")

    def free_grad(self):
        self.journal.append(f"free {self.name}")
        self.grad = None


def fakes():
    opt = FakeOptimizer()
    return opt, flight.Flight(opt), [FakeBucket(n, opt.journal) for n in ("a", "b")]


# --- Flight.start --------------------------------------------------------------------------------


@exercise("zero.flight.Flight.start")
def test_started():
    """The bucket is closed, its reduction is started and not waited for"""
    opt, flying, (a, _) = fakes()
    flying.start(a)
    known = [
        (["reduce a"], "not-closed", "missing gradients were not made zero"),
        (["reduce a", "close a"], "not-closed", "closed after it was sent"),
        (["close a"], "not-sent", "nothing was reduced"),
        (["close a", "reduce a", "wait 2"], "waited", "it was waited for, so nothing overlaps"),
        (["close a", "reduce a", "free a"], "freed-too-early", "its gradients are still read"),
    ]
    compare_values(["close a", "reduce a"], opt.journal, "what happened", known)
    require(flying.bucket is a, "flight.bucket is not the bucket on its way.", "not-remembered")
    require(isinstance(flying.work, FakeWork), "flight.work is not the handle.", "not-remembered")
    (out,) = opt.outs
    require(out.shape == (2,), "`out` is not as long as bucket.master.", "wrong-out")
    require(out.dtype == torch.float64, "`out` has not the master's dtype.", "wrong-out")
    same = out.data_ptr() == a.master.data_ptr()
    require(not same, "The average is written over the master weights.", "over-the-master")
    opt, flying, (a, _) = fakes()
    a.master = torch.zeros(2, device="meta")
    flying.start(a)
    require(opt.outs[0].is_meta, "`out` is not on the master's device.", "wrong-out")


@exercise("zero.flight.Flight.start")
def test_a_new_tensor_each_time():
    """What one reduction writes into, no other does; and nobody keeps it for longer"""
    opt, flying, (a, b) = fakes()
    for bucket in (a, b, a):
        flying.start(bucket)
    flying.land()
    where = {out.data_ptr() for out in opt.outs}
    require(
        len(where) == 3,
        "Buckets a, b and a again: two of the three averages are written into the same memory. "
        "What one has left there is still needed: it is the bucket's owned_grad.",
        "memory-shared",
    )
    a.owned_grad = held = torch.zeros(2, dtype=torch.float64)
    flying.start(a)
    require(
        opt.outs[-1].data_ptr() != held.data_ptr(),
        "The average is written over owned_grad, which holds the first micro-batch's.",
        "memory-shared",
    )
    flying.land()
    refs = [weakref.ref(out) for out in opt.outs]
    opt.outs.clear()
    gc.collect()
    kept = sum(ref() is not None for ref in refs)
    require(not kept, f"{kept} of 4 `out` are kept after everything has landed.", "out-kept")


@exercise("zero.flight.Flight.start")
def test_one_at_a_time():
    """Before the second bucket leaves, the first one has landed"""
    opt, flying, (a, b) = fakes()
    flying.start(a)
    flying.start(b)
    known = [
        (["close a", "reduce a", "close b", "reduce b"], "not-landed", "the first never lands"),
        (
            ["close a", "reduce a", "close b", "reduce b", "wait 2", "free a"],
            "two-on-their-way",
            "both are in memory at once",
        ),
        (
            ["close a", "reduce a", "close b", "wait 2", "free a", "reduce b"],
            "closed-before-landing",
            "the bucket before lands first, and only then is this one closed",
        ),
    ]
    expected = ["close a", "reduce a", "wait 2", "free a", "close b", "reduce b"]
    compare_values(expected, opt.journal, "what happened", known)
    require(a.owned_grad is not None, "The first bucket's average is lost.", "not-landed")
    opt, flying, (a, _) = fakes()
    flying.start(a)
    flying.start(a)
    known = [(["close a", "reduce a"] * 2, "not-landed", "the first time never lands")]
    expected = ["close a", "reduce a", "wait 2", "free a", "close a", "reduce a"]
    compare_values(expected, opt.journal, "the same bucket twice: what happened", known)
    flying.start(a)
    flying.land()
    lost = same_as(torch.full((2,), 16.0), "not-landed", "the first time's average is lost")
    compare_tensors(torch.full((2,), 18.0), a.owned_grad, "2, 6, 10: owned_grad", known=[lost])


# --- Flight.land ---------------------------------------------------------------------------------


@exercise("zero.flight.Flight.land")
def test_landed():
    """The average becomes owned_grad, the gradients are freed, nothing is on its way"""
    opt, flying, (a, _) = fakes()
    flying.bucket, flying.work = a, FakeWork(opt.journal, 3)
    flying.land()
    if a.owned_grad is None:
        fail("bucket.owned_grad is None: the average is lost.", "average-lost")
    compare_tensors(torch.tensor([3.0, 3.0]), a.owned_grad, "bucket.owned_grad")
    known = [
        (["wait 3"], "not-freed", "the whole gradients stay in memory"),
        (["free a", "wait 3"], "freed-too-early", "freed while the reduction still reads them"),
    ]
    compare_values(["wait 3", "free a"], opt.journal, "what happened", known)
    require(flying.bucket is None, "flight.bucket is still set.", "not-forgotten")
    require(flying.work is None, "flight.work is still set.", "not-forgotten")


@exercise("zero.flight.Flight.land")
def test_nothing_to_land():
    """With nothing on its way it does nothing, also the second time"""
    opt, flying, (a, _) = fakes()
    flying.land()
    compare_values([], opt.journal, "what happened")
    flying.bucket, flying.work = a, FakeWork(opt.journal, 3)
    flying.land()
    flying.land()
    compare_values(["wait 3", "free a"], opt.journal, "landing twice")


@exercise("zero.flight.Flight.land")
def test_micro_batches_add_up():
    """The second micro-batch is added to the first"""
    opt, flying, (a, _) = fakes()
    for value in (3, 4):
        flying.bucket, flying.work = a, FakeWork(opt.journal, value)
        flying.land()
    got = a.owned_grad[0].item()
    if got == 4.0:
        fail("3, then 4: owned_grad is 4; the first micro-batch is lost", "first-lost")
    if got == 3.0:
        fail("3, then 4: owned_grad is 3; the second micro-batch is lost", "second-lost")
    if got == 3.5:
        fail("3, then 4: owned_grad is their mean; gradients of micro-batches add up", "averaged")
    compare_tensors(torch.tensor([7.0, 7.0]), a.owned_grad, "bucket.owned_grad after 3, then 4")
    freed = ["wait 3", "free a", "wait 4", "free a"]
    known = [
        (["wait 3", "free a", "wait 4"], "not-freed", "the second time nothing is freed"),
        (["wait 3", "wait 4", "free a"], "not-freed", "the first time nothing is freed"),
    ]
    compare_values(freed, opt.journal, "two micro-batches: what happened", known)
    flying.bucket, flying.work = a, FakeWork(opt.journal, 5)
    flying.land()
    lost = same_as(torch.tensor([8.0, 8.0]), "middle-lost", "the second micro-batch is lost")
    what = "bucket.owned_grad after 3, 4 and 5"
    compare_tensors(torch.tensor([12.0, 12.0]), a.owned_grad, what, known=[lost])


# --- send_full_buckets ---------------------------------------------------------------------------


class FakeFlight(StandIn):
    """Notes which buckets are sent."""

    def __init__(self):
        self.sent = []

    def start(self, bucket):
        self.sent.append(bucket.name)


class FakeZero2(StandIn):
    """What `send_full_buckets` may use of its optimizer; some of its buckets are full."""

    def send_full_buckets(self):
        stage2.Zero2.send_full_buckets(self)

    def __init__(self, full: str, next_one: int = 0):
        self.buckets = [FakeBucket(name, []) for name in "abcd"]
        self.flight, self.next = FakeFlight(), next_one
        for bucket in self.buckets:
            bucket.missing = set() if bucket.name in full else {"a parameter"}


def sent(full: str, next_one: int = 0) -> tuple[str, int]:
    opt = FakeZero2(full, next_one)
    opt.send_full_buckets()
    return "".join(opt.flight.sent), opt.next


@exercise("zero.stage2.Zero2.send_full_buckets")
def test_turns():
    """Full buckets leave in order; one that is not full holds back those behind it"""
    known = [
        (("bd", 2), "out-of-turn", "b and d left before a"),
        (("bd", 0), "out-of-turn", "b and d left before a"),
        (("bd", 4), "out-of-turn", "b and d left before a"),
        (("b", 1), "out-of-turn", "b left before a"),
        (("abcd", 4), "not-full", "buckets left that are not full"),
    ]
    compare_values(("", 0), sent("bd"), "b and d are full: (sent, next)", known)
    known = [
        (("a", 1), "one-only", "b is full too, and it is its turn now"),
        (("ab", 0), "next-stays", "`next` was not moved on"),
        (("abd", 3), "out-of-turn", "d left before c"),
        (("abd", 4), "out-of-turn", "d left before c"),
        (("ab", 4), "next-too-far", "`next` passes c, which has not left"),
    ]
    compare_values(("ab", 2), sent("abd"), "a, b and d are full: (sent, next)", known)


@exercise("zero.stage2.Zero2.send_full_buckets")
def test_goes_on():
    """It goes on from `next`, and stops at the end"""
    known = [
        (("abcd", 4), "sent-twice", "a and b have left before"),
        (("cd", 0), "next-reset", "`next` goes back to 0 only when backward is over, not here"),
    ]
    compare_values(("cd", 4), sent("abcd", 2), "all are full, next is 2: (sent, next)", known)
    compare_values(("", 4), sent("abcd", 4), "all have left: (sent, next)")


# --- all together, on ranks ----------------------------------------------------------------------


def trained(rank, world_size):
    """The two optimizers, on buckets of one parameter and of the whole model; two micro-batches."""
    results = {}
    for name in training.OPTIMIZERS:
        for capacity in (1, 10**6):
            run = training.train(rank, 2, name, bucket_bytes=capacity)
            results[name, capacity] = run.weights, run.live["gradients"]
    model = training.small_model(rank)
    import zero

    opt = zero.shard(model, 2, torch.optim.SGD, lr=0.05, momentum=0.9)
    for _ in range(2):
        x, y = training.batch(0, rank)
        (nn.functional.mse_loss(model(x), y) / 2).backward()
    opt.step()
    return results, training.weights(model)


def on_real_ranks():
    """Weights equal to one process's, after training with ZeRO-2 on 3 ranks"""
    by_rank = on_ranks(trained, 3)
    for name in training.OPTIMIZERS:
        expected = training.oracle(name, 3)
        for rank, (results, _) in enumerate(by_rank):
            for capacity in (1, 10**6):
                got, gradients = results[name, capacity]
                where = f"on rank {rank}, {name}, buckets of {capacity} bytes"
                for parameter, tensor in expected.items():
                    compare_tensors(tensor, got[parameter], f"{parameter} {where}", atol=2e-6)
                most = sum(-(-p.numel() // 3) for p in training.small_model().parameters()) * 4
                require(
                    gradients <= most,
                    f"{gradients} bytes of gradients {where}; a shard has at most {most}.",
                    "gradients-kept",
                )
    once = training.oracle("sgd", 3, steps=1)
    for _, accumulated in by_rank:
        for parameter, tensor in once.items():
            what = f"{parameter} after two micro-batches of the same rows"
            compare_tensors(tensor, accumulated[parameter], what, atol=2e-6)


@exercise("zero.flight.Flight.start")
def test_start_on_ranks():
    """ZeRO-2 on 3 ranks: the weights of one process, and only a shard of gradients kept"""
    on_real_ranks()


@exercise("zero.flight.Flight.land")
def test_land_on_ranks():
    """ZeRO-2 on 3 ranks: the weights of one process, and only a shard of gradients kept"""
    on_real_ranks()


@exercise("zero.stage2.Zero2.send_full_buckets")
def test_sending_on_ranks():
    """ZeRO-2 on 3 ranks: the weights of one process, and only a shard of gradients kept"""
    on_real_ranks()
