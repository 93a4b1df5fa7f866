"""What gloo's network thread does while ranks wait, and what the launcher makes of it."""

import sys
import time

import pytest
import torch
import torch.distributed as dist

from zero import comm
from zero.launch import RankError, launch

watch = sys.modules["zero._watch"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the CPU seconds of each thread")
def test_a_dropped_work_is_a_deadlock_and_named():
    """The thread spins on the message that nobody takes; that is not work."""

    def drops(rank, world_size):
        weights = torch.ones(6)
        if rank == 0:
            comm.all_gather(weights, async_op=True, name="weights")
        else:
            time.sleep(0.5)  # what comes before it is dropped does arrive
            comm.all_gather(weights, name="weights")
        comm.all_reduce(weights, name="loss")

    with pytest.raises(RankError) as caught:
        launch(drops, 2, timeout=20)
    assert caught.value.kind == "deadlock"
    hint = str(caught.value).splitlines()[1]
    assert hint.startswith("rank 0 received a message that nothing waits for any more")
    assert hint.endswith("its Work was dropped. Keep every Work and wait for it.")
    assert "waited in all_reduce(loss, 6 x float32)" in str(caught.value)


def test_sending_for_long_is_no_deadlock(monkeypatch):
    """Only the network is at work: some 500 megabytes in one line."""
    monkeypatch.setattr(watch, "PATIENCE", 0.5)
    monkeypatch.setattr(watch, "IDLE", 0.01)

    def send(rank, world_size):
        flat = torch.full((60_000_000,), float(rank))
        for _ in range(2):
            dist.recv(flat, 0) if rank else dist.send(flat, 1)
        return flat[-1].item()

    assert launch(send, 2) == [0.0, 0.0]
