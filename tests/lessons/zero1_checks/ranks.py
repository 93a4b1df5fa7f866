"""What the checks of lesson 02 do on each rank."""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from watching import works_watched

import zero
from course import training
from zero import comm
from zero.adam import AdamW
from zero.meter import Meter
from zero.traffic import Traffic

SHAPES = {"a": (2, 2), "b": (3,)}  # 7 elements; on 3 ranks a shard has 3, and 2 are padding
LATE = 0.3  # seconds


def small(dtypes: dict[str, torch.dtype] | None = None) -> nn.ParameterDict:
    """Two parameters of zeros."""
    dtypes = dtypes or dict.fromkeys(SHAPES, torch.float32)
    return nn.ParameterDict(
        {name: torch.zeros(shape, dtype=dtypes[name]) for name, shape in SHAPES.items()}
    )


def stage1(model: nn.Module, **options) -> zero.ZeroOptimizer:
    """Stage 1; what its buffers for gradients hold before they are filled is NaN."""
    opt = zero.shard(model, 1, torch.optim.SGD, lr=0.0, **options)
    for bucket in opt.buckets:
        bucket.grad_views()
        bucket.grad.fill_(torch.nan)
    return opt


def gradient(rank: int) -> Tensor:
    """Rank r's gradient of all 7 elements: 1, 2, ... 7 times 10 to the r."""
    return torch.arange(1.0, 8.0) * 10**rank


def set_gradients(opt: zero.ZeroOptimizer, flat: Tensor, but: str = "") -> None:
    """Give the parameters their parts of `flat` as gradients, one of them none."""
    at = 0
    for p, name in opt.names.items():
        values = flat[at : at + p.numel()].view(p.shape).to(p.dtype)
        p.grad = None if name == but else values.clone()
        at += p.numel()


# --- Zero1.finish_gradients ----------------------------------------------------------------------


@torch.no_grad()
def averaged(rank: int, world_size: int) -> Tensor | None:
    """owned_grad of each rank, which has gradient(rank)."""
    model = small()
    opt = stage1(model)
    set_gradients(opt, gradient(rank))
    opt.finish_gradients()
    return _owned(opt)[0]


@torch.no_grad()
def averages(rank: int, world_size: int) -> dict:
    """Three ranks: what stands in owned_grad in the special cases, and what it cost."""
    return {
        "missing": _missing(rank),
        "dtypes": _two_dtypes(rank),
        "bf16": _sixteen_bits(rank),
        "cost": _cost(rank),
    }


@torch.no_grad()
def unused(rank: int, world_size: int) -> list:
    """Two ranks, two buckets; rank 1 has no gradient at all in the second one."""
    opt = stage1(small({"a": torch.float32, "b": torch.float64}))
    set_gradients(opt, gradient(rank), but="b" if rank else "")
    opt.finish_gradients()
    comm.barrier()  # a rank that has made a call too few is found out here
    return _owned(opt)


def _missing(rank: int) -> list:
    """Two steps; in the second only rank 0 has a gradient for `b`."""
    model = small()
    opt = stage1(model)
    found = []
    for step in range(2):
        set_gradients(opt, gradient(rank), but="b" if step and rank else "")
        opt.finish_gradients()
        found += _owned(opt)
        opt.zero_grad()
    return found


def _two_dtypes(rank: int) -> list:
    model = small({"a": torch.float32, "b": torch.float64})
    opt = stage1(model)
    set_gradients(opt, gradient(rank))
    opt.finish_gradients()
    return _owned(opt)


def _sixteen_bits(rank: int) -> Tensor | None:
    """Gradients 256, 1 and 2: their mean is no bf16 number, nor is their sum."""
    model = small()
    opt = stage1(model, precision="bf16")
    set_gradients(opt, torch.full((7,), (256.0, 1.0, 2.0)[rank]))
    opt.finish_gradients()
    return _owned(opt)[0]


def _cost(rank: int) -> dict:
    """Bytes sent, bytes of gradients afterwards, and whether owned_grad lies inside grad."""
    model = training.small_model()
    opt = stage1(model)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with Meter(model, opt) as meter, Traffic() as traffic:
        opt.finish_gradients()
        live = meter.live()
    return {"sent": traffic.bytes(floating=True), "gradients": live["gradients"]}


def _owned(opt: zero.ZeroOptimizer) -> list[Tensor | None]:
    return [None if b.owned_grad is None else b.owned_grad.clone() for b in opt.buckets]


# --- Zero1.publish -------------------------------------------------------------------------------


def updated(rank: int) -> Tensor:
    """What stands in rank r's range of 3 elements after the update: 10 r, 10 r + 1, 10 r + 2."""
    return torch.arange(3.0) + 10 * rank


@torch.no_grad()
def published(rank: int, world_size: int) -> dict[str, Tensor]:
    """The parameters after each of three ranks has updated its range."""
    model = small()
    opt = stage1(model)
    opt.buckets[0].master.copy_(updated(rank))
    opt.publish()
    expected = torch.cat([updated(r) for r in range(world_size)])
    end = time.monotonic() + 3 * LATE  # whether publish itself waits is another check
    while time.monotonic() < end and not torch.equal(opt.buckets[0].flat, expected):
        time.sleep(0.01)
    return training.weights(model)


@torch.no_grad()
def published_in_pairs(rank: int, world_size: int) -> dict[str, Tensor]:
    """Four ranks in two pairs, each with a model of its own; rank r's range becomes r + 1."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = small()
    opt = stage1(model, group=pairs[rank // 2])
    opt.buckets[0].master.fill_(rank + 1)
    opt.publish()
    return training.weights(model)


@torch.no_grad()
def publishings(rank: int, world_size: int) -> dict:
    """Three ranks: the special cases of publish."""
    return {
        "bf16": _publish_bf16(rank),
        "dtypes": _publish_two_dtypes(rank),
        "cost": _publish_cost(rank),
        "late": _publish_late(rank),
    }


def _publish_bf16(rank: int) -> dict:
    model = small()
    opt = stage1(model, precision="bf16")
    bucket = opt.buckets[0]
    bucket.master.copy_(updated(rank) + 0.001)
    opt.publish()
    return {"weights": training.weights(model), "master": bucket.master.clone()}


def _publish_two_dtypes(rank: int) -> dict:
    """Every rank adds 1 to its range of each of two buckets; which Works were waited for?"""
    model = small({"a": torch.float32, "b": torch.float64})
    opt = stage1(model)
    for bucket in opt.buckets:
        bucket.master.add_(1.0)
    with works_watched() as works:
        opt.publish()
    found = {"weights": training.weights(model), "waited": list(works.values())}
    for work in works:  # what is on its way must not arrive in the messages of the next case
        work.wait()
    return found


def _publish_cost(rank: int) -> dict:
    """Bytes sent, in fp32 and bf16; are the parameters still views of the flat buffer?"""
    found = {}
    for precision in ("fp32", "bf16"):
        model = training.small_model()
        opt = stage1(model, precision=precision)
        with Traffic() as traffic:
            opt.publish()
        found[precision] = traffic.bytes(floating=True)
        flat = opt.buckets[0].flat.untyped_storage().data_ptr()
        places = [p.untyped_storage().data_ptr() == flat for p in model.parameters()]
        found["views"] = found.get("views", True) and all(places)
    return found


def _publish_late(rank: int) -> dict[str, Tensor]:
    """Rank 0 comes late; what do the others read as soon as publish returns?"""
    model = small()
    opt = stage1(model)
    opt.buckets[0].master.copy_(updated(rank))
    if rank == 0:
        time.sleep(LATE)
    opt.publish()
    found = training.weights(model)
    time.sleep(LATE)  # what is still on its way may arrive before this rank ends
    return found


# --- trainings -----------------------------------------------------------------------------------


def with_and_without_decay(model: nn.Module) -> list[dict]:
    """Two groups: weights are decayed, biases are not. Shards cut through both."""
    named = list(model.named_parameters())
    return [
        {"params": [p for name, p in named if name.endswith("weight")], "weight_decay": 0.5},
        {"params": [p for name, p in named if name.endswith("bias")], "weight_decay": 0.0},
    ]


def train(rank: int, world_size: int, names: tuple[str, ...]) -> dict[str, training.Run]:
    """Short trainings at stage 1, by name: "sgd", "adamw", or "groups", AdamW with two groups."""
    runs = {}
    for name in names:
        if name == "groups":
            runs[name] = training.train(rank, 1, "adamw", groups=with_and_without_decay)
        else:
            runs[name] = training.train(rank, 1, name)
    return runs


def train_with_our_adam(rank: int, world_size: int) -> training.Run:
    """The same, with `zero.adam.AdamW` on each rank's slices."""
    _, hyper = training.OPTIMIZERS["adamw"]
    training.OPTIMIZERS["zero.adam"] = AdamW, hyper
    return training.train(rank, 1, "zero.adam")
