"""What the checks of lesson 00 do on each rank."""

import torch
import torch.distributed as dist
from torch import nn

import zero
from course import training
from zero import comm


def averaged(rank, world_size, everybody):
    """This rank's row of `everybody` after an all-reduce."""
    return comm.all_reduce(everybody[rank].clone())


def train(rank, world_size, optimizers):
    """A short training at stage 0 with each optimizer, and one in bf16."""
    runs = {name: training.train(rank, 0, name) for name in optimizers}
    return {**runs, "bf16": training.train(rank, 0, "sgd", make=_bf16_rows, precision="bf16")}


def _bf16_rows(seed):
    """The small model, which takes fp32 rows in whatever dtype its parameters have."""
    model = training.small_model(seed)
    model.register_forward_pre_hook(lambda m, x: (x[0].to(m[0].weight.dtype),))
    model.register_forward_hook(lambda m, x, y: y.float())
    return model


def special_cases(rank, world_size):
    """Four ranks: what stands in owned_grad in each case."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    both = {"a": torch.float32, "b": torch.float64}
    return {
        "average": averages(rank)[0],
        "missing": missing(rank),
        "dtypes": averages(rank, both),
        "pair": averages(rank, group=pairs[rank // 2])[0],
        "bf16": averages(rank, precision="bf16")[0],
    }


def averages(rank, dtypes=None, **options):
    """Each bucket's owned_grad for parameters whose gradient on rank r is r + 1."""
    dtypes = dtypes or {"a": torch.float32}
    model = nn.ParameterDict({name: torch.ones(1, dtype=dtype) for name, dtype in dtypes.items()})
    opt = zero.shard(model, 0, torch.optim.SGD, lr=0.0, **options)
    ((rank + 1) * sum(p.double() for p in model.values())).sum().backward()
    return owned_after_finish(opt)


def unused(rank, world_size):
    """Both buckets' averages; only rank 0 uses the second one."""
    model = nn.ParameterDict({"a": torch.ones(1), "b": torch.ones(1, dtype=torch.float64)})
    opt = zero.shard(model, 0, torch.optim.SGD, lr=0.0)
    (model["a"] + 3 * model["b"] if rank == 0 else model["a"]).sum().backward()
    found = owned_after_finish(opt)
    comm.barrier()  # a rank that has made a call too few is found out here
    return found


def missing(rank):
    """The averages of `a` in two steps; in the second only rank 0 uses `a`."""
    model = nn.ParameterDict({"a": torch.ones(1), "b": torch.ones(1)})
    opt = zero.shard(model, 0, torch.optim.SGD, lr=0.0)
    found = []
    for factor in (3.0, 8.0 if rank == 0 else 0.0):
        loss = model["b"].sum()
        if factor:
            loss = loss + factor * model["a"].sum()
        loss.backward()
        found += owned_after_finish(opt)
        opt.zero_grad()
    return found


def owned_after_finish(opt):
    """The first element of each bucket's owned_grad."""
    with torch.no_grad():
        opt.finish_gradients()
    return [None if b.owned_grad is None else b.owned_grad[:1].clone() for b in opt.buckets]
