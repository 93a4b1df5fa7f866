"""Every command in every document is run: as it stands, or with arguments that make it short.

A command that a document gains and that nobody has said how to run fails here.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")),
    *sorted((ROOT / "lessons" / "source").glob("*.md")),
]
STARTS = r"(?:make|python3?|pytest|torchrun|\.venv/bin/\w+) "
EXERCISE = "zero.flat.shard_bounds"

AS_IT_STANDS = {
    "make doctor": 0,
    "make help": 0,
    "make progress": 0,
    f"make hint EX={EXERCISE} N=1": 0,
    f"make check EX={EXERCISE}": 0,
    f"make reset EX={EXERCISE}": 0,
    "pytest tests/lessons/test_01_flat.py": 0,
}
SHORTER = {
    "make demo": "make demo ARGS='--model mlp --stages 0 1 --steps 2 --ranks 2 --no-figure'",
    "make lessons": "python -m course build --check --no-run 01_flat",
    "python -m course check PATH": f"python -m course check {EXERCISE}",
    "python -m course hint PATH 1": f"python -m course hint {EXERCISE} 1",
    ".venv/bin/ruff format .": "ruff format --check .",
}
ELSEWHERE = {
    "make lab": "test_documents.py::test_make_lab_opens_jupyter",
    'make test ARGS="-k flat -x"': "test_course_pytest.py::test_our_solutions",
    "python code/main.py compare": "test_main.py::test_compare_is_the_default",
    "python code/main.py compare --mine": "test_main.py::test_mine_says_whose_code_runs",
    "python code/main.py compare --activations none checkpoint partition offload --tp 2": (
        "test_main_activations.py::test_all_modes"
    ),
    "python code/main.py compare --offload disk --model gpt-126m --ranks 2 --batch 1 --steps 4": (
        "test_main_offload.py::test_in_memory_and_on_disk"
    ),
    "python code/main.py train": "test_main.py::test_train_learns_on_its_own_ranks",
    "torchrun --nproc-per-node 2 code/main.py train": (
        "test_main.py::test_train_works_alone_and_under_torchrun"
    ),
    "python code/main.py profile": "test_profile.py::test_profile_prints_every_move",
    "python code/main.py bench": "test_bench.py::test_bench_compares_with_ddp",
    "python code/main.py checkpoint": "test_checkpoint_cli.py::test_inspect_and_verify",
}
CODES = {**AS_IT_STANDS, "python -m course check PATH": 2}  # not written yet
# Setting up, and running all the tests: whoever runs this test has done both.
DONE = {
    "make test",
    "make test PYTHON=python3.12",
    ".ci/run",
    "python3 -m venv .venv",
    ".venv/bin/python -m pip install -r requirements.txt",
    ".venv/bin/python -m pytest",
}


def commands(document: Path) -> list[str]:
    """What stands in code blocks and between backticks and begins like a command."""
    text = document.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`\n]+)`", outside)
    return [c for c in dict.fromkeys(lines + spans) if re.match(STARTS, c) or c == ".ci/run"]


WRITTEN = [(doc, command) for doc in DOCUMENTS for command in commands(doc)]


@pytest.fixture
def env(tmp_path) -> dict[str, str]:
    """The learner's pieces elsewhere, and this Python's programs first."""
    unset = {"CI", "MAKEFLAGS", "MAKELEVEL", "PYTEST_ADDOPTS"}
    inherited = {k: v for k, v in os.environ.items() if k not in unset}
    programs = Path(sys.executable).parent
    return {
        **inherited,
        "COURSE_MINE": str(tmp_path / "mine"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "code"),
        "VENV": str(programs.parent),
    }


@pytest.fixture(autouse=True)
def set_up_by_make():
    if not (Path(sys.executable).parents[1] / ".ready").exists():
        pytest.skip("this environment was not set up by make, which would now do it")


def test_it_is_known_how_each_command_is_run():
    known = {*AS_IT_STANDS, *SHORTER, *ELSEWHERE, *DONE}
    unknown = [f"{doc.name}: {c}" for doc, c in WRITTEN if c not in known]
    assert not unknown
    assert known - {c for _, c in WRITTEN} == set(), "no document has these any more"
    for where in ELSEWHERE.values():
        file, name = where.split("::")
        assert f"def {name}" in (Path(__file__).parent / file).read_text(), where


@pytest.mark.parametrize("command", [*AS_IT_STANDS, *SHORTER])
def test_a_command_works(command, env):
    done = subprocess.run(
        SHORTER.get(command, command),
        shell=True,
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == CODES.get(command, 0), done.stdout + done.stderr


def test_make_lab_opens_jupyter(env, tmp_path):
    """At lesson 00. The browser is a script that writes down what it is to open: a small page that
    leads to the lesson's address."""
    (tmp_path / "jupyter_server_config.py").write_text("c.ServerApp.port = 0\n")
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\ncat "${{1#file://}}" >{opened}.part\nmv {opened}.part {opened}\n'
    )
    browser.chmod(0o755)
    env |= {"BROWSER": f"{browser} %s", "JUPYTER_CONFIG_DIR": str(tmp_path)}
    log = tmp_path / "log"
    with open(log, "w") as file:
        lab = subprocess.Popen(
            ["make", "lab"], cwd=ROOT, env=env, stdout=file, stderr=file, start_new_session=True
        )
    try:
        end = time.monotonic() + 60
        while not opened.exists():
            assert lab.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        (address,) = re.findall(r'href="(\S+)"', opened.read_text())
        assert "/lab/tree/lessons/00_memory_wall.ipynb?" in address
        assert (ROOT / "lessons" / "00_memory_wall.ipynb").is_file()
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(20)


def test_the_python_of_the_readme_runs(env, tmp_path):
    """The training loop, as it stands, on one rank."""
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)
    batches = "import torch\nbatches = [(torch.arange(32).view(2, 16),) * 2] * 2\n"
    done = subprocess.run(
        [sys.executable, "-c", batches + block],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "a" / "latest").exists()
