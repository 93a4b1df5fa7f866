"""`zero.launch` in a real Jupyter kernel (case G7)."""

import os
import re
import time

import pytest
from jupyter_client.manager import start_new_kernel

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=40)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture
def run(kernel):
    """Run a cell; returns what it printed and the lines of its error, as plain text."""
    _, client = kernel

    def run_cell(source):
        outputs = {"stdout": "", "stderr": "", "error": []}

        def hear(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                outputs[content["name"]] += content["text"]
            elif message["msg_type"] == "error":
                text = "\n".join(content["traceback"])
                outputs["error"] = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
                outputs["name"] = content["ename"]

        client.execute_interactive(source, timeout=40, output_hook=hear)
        return outputs

    run_cell("import torch\nfrom torch import nn\nfrom zero import comm, launch, RankError\n")
    return run_cell


def test_functions_lambdas_closures_and_models_of_cells(run):
    run("SCALE = 2.0\nclass Net(nn.Linear):\n    pass\nmodel = Net(2, 1, bias=False)\n")
    run(
        "def fn(rank, world_size, net):\n"
        "    total = comm.all_reduce(SCALE * torch.ones(1), op='sum').item()\n"
        "    return total, torch.equal(net.weight, model.weight), net\n"
    )
    done = run(
        "results = launch(fn, 2, model, quiet=True)\n"
        "print([r[:2] for r in results], type(results[1][2]) is Net)\n"
        "print(launch(lambda rank, n: rank * SCALE, 2, quiet=True))\n"
        "def make(k):\n    return lambda rank, n: k + rank\n"
        "print(launch(make(5), 2))\n"
    )
    assert done["error"] == []
    assert done["stdout"].splitlines() == [
        "[(4.0, True), (4.0, True)] True",
        "[0.0, 2.0]",
        "[rank 0] zero: gloo, 2 ranks (on the CPU: this machine has no CUDA device); "
        "collectives made of sends",
        "[5, 6]",
    ]


def test_changed_globals_are_seen(run):
    run("x = 1\nread = lambda rank, n: x\nlaunch(read, 1)\nx = 2")
    assert run("print(launch(read, 1, quiet=True))")["stdout"] == "[2]\n"


def test_an_error_shows_the_line_of_the_cell_and_nothing_else(run):
    done = run(
        "def broken(rank, world_size):\n"
        "    print('on the way')\n"
        "    if rank == 1:\n"
        "        raise ValueError('too long')\n"
        "    comm.barrier()\n"
        "launch(broken, 2)"
    )
    assert "[all ranks] on the way\n" in done["stdout"]
    assert done["name"] == "RankError"
    first, line, other, waits = done["error"]
    assert first == "RankError: rank 1 raised ValueError: too long"
    assert re.fullmatch(
        r" +line 4 of Cell In\[\d+\], in broken:  raise ValueError\('too long'\)", line
    )
    assert other == "rank 0 waited in all_gather_small(barrier, 1 x uint8)"
    assert re.fullmatch(r" +line 5 of Cell In\[\d+\], in broken:  comm.barrier\(\)", waits)


def test_interrupting_the_kernel_ends_the_ranks(kernel, run, tmp_path):
    manager, client = kernel
    source = (
        "import os, time\n"
        "def sleep(rank, world_size):\n"
        f"    open(r'{tmp_path}/' + str(os.getpid()), 'w').close()\n"
        "    time.sleep(1000)\n"
        "launch(sleep, 2)"
    )
    client.execute(source)
    while len(os.listdir(tmp_path)) < 2:
        time.sleep(0.05)
    manager.interrupt_kernel()
    client.wait_for_ready(timeout=20)
    for pid in map(int, os.listdir(tmp_path)):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert run("print(launch(lambda rank, n: rank, 2, quiet=True))")["stdout"] == "[0, 1]\n"
