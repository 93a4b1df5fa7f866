"""Carries a function, its arguments and the surroundings to the ranks, and results back.

Everything travels by cloudpickle through files in the launch's own folder, which only this user can
read.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import io
import linecache
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator

import cloudpickle

from . import _rank


def pack(folder: str, fn: Callable, args: tuple) -> None:
    """Write what the ranks read: their surroundings (plain data), then `(fn, args)`."""
    task = _dumps_task(fn, args)
    surroundings = {
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "path": list(sys.path),
        # Cells have no file: their source text is in linecache, marked by a missing time.
        "sources": {
            name: entry
            for name, entry in list(linecache.cache.items())
            if len(entry) == 4 and entry[1] is None
        },
    }
    with open(f"{folder}/{_rank.RECEIVED}", "wb") as file:
        pickle.dump(surroundings, file)
        file.write(task)


def result(folder: str, rank: int) -> object:
    """The result that a rank has left in the launch's folder."""
    with open(f"{folder}/{_rank.RESULT}{rank}", "rb") as file:
        try:
            return pickle.load(file)
        except Exception as error:
            raise RuntimeError(
                f"the result of rank {rank} cannot be rebuilt in the launching process "
                f"({type(error).__name__}: {error}). Return tensors, numbers or strings instead."
            ) from error


class _Pickler(cloudpickle.Pickler):
    """Keeps the file names of functions, which cloudpickle 3.1.3 drops: errors show their lines."""


def _reduce_code(code: types.CodeType) -> tuple:
    make, values = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return make, tuple(code.co_filename if v == "<dynamic-code>" else v for v in values)


_Pickler.dispatch_table = collections.ChainMap(
    {types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
)


def _dumps(value: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


def _dumps_task(fn: Callable, args: tuple) -> bytes:
    with _by_value(fn, *args):
        try:
            return _dumps((fn, args))
        except Exception as error:
            raise TypeError(f"launch cannot copy {_culprit(fn, args, error)}") from error


def _culprit(fn: Callable, args: tuple, error: Exception) -> str:
    """The part of a task that cannot be pickled, and what to do."""
    parts = {f"argument {i} after world_size": value for i, value in enumerate(args, 1)}
    with contextlib.suppress(TypeError):  # not a Python function
        used = inspect.getclosurevars(fn)
        for name, value in {**used.nonlocals, **used.globals}.items():
            parts[f"{name!r}, which {fn.__name__} uses,"] = value
    for name, value in parts.items():
        try:
            _dumps(value)
        except Exception as reason:
            kind = f"(a {type(value).__name__}) to the ranks: {reason}"
            return f"{name} {kind}. Make it inside of the function, on each rank."
    return f"{getattr(fn, '__name__', fn)!r} to the ranks: {error}"


@contextlib.contextmanager
def _by_value(*objects: object) -> Iterator[None]:
    """Copy what these objects' modules define, if a rank could not import it or better should not.

    Functions and classes of other modules are sent as names, and imported by the rank. A test
    module is copied because importing it would bring pytest into every rank.
    """
    modules = {_module_of(value) for value in objects} - {None}
    chosen = [m for m in modules if _is_test(m) or not _importable(m)]
    chosen = [m for m in chosen if m.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for module in chosen:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in chosen:
            cloudpickle.unregister_pickle_by_value(module)


def _module_of(value: object) -> types.ModuleType | None:
    while isinstance(value, functools.partial):
        value = value.func
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return module if module is not None and module.__name__ != "__main__" else None


def _is_test(module: types.ModuleType) -> bool:
    name = module.__name__.rpartition(".")[2]
    return name.startswith("test_") or name.endswith("_test") or name == "conftest"


def _importable(module: types.ModuleType) -> bool:
    """Whether a fresh process, with our import path, would find the same module by its name."""
    path = getattr(sys.modules.get(module.__name__.rpartition(".")[0]), "__path__", None)
    for finder in sys.meta_path:  # importlib.util.find_spec would not search for a loaded module
        spec = finder.find_spec(module.__name__, path)
        if spec is not None:
            return spec.origin == getattr(module, "__file__", spec.origin)
    return False
