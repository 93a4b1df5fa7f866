"""What the checks of lesson 05 do with single units on each rank: gather, release, close."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

import zero
from zero import comm
from zero.clock import patched
from zero.released import ReleasedParameter
from zero.traffic import Traffic
from zero.unit import State, Unit

RANKS = 3


class Mixed(nn.Module):
    """One unit with two buckets: 13 trainable values (3 ranks pad them to 15), 4 frozen ones."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.arange(1.0, 7.0).view(2, 3))
        self.frozen = nn.Parameter(-torch.arange(1.0, 5.0), requires_grad=False)
        self.b = nn.Parameter(torch.arange(7.0, 14.0))


WHOLE = {"a": torch.arange(1.0, 14.0), "frozen": -torch.arange(1.0, 5.0)}  # by first name


def unit_of(model: nn.Module, **options) -> tuple[zero.ZeroOptimizer, Unit]:
    """The optimizer of stage 3 and its only unit, with our gather and release at the start."""
    opt = zero.shard(model, 3, torch.optim.SGD, lr=0.0, **options)
    assert len(opt.units) == 1
    return opt, opt.units[0]


def size_of(bucket) -> int:
    return bucket.flat.numel() * bucket.flat.element_size()


@contextlib.contextmanager
def waits_counted():
    """A list that grows by one with every Work that is waited for."""
    waits: list[int] = []

    def wrap(wait):
        def counted(work):
            waits.append(1)
            return wait(work)

        return counted

    with patched(comm.Work, "wait", wrap):
        yield waits


@contextlib.contextmanager
def works_recorded():
    """Two lists that grow with every all-gather: of Works, whether anybody keeps them or not, and
    of the sizes of what is gathered, in elements."""
    works: list[comm.Work] = []
    sizes: list[int] = []

    def wrap(all_gather):
        def recorded(*args, **options):
            sizes.extend(x.numel() for x in (*args, *options.values()) if isinstance(x, Tensor))
            work = all_gather(*args, **options)
            works.extend([work] if isinstance(work, comm.Work) else [])
            return work

        return recorded

    with patched(comm, "all_gather", wrap):
        yield works, sizes


def finish(works: list[comm.Work]) -> None:
    while works:
        works.pop().wait()


# --- Unit.start_gather ---------------------------------------------------------------------------


def start_on_prepared_memory(rank: int, world_size: int) -> dict[str, dict]:
    """start_gather, where the memory is there already, so that no mistake can write outside it.

    By precision: the sizes that were asked for, and what each bucket then holds.
    """
    found = {}
    for precision in ("fp32", "bf16"):
        _, unit = unit_of(Mixed(), precision=precision)
        storages = [b.flat.untyped_storage() for b in unit.buckets]
        first = [b.params[0] for b in unit.buckets]
        for b, storage in zip(unit.buckets, storages):
            storage.resize_(size_of(b))
            b.flat.fill_(float("nan"))
        asked: dict[int, int] = {}
        generous = _generous(asked, storages, [size_of(b) for b in unit.buckets])
        with patched(torch.UntypedStorage, "resize_", generous), works_recorded() as (works, _):
            unit.start_gather()
        with torch._C.DisableTorchFunctionSubclass():  # the parameters are not usable yet
            now = [p.untyped_storage() for p in first]
        now += [b.flat.untyped_storage() for b in unit.buckets]
        same = [a._cdata == b._cdata for a, b in zip(now, 2 * storages)]
        finish(works)
        comm.barrier()
        found[precision] = {
            "asked": [asked.get(i) for i in range(len(unit.buckets))],
            "sizes": [size_of(b) for b in unit.buckets],
            "same": all(same),
            "flat": {b.names[0]: b.flat.float().clone() for b in unit.buckets},
            "numel": [b.flat.numel() for b in unit.buckets],
        }
    return found


def _generous(asked: dict[int, int], storages: list, sizes: list[int]):
    """For `patched`: note the sizes that are asked for, and never make a storage too small."""

    def wrap(resize):
        def resize_and_note(storage, nbytes):
            for i, known in enumerate(storages):
                if known._cdata == storage._cdata:
                    asked[i] = nbytes
                    return resize(storage, max(nbytes, sizes[i]))
            return resize(storage, nbytes)

        return resize_and_note

    return wrap


def start_and_look(rank: int, world_size: int) -> dict:
    """start_gather for real: what it leaves behind, what it sends, what a second call does."""
    _, unit = unit_of(Mixed())
    sizes = [b.flat.numel() for b in unit.buckets]
    with works_recorded() as (works, gathered):
        with Traffic() as first, waits_counted() as waits:
            unit.start_gather()
        found = {
            "state": unit.state,
            "works": [type(work).__name__ for work in unit.works],
            "waits": len(waits),
            "sent": first.bytes(floating=True),
            "order": [sizes.index(n) for n in gathered],
        }
        for key, state in (("sent again", State.GATHERING), ("sent when full", State.FULL)):
            finish(works)
            unit.works, unit.state = [], state
            with Traffic() as again:
                unit.start_gather()
            found[key] = again.bytes(floating=True)
        found["state when full"] = unit.state
        finish(works)
    comm.barrier()
    found["group"] = _start_in_a_group(rank)
    return found


def _start_in_a_group(rank: int) -> dict | None:
    """Ranks 1 and 2 of three are a group of their own; rank 0 takes no part."""
    pair = torch.distributed.new_group([1, 2])
    if rank == 0:
        comm.any_rank(False)
        return None
    _, unit = unit_of(Mixed(), group=pair)
    first = unit.buckets[0]
    found = {"flat": None, "error": "", "place": "", "size": size_of(first)}
    with works_recorded() as (works, _):
        try:
            unit.start_gather()
        except (comm.CommError, ValueError) as error:
            found["error"] = str(error)
        except RuntimeError as error:  # the copy of the shard does not fit
            found["place"] = str(error)
    found["nbytes"] = first.flat.untyped_storage().nbytes()
    if not comm.any_rank(bool(found["error"] or found["place"])):  # else some data never comes
        try:
            finish(works)
        except comm.CommError as error:
            found["error"] = str(error)
        found["flat"] = first.flat.clone()
    return found


# --- Unit.release --------------------------------------------------------------------------------


def release_and_look(rank: int, world_size: int) -> dict:
    """release of a FULL unit, with references into its storages held, as autograd holds them."""
    _, unit = unit_of(Mixed())  # which releases it once
    if any(
        b.shard.untyped_storage()._cdata == b.flat.untyped_storage()._cdata for b in unit.buckets
    ):
        return {"shard freed": False, "shard replaced": True}
    if not all(b.shard.untyped_storage().nbytes() for b in unit.buckets):
        return {"shard freed": True, "shard replaced": False}
    for b in unit.buckets:  # as `gather` leaves it, whatever that release has done
        b.flat.untyped_storage().resize_(size_of(b))
    unit.state = State.SHARDED
    unit.gather()
    flats, shards = [b.flat for b in unit.buckets], [b.shard for b in unit.buckets]
    held = [b.flat.untyped_storage() for b in unit.buckets]
    for flat in flats:
        flat.fill_(-1.0)  # what stands in the whole buffer is of no value any more
    trained = unit.buckets[0].params[0]
    trained.grad = gradient = torch.ones(trained.shape)
    with Traffic() as traffic:
        unit.release()
    with torch._C.DisableTorchFunctionSubclass():
        kept = trained.grad is gradient
    found = {
        "gradient kept": kept,
        "shard freed": False,
        "shard replaced": any(b.shard is not s for b, s in zip(unit.buckets, shards)),
        "left": [storage.nbytes() for storage in held],
        "same": [b.flat is flat for b, flat in zip(unit.buckets, flats)],
        "shapes": {n: tuple(p.shape) for b in unit.buckets for n, p in zip(b.names, b.params)},
        "state": unit.state,
        "calls": len(traffic.calls),
        "marks": {
            n: (isinstance(p, ReleasedParameter), getattr(p, "zero_name", None))
            for b in unit.buckets
            for n, p in zip(b.names, b.params)
        },
        "shards": {b.names[0]: b.shard.clone() for b in unit.buckets},
        "error again": "",
    }
    with Traffic() as traffic:
        try:
            unit.release()  # once more
        except RuntimeError as error:
            found["error again"] = str(error)
    found["calls again"] = len(traffic.calls)
    return found


def release_on_its_way(rank: int, world_size: int) -> dict:
    """release of a GATHERING unit: what has been waited for when memory is freed?"""
    _, unit = unit_of(Mixed())
    with works_recorded() as (works, _):
        unit.start_gather()
    waiting, seen = len(unit.works), []

    with waits_counted() as waits:

        def wrap(resize):
            def look(storage, nbytes):
                if nbytes == 0:
                    seen.append(len(waits))
                    if len(waits) < waiting:
                        return storage  # memory stays, since data is on its way into it
                return resize(storage, nbytes)

            return look

        with patched(torch.UntypedStorage, "resize_", wrap):
            unit.release()
    early = bool(seen) and seen[0] < waiting
    found = {"early": early, "freed": bool(seen), "state": unit.state, "works": len(unit.works)}
    if early:
        finish(works)
        return found
    unit.gather()
    found["values"] = {b.names[0]: b.flat.clone() for b in unit.buckets}
    return found


# --- Zero3.close ---------------------------------------------------------------------------------


class Two(nn.Module):
    """One unit with three buckets: fp32 and fp64, trainable, and one frozen."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(5))
        self.b = nn.Parameter(torch.zeros(2))
        self.frozen = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.wide = nn.Parameter(torch.zeros(4, dtype=torch.float64))


def gradient(rank: int) -> Tensor:
    """Rank r's gradient of `a` and `b`: 1, 2, ... 7 times 10 to the r."""
    return torch.arange(1.0, 8.0) * 10**rank


def set_gradients(opt: zero.ZeroOptimizer, model: Two, rank: int, but: str = "") -> None:
    flat = gradient(rank)
    values = {"a": flat[:5], "b": flat[5:], "wide": flat[:4].double()}
    for name, value in values.items():
        p = getattr(model, name)
        if name != but:
            p.grad = value.clone()
            opt.bucket_of[p].move_gradient(p)


@torch.no_grad()
def close_and_look(rank: int, world_size: int) -> dict:
    """close of an open unit with gradients: what is left, what was sent."""
    model = Two()
    opt, unit = unit_of(model)
    unit.gather()
    unit.open = True
    unit.backward_calls.add("a call")
    set_gradients(opt, model, rank)
    with Traffic() as traffic, waits_counted() as waits:
        opt.close(unit)
    found = {
        "open": unit.open,
        "calls": len(unit.backward_calls),
        "state": unit.state,
        "waits": len(waits),
        "in flight": opt.flight.bucket is not None and opt.flight.bucket.names,
    }
    opt.flight.land()
    found["sent"] = traffic.bytes(floating=True)
    found["averages"] = {
        b.names[0]: None if b.owned_grad is None else b.owned_grad.clone() for b in unit.trainable
    }
    found["whole"] = [b.grad is not None for b in unit.trainable]
    return found


@torch.no_grad()
def close_again(rank: int, world_size: int) -> dict:
    """Two micro-batches, the second without `b` on ranks 1 and 2; then a bucket without gradients
    on ranks 1 and 2, noted and not sent; then the cases that stay full."""
    model = Two()
    opt, unit = unit_of(model)
    for micro_batch in range(2):
        unit.gather()
        unit.open = True
        set_gradients(opt, model, rank, but="b" if micro_batch and rank else "")
        opt.close(unit)
    opt.flight.land()
    found = {"sum": opt.buckets[0].owned_grad.clone(), "started": []}
    unit.gather()
    unit.open = True
    set_gradients(opt, model, rank, but="wide" if rank else "")
    note = found["started"].append
    with patched(opt.flight, "start", lambda start: lambda bucket: note(bucket.names)):
        opt.close(unit)
    for b in unit.trainable:
        b.free_grad()
    unit.gather()
    unit.open, unit.running = True, 1
    set_gradients(opt, model, rank)
    opt.close(unit)
    found["running"] = unit.state
    unit.running, unit.open = 0, True
    opt.gather_all()
    set_gradients(opt, model, rank)
    opt.close(unit)
    found["pinned"] = unit.state
    opt.flight.land()
    opt.release_all()
    return found
