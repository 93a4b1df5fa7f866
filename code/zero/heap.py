"""What the C library does with memory that has been freed: keep it for later, or give it back.

Buckets and gathered parameters come and go in every step. A CUDA device's allocator keeps what is
freed, so that the next one costs nothing. glibc hands large free blocks back to the system, and
sometimes does so in every step: then each page of the next block is a page fault, in which the
kernel fills it with zeros. One rank that does so keeps all others waiting.

glibc only; with another C library these functions do nothing.
"""

from __future__ import annotations

import ctypes
import sys

MOST_KEPT = 32 << 20  # bytes: the largest block for which glibc lets itself be asked to keep it
LARGE_BLOCK = 1 << 20  # bytes
NEVER = -1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's numbers for them

_returns = False  # has `return_large_blocks` been called in this process?


def keep_freed_blocks() -> None:
    """From now on, freed blocks of up to 32 MB stay with the process.

    Does nothing after `return_large_blocks`.
    """
    if not _returns:
        _glibc("mallopt", M_MMAP_THRESHOLD, MOST_KEPT)
        _glibc("mallopt", M_TRIM_THRESHOLD, NEVER)


def return_large_blocks() -> None:
    """From now on, a block of 1 MB or more that is freed goes back to the system at once.

    For states on disk: the moments that the first step makes, on their way to a file, are such
    blocks, and would stay memory of the process: half a gigabyte with 126 million parameters on
    two ranks.
    """
    global _returns
    _returns = True
    _glibc("mallopt", M_MMAP_THRESHOLD, LARGE_BLOCK)
    _glibc("mallopt", M_TRIM_THRESHOLD, LARGE_BLOCK)


def trim() -> None:
    """Give back to the system what was freed before `return_large_blocks`."""
    _glibc("malloc_trim", 0)


def _glibc(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
