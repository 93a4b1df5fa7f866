"""Checkpoints: every rank writes its own shard, and nothing is lost, whatever dies when.

    zero.checkpoint.save("runs/a", model, opt, step=100)        on all ranks
    at = zero.checkpoint.load("runs/a", model, opt)             on any number of ranks, any stage
    zero.checkpoint.export("runs/a", "weights.safetensors")     one plain file for one process

Nothing is gathered: a rank streams its slices of the weights and of the optimizer's states into one
safetensors file. A manifest says which elements of which parameter lie where (`manifest.py`); it is
what makes loading independent of the number of ranks (`reshard.py`). The files become a checkpoint
by one rename, after all of them are on the disk (`commit.py`). Loading verifies every byte first
(`schema.py`), and only then touches the model (`restore.py`). No pickle is ever written or read.

Kept: weights (fp32 masters where there are any), optimizer states and hyperparameters, loss scale,
counters, a scheduler, persistent buffers as rank 0 has them, each rank's random states (torch's),
and `extra`. Not kept: gradients.
"""

from __future__ import annotations

import functools
import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from . import comm, restore, saving, schedule, states
from .agree import called_by_all, together
from .disk import BrokenCheckpoint, CheckpointError
from .export import export
from .find import Found, alone, candidates, find, manifest_of
from .manifest import check_json
from .optimizer import ZeroOptimizer
from .saving import Saving, wait

__all__ = [
    "BrokenCheckpoint",
    "CheckpointError",
    "Restored",
    "Saving",
    "export",
    "find_all",
    "inspect",
    "load",
    "save",
    "verify",
    "wait",
]

LOAD = "zero.checkpoint.load"


@dataclass(frozen=True)
class Restored:
    """What `load` has loaded: the step, the `extra` that was saved with it, its folder (None after
    a fresh start), and how many ranks had saved it."""

    step: int
    extra: object = None
    folder: Path | None = None
    world_size: int | None = None


def save(
    root: str | Path,
    model: nn.Module | None,
    opt: ZeroOptimizer,
    step: int,
    extra: object = None,
    keep_last: int = 3,
    *,
    scheduler: object = None,
    async_save: bool = False,
) -> Path | None:
    """Write a checkpoint of `step` into the folder `root`; the path of the checkpoint. Collective.

    All ranks must see the same file system, and only one training run may save to one `root`. With
    tensor parallelism all ranks of the grid save together, into one checkpoint.
    `extra`: anything that JSON can hold, such as the position in the data; rank 0's is kept.
    `scheduler`: a learning rate scheduler, whose state must be JSON too. Of the checkpoints in
    `root` the last `keep_last` are kept; older ones are removed once the new one is complete, and
    later steps (of a run that was resumed from before them) are left alone.

    It needs some MB of memory, however large the model. With `async_save` the rank's shard is
    copied to the CPU's memory, a thread writes it, and None is returned at once. The next `save`,
    `load` or `wait()` waits for that thread, and raises what went wrong. Call `wait()` before the
    program ends: what is not complete then is lost.

    Raises CheckpointError on every rank if anything fails on one, and the checkpoints in `root`
    stay as they were: a full disk, an `extra` that is not JSON, gradients between a backward pass
    and `step`, which would be lost, ranks that disagree or did not call it.
    """
    root, group = Path(root).absolute(), _all_ranks(opt)
    called_by_all(saving.WHAT, {"root": str(root), "step": repr(step)}, group)
    wait()
    prepared: list = []

    def prepare() -> None:
        _check_arguments(model, opt, step, keep_last)
        opt.adopt_edits()
        # Through JSON and back: a copy, which training on during a background save cannot change.
        head = json.loads(json.dumps(_head(opt, step, extra, scheduler)))
        prepared.extend((head, states.pieces(opt), _others(opt), _of_my_part(opt, head)))
        for piece in prepared[1]:
            check_json(f"the optimizer's state of {piece.name}", piece.numbers)

    together(f"{saving.WHAT}, states", prepare, group)
    new = Saving(root, *prepared, keep_last, group, opt.offload.release)
    if async_save:
        saving.start_in_background(new)
        return None
    return new.finish()


def load(
    root: str | Path,
    model: nn.Module | None,
    opt: ZeroOptimizer,
    step: int | str = "latest",
    *,
    scheduler: object = None,
    allow_fresh: bool = False,
) -> Restored:
    """Continue from a checkpoint: the latest in `root`, that of `step`, or the folder itself.

    Collective. Every byte is verified before a weight changes. Each rank then reads what it needs,
    for any number of ranks (but of tensor-parallel ones), stage and precision. If the newest
    checkpoint is broken, the newest complete one is loaded, with a warning that names both.
    Gradients are forgotten.

    On as many ranks as saved it everything continues bitwise, random numbers included; on another
    number each rank starts from a fresh seed (`states.fresh_seed`), with a warning.

    Raises CheckpointError on every rank, with the model as it was, if there is no complete
    checkpoint, or it does not fit: other names, shapes, optimizer or groups. `allow_fresh` permits
    a `root` without any checkpoint: then nothing is done and the step is 0.
    """
    root, group = Path(root).absolute(), _all_ranks(opt)
    called_by_all(LOAD, {"root": str(root), "step": repr(step)}, group)
    wait()
    each = functools.partial(together, group=group)
    found = find(root, step, each, LOAD, comm.rank(group), comm.world_size(group))
    if found is None:
        if allow_fresh:
            return Restored(0)
        which = "" if step == "latest" else f" of step {step}"
        raise CheckpointError(
            f"{root} holds no checkpoint{which}; check the path, or pass allow_fresh=True to start "
            f"from nothing"
        )
    together(LOAD, lambda: _check_target(found.manifest, model, opt, scheduler), group)
    opt.zero_grad()
    together(LOAD, lambda: _restore(found, opt, scheduler), group)
    opt.publish()
    _continue_random(found, opt)
    return Restored(
        found.manifest["step"], found.manifest["extra"], found.folder, found.manifest["world_size"]
    )


def inspect(folder: str | Path) -> dict:
    """The manifest of a checkpoint, or of the latest in a folder, with its "folder" added.

    For one process; files are not read, so use `verify` to know whether they are whole. Raises
    CheckpointError if the manifest is not.
    """
    newest = find_all(folder)[0]
    return {**manifest_of(newest), "folder": str(newest)}


def find_all(folder: str | Path) -> list[Path]:
    """The checkpoint that `folder` is, or all in it, complete or not: what the pointer names comes
    first, then the newest. CheckpointError if there is none."""
    root = Path(folder).absolute()
    names, _ = candidates(root, "latest")
    if not names:
        raise CheckpointError(f"{root} holds no checkpoint")
    return [root / name for name in names]


def verify(folder: str | Path) -> dict:
    """As `inspect`, after every byte of the checkpoint has been verified. For one process."""
    root = Path(folder).absolute()
    found = find(root, "latest", alone, "verify")
    if found is None:
        raise CheckpointError(f"{root} holds no checkpoint")
    return {**found.manifest, "folder": str(found.folder)}


def _all_ranks(opt: ZeroOptimizer) -> comm.Group:
    """The ranks that save and load together: with tensor parallelism all, else those of ZeRO."""
    return opt.group if opt.tp_group is None else None


# --- parts of save -------------------------------------------------------------------------------


def _check_arguments(model, opt: ZeroOptimizer, step: int, keep_last: int) -> None:
    if type(step) is not int or step < 0:
        raise CheckpointError(f"step is {step!r}; it must be a whole number, at least 0")
    if type(keep_last) is not int or keep_last < 1:
        raise CheckpointError(f"keep_last is {keep_last!r}; it must be a whole number, at least 1")
    _check_model(model, opt)
    if opt.unapplied:
        raise CheckpointError(
            "there are gradients that no step has used, and a checkpoint does not keep gradients; "
            "save after opt.step(), or after opt.zero_grad()"
        )


def _check_model(model, opt: ZeroOptimizer) -> None:
    if opt.model is not None and model is not opt.model:
        raise CheckpointError("this is not the model that was given to zero.shard")


def _head(opt: ZeroOptimizer, step: int, extra: object, scheduler: object) -> dict:
    """What all ranks know: the manifest without its slices and files."""
    check_json("extra", extra)
    return {
        "step": step,
        "stage": opt.stage,
        "precision": opt.precision.name,
        "world_size": comm.world_size(_all_ranks(opt)),
        **restore.settings(opt),
        "scheduler": schedule.to_json(scheduler),
        "extra": extra,
        "buffers": {
            name: {"shape": list(t.shape), "dtype": states.dtype_name(t.dtype)}
            for name, t in states.buffers(opt.model).items()
        },
        "parameters": states.parameter_table(opt),
    }


def _others(opt: ZeroOptimizer) -> dict[str, torch.Tensor]:
    """What this rank writes besides its slices."""
    mine = states.random_states()
    if comm.rank(_all_ranks(opt)) == 0:
        mine |= {f"buffer/{name}": t for name, t in states.buffers(opt.model).items()}
    return mine


def _of_my_part(opt: ZeroOptimizer, head: dict) -> dict:
    """What one rank of every part of a tensor-parallel model but the first adds to the manifest."""
    if opt.rank > 0 or states.part_of(opt)[0] == 0:
        return {}
    params = [group["params"] for group in head["optimizer"]["groups"]]
    return {"parameters": head["parameters"], "params": params}


# --- parts of load -------------------------------------------------------------------------------


def _check_target(manifest: dict, model, opt: ZeroOptimizer, scheduler: object) -> None:
    _check_model(model, opt)
    restore.check_fits(manifest, opt)
    if scheduler is not None and manifest["scheduler"] is None:
        raise CheckpointError("the checkpoint holds no scheduler; it was saved without scheduler=")
    if getattr(opt, "pinned", False):
        raise CheckpointError("load must not be called inside `with opt.full_params()`")


def _restore(found: Found, opt: ZeroOptimizer, scheduler: object) -> None:
    if scheduler is not None:
        schedule.from_json(scheduler, found.manifest["scheduler"])
    elif found.manifest["scheduler"] is not None and opt.rank == 0:
        warnings.warn("the checkpoint's scheduler is not restored: pass scheduler=", stacklevel=5)
    restore.fill(found.manifest, found.folder, opt)


def _continue_random(found: Found, opt: ZeroOptimizer) -> None:
    """Random numbers go on on as many ranks, and start afresh on another number."""
    group, saved = _all_ranks(opt), found.manifest["world_size"]
    if saved == comm.world_size(group):
        rank = comm.rank(group)
        read = functools.partial(restore.random_states, found.manifest, found.folder, rank)
        together(LOAD, lambda: states.restore_random(read()), group)
        return
    torch.manual_seed(states.fresh_seed(found.manifest["step"], opt.world_size, opt.rank))
    if comm.rank(group) == 0:
        warnings.warn(
            f"saved by {saved} ranks, loaded on {comm.world_size(group)}: random numbers (dropout) "
            f"go on from fresh seeds, so the run is not repeated bit for bit",
            stacklevel=3,
        )
