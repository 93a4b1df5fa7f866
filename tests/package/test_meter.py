"""The meter sees every byte of tensor memory, at the moment when it comes and goes."""

import gc
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import m0, rows
from zero import comm, meter
from zero.meter import KINDS, Meter

MB = 1_000_000


def block(nbytes: int = MB) -> torch.Tensor:
    return torch.zeros(nbytes // 4)


def step(model: nn.Module, opt: torch.optim.Optimizer) -> None:
    x, y = rows(0)
    nn.functional.mse_loss(model(x), y).backward()
    opt.step()


# --- storages ------------------------------------------------------------------------------------


def test_memory_comes_and_goes():
    with Meter() as m:
        assert m.current == 0
        a = block()
        assert m.current == MB
        b = a + 1
        assert m.current == 2 * MB
        del a
        assert m.current == MB
        del b
        assert m.current == 0
    assert m.peak == 2 * MB


def test_views_share_one_storage_and_keep_it():
    with Meter() as m:
        a = block()
        view = a[10:20].view(2, 5)
        same = a.detach()
        assert m.current == MB
        del a, same
        assert m.current == MB
        del view
        assert m.current == 0


def test_autograd_keeps_what_it_saved():
    w = torch.ones(MB // 4, requires_grad=True)
    with Meter() as m:
        loss = w.exp().sum()  # the exponential is saved, and no Python name holds it
        assert m.live()["activations"] == MB * 2 + 4  # w itself, its exponential, the loss
        loss.backward()
        assert m.current == MB * 2 + 4  # the gradient now, in place of the exponential


def test_garbage_collection_is_no_matter():
    """What reference counting frees is gone at once; a cycle goes when it is collected."""
    with Meter() as m:
        cycle = [block()]
        cycle.append(cycle)
        del cycle
        assert m.current == MB
        gc.collect()
        assert m.current == 0


def test_storage_resized_in_place():
    """ZeRO-3 frees a buffer so, and fills it again; no operation is dispatched for it."""
    a = block()
    with Meter() as m:
        m.watch(a)
        a.untyped_storage().resize_(0)
        assert m.current == 0
        other = block()
        a.untyped_storage().resize_(MB)
        assert m.current == 2 * MB
        del other
        a.untyped_storage().resize_(0)
    assert m.peak == 2 * MB
    assert "resize_" not in vars(torch.UntypedStorage)


def test_resize_before_any_operation_used_the_tensor():
    a = block(0)
    with Meter() as m:
        a.untyped_storage().resize_(MB)
        assert m.current == MB


def test_resize_by_operation_and_by_out_argument():
    a = torch.empty(0)
    with Meter() as m:
        a.resize_(MB // 4)
        assert m.current == MB
        torch.add(torch.ones(MB // 2), 1, out=a.resize_(0))
        assert m.current == 2 * MB


def test_touch_reads_sizes_that_changed_unseen():
    a = block()
    with Meter() as m:
        m.watch(a)
        torch._C.StorageBase.resize_(a.untyped_storage(), 8)  # past the meter
        assert m.current == MB
        m.touch()
        assert m.current == 8


def test_tensors_made_before_count_from_their_first_use():
    a, b = block(), block()
    with Meter() as m:
        a.add_(1)
        assert m.current == MB
        m.watch([b])
        assert m.current == 2 * MB


def test_shapes_on_the_meta_device_are_no_memory():
    with Meter() as m:
        a = torch.zeros(MB, device="meta") + 1
        assert a.shape == (MB,)
        assert m.current == 0


def test_meters_can_be_nested():
    with Meter() as outer:
        a = block()
        with Meter() as inner:
            b = block()
            b.untyped_storage().resize_(8)
            assert inner.current == 8
        assert outer.current == MB + 8
    del a, b


def test_freed_between_watching_and_entering():
    a = block()
    m = Meter()
    m.watch(a)
    del a
    with m:
        assert m.current == 0


# --- backward ------------------------------------------------------------------------------------


threads: set[int] = set()


class Where(torch.autograd.Function):
    """Allocates in backward, and notes the thread."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        threads.add(threading.get_ident())
        block(3 * MB)
        return g


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_backward_is_seen(reentrant):
    """A dispatch mode belongs to a thread; on the CPU backward runs in the caller's."""
    threads.clear()
    x = torch.ones(4, requires_grad=True)
    with Meter() as m:
        if reentrant is None:
            loss = Where.apply(x).sum()
        else:
            loss = checkpoint(Where.apply, x, use_reentrant=reentrant).sum()
        assert m.peak < MB
        loss.backward()
    assert threads == {threading.get_ident()}
    assert 3 * MB <= m.peak < 4 * MB


def test_a_gpu_that_nobody_uses_is_not_started(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: pytest.fail("started"))
    with Meter() as m:
        torch.ones(1)
    assert m.cuda_peak is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_backward_on_the_threads_of_cuda():
    threads.clear()
    x = torch.ones(4, requires_grad=True, device="cuda")  # now CUDA is in use
    with Meter() as m:
        Where.apply(x).sum().backward()
    assert threads != {threading.get_ident()}
    assert 3 * MB <= m.peak < 4 * MB
    assert m.cuda_peak > 0


# --- kinds ---------------------------------------------------------------------------------------


def test_kinds_of_plain_training():
    """One process, torch's AdamW: 174 parameters, as many gradients, two moments, four counters."""
    model = m0()
    opt = torch.optim.AdamW(model.parameters())
    with Meter(model, opt) as m:
        before = m.live()
        step(model, opt)
        after = m.live()
        opt.zero_grad()
        forgotten = m.live()
    zero = dict.fromkeys(KINDS, 0)
    assert before == {**zero, "parameters": 174 * 4}
    data = {"activations": after["activations"]}  # the batch, while a local variable holds it
    states = {"parameters": 174 * 4, "optimizer": 174 * 8, "counters": 4 * 4}
    assert after == {**zero, **states, "gradients": 174 * 4, **data}
    assert forgotten == {**zero, **states, **data}
    assert sum(after.values()) <= m.peak


def test_nothing_is_left_when_all_is_deleted():
    with Meter() as m:
        model = m0()
        opt = torch.optim.AdamW(model.parameters())
        m.watch(model, opt)
        step(model, opt)
        assert m.current == 174 * 16 + 4 * 4  # sixteen bytes a parameter, and step counters
        del model, opt
        gc.collect()
        assert m.current == 0


def test_hidden_memory_is_counted_without_a_label():
    """A full copy that no optimizer admits is in the total, whatever it is called."""
    model = m0()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with Meter(model, opt) as m:
        honest = m.live()
        hidden = [p.detach().double() for p in model.parameters()]
        assert m.live() == {**honest, "activations": 174 * 8}
    del hidden


def test_gradients_have_their_name_from_birth():
    """Also those that a hook takes away before anybody could look at `.grad`."""
    model = nn.Linear(100, 100)

    def take(p):
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(take)
    with Meter(model) as m:
        model(torch.ones(1, 100)).sum().backward()
        assert m.live()["gradients"] == 0
    assert m.peaks()["gradients"] >= 100 * 100 * 4
    assert not model.weight._backward_hooks  # the meter has taken its own hooks away


def test_the_meter_does_not_make_autograd_copy_gradients():
    model = nn.Linear(500, 500)
    peaks = []
    for watched in (None, model):
        with Meter(watched) as m:
            model(torch.ones(1, 500)).sum().backward()
        peaks.append(m.peak)
        model.zero_grad()
    assert peaks[0] == peaks[1]


def test_communication_is_what_comm_creates():
    with Meter() as m:
        exec("kept = torch.zeros(250)", vars(comm))
        mine = torch.zeros(100)
        assert m.live()["communication"] == 1000
        assert m.live()["activations"] == 400
    del comm.kept, mine


def test_tensor_subclasses_count_as_their_parts():
    from torch.testing._internal.two_tensor import TwoTensor

    with Meter() as m:
        both = TwoTensor(block(), block())
        result = both + 1
        assert m.current == 4 * MB
    del result


# --- peaks and the timeline ----------------------------------------------------------------------


def test_timeline_and_peaks():
    model = m0()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with Meter(model, opt) as m:
        m.mark("before")
        big = block()
        del big
        step(model, opt)
        m.mark("after")
    moments = m.timeline()
    names = [moment.name for moment in moments if moment.name]
    assert names == ["start", "before", "after", "end"]
    assert [a.seconds for a in moments] == sorted(a.seconds for a in moments)
    before, after = (next(a for a in moments if a.name == n) for n in ("before", "after"))
    assert before.live["gradients"] == 0
    assert after.live["gradients"] == 174 * 4
    assert max(a.total for a in moments) == m.peak == sum(m.at_peak().values())
    assert m.at_peak()["activations"] >= MB
    assert m.at_peak()["gradients"] == 0
    assert m.peaks()["gradients"] == 174 * 4


def test_resident_memory_of_the_process():
    now, peak = meter.rss()
    assert peak >= now > 10 * MB
