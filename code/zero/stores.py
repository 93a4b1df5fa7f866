"""Where a checkpoint waits for its backward pass when it is not to stay in device memory.

A store has one verb, `put(part)`, which copies a flat tensor away and returns a `Held`. Its verbs:

    fetch   start to bring it back, and return at once
    wait    the tensor, on the device that it came from
    free    its place is no longer needed

Between `fetch` and `wait` the program goes on: `activations` fetches one block ahead.
"""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Protocol

import torch

from .reserve import Arena


class Held(Protocol):
    """One tensor in a store. After `wait` the result belongs to the caller until `free`."""

    def fetch(self) -> None:
        """Start to bring the tensor back, unless it is on its way."""

    def wait(self) -> torch.Tensor:
        """The flat tensor, with the dtype and on the device that it had."""

    def free(self) -> None:
        """Forget it; also called when the object goes. A second call does nothing."""


class Store(Protocol):
    """A place for checkpoints."""

    def put(self, part: torch.Tensor) -> Held:
        """Copy the flat tensor `part` away; it may be changed or freed as soon as this returns."""


@cache
def named(name: str) -> Store:
    """The store called "cpu" or "disk", one of each in a process. ValueError for another name."""
    if name == "cpu":
        return HostStore()
    if name == "disk":
        return FileStore()
    raise ValueError(f'offload={name!r} is unknown; choose "cpu", "disk", or a store of your own')


# --- a file --------------------------------------------------------------------------------------


class FileStore:
    """Checkpoints in a temporary file in `folder` (by default where the system has such files).

    The file has no name, so that nothing is left behind whatever happens to the process; its space
    is used again step by step. It is read by a thread, hence while the rank computes. Reading and
    writing, not mapping: the pages of a mapped file count as memory of this process, so mapping
    would hide the very effect. Choose a folder on a fast disk; some systems keep temporary files
    in memory.
    """

    def __init__(self, folder: str | None = None):
        self.file = tempfile.TemporaryFile(prefix="zero-", dir=folder, buffering=0)  # noqa: SIM115
        self.arena = Arena()
        self.lock = threading.Lock()  # one position in the file, two threads
        self.reader = ThreadPoolExecutor(1, "zero-fetch")

    def put(self, part: torch.Tensor) -> InFile:
        """Write a flat tensor to the file. OSError if there is no room on the disk."""
        return InFile(self, part)

    def write(self, start: int, data: torch.Tensor) -> None:
        """Write bytes (uint8 [n], on the CPU) at address `start` of the file."""
        view = memoryview(data.numpy())
        with self.lock:
            self.file.seek(start)
            while view:
                view = view[self.file.write(view) :]

    def read(self, start: int, data: torch.Tensor) -> torch.Tensor:
        """Fill `data` (uint8 [n], on the CPU) with the bytes from address `start`; returns it."""
        view = memoryview(data.numpy())
        with self.lock:
            self.file.seek(start)
            while view:
                count = self.file.readinto(view)
                if not count:
                    raise OSError(f"the offload file ends {len(view)} bytes too early")
                view = view[count:]
        return data


class InFile:
    """A tensor in a `FileStore`."""

    start: int | None = None

    def __init__(self, store: FileStore, part: torch.Tensor):
        self.store, self.dtype, self.device = store, part.dtype, part.device
        self.nbytes = part.nbytes
        self.coming: Future | None = None
        self.start = store.arena.take(part.nbytes)
        store.write(self.start, part.detach().cpu().contiguous().view(torch.uint8))

    def fetch(self) -> None:
        """Let the reader thread begin, unless it has."""
        if self.coming is None and self.start is not None:
            # Allocated here and not by the reader: a thread's memory may come from another pool,
            # and would not go back when this thread frees it.
            data = torch.empty(self.nbytes, dtype=torch.uint8)
            self.coming = self.store.reader.submit(self.store.read, self.start, data)

    def wait(self) -> torch.Tensor:
        """Wait for the reader thread; the tensor."""
        self.fetch()
        coming, self.coming = self.coming, None
        return coming.result().view(self.dtype).to(self.device)

    def free(self) -> None:
        """Let others use its space in the file. (If it is being read, nobody wants the result.)"""
        if self.start is not None:
            self.store.arena.give_back(self.start)
        self.start = self.coming = None

    __del__ = free


# --- host memory ---------------------------------------------------------------------------------


class HostStore:
    """Checkpoints of a CUDA device in pinned host memory, copied by a stream of their own.

    Without a device, host memory is where the checkpoint already is, and this is a plain copy.
    """

    def __init__(self):
        self.streams: dict[torch.device, torch.cuda.Stream] = {}

    def put(self, part: torch.Tensor) -> OnHost | InMemory:
        """Start to copy a flat tensor to the host."""
        if not part.is_cuda:
            return InMemory(part.clone())
        if part.device not in self.streams:
            self.streams[part.device] = torch.cuda.Stream(part.device)
        return OnHost(part, self.streams[part.device])


class OnHost:
    """A CUDA tensor in pinned memory. Copies there and back run in `stream`, in order."""

    def __init__(self, part: torch.Tensor, stream: torch.cuda.Stream):
        self.device, self.stream = part.device, stream
        self.coming: torch.Tensor | None = None
        self.host: torch.Tensor | None = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
        steady = part.clone()  # the caller may change `part` before the copy has been made
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            self.host.copy_(steady, non_blocking=True)
        steady.record_stream(stream)  # its memory is in use until the stream comes past here

    def fetch(self) -> None:
        """Let the stream copy it back, unless it does."""
        if self.coming is None and self.host is not None:
            with torch.cuda.stream(self.stream):
                self.coming = self.host.to(self.device, non_blocking=True)
                self.arrived = self.stream.record_event()

    def wait(self) -> torch.Tensor:
        """The tensor; the current stream, not the CPU, waits for it."""
        self.fetch()
        current = torch.cuda.current_stream(self.device)
        current.wait_event(self.arrived)
        tensor, self.coming = self.coming, None
        tensor.record_stream(current)
        return tensor

    def free(self) -> None:
        """Give the memory back; the allocators see to copies that still run."""
        self.host = self.coming = None


class InMemory:
    """A tensor that stays where it is."""

    def __init__(self, part: torch.Tensor):
        self.part: torch.Tensor | None = part

    def fetch(self) -> None:
        """Nothing to do."""

    def wait(self) -> torch.Tensor:
        """The tensor itself."""
        return self.part

    def free(self) -> None:
        """Drop it."""
        self.part = None
