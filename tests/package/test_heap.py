"""Memory that is freed and allocated again in every step, as buckets and gathered weights are."""

import ctypes
import resource
import sys

import pytest
import torch

import zero

PAGE = resource.getpagesize()
BLOCKS, BLOCK = 12, 16 << 20  # bytes; together so much that glibc by itself would give it back
WARM, STEPS = 8, 5


def page_faults(rank, world_size, give_back):
    """How many page faults a step costs that fills and frees the blocks, in a process that trains
    with its states in memory or on disk."""
    place = "disk" if give_back else None
    zero.shard(torch.nn.Linear(2, 2), 1, lr=0.1, offload_optimizer=place)
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p

    def step():
        blocks = [ctypes.c_void_p(libc.malloc(BLOCK)) for _ in range(BLOCKS)]
        for block in blocks:
            ctypes.memset(block, 1, BLOCK)
        for block in reversed(blocks):
            libc.free(block)

    for _ in range(WARM):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(STEPS):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / STEPS


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_sharding_keeps_the_memory_that_the_next_step_needs():
    """Next to none of the blocks' pages come anew; left to itself, glibc gives all of them back."""
    assert zero.launch(page_faults, 1, False, quiet=True)[0] < BLOCKS * BLOCK / PAGE / 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_with_states_on_disk_it_is_given_back():
    """Then every step has page faults: at least one for each block of 2 MB, the largest page."""
    assert zero.launch(page_faults, 1, True, quiet=True)[0] >= BLOCKS * BLOCK / (2 << 20)
