"""Checkpoints that were damaged, or made to do harm: refused before a weight moves.

A thousand random mutations are tried; with ZERO_FULL=1, five thousand.
"""

import contextlib
import copy
import json
import os
import random
import shutil
import sys
import threading
import warnings

import pytest
import torch
from torch import nn

import checkpoints
import helpers
import zero
from checkpoints import on_ranks, rewrite
from zero import comm, manifest
from zero.checkpoint import BrokenCheckpoint, CheckpointError

FULL = os.environ.get("ZERO_FULL") == "1"
MODEL = "mixed"


def build(rank, world_size, stage=1):
    return checkpoints.build(rank, world_size, MODEL, stage)


def save_steps(rank, world_size, root, steps):
    model, opt = build(rank, world_size)
    for step in steps:
        helpers.train_sharded(model, opt, [step - 1], checkpoints.rows)
        zero.checkpoint.save(root, model, opt, step, {"note": "x"})
    return checkpoints.kept(opt)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with checkpoints of steps 1, 2 and 3, by two ranks."""
    root = tmp_path_factory.mktemp("sound") / "root"
    on_ranks(save_steps, 2, str(root), (1, 2, 3))
    return root


@pytest.fixture
def root(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "root")


def snapshot(model, opt):
    """Everything that a load could change, as bytes and numbers."""
    tensors = [*model.state_dict().values(), *(s.param.data for s in opt.slices)]
    states = [opt.inner.state[s.param] for s in opt.slices if s.param in opt.inner.state]
    tensors += [t for state in states for t in state.values()]
    groups = [{k: v for k, v in g.items() if k != "params"} for g in opt.param_groups]
    as_bytes = [t.detach().reshape(-1).contiguous().view(torch.uint8).tolist() for t in tensors]
    return as_bytes, groups, opt.steps, torch.get_rng_state().tolist()


def load(folder, step="latest"):
    """On two ranks: the error text, or the step; the warnings; whether anything had changed."""

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        helpers.train_sharded(model, opt, [7], checkpoints.rows)
        before = snapshot(model, opt)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = zero.checkpoint.load(folder, model, opt, step).step
            except CheckpointError as error:
                found = f"{type(error).__name__}: {error}"
        return found, [str(w.message) for w in said], snapshot(model, opt) == before

    first, second = on_ranks(run, 2)
    assert first[0] == second[0]
    assert not second[1]
    assert first[2] == second[2] == isinstance(first[0], str)
    return first[0], first[1]


# --- the newest is broken -----------------------------------------------------------------------


def without_folder(root):
    shutil.rmtree(root / "step-00000003")
    return "names step-00000003, and there is no such folder"


def without_manifest(root):
    (root / "step-00000003/manifest.json").unlink()
    return "step-00000003/manifest.json is missing"


def altered_manifest(root):
    file = root / "step-00000003/manifest.json"
    content = file.read_text()
    assert content.count('"lr": 0.01') == 1
    file.write_text(content.replace('"lr": 0.01', '"lr": 0.02'))
    return "step-00000003/manifest.json: altered or cut short"


def cut_shard(root):
    file = root / "step-00000003/rank-00001.safetensors"
    size = file.stat().st_size
    os.truncate(file, size - 10)
    return f"rank-00001.safetensors: {size - 10} bytes, the manifest says {size}"


def flipped_byte(root):
    file = root / "step-00000003/rank-00001.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    return "rank-00001.safetensors: sha256 is "


def missing_shard(root):
    (root / "step-00000003/rank-00000.safetensors").unlink()
    return "rank-00000.safetensors is missing"


def bad_pointer(root):
    (root / "latest").write_text("../../etc\n")
    return "latest says '../../etc', which is no checkpoint's name"


def no_pointer(root):
    (root / "latest").unlink()
    return "latest is missing"


@pytest.mark.parametrize(
    "damage",
    [
        without_folder,
        without_manifest,
        altered_manifest,
        cut_shard,
        flipped_byte,
        missing_shard,
    ],
)
def test_falls_back_to_the_newest_complete_one(damage, root):
    """F4, F7: a warning names what was passed over, and what was taken."""
    reason = damage(root)
    found, said = load(root)
    assert found == 2
    assert len(said) == 1
    assert reason in said[0]
    assert str(root / "step-00000003") in said[0] or "step-00000003" in said[0]
    assert f"using {root / 'step-00000002'} instead" in said[0]


@pytest.mark.parametrize("damage", [bad_pointer, no_pointer])
def test_a_broken_pointer_hides_nothing(damage, root):
    reason = damage(root)
    found, said = load(root)
    assert found == 3
    assert reason in said[0]


@pytest.mark.parametrize("damage", [without_manifest, cut_shard, flipped_byte, missing_shard])
def test_what_was_asked_for_by_name_is_not_replaced(damage, root):
    """A step or a folder that the user named is loaded or refused, with file, expected, found."""
    reason = damage(root)
    for folder, step in ((root / "step-00000003", "latest"), (root, 3)):
        found, said = load(folder, step)
        assert found.startswith("BrokenCheckpoint")
        assert reason in found
        assert not said
    found, _ = load(root, 1)
    assert found == 1


def test_nothing_complete_is_never_a_silent_start(tmp_path, root):
    """F4: an empty folder needs allow_fresh; broken checkpoints are an error even then."""
    for path in root.glob("step-*"):
        (path / "manifest.json").unlink()

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        for folder, fresh in ((tmp_path / "none", False), (root, False), (root, True)):
            with pytest.raises(CheckpointError) as caught:
                zero.checkpoint.load(folder, model, opt, allow_fresh=fresh)
            assert str(folder) in str(caught.value)
        assert "no complete checkpoint" in str(caught.value)
        assert all(f"step-0000000{n} is broken" in str(caught.value) for n in (1, 2, 3))
        with pytest.raises(CheckpointError, match="no checkpoint of step 9"):
            zero.checkpoint.load(root, model, opt, step=9)
        at = zero.checkpoint.load(tmp_path / "none", model, opt, allow_fresh=True)
        assert (at.step, at.extra, at.folder) == (0, None, None)

    on_ranks(run, 2)


# --- another model ----------------------------------------------------------------------------


def test_a_checkpoint_that_does_not_fit(root):
    """Sound, but of another model or optimizer: no fallback, and the difference is named."""

    class Other(checkpoints.Mixed):
        def __init__(self, change):
            super().__init__()
            change(self)

    def with_module(name, module):
        return lambda: Other(lambda self: setattr(self, name, module))

    def frozen():
        return Other(lambda self: self.unused.requires_grad_(False))

    def with_buffer():
        return Other(lambda self: self.register_buffer("more", torch.ones(1)))

    def untied():
        return Other(lambda self: setattr(self.second, "weight", nn.Parameter(torch.ones(7, 7))))

    one = {"make": checkpoints.Mixed}
    cases = [
        ({"make": with_module("unused", nn.Linear(4, 11))}, "shape of unused.weight is [11, 3] in"),
        (
            {"make": with_module("more", nn.Linear(2, 2))},
            "parameter more.weight, more.bias is only",
        ),
        (
            {"make": with_module("unused", nn.Identity())},
            "unused.weight, unused.bias is only in the",
        ),
        ({"make": frozen}, "trainable of unused.weight is True in the checkpoint and False here"),
        ({"make": with_buffer}, "buffer more is only here"),
        ({"make": untied}, "parameter second.weight is only here"),
        (
            {"make": lambda: checkpoints.Mixed().double()},
            "is float32 in the checkpoint and float64 here",
        ),
        ({**one, "optimizer": torch.optim.SGD}, "the optimizer is torch.optim.adamw.AdamW in the"),
        ({**one, "groups": checkpoints.interleaved_groups}, "number of parameter groups is 1 in"),
        ({**one, "betas": (0.9, 0.99, 0.5)}, "betas of group 0"),
    ]

    def run(rank, world_size):
        for options, reason in cases:
            with contextlib.suppress(ValueError):  # torch itself may refuse three betas
                model, opt = helpers.sharded(rank, world_size, 1, **options)
                before = snapshot(model, opt)
                with pytest.raises(CheckpointError) as caught:
                    zero.checkpoint.load(root, model, opt)
                assert reason in str(caught.value)
                assert not isinstance(caught.value, BrokenCheckpoint)
                assert snapshot(model, opt) == before
        model, opt = build(rank, world_size)
        scheduler = torch.optim.lr_scheduler.StepLR(opt, 1)
        with pytest.raises(CheckpointError, match="holds no scheduler"):
            zero.checkpoint.load(root, model, opt, scheduler=scheduler)
        with pytest.raises(CheckpointError, match="not the model that was given"):
            zero.checkpoint.load(root, helpers.m0(), opt)

    on_ranks(run, 2)


# --- mutations ----------------------------------------------------------------------------------

HUGE = [-1, 1 << 31, 1 << 63, 10**30, 1e308, float("inf"), float("nan"), 0.5]
TRICKS = ["../secret", "/etc/passwd", "rank-00000.safetensors/../../secret", "", "\0", "a" * 5000]
WRONG = [None, True, "text", [], {}, [[]], {"a": 1}, ["__reduce__", "os.system"]]


def damaged(data, chance):
    """The bytes with one thing wrong: flipped, cut, removed, doubled, zeroed, or random ones."""
    data = bytearray(data)
    at, length = chance.randrange(len(data)), chance.randrange(1, 64)
    how = chance.randrange(6)
    if how == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif how == 1:
        del data[at:]
    elif how == 2:
        del data[at : at + length]
    elif how == 3:
        data[at:at] = data[at : at + length]
    elif how == 4:
        data[at : at + length] = bytes(b ^ 0xFF for b in data[at : at + length])
    else:
        data += chance.randbytes(length)
    return bytes(data)


def damage_a_file(folder, chance):
    """A manifest or shard as a bad disk would leave it."""
    path = chance.choice(sorted(folder.iterdir()))
    how = chance.randrange(8)
    if how == 0:
        path.unlink()
    elif how == 1:
        other = chance.choice([p for p in sorted(folder.iterdir()) if p != path])
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes(damaged(path.read_bytes(), chance))
    return f"{path.name} damaged ({how})"


def places(value, path=()):
    """The paths of all values in nested dicts and lists, but for what is the user's own."""
    yield path
    if isinstance(value, (dict, list)) and path[:1] not in (("extra",), ("scheduler",)):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in inner:
            yield from places(part, (*path, key))


def change_a_field(folder, chance):
    """A manifest with a right checksum and one wrong field: what an attacker would write."""
    done = []

    def change(content):
        path = chance.choice([p for p in places(content) if p not in NOT_CHECKED and p])
        parent = content
        for key in path[:-1]:
            parent = parent[key]
        old, how = parent[path[-1]], chance.randrange(3)
        if how == 0 or (isinstance(old, (dict, list)) and how == 1):
            del parent[path[-1]]
            done.append(f"{path} removed")
            return
        new = chance.choice([HUGE, TRICKS, WRONG][how])
        while type(new) is type(old) and (new == old or isinstance(old, (float, bool))):
            new = chance.choice(TRICKS + HUGE[:4])
        if isinstance(parent, dict) and chance.random() < 0.2:
            parent[chance.choice(TRICKS)] = parent.pop(path[-1])
            done.append(f"{path} renamed")
            return
        parent[path[-1]] = copy.deepcopy(new)
        done.append(f"{path}: {old!r:.50} became {new!r:.50}")

    rewrite(folder, change)
    return done[0]


# What any JSON may stand in, and numbers of which every value is a sound one.
NOT_CHECKED = {("extra",), ("scheduler",), ("loss_scale",)}


def change_a_header(folder, chance):
    """A shard whose header lies, with the checksums of the manifest made right."""
    path = chance.choice(sorted(folder.glob("rank-*")))
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[:8], "little")
    how = chance.randrange(3)
    if how == 0:
        content[chance.randrange(8 + length)] ^= 1 << chance.randrange(8)
    elif how == 1:
        content[:8] = chance.choice([0, 1, length + 8, 1 << 40, (1 << 64) - 1]).to_bytes(
            8, "little"
        )
    else:
        header = json.loads(content[8 : 8 + length])
        entry = header[chance.choice(sorted(header))]
        field = chance.choice(["dtype", "shape", "data_offsets"])
        entry[field] = chance.choice([*HUGE, *WRONG, [0, 1 << 62], [-8, 8], [1 << 62, 1 << 63]])
        text = json.dumps(header).encode()
        content[: 8 + length] = len(text).to_bytes(8, "little") + text
    path.write_bytes(content)

    def reseal(found):
        size, sha256 = path.stat().st_size, zero.shards.sha256_of(path)
        found["files"][path.name] = {"bytes": size, "sha256": sha256}

    rewrite(folder, reseal)
    return f"header of {path.name} changed ({how})"


class Spy:
    """Sees every file that this process opens, and everything that it executes or imports."""

    def __init__(self):
        self.opened, self.executed, self.on = [], [], False
        # The launcher's listener reads source files and /proc, whenever it is asked.
        self.others = {t.ident for t in threading.enumerate()} - {threading.get_ident()}
        sys.addaudithook(self.see)

    def see(self, event, args):
        if threading.get_ident() in self.others:
            return
        if self.on and event == "open" and not isinstance(args[0], int):
            self.opened.append(os.fsdecode(args[0]))
        elif self.on and event in ("exec", "compile", "pickle.find_class", "os.system"):
            self.executed.append(event)


def try_mutations(rank, world_size, root, count):
    """Load `count` damaged copies. What was wrong with those that were not refused properly."""
    folder = f"{root}/step-00000003"
    spy, wrong, kinds, work = Spy(), [], {}, os.path.join(os.path.dirname(root), "mutated")
    model, opt = build(rank, world_size)
    helpers.train_sharded(model, opt, 1, checkpoints.rows)
    zero.checkpoint.load(folder, model, opt)  # imports all that it needs
    with contextlib.suppress(CheckpointError):
        zero.checkpoint.load(work, model, opt)
    before = snapshot(model, opt)
    for number in range(count):
        chance = random.Random(number)
        mutate = chance.choice([damage_a_file, change_a_field, change_a_field, change_a_header])
        shutil.rmtree(work, ignore_errors=True)
        target = shutil.copytree(folder, zero.disk.Path(work) / "step-00000003")
        what = f"{number}: {mutate(target, chance)}"
        kinds[mutate.__name__] = kinds.get(mutate.__name__, 0) + 1
        spy.opened.clear()
        spy.on = True
        try:
            zero.checkpoint.load(target, model, opt)
            problem = "was loaded"
        except CheckpointError as error:
            named = work in str(error) or "in the checkpoint" in str(error)
            problem = "" if named else f"names nothing: {error}"
        except Exception as error:
            problem = f"raised {error!r}"
        spy.on = False
        outside = [path for path in spy.opened if not path.startswith(work + os.sep)]
        if outside or spy.executed:
            problem += f" opened {outside} executed {spy.executed}"
        if problem or snapshot(model, opt) != before:
            wrong.append(f"{what}: {problem or 'changed the model'}")
            zero.checkpoint.load(folder, model, opt)
    return wrong, kinds


@pytest.mark.timeout(900)
def test_mutations_are_refused(root, capsys):
    """Each with a CheckpointError that names the file or the field, the model bitwise as before,
    and no file opened outside of the checkpoint's folder."""
    count = 5000 if FULL else 1000
    ((wrong, kinds),) = helpers.on_ranks(try_mutations, 1, str(root), count, timeout=800)
    assert not wrong, "\n".join(wrong)
    with capsys.disabled():
        print(f"\n{count} mutations refused: {kinds}")


def test_links_and_other_things_that_are_no_files(root, tmp_path):
    """A link to a sound file outside is refused like any other trick; a pipe does not hang."""
    outside = shutil.copytree(root, tmp_path / "outside")
    folder = root / "step-00000003"
    for name in ("manifest.json", "rank-00001.safetensors"):
        for make in (
            lambda path, name: path.symlink_to(outside / "step-00000003" / name),
            lambda path, name: os.mkfifo(path),
            lambda path, name: path.mkdir(),
        ):
            path = folder / name
            path.unlink()
            make(path, name)
            with pytest.raises(BrokenCheckpoint, match=f"{name} (is not an|cannot be read as a) "):
                zero.checkpoint.verify(folder)
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            shutil.copy(outside / "step-00000003" / name, path)
    assert zero.checkpoint.verify(root)["step"] == 3
    shutil.rmtree(folder)
    folder.symlink_to(outside / "step-00000003")
    with pytest.warns(UserWarning, match="there is no such folder"):
        assert zero.checkpoint.verify(root)["step"] == 2


def test_a_manifest_that_is_too_long_is_not_read(root, monkeypatch):
    monkeypatch.setattr(manifest, "LONGEST", 100)
    with pytest.raises(BrokenCheckpoint, match="too many for a manifest"):
        zero.checkpoint.inspect(root / "step-00000003")


def test_a_counter_that_could_not_be_loaded_is_not_saved(tmp_path):
    """What is written is checked like what is read."""

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        helpers.train_sharded(model, opt, 1, checkpoints.rows)
        next(iter(opt.inner.state.values()))["step"].fill_(float("nan"))
        with pytest.raises(CheckpointError, match="the number 'step' is "):
            zero.checkpoint.save(tmp_path, model, opt, 1)
        assert comm.any_rank(False) is False

    on_ranks(run, 1)
    assert os.listdir(tmp_path) == []
