"""Parameter groups, outside and inside.

The user's groups hold the model's parameters; the groups of the inner optimizer, which does the
arithmetic, hold this rank's slices of them. Both have the same hyperparameters: the outer ones are
copied inwards before each step, so schedulers and edits by hand work as with any optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import nn

from .bucket import Bucket, ParamSlice

ELEMENTWISE = {
    torch.optim.ASGD,
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.SGD,
}


def check_elementwise(optimizer: type[torch.optim.Optimizer]) -> None:
    """Raise ValueError if the optimizer is not known to update each element on its own.

    A class of your own says so with a class attribute `elementwise = True`. TypeError for anything
    but a class.
    """
    if not isinstance(optimizer, type):
        raise TypeError(
            f"optimizer={optimizer!r} must be a class, with its arguments beside it, as in "
            f"zero.shard(model, 2, torch.optim.AdamW, lr=1e-3)"
        )
    if optimizer in ELEMENTWISE or getattr(optimizer, "elementwise", False):
        return
    known = ", ".join(sorted(o.__name__ for o in ELEMENTWISE))
    raise ValueError(
        f"{optimizer.__name__} cannot be sharded: it is not known to be elementwise, that is, to "
        f"update every element from its own gradient and state alone. Use one of {known}, or set "
        f"`elementwise = True` on your own class if it is."
    )


def named_parameters(model: nn.Module | Iterable[nn.Parameter]) -> dict[nn.Parameter, str]:
    """The parameters with their names, each once, in registration order.

    Raises ValueError for none at all, for complex or integer
    trainable parameters, for parameters that another ZeroOptimizer manages already, and for
    embeddings that change their weight in forward; TypeError for what is no parameter.
    """
    if isinstance(model, nn.Module):
        pairs = [(p, name) for name, p in model.named_parameters()]
        for name, m in model.named_modules():
            if getattr(m, "max_norm", None) is not None and hasattr(m, "padding_idx"):
                raise ValueError(
                    f"{name} is an embedding with max_norm={m.max_norm}: it changes its weight in "
                    f"forward, on every rank in other rows. Scale what it returns instead"
                )
    else:
        pairs = [(p, str(i)) for i, p in enumerate(model)]
        for p, i in pairs:
            if not isinstance(p, torch.Tensor):
                raise TypeError(
                    f"number {i} of the parameters is {p!r:.40}; pass the model, or "
                    f"model.parameters()"
                )
    if not any(p.requires_grad for p, _ in pairs):
        raise ValueError("nothing to train: the model has no parameter that requires a gradient")
    for p, name in pairs:
        if p.requires_grad and not p.dtype.is_floating_point:
            raise ValueError(f"parameter {name} is {p.dtype}; only real floating point is sharded")
        if getattr(p, "_zero_owner", None) is not None:
            raise ValueError(
                f"parameter {name} is sharded already; build a new model to shard again"
            )
    return dict(pairs)


def by_dtype(
    names: dict[nn.Parameter, str],
) -> list[list[tuple[str, nn.Parameter]]]:
    """The trainable parameters, with their names, in lists that can share a flat buffer."""
    lists: dict[tuple, list[tuple[str, nn.Parameter]]] = {}
    for p, name in names.items():
        if p.requires_grad:
            lists.setdefault((p.dtype, p.device), []).append((name, p))
    return list(lists.values())


def check_unchanged(
    names: dict[nn.Parameter, str], trainable: set[nn.Parameter], buckets: list[Bucket]
) -> None:
    """Raise RuntimeError, with the name, for a parameter that was changed after sharding.

    It was frozen or unfrozen, or its data was exchanged, so that it views the bucket no longer.
    """
    for bucket in buckets:
        bucket.check_views()
    for p, name in names.items():
        if p.requires_grad != (p in trainable):
            raise RuntimeError(
                f"requires_grad of {name} was changed after sharding; freeze or unfreeze "
                f"parameters before zero.shard"
            )


def after_loading(opt) -> Callable[[nn.Module, object], None]:
    """The hook that follows `load_state_dict`: what was loaded goes into the masters.

    Raises RuntimeError, naming the parameter, if the model has new ones: `assign=True` makes them.
    """

    def check_and_load(module: nn.Module, _: object) -> None:
        if module is not opt.model:
            return  # a copy of the model has this hook too
        for name, p in module.named_parameters():
            if p not in opt.names:
                raise RuntimeError(
                    f"parameter {name} is a new one, which the optimizer does not know; load "
                    f"without assign=True, or shard again"
                )
        opt.load_masters()

    return check_and_load


def outer_groups(names: dict[nn.Parameter, str], params: list | None) -> list[dict]:
    """The user's groups as a list of dicts; one group with all trainable parameters by default.

    Raises ValueError for a parameter in two groups, an unknown one, or a trainable one in none.
    """
    trainable = [p for p in names if p.requires_grad]
    if params is None:
        return [{"params": trainable}]
    groups = list(params)
    if groups and not isinstance(groups[0], dict):
        groups = [{"params": groups}]
    groups = [{**g, "params": _as_list(g["params"])} for g in groups]
    seen: set[nn.Parameter] = set()
    for g in groups:
        for p in g["params"]:
            if p not in names:
                raise ValueError(
                    f"params holds a tensor of shape {tuple(p.shape)} that is no parameter of "
                    f"the model"
                )
            if p in seen:
                raise ValueError(f"parameter {names[p]} is in two groups")
            seen.add(p)
        g["params"] = [p for p in g["params"] if p.requires_grad]
    missing = [names[p] for p in trainable if p not in seen]
    if missing:
        raise ValueError(f"no group holds {', '.join(missing[:5])}: add them, or freeze them")
    return groups


def check_hyper(optimizer: type[torch.optim.Optimizer], groups: list[dict], hyper: dict) -> None:
    """Raise what the optimizer raises for these arguments, before the model is changed."""
    optimizer([{**g, "params": [nn.Parameter(torch.zeros(1))]} for g in groups], **hyper)


def inner_optimizer(
    optimizer: type[torch.optim.Optimizer],
    groups: list[dict],
    slices: list[ParamSlice],
    hyper: dict,
) -> torch.optim.Optimizer:
    """The optimizer that does the arithmetic on this rank's slices, group by group."""
    of_param: dict[nn.Parameter, list[nn.Parameter]] = {}
    for s in slices:
        of_param.setdefault(s.whole, []).append(s.param)
    inner = [
        {**g, "params": [part for p in g["params"] for part in of_param.get(p, [])]} for g in groups
    ]
    return optimizer(inner, **hyper)


def tensor_parallel_group(
    names: dict[nn.Parameter, str], group: dist.ProcessGroup | None
) -> dist.ProcessGroup | None:
    """The group over which tensor parallelism has cut parameters; None if it has cut none.

    Raises ValueError if parameters are cut over several groups, or if `group`, over which ZeRO is
    to shard, has two ranks that hold different parts of a parameter.
    """
    groups = {p.tp_cut.group for p in names if hasattr(p, "tp_cut")}
    if not groups:
        return None
    if len(groups) > 1:
        raise ValueError("the parameters are cut over several tensor-parallel groups; use one")
    (tp_group,) = groups
    both = set(dist.get_process_group_ranks(group)) & set(dist.get_process_group_ranks(tp_group))
    if len(both) > 1:
        raise ValueError(
            f"ranks {sorted(both)} hold different parts of the model, so ZeRO cannot shard over "
            f"them; pass zero.shard(..., group=mesh.get_group('dp'))"
        )
    return tp_group


def refuse_gradients_set_by_hand(names: dict[nn.Parameter, str]) -> None:
    """Raise RuntimeError, naming the parameter, if one still has a `grad` after backward.

    For stages that take every gradient away as soon as backward has made it. One that is there
    afterwards was assigned by the user, and would be lost without a word.
    """
    for p, name in names.items():
        if p.requires_grad and p.grad is not None:
            raise RuntimeError(
                f"the gradient of {name} was set by hand; stages 2 and 3 take gradients only from "
                f"backward passes. Use stage 0 or 1, or call loss.backward()"
            )


def _as_list(params) -> list[nn.Parameter]:
    return [params] if isinstance(params, torch.Tensor) else list(params)
