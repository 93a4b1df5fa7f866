"""Parts kept and gathered by four ranks, in groups of every size: what each rank does.

Nothing of the grader is imported here, so ranks start faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor
from watching import works_watched

from activation_checks import groups
from zero import comm, partition
from zero.activations import checkpoint
from zero.traffic import Traffic

ODD = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1e-45])  # must come back to the last bit
NO_WAIT = "the all-gather was started, and nobody has waited for it"

# --- keep_part


@torch.no_grad()
def keep_everything(rank: int, world_size: int) -> dict:
    """Every shape and dtype in every group: the part, the bytes behind it; what was sent."""
    found, of_size = {}, groups.groups_of(rank)
    with Traffic() as traffic:
        for size, (group, _, _) in of_size.items():
            for shape in groups.SHAPES[size]:
                for dtype in groups.DTYPES:
                    x = groups.tensor(shape, dtype)
                    found[size, shape, dtype] = _keep(x, group)
            found[size, "odd"] = _keep(ODD, group)
            across = groups.tensor((7, 5)).T  # its elements do not lie in their order
            found[size, "across"] = _keep(across, group)
    return {"parts": found, "calls": len(traffic.calls)}


def _keep(x: Tensor, group) -> tuple:
    """The part (or what went wrong), the bytes of its storage, and whether x was left alone."""
    before = x.clone()
    try:
        part = partition.keep_part(x, group)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}", 0, True
    nbytes = part.untyped_storage().nbytes() if isinstance(part, Tensor) else 0
    shared = isinstance(part, Tensor) and part.data_ptr() and _same_memory(part, x)
    return part if part is None else part.clone(), -1 if shared else nbytes, torch.equal(x, before)


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


# --- gather_parts


def gather_everything(rank: int, world_size: int) -> dict:
    """Every shape and dtype in every group: the whole, bytes sent, bytes of the part.

    Ends, on all ranks, with the groups in which the first error comes.
    """
    found, failed = {}, False
    for size, (group, m, r) in groups.groups_of(rank).items():
        cases = [(shape, torch.float32) for shape in groups.SHAPES[size]]
        if size == 3:
            cases += [((7, 5), dtype) for dtype in groups.DTYPES]
        things = {(size, *case): groups.tensor(*case) for case in cases} | {(size, "odd"): ODD}
        for key, x in things.items():
            try:
                found[key] = _gather(x, m, r, group)
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                found[key] = f"{type(error).__name__}: {error}", 0, 0, True, True
                failed = True
                break
        if comm.any_rank(failed):  # nobody may wait in the next groups for one that has failed
            return found
        if size == groups.WORLD:
            found["different"] = different_batches(rank)
    return found


@contextmanager
def _nan_where_nobody_wrote() -> Iterator[None]:
    """New memory may hold what was right a moment ago: inside, `torch.empty` gives nan."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@torch.no_grad()
def _gather(x: Tensor, m: int, r: int, group) -> tuple:
    part = groups.part_of(x, m, r)
    before = part.clone()
    with Traffic() as traffic, works_watched() as works, _nan_where_nobody_wrote():
        got = partition.gather_parts(part, x.shape, group, "a test")
    kept = got.clone() if isinstance(got, Tensor) else got
    waited = all(works.values())
    for work in works:  # what is on its way must not arrive in the messages of the next case
        work.wait()
    own = not (isinstance(got, Tensor) and got.numel() and _same_memory(got, part))
    sent, same = traffic.bytes(floating=True), torch.equal(part, before)
    return kept if waited else NO_WAIT, sent, part.nbytes, same, own


def different_batches(rank: int) -> tuple[str, Tensor | None, Tensor]:
    """A checkpoint divided over ranks whose inputs differ: the error, or the gradient."""
    x = (torch.arange(7.0) + 10 * rank).requires_grad_()
    loss = checkpoint(torch.square, x, partition=torch.distributed.group.WORLD).sum()
    text = ""
    with works_watched() as works:
        try:
            loss.backward()
        except RuntimeError as error:
            text = str(error)
    for work in works:  # one that was not waited for must not fail in the next collective
        with suppress(RuntimeError):
            work.wait()
    return text, None if text else x.grad, 2 * x.detach()
