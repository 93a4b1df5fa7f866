"""The doctor: what it finds, what it advises, and its exit code."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from zero import doctor
from zero.doctor import FAIL, NOTE, OK

LAUNCH = sys.modules["zero.launch"]  # the module; zero.launch is its function
SCRIPT = str(Path(doctor.__file__).resolve())


def run(*flags: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-I", *flags, SCRIPT]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


def test_this_machine_can_run_it():
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 ranks started and added up" in done.stdout
    assert done.stdout.splitlines()[-1] == "This machine can run it."
    for name in ("Python", "packages", "torch", "gloo", "cores", "memory", "disk", "CUDA"):
        assert f" {name} " in done.stdout


def test_without_the_packages_it_still_runs_and_says_what_to_do():
    done = run("-S")  # no site-packages: as on a machine before the set-up
    assert done.returncode == 1 and not done.stderr
    assert "torch     not installed" in done.stdout
    assert done.stdout.count("make demo") == 2
    assert done.stdout.splitlines()[-1] == "Not yet: packages, torch."


@pytest.mark.parametrize(
    ("version", "state"),
    [((3, 9, 18), FAIL), ((3, 10, 0), OK), ((3, 13, 2), OK), ((3, 14, 0), FAIL)],
)
def test_python(version, state):
    finding = doctor.check_python(version)
    assert finding.state == state
    assert bool(finding.remedy) == (state == FAIL)


@pytest.mark.parametrize(
    ("version", "state"),
    [("2.10.1+cu130", FAIL), ("2.11.0", OK), ("2.13.0+cpu", OK), ("3.0.0a0+git1", OK)],
)
def test_torch(monkeypatch, version, state):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    assert doctor.check_torch().state == state


def test_torch_that_does_not_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    finding = doctor.check_torch()
    assert finding.state == FAIL and "does not import" in finding.text and finding.remedy


def test_packages(tmp_path):
    file = tmp_path / "requirements.txt"
    pytest_pin = f"pytest=={importlib.metadata.version('pytest')}"
    for pins, state, named in (
        (f"# a comment\n{pytest_pin}  # why\n-e .\n", OK, ""),
        (f"{pytest_pin}\nno-such-thing==1.0\n", FAIL, "no-such-thing"),
        ("pytest==0.1\n", NOTE, "pytest"),
    ):
        file.write_text(pins)
        finding = doctor.check_packages(file)
        assert finding.state == state and named in finding.text
    assert doctor.check_packages(tmp_path / "absent").state == NOTE


@pytest.mark.parametrize(("free", "state"), [(0.5e9, FAIL), (1.5e9, NOTE), (8e9, OK), (None, NOTE)])
def test_memory(monkeypatch, free, state):
    monkeypatch.setattr(doctor, "free_memory", lambda: free)
    assert doctor.check_memory().state == state


def test_free_memory_is_plausible():
    free = doctor.free_memory()
    assert free is None or 50e6 < free < 1e15


def test_disk(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: SimpleNamespace(free=10))
    finding = doctor.check_disk()
    assert finding.state == FAIL and "make room" in finding.remedy


def test_ranks_that_do_not_start(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no loopback\nmore lines")

    monkeypatch.setattr(LAUNCH, "launch", broken)
    finding = doctor.check_ranks()
    assert finding.state == FAIL
    assert finding.text == "4 ranks do not start: no loopback" and finding.remedy


def test_ranks_that_cannot_add(monkeypatch):
    monkeypatch.setattr(LAUNCH, "launch", lambda *_, **__: [6.0, 6.0, 6.0, 5.0])
    assert doctor.check_ranks().state == FAIL


def test_cuda(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert "no device" in doctor.check_cuda().text
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    assert doctor.check_cuda().state == NOTE
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "GPU")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert "without NCCL" in doctor.check_cuda().text
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 29, 3))
    assert "2 x GPU, NCCL 2.29.3" in doctor.check_cuda().text


def test_a_python_without_its_reference_text(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    finding = doctor.check_text()
    assert finding.state == NOTE and "--text FILE" in finding.remedy
