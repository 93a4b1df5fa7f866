"""Model states outside of the device's memory (ZeRO-Offload 2021, ZeRO-Infinity 2021).

After sharding, a rank touches its optimizer states once a step, for the update, and at ZeRO-3 its
shard of a unit twice, to gather it. Between these moments they may live elsewhere:

    "cpu"    in host memory, while parameters and gradients are on a CUDA device. The averaged
             gradients are copied there, the update is made by the CPU, the new weights return.
             Without a CUDA device everything is in host memory already, and nothing changes.
    "disk"   in memory-mapped files. The operating system reads and writes their pages; after each
             use the pages are given back, so they do not count as memory of the process.

The arithmetic is the same and in the same order, so results are the same bits as without offload.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref

import torch
from torch import nn

from . import heap

PLACES = (None, "cpu", "disk")


class MappedTensors:
    """Flat tensors in unnamed temporary files, which disappear with the process.

    folder: where the files are made; None is the system's folder for temporary files (on some
    systems that is in memory: choose a folder on a disk).
    """

    def __init__(self, folder: str | None = None):
        self.folder = folder
        # By the address of the storage that views it, as long as there is one.
        self.maps: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of the flat tensor in a file of its own, to be used like any CPU tensor.

        Raises OSError when the disk is full.
        """
        if not tensor.numel():
            return tensor
        with tempfile.TemporaryFile(prefix="zero-", dir=self.folder) as file:
            file.truncate(tensor.nbytes)
            mapped = mmap.mmap(file.fileno(), tensor.nbytes)
        copy = torch.frombuffer(mapped, dtype=tensor.dtype).copy_(tensor)
        self.maps[_address(copy)] = mapped
        self.forget(copy)
        return copy

    def holds(self, tensor: torch.Tensor) -> bool:
        """Is this one of the tensors that `place` has made, or a view of one?"""
        return _address(tensor) in self.maps

    def forget(self, tensor: torch.Tensor) -> None:
        """Give the tensor's pages back to the system; the next use reads them from the file."""
        mapped = self.maps.get(_address(tensor))
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)


class Offload:
    """Where the optimizer states and the parameters at rest live; None is beside the model.

    optimizer: masters and moments. params: the shards of ZeRO-3. pin_memory: page-locked host
    memory for "cpu", which copies faster. "disk" changes how the whole process frees memory (see
    `heap.return_large_blocks`). Raises ValueError for another place.
    """

    def __init__(
        self,
        optimizer: str | None = None,
        params: str | None = None,
        folder: str | None = None,
        pin_memory: bool = False,
    ):
        for name, place in (("offload_optimizer", optimizer), ("offload_params", params)):
            if place not in PLACES:
                raise ValueError(f'{name}={place!r} is unknown; choose "cpu", "disk" or None')
        self.optimizer, self.params, self.pin_memory = optimizer, params, pin_memory
        self.files = MappedTensors(folder)
        if "disk" in (optimizer, params):
            heap.return_large_blocks()

    def needs_master(self, flat: torch.Tensor) -> bool:
        """Must the optimizer have a copy of its own, because it works on another device?"""
        return self.optimizer is not None and flat.is_cuda

    def place_master(self, master: torch.Tensor) -> torch.Tensor:
        """The master copy [owned], where the optimizer states live."""
        return self._place(master, self.optimizer)

    def place_shard(self, shard: torch.Tensor) -> torch.Tensor:
        """The shard of parameters at rest [owned], where these live."""
        return self._place(shard, self.params)

    def place_state(self, state: torch.Tensor) -> torch.Tensor:
        """A new optimizer state like its parameter [owned], where the states live."""
        return self.files.place(state) if self.optimizer == "disk" else state

    def release(self, *tensors: torch.Tensor) -> None:
        """The tensors are not needed for a while; those on disk leave memory."""
        for tensor in tensors:
            self.files.forget(tensor)

    def update(self, inner: torch.optim.Optimizer, slices: list[nn.Parameter]) -> None:
        """`inner.step()`, slice by slice where states are on disk: one slice's are in memory."""
        if self.optimizer != "disk":
            inner.step()
            return
        grads = [p.grad for p in slices]
        for p in slices:
            p.grad = None
        for p, grad in zip(slices, grads, strict=True):
            if grad is not None:
                p.grad = grad
                inner.step()
                p.grad = None
                self._move_states(inner, p)
        for p, grad in zip(slices, grads, strict=True):
            p.grad = grad

    def _move_states(self, inner: torch.optim.Optimizer, p: nn.Parameter) -> None:
        state = inner.state[p]
        for key, value in state.items():
            if torch.is_tensor(value) and value.shape == p.shape:
                if not self.files.holds(value):
                    state[key] = self.place_state(value)
                self.files.forget(state[key])
        self.files.forget(p)

    def _place(self, tensor: torch.Tensor, place: str | None) -> torch.Tensor:
        if place == "disk":
            return self.files.place(tensor.cpu())
        if place == "cpu" and tensor.is_cuda:
            host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self.pin_memory)
            return host.copy_(tensor)
        return tensor


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
