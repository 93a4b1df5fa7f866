"""What `zero.launch` does when all goes well, and what it refuses before anything is started."""

import functools
import importlib
import json
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from torch import nn

import helpers
from zero import comm
from zero.launch import RankError, launch

pytestmark = pytest.mark.timeout(50)


@dataclass
class Pair:
    """A class that only this test module has."""

    rank: int
    value: torch.Tensor


def pair(rank, world_size):
    return Pair(rank, torch.full((2,), float(rank)))


def echo(rank, world_size, *args):
    return rank, world_size, args


def test_results_come_in_rank_order():
    assert launch(echo, 3, "a", [1, 2]) == [(r, 3, ("a", [1, 2])) for r in range(3)]


def test_four_ranks_are_the_default():
    assert [rank for rank, _, _ in launch(echo)] == [0, 1, 2, 3]


def test_ranks_have_a_process_group():
    def total(rank, world_size):
        x = torch.tensor([float(rank)])
        dist.all_reduce(x)
        return x.item(), dist.get_world_size(), comm.rank()

    assert launch(total, 3) == [(3.0, 3, rank) for rank in range(3)]


def test_a_world_of_one():
    assert launch(lambda rank, world_size: comm.all_reduce(torch.ones(2)).tolist(), 1) == [[1, 1]]


def test_lambdas_closures_partials_and_models_travel():
    model = nn.Linear(2, 1)

    def forward(factor, rank, world_size, other):
        return factor * model(torch.ones(2)), other.weight

    for out, weight in launch(functools.partial(forward, 3.0), 2, model):
        assert torch.equal(out, 3 * model(torch.ones(2)))
        assert torch.equal(weight, model.weight)


def test_classes_of_a_test_module_come_back_as_themselves():
    second = launch(pair, 2)[1]
    assert isinstance(second, Pair) and second.rank == 1
    assert torch.equal(second.value, torch.ones(2))


def test_test_modules_travel_without_pytest():
    assert launch(lambda rank, world_size: ("pytest" in sys.modules, __name__), 1) == [
        (False, __name__)
    ]


def test_functions_of_importable_modules_are_imported():
    def where(rank, world_size):
        return helpers.m0.__code__.co_filename, helpers.m0 is sys.modules["helpers"].m0

    assert launch(where, 1) == [(helpers.__file__, True)]


def test_a_module_that_cannot_be_imported_travels_too(tmp_path):
    spec = importlib.util.spec_from_loader("not_on_any_path", loader=None)
    module = importlib.util.module_from_spec(spec)
    exec("FACTOR = 3\ndef f(rank, world_size):\n    return FACTOR * rank\n", vars(module))
    sys.modules["not_on_any_path"] = module
    try:
        assert launch(module.f, 2) == [0, 3]
    finally:
        del sys.modules["not_on_any_path"]


def test_large_results_and_arguments():
    big = torch.arange(3_000_000)  # 24 MB
    (result,) = launch(lambda rank, world_size, x: x + 1, 1, big)
    assert torch.equal(result, big + 1)


def test_surroundings_are_those_of_the_call(tmp_path, monkeypatch):
    """The fork server has an older environment, folder and import path; ranks must not see it."""
    launch(echo, 1)
    (tmp_path / "made_later.py").write_text("VALUE = 5\n")
    monkeypatch.setenv("ZERO_TEST_SETTING", "new")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def look(rank, world_size):
        import made_later

        names = ("ZERO_TEST_SETTING", "HOME", "RANK", "WORLD_SIZE", "LOCAL_RANK")
        return made_later.VALUE, os.getcwd(), [os.environ.get(n) for n in names]

    second = launch(look, 2)[1]
    assert second == (5, str(tmp_path), ["new", None, "1", "2", "1"])
    assert "RANK" not in os.environ


def test_one_thread_per_rank():
    assert launch(lambda rank, world_size: torch.get_num_threads(), 2) == [1, 1]


def test_the_preload_hook_runs_before_the_function_arrives(tmp_path, monkeypatch):
    (tmp_path / "hooks.py").write_text(
        "import sys, types\n"
        "def install():\n"
        "    sys.modules['made_by_hook'] = types.SimpleNamespace(value=7)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ZERO_PRELOAD", "hooks:install")

    def use(rank, world_size):
        import made_by_hook

        return made_by_hook.value

    assert launch(use, 2) == [7, 7]
    monkeypatch.setenv("ZERO_PRELOAD", "hooks")
    with pytest.raises(RankError, match="'hooks', but must be 'module:function'"):
        launch(use, 2)


# --- output --------------------------------------------------------------------------------------


def chatter(rank, world_size):
    print("together")
    print(f"alone {rank}")
    os.write(1, b"from C\n")
    print("warning", rank, file=sys.stderr)
    print("unfinished", end="")


def test_output_in_rank_order_with_common_lines_once(capfd):
    launch(chatter, 2)
    out, err = capfd.readouterr()
    assert out.splitlines()[1:] == [
        "[all ranks] together",
        "[rank 0] alone 0",
        "[rank 1] alone 1",
        "[all ranks] from C",
        "[all ranks] unfinished",
    ]
    assert out.startswith("[rank 0] zero: gloo, 2 ranks")
    assert err == "[rank 0] warning 0\n[rank 1] warning 1\n"


def test_quiet(capfd):
    launch(chatter, 2, quiet=True)
    assert capfd.readouterr() == ("", "")


def test_live_lines_come_while_the_ranks_run(tmp_path, capfd):
    """Rank 0 ends only after its first line has been seen here."""
    seen = []

    def hear(line):
        seen.append(line)
        (tmp_path / "heard").touch()

    def speak(rank, world_size):
        print(f"begun {rank}")
        while rank == 0 and not (tmp_path / "heard").exists():
            pass
        print("done", end="")

    launch(speak, 2, live=hear)
    assert seen[-2:] == ["begun 0", "done"]
    assert capfd.readouterr().out == "[rank 1] begun 1\n[rank 1] done\n"


# --- side by side --------------------------------------------------------------------------------


def test_launches_from_several_threads_at_once():
    results = {}

    def one(number):
        results[number] = launch(lambda rank, n: (number, comm.all_reduce(torch.ones(1)).item()), 2)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: [(i, 1.0), (i, 1.0)] for i in range(3)}


def test_a_launch_inside_of_a_rank_is_refused():
    with pytest.raises(RankError, match="ranks cannot start ranks"):
        launch(lambda rank, world_size: launch(echo, 2), 2)


def test_spawned_ranks(monkeypatch):
    """macOS and Windows have no safe fork; there every rank is a new interpreter."""
    monkeypatch.setattr(sys.modules["zero.launch"], "_method", lambda: "spawn")
    assert launch(lambda rank, n, x: (rank, x, comm.world_size()), 2, 5) == [(0, 5, 2), (1, 5, 2)]


def run(*command, **kwargs):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=45, stdin=subprocess.DEVNULL, **kwargs
    )


def test_a_script_without_main_guard(tmp_path):
    """Ranks do not run the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        from zero import comm
        from zero.launch import launch

        print("script runs")
        SCALE = torch.tensor(2.0)

        class Result:
            def __init__(self, value):
                self.value = value

        def fn(rank, world_size):
            return Result(comm.all_reduce(SCALE * torch.ones(1), op="sum").item())

        results = launch(fn, 2, quiet=True)
        print([r.value for r in results], all(type(r) is Result for r in results))
        """)
    )
    done = run(sys.executable, script, cwd=tmp_path)
    assert done.stdout == "script runs\n[4.0, 4.0] True\n", done.stderr


def test_under_torchrun_each_process_is_a_rank(tmp_path):
    """Each writes a file of its own: lines that two processes print into one pipe may mix."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import json, os, sys, torch
        from zero import comm
        from zero.launch import launch

        f = lambda rank, n, x: (rank, n, x, comm.all_reduce(torch.ones(1), op="sum").item())
        results = launch(f, 4, "x", quiet=True)
        with open(f"{sys.argv[1]}/{os.environ['RANK']}.json", "w") as file:
            json.dump(results, file)
        """)
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = run(*torchrun, "--nproc-per-node", "2", script, tmp_path)
    assert done.returncode == 0, done
    said = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert said == {"0.json": [[0, 2, "x", 2.0]], "1.json": [[1, 2, "x", 2.0]]}


# --- refused before anything starts --------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ((4, echo), TypeError, "must be a function, but is 4"),
        ((echo, 0), ValueError, "world_size is 0, but must be from 1 to "),
        ((echo, -2), ValueError, "world_size is -2"),
        ((echo, 1000), ValueError, "world_size is 1000, but must be from 1 to "),
        ((echo, 2.0), TypeError, "whole number of ranks, but is 2.0"),
        ((echo, "4"), TypeError, "is '4' \\(str\\)"),
        ((echo, True), TypeError, "is True"),
        ((lambda rank: 0, 2), TypeError, "2 arguments, but it is defined as <lambda>\\(rank\\)"),
        ((pair, 2, "more"), TypeError, "pair\\(rank, world_size, ...\\) with 3 arguments"),
    ],
)
def test_arguments_that_cannot_work(arguments, error, words, monkeypatch):
    monkeypatch.setattr(sys.modules["zero.launch"], "_start", None)
    with pytest.raises(error, match=words):
        launch(*arguments)


def test_options_that_cannot_work():
    with pytest.raises(ValueError, match="timeout is 0, but must be seconds above 0"):
        launch(echo, 2, timeout=0)
    with pytest.raises(ValueError, match="backend is 'gluo', but must be 'gloo', 'nccl' or None"):
        launch(echo, 2, backend="gluo")


def test_more_ranks_than_memory(monkeypatch):
    monkeypatch.setattr(sys.modules["zero.launch"], "_free_memory", lambda: 350 << 20)
    with pytest.raises(ValueError, match=r"from 1 to 3: 0\.4 GB of memory are free"):
        launch(echo, 4)


def test_what_cannot_be_copied_is_named():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="argument 2 after world_size \\(a generator\\)"):
        launch(echo, 2, 5, (i for i in range(3)))
    with pytest.raises(TypeError, match="'lock', which <lambda> uses, \\(a lock\\)"):
        launch(lambda rank, world_size: lock, 2)
