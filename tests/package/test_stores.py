"""Where checkpoints wait: in a file, on the host, in a reserve; and how they come back in time."""

import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

import zero
from zero import models
from zero.activations import checkpoint, checkpoint_blocks
from zero.reserve import Reserve
from zero.stores import FileStore

X = torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(3))
CHECKPOINT = 3 * 8 * 16 * 4  # bytes: batch, time, width, fp32


def deep(layers=4, **options):
    torch.manual_seed(0)
    model = models.GPT(11, 8, layers, heads=2, width=16, dropout=0.1)
    return checkpoint_blocks(model, **options)


# --- room ----------------------------------------------------------------------------------------


def test_nothing_stays_in_a_store():
    """After backward, and also if the graph is dropped without one."""
    store = FileStore()
    reserve = Reserve(8 * CHECKPOINT)
    for options, arena in [
        ({"offload": store}, store.arena),
        ({"reserve": reserve}, reserve.arena),
    ]:
        model = deep(**options)
        for _ in range(3):
            loss = model(X, X)
            assert arena.in_use == 4 * CHECKPOINT
            loss.backward()
            assert arena.in_use == 0  # although the graph is still there
        loss = model(X, X)
        del loss
        assert arena.in_use == 0
        assert arena.top == 4 * CHECKPOINT, "every step must use the same places again"


def test_a_part_in_a_store_does_not_keep_the_input():
    x = torch.randn(7, 5, requires_grad=True) * 1
    alive = weakref.ref(x.untyped_storage())
    loss = checkpoint(torch.tanh, x, offload="disk").sum()
    del x
    assert alive() is None
    loss.backward()


GROWTH = """
import torch
from torch import nn
from zero.activations import checkpoint
from zero.meter import rss

torch.set_num_threads(1)
layer, x = nn.Linear(64, 64), torch.randn(1 << 15, 64)  # 8 MB
checkpoint(layer, x, offload="disk").sum().backward()
for offload in ("disk", None):
    h, (before, _) = x, rss()
    for _ in range(10):
        h = checkpoint(layer, h, offload=offload)
    print(rss()[0] - before)
    h.sum().backward()
"""


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_file_takes_checkpoints_out_of_the_process():
    """Resident memory as the system counts it: ten checkpoints of 8 MB, or nearly nothing."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(zero.__file__).parents[1]),
        "MALLOC_MMAP_THRESHOLD_": "1000000",  # freed memory goes back to the system at once
    }
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    in_a_file, in_memory = (int(line) / (1 << 23) for line in done.stdout.split())
    assert in_memory > 9
    assert in_a_file < 3


# --- fetching ahead ------------------------------------------------------------------------------


class Diary:
    """A store that writes down what is asked of it."""

    def __init__(self):
        self.lines, self.count = [], 0

    def put(self, part):
        self.count += 1
        return Page(self, self.count, part.clone())


class Page:
    def __init__(self, diary, number, part):
        self.diary, self.number, self.part = diary, number, part

    def note(self, verb):
        if f"{verb} {self.number}" not in self.diary.lines:
            self.diary.lines.append(f"{verb} {self.number}")

    def fetch(self):
        self.note("fetch")

    def wait(self):
        self.note("wait")
        return self.part

    def free(self):
        self.note("free")


def test_a_checkpoint_is_fetched_one_block_before_it_is_needed():
    diary = Diary()
    model = deep(layers=3, offload=diary)
    model(X, X).backward()
    assert diary.lines == [
        *("fetch 3", "fetch 2", "wait 3", "free 3"),
        *("fetch 1", "wait 2", "free 2"),
        *("wait 1", "free 1"),
    ]


def test_a_file_is_read_by_a_thread_while_others_compute():
    """`fetch` returns at once; a write in the meantime disturbs nothing."""
    store = FileStore()
    parts = [torch.randn(1000 + i) for i in range(8)]
    held = [store.put(p) for p in parts]
    for h in held:
        h.fetch()
    more = store.put(torch.zeros(5000))
    assert all(torch.equal(h.wait(), p) for h, p in zip(held, parts))
    held[0].fetch()
    for h in [*held, more]:
        h.free()
    assert store.arena.in_use == 0
    again = store.put(parts[3])
    assert torch.equal(again.wait(), parts[3])
