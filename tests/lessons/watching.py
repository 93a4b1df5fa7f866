"""What the checks of several lessons watch on a rank."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from zero import comm
from zero.clock import patched


@contextlib.contextmanager
def works_watched() -> Iterator[dict[comm.Work, bool]]:
    """Every Work that an all-gather returns inside, and whether somebody has waited for it."""
    waited: dict[comm.Work, bool] = {}

    def gathering(all_gather):
        def watched(*args, **options):
            work = all_gather(*args, **options)
            if isinstance(work, comm.Work):
                waited[work] = False
            return work

        return watched

    def waiting(wait):
        def watched(work):
            waited[work] = True
            return wait(work)

        return watched

    with patched(comm, "all_gather", gathering), patched(comm.Work, "wait", waiting):
        yield waited
