"""From a checkpoint into a model and its optimizer, whatever ranks, stage or precision wrote it.

`check_fits` compares before anything moves. `fill` then reads, on each rank, the bytes of what that
rank holds: slices of masters and moments from whichever files they lie in (`reshard.copies`).
"""

from __future__ import annotations

from pathlib import Path

import torch

from . import disk, schema, shards
from .disk import CheckpointError
from .manifest import check_json, file_of
from .optimizer import ZeroOptimizer
from .reshard import copies
from .states import Held, buffers, held, keys, number, parameter_table, part_of

# Hyperparameters that say how a step is computed on this machine, not what is computed.
MACHINERY = {"foreach", "fused", "capturable", "differentiable"}

# By file, what to read: the tensor's name there, its first element that is wanted, and where to.
Reads = dict[str, list[tuple[str, int, torch.Tensor]]]


def settings(opt: ZeroOptimizer) -> dict:
    """The optimizer's class, groups, counters and loss scale, as the manifest has them."""
    groups, names = [], keys(opt)
    for i, group in enumerate(opt.param_groups):
        hyper = {k: v for k, v in group.items() if k != "params" and k not in MACHINERY}
        hyper = {k: v.item() if torch.is_tensor(v) else v for k, v in hyper.items()}
        check_json(f"param_groups[{i}]", hyper)
        groups.append({"params": [names[p] for p in group["params"]], **hyper})
    scale = opt.loss_scale
    return {
        "optimizer": {"class": _class_name(opt), "groups": groups},
        "steps": opt.steps,
        "skipped": opt.skips.count,
        "skips_in_a_row": opt.skips.in_a_row,
        "loss_scale": None if scale is None else vars(scale),
    }


def check_fits(manifest: dict, opt: ZeroOptimizer) -> None:
    """Raise CheckpointError, naming what differs, unless the checkpoint is of such a training run.

    Stage, precision, world size and the order of the parameters may differ; names, shapes, what is
    frozen, the optimizer and the division into groups may not.
    """
    part, parts = part_of(opt)
    (saved_parts,) = {entry.get("part", [0, 1])[1] for entry in manifest["parameters"].values()}
    _same("the number of tensor-parallel ranks", parts, saved_parts)
    mine, names = parameter_table(opt), keys(opt)
    saved = {
        name: entry
        for name, entry in manifest["parameters"].items()
        if entry.get("part", [0, 1])[0] == part
    }
    _same_names("parameter", mine.keys(), saved.keys())
    for name, entry in mine.items():
        for key in entry.keys() - (set() if entry["trainable"] else {"dtype"}):
            _same(f"{key} of {name}", entry[key], saved[name].get(key))
    own, stored = buffers(opt.model), manifest["buffers"]
    _same_names("buffer", own.keys(), stored.keys())
    for name, tensor in own.items():
        _same(f"shape of {name}", list(tensor.shape), stored[name]["shape"])
    _same("the optimizer", _class_name(opt), manifest["optimizer"]["class"])
    groups = manifest["optimizer"]["groups"]
    _same("the number of parameter groups", len(opt.param_groups), len(groups))
    for i, (group, other) in enumerate(zip(opt.param_groups, groups)):
        own = {names[p] for p in group["params"]}
        _same_names(f"parameter of group {i}", own, saved.keys() & other["params"])
        for key in opt.inner.defaults.keys() - MACHINERY:
            _same_kind(f"{key} of group {i}", group[key], other.get(key, "missing"))


def fill(manifest: dict, folder: Path, opt: ZeroOptimizer) -> None:
    """Put weights, states, buffers and settings of a verified checkpoint in place on this rank.

    Not collective: `opt.publish()` must follow, to bring the weights to the model on every rank.
    """
    mine = held(opt)
    reads: Reads = {}
    groups = {p: group for group in opt.inner.param_groups for p in group["params"]}
    for h in mine:
        slices = manifest["parameters"][h.name]["slices"]
        targets = {"value": h.value}
        if h.slice is not None:
            targets |= _make_states(h, slices[0], opt, groups[h.slice])
        _plan(h, slices, targets, reads)
    own = buffers(opt.model)
    values = {name: t.new_empty(t.numel()) for name, t in own.items()}
    reads.setdefault(file_of(0), []).extend((f"buffer/{n}", 0, v) for n, v in values.items())
    for file, wanted in reads.items():
        _read(manifest, folder, file, wanted, opt.offload.release)
    with torch.no_grad():
        for name, t in own.items():
            t.copy_(values[name].view(t.shape))
        whole = {name: p for p, name in keys(opt).items()}
        for h in mine:
            if h.shared and h.slice is None:  # its value may be a copy, if strides are unusual
                whole[h.name].data.copy_(h.value.view(whole[h.name].shape))
    _apply_settings(manifest, opt)


def random_states(manifest: dict, folder: Path, rank: int) -> dict[str, torch.Tensor]:
    """The states of the random number generators that `rank` had saved."""
    file = file_of(rank)
    found = schema.check_content(manifest, folder, file)
    keys = [key for key in found if key.startswith("random/")]
    states = {key: torch.empty(found[key].shape, dtype=torch.uint8) for key in keys}
    wanted = [(key, 0, state) for key, state in states.items()]
    _read(manifest, folder, file, wanted, release=lambda state: None)  # nothing of it is offloaded
    return states


def _make_states(h: Held, saved: dict, opt: ZeroOptimizer, group: dict) -> dict[str, torch.Tensor]:
    """Give what is held the optimizer states that it had: counters, and tensors to be filled."""
    device = h.value.device
    states = {}
    for kind, dtype in saved["tensors"].items():
        if kind != "value":
            empty = torch.empty(h.value.shape, dtype=getattr(torch, dtype), device=device)
            states[kind] = opt.offload.place_state(empty)
    # PyTorch keeps counters on the CPU, unless the update reads them on the device.
    if not (group.get("capturable") or group.get("fused")):
        device = torch.device("cpu")
    numbers = {key: number(value, device) for key, value in saved["numbers"].items()}
    opt.inner.state.pop(h.slice, None)
    if numbers or states:
        opt.inner.state[h.slice] = numbers | states
    return states


def _plan(h: Held, slices: list[dict], targets: dict[str, torch.Tensor], reads: Reads) -> None:
    """Add to `reads` whatever `targets`, by kind, need of the saved slices."""
    for c in copies(h.offset, h.value.numel(), [(s["offset"], s["length"]) for s in slices]):
        wanted = reads.setdefault(slices[c.source]["file"], [])
        for kind, out in targets.items():
            wanted.append((f"{kind}/{h.name}", c.start, out[c.target : c.target + c.length]))


def _read(manifest: dict, folder: Path, file: str, wanted: list, release: shards.Release) -> None:
    stored = schema.check_content(manifest, folder, file)
    with disk.reading(folder / file) as opened:
        for key, first, out in wanted:
            shards.read_into(opened, stored[key], first, out)
            release(out)


def _apply_settings(manifest: dict, opt: ZeroOptimizer) -> None:
    for mine, inner, saved in zip(
        opt.param_groups, opt.inner.param_groups, manifest["optimizer"]["groups"], strict=True
    ):
        for key, value in saved.items():
            if key == "params":
                continue
            if torch.is_tensor(mine.get(key)):
                mine[key].fill_(value)
            else:
                # JSON knows no tuples; PyTorch's pairs (betas) are.
                mine[key] = tuple(value) if isinstance(value, list) else value
            inner[key] = mine[key]
    opt.steps = manifest["steps"]
    opt.skips.count, opt.skips.in_a_row = manifest["skipped"], manifest["skips_in_a_row"]
    if opt.loss_scale is not None and manifest["loss_scale"] is not None:
        vars(opt.loss_scale).update(manifest["loss_scale"])


def _class_name(opt: ZeroOptimizer) -> str:
    kind = type(opt.inner)
    return f"{kind.__module__}.{kind.__qualname__}"


def _same(what: str, mine: object, saved: object) -> None:
    if mine != saved:
        raise CheckpointError(
            f"{what} is {saved} in the checkpoint and {mine} here; build the model and optimizer "
            f"as they were when it was saved"
        )


def _same_kind(what: str, mine: object, saved: object) -> None:
    """A number must be one there too, and a pair a pair."""
    if _kind(mine) != _kind(saved):
        raise CheckpointError(f"{what} is {saved!r:.60} in the checkpoint and {mine!r:.60} here")


def _kind(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_kind(part) for part in value]
    if torch.is_tensor(value) or isinstance(value, (int, float)):
        return float if not isinstance(value, bool) else bool
    return type(value)


def _same_names(what: str, mine, saved) -> None:
    for names, others, where in ((mine, saved, "here"), (saved, mine, "in the checkpoint")):
        if odd := [name for name in names if name not in others]:
            raise CheckpointError(
                f"{what} {', '.join(odd[:5])} is only {where}; build the model and optimizer as "
                f"they were when it was saved"
            )
