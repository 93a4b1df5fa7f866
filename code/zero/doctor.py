"""Can this machine run the course? `make doctor`, or `python -m zero.doctor` after the set-up.

Looks at Python, the packages, gloo, real ranks, cores, memory, disk and GPUs, in a few seconds.
Each line says what was found; where something is missing, the line below it says what to do. Ends
with 0 if the course can run here, else with 1. It installs nothing and changes nothing.

`make doctor` runs this file by its path (`python -I code/zero/doctor.py`), not as a part of the
package: then it also works on a Python that is too old for the package, or that lacks torch.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OK, NOTE, FAIL = "ok", "note", "FAIL"
ROOT = Path(__file__).resolve().parents[2]
GB = 10**9
PYTHONS = ((3, 10), (3, 13))
OLDEST_TORCH = (2, 11)
SET_UP = "run `make demo` or `make test`: either sets up .venv"
RANKS = 4


@dataclass
class Finding:
    """One line of the report. `remedy` is printed below it unless all is well."""

    name: str
    state: str
    text: str
    remedy: str = ""


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    found = ".".join(map(str, version))
    if PYTHONS[0] <= tuple(version[:2]) <= PYTHONS[1]:
        return Finding("Python", OK, f"{found} on {platform.system()} ({platform.machine()})")
    remedy = "install Python 3.10 to 3.13, then name it: make demo PYTHON=python3.12"
    return Finding("Python", FAIL, f"{found}; 3.10 to 3.13 will do", remedy)


def check_packages(requirements: Path = ROOT / "requirements.txt") -> Finding:
    """Is everything installed that requirements.txt names? Other versions than pinned are noted."""
    if not requirements.is_file():
        return Finding("packages", NOTE, "not run from a clone: requirements.txt was not found")
    missing, other = [], []
    for line in requirements.read_text(encoding="utf-8").splitlines():
        pin = re.match(r"([\w.-]+)==([\w.]+)", line)
        if not pin or pin[1] == "torch":
            continue
        try:
            version = importlib.metadata.version(pin[1])
        except importlib.metadata.PackageNotFoundError:
            missing.append(pin[1])
        else:
            if version != pin[2]:
                other.append(f"{pin[1]} {version}")
    if missing:
        return Finding("packages", FAIL, f"not installed: {', '.join(missing)}", SET_UP)
    if other:
        return Finding("packages", NOTE, f"not as pinned, probably fine: {', '.join(other)}")
    return Finding("packages", OK, "installed as pinned")


def check_torch() -> Finding:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("torch", FAIL, "not installed", SET_UP)
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return Finding("torch", FAIL, f"{version}; {oldest} is the oldest that will do", SET_UP)
    try:
        import torch  # noqa: F401
    except Exception as error:
        remedy = "remove .venv (`make clean`), then " + SET_UP
        return Finding("torch", FAIL, f"{version} does not import: {_first_line(error)}", remedy)
    return Finding("torch", OK, version)


def check_gloo() -> Finding:
    import torch.distributed as dist

    if dist.is_available() and dist.is_gloo_available():
        return Finding("gloo", OK, "available: ranks can talk without a GPU")
    remedy = "install torch from its official wheels; this build lacks gloo"
    return Finding("gloo", FAIL, "this torch has no gloo", remedy)


def check_ranks() -> Finding:
    """Start real ranks and let them add up their numbers."""
    start = time.perf_counter()
    try:
        from zero.launch import launch

        sums = launch(_sum_of_ranks, RANKS, timeout=30.0, quiet=True, backend="gloo")
    except Exception as error:
        remedy = "a firewall may block the loopback interface, or a container may forbid processes"
        return Finding("ranks", FAIL, f"{RANKS} ranks do not start: {_first_line(error)}", remedy)
    seconds = time.perf_counter() - start
    expected = RANKS * (RANKS - 1) / 2
    if sums != [expected] * RANKS:
        remedy = "the ranks compute wrong sums: reinstall torch"
        return Finding("ranks", FAIL, f"{RANKS} ranks added up to {sums}", remedy)
    return Finding(
        "ranks", OK, f"{RANKS} ranks started and added up, {seconds:.1f} s the first time"
    )


def _prepare_ranks() -> None:
    """Let the ranks' server import torch while the other questions are answered.

    If that fails, `check_ranks` will say so.
    """
    if not importlib.util.find_spec("zero"):
        sys.path.insert(0, str(ROOT / "code"))
    if importlib.util.find_spec("torch"):
        with contextlib.suppress(Exception):
            from zero.launch import warm_up

            warm_up()


def _sum_of_ranks(rank: int, world_size: int) -> float:
    import torch
    import torch.distributed as dist

    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    return total.item()


def check_cores() -> Finding:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    if cores == 1:
        return Finding("cores", NOTE, "1 core: all works, but slowly", "give it two or more")
    return Finding("cores", OK, f"{cores} cores")


def check_memory() -> Finding:
    free = free_memory()
    if free is None:
        return Finding("memory", NOTE, "unknown on this system; 2 GB free will do")
    text = f"{free / GB:.1f} GB free"
    if free < 2 * GB:
        remedy = "close other programs, or use fewer ranks: python code/main.py --ranks 2"
        return Finding("memory", FAIL if free < GB else NOTE, f"{text}; 2 GB will do", remedy)
    return Finding("memory", OK, text)


def free_memory() -> int | None:
    """Bytes that this machine, or the container around us, can still give; None if unknown."""
    limits = []
    # Where one of these sources does not exist (no /proc on macOS, no limit on the container), the
    # others answer.
    with contextlib.suppress(OSError):
        available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        limits += [int(available[1]) * 1024] if available else []
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f).read_text()) for f in ("memory.max", "memory.current"))
        limits.append(limit - used)
    with contextlib.suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))  # all, not free
    return min(limits) if limits else None


def check_disk() -> Finding:
    # Before the set-up, torch must still be fetched: with CUDA several GB.
    needed = 1 * GB if importlib.util.find_spec("torch") else 8 * GB
    places = {str(Path.cwd()), tempfile.gettempdir()}
    free, place = min((shutil.disk_usage(place).free, place) for place in places)
    text = f"{free / GB:.0f} GB free in {place}"
    if free < needed:
        remedy = f"make room: {needed // GB} GB are needed (TMPDIR names another temporary folder)"
        return Finding("disk", FAIL, text, remedy)
    return Finding("disk", OK, text)


def check_text() -> Finding:
    if importlib.util.find_spec("pydoc_data") and importlib.util.find_spec("pydoc_data.topics"):
        return Finding("text", OK, "Python's reference text is here to train on")
    remedy = "name a text file of your own wherever a command takes --text FILE"
    return Finding("text", NOTE, "this Python ships without its reference text", remedy)


def check_cuda() -> Finding:
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        if shutil.which("nvidia-smi"):
            remedy = "to use the GPU, install a torch built for its driver's CUDA version"
            return Finding("CUDA", NOTE, "there is a GPU, but this torch cannot use it", remedy)
        return Finding("CUDA", OK, "no device: everything runs on the CPU, with gloo")
    text = f"{count} x {torch.cuda.get_device_name(0)}"
    if not torch.distributed.is_nccl_available():
        return Finding("CUDA", NOTE, f"{text}, without NCCL: ranks talk through gloo")
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return Finding("CUDA", OK, f"{text}, NCCL {nccl}: used by up to {count} ranks, else gloo")


def examine() -> Iterator[Finding]:
    """All findings, one at a time, so that a slow one does not hold back those before it."""
    _prepare_ranks()
    yield check_python()
    yield check_packages()
    torch = check_torch()
    yield torch
    yield check_cores()
    yield check_memory()
    yield check_disk()
    yield check_text()
    if torch.state != FAIL:
        yield check_cuda()
        gloo = check_gloo()
        yield gloo
        if gloo.state != FAIL:
            yield check_ranks()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def main() -> int:
    """Print the report. Returns 0 if the course can run here, else 1."""
    failed = []
    for finding in examine():
        print(f"{finding.state:<5} {finding.name:<9} {finding.text}", flush=True)
        if finding.state != OK and finding.remedy:
            print(f"{'':<15} -> {finding.remedy}", flush=True)
        if finding.state == FAIL:
            failed.append(finding.name)
    if failed:
        print(f"Not yet: {', '.join(failed)}.")
        return 1
    print("This machine can run it.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
