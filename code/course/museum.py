"""A museum of bugs: short wrong versions of real kinds, and a judge for the reader's test.

Each bug patches the package, on the ranks of one training only. The reader writes
``catches(train) -> bool``: it may call ``train(stage, **options)`` as often as it likes, and says
whether something is wrong with what came out. ``judge`` runs it on every bug and on the right code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

RANKS = 2
STEPS = 4


@dataclass
class Run:
    """What one training gave. Lists have an entry a rank, or a step.

    ``weights[rank]`` are the whole weights by name, ``expected`` those of one ordinary process on
    the joined batch; ``losses[rank][step]``; ``norms[rank][step]``, what ``clip_grad_norm_``
    returned, and ``expected_norms[step]`` (both empty without ``clip``); ``resident[rank]``, bytes
    of whole parameters that were in memory after the last backward pass, beside the shards.
    """

    weights: list[dict[str, Tensor]]
    expected: dict[str, Tensor]
    losses: list[list[float]]
    norms: list[list[float]]
    expected_norms: list[float]
    resident: list[int] = field(default_factory=list)


# --- the bugs ------------------------------------------------------------------------------------


def averages_weights() -> None:
    """Each rank makes its own update; the weights are averaged afterwards, not the gradients."""
    from zero import comm, ddp

    def finish_gradients(self):
        for bucket in self.buckets:
            bucket.complete_gradients()
            bucket.owned_grad = bucket.grad

    def publish(self):
        for bucket in self.buckets:
            comm.all_reduce(bucket.flat, group=self.group)

    ddp.Ddp.finish_gradients, ddp.Ddp.publish = finish_gradients, publish


def sum_for_mean() -> None:
    """The gradients are added over the ranks and never divided."""
    from zero import exchange

    right = exchange.reduce_scatter
    exchange.reduce_scatter = lambda mesh, ticket, flat, out, op, *rest: right(
        mesh, ticket, flat, out, "sum", *rest
    )


def rank_0_is_false() -> None:
    """`if rank:` where `if rank is not None:` was meant; rank 0 never updates its shard."""
    from zero import offload

    right = offload.Offload.update

    def update(self, inner, slices):
        from zero import comm

        if comm.rank():
            right(self, inner, slices)

    offload.Offload.update = update


def last_micro_batch_lost() -> None:
    """The shard keeps the first micro-batch's gradients; what comes later is dropped."""
    from zero import flight

    right = flight.Flight.land

    def land(self):
        kept = self.bucket.owned_grad if self.bucket is not None else None
        copy, bucket = None if kept is None else kept.clone(), self.bucket
        right(self)
        if copy is not None:
            bucket.owned_grad = copy

    flight.Flight.land = land


def padding_in_the_norm() -> None:
    """The norm is taken of the whole shard, and the padding at its end is not zero."""
    from zero import clip

    right = clip.global_norm
    clip.global_norm = lambda *a, **k: (right(*a, **k) ** 2 + 1.0) ** 0.5


def clips_by_its_own_norm() -> None:
    """Every rank clips by the norm of its own shard."""
    from zero import clip

    clip.global_norm = lambda grads, norm_type, *a, **k: clip.combine_powers(
        [clip.shard_power(grads, norm_type)], norm_type
    )


def tied_updated_twice() -> None:
    """A tied weight is listed under both of its names, and updated once for each."""
    from zero import offload

    right = offload.Offload.update

    def update(self, inner, slices):
        right(self, inner, slices)
        grads = [p.grad for p in slices]
        for p in slices:
            p.grad = p.grad if getattr(p, "tied", False) else None
        right(self, inner, slices)
        for p, grad in zip(slices, grads, strict=True):
            p.grad = grad

    offload.Offload.update = update


def unit_waits_for_the_frozen() -> None:
    """A ZeRO-3 unit counts gradients down from all its parameters; a frozen one never comes."""
    from zero import stage3

    right = stage3.Zero3.close

    def close(self, unit):
        if not unit.frozen:
            return right(self, unit)
        unit.open = False
        for bucket in unit.trainable:
            bucket.free_grad()
        self._release(unit)

    stage3.Zero3.close = close


def keeps_what_it_gathered() -> None:
    """ZeRO-3 drops a reference after use and leaves the storage as it is."""
    from zero import unit

    unit.Unit.release = lambda self: setattr(self, "state", unit.State.SHARDED)


def unused_is_zero() -> None:
    """A parameter that was not used gets a gradient of zero, so it decays."""
    from zero import optimizer

    optimizer.agree_used = lambda trainable, used, group: set(trainable)


def starts_apart() -> None:
    """Each rank starts from its own weights."""
    from zero import comm

    comm.broadcast = lambda flat, **options: flat


BUGS = (
    averages_weights,
    sum_for_mean,
    rank_0_is_false,
    last_micro_batch_lost,
    padding_in_the_norm,
    clips_by_its_own_norm,
    tied_updated_twice,
    unit_waits_for_the_frozen,
    keeps_what_it_gathered,
    unused_is_zero,
    starts_apart,
)


def show(name: str | None = None) -> None:
    """Print the bugs, a name and one sentence each; or the code of the one with this name."""
    by_name = {bug.__name__: bug for bug in BUGS}
    if name is None:
        for bug in BUGS:
            print(f"{bug.__name__:26} {' '.join(bug.__doc__.split())}")
        print(f"\n{len(BUGS)} bugs.")
    elif name in by_name:
        print(inspect.getsource(by_name[name]).rstrip())
    else:
        raise ValueError(f"there is no bug {name!r} here; choose one of {', '.join(by_name)}")


def judge(catches: Callable[[Callable[..., Run]], bool]) -> list[str]:
    """Print which bugs the test catches, and whether it leaves the right code alone.

    Returns the names of the bugs that it has missed.
    """
    innocent = not _verdict(catches, None)
    missed = [bug.__name__ for bug in BUGS if not _verdict(catches, bug)]
    for bug in BUGS:
        print(f"{'missed' if bug.__name__ in missed else 'caught':8} {bug.__name__}")
    print(f"{len(BUGS) - len(missed)} of {len(BUGS)} caught.", end=" ")
    print("It passes the right code." if innocent else "But it also rejects the right code.")
    return missed


def _verdict(catches: Callable, bug: Callable[[], None] | None) -> bool:
    found = catches(_training(bug))
    if found is None:
        raise TypeError("catches(train) returned None; it must return True or False")
    return bool(found)


# --- the training --------------------------------------------------------------------------------


class Net(nn.Module):
    """Three small layers; tied, one weight is used in two places."""

    def __init__(self, tied: bool, frozen: bool, unused: bool):
        super().__init__()
        self.a = nn.Linear(7, 7)
        self.b = nn.Linear(7, 7)
        self.c = nn.Linear(7, 5)
        if tied:
            self.b.weight = self.a.weight
        if frozen:
            self.b.bias.requires_grad_(False)
        if unused:
            self.unused = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


def _training(bug: Callable[[], None] | None) -> Callable[..., Run]:
    def train(
        stage: int,
        optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
        *,
        clip: float | None = None,
        micro_batches: int = 1,
        tied: bool = False,
        frozen: bool = False,
        unused: bool = False,
    ) -> Run:
        """Train on 2 ranks for 4 steps; see Run. clip: the limit of the gradient norm."""
        from zero.launch import launch

        options = (optimizer, clip, micro_batches, tied, frozen, unused)
        by_rank = launch(_on_rank, RANKS, bug, stage, *options, quiet=True)
        expected, expected_norms = _one_process(*options)
        columns = list(zip(*by_rank, strict=True))
        return Run(columns[0], expected, columns[1], columns[2], expected_norms, columns[3])

    return train


def _hyper(optimizer) -> dict:
    sgd = {"lr": 0.05, "momentum": 0.9}
    return sgd if optimizer is torch.optim.SGD else {"lr": 1e-2, "weight_decay": 0.1}


def _batch(step: int, micro: int, rank: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(100 * step + 10 * micro + rank)
    return torch.randn(2, 7, generator=draw) * (1 + 3 * rank), torch.randn(2, 5, generator=draw)


def _on_rank(rank, world_size, bug, stage, optimizer, clip, micro_batches, tied, frozen, unused):
    import zero

    if bug is not None:
        bug()
    torch.manual_seed(rank)
    net = Net(tied, frozen, unused)
    opt = zero.shard(net, stage, optimizer, **_hyper(optimizer))
    for s in opt.slices:
        s.param.tied = tied and s.name == "a.weight"
    losses, norms, resident = [], [], 0
    for step in range(STEPS):
        for micro in range(micro_batches):
            x, y = _batch(step, micro, rank)
            loss = nn.functional.mse_loss(net(x), y) / micro_batches
            loss.backward()
        losses.append(loss.item())
        if stage == 3:
            resident = sum(b.flat.untyped_storage().nbytes() for u in opt.units for b in u.buckets)
        if clip is not None:
            norms.append(opt.clip_grad_norm_(clip).item())
        opt.step()
        opt.zero_grad()
    with opt.full_params():
        weights = {n: p.detach().clone() for n, p in net.named_parameters()}
    return weights, losses, norms, resident


def _one_process(optimizer, clip, micro_batches, tied, frozen, unused):
    torch.manual_seed(0)
    net = Net(tied, frozen, unused)
    params = [p for p in net.parameters() if p.requires_grad]
    opt = optimizer(params, **_hyper(optimizer))
    norms = []
    for step in range(STEPS):
        for micro in range(micro_batches):
            parts = [_batch(step, micro, rank) for rank in range(RANKS)]
            x, y = (torch.cat(side) for side in zip(*parts, strict=True))
            (nn.functional.mse_loss(net(x), y) / micro_batches).backward()
        if clip is not None:
            norms.append(nn.utils.clip_grad_norm_(params, clip).item())
        opt.step()
        opt.zero_grad()
    return {n: p.detach().clone() for n, p in net.named_parameters()}, norms
