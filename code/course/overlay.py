"""Put a learner's piece into the package in place of ours.

The learner's file is executed in the namespace of its module, as if it had been written there:
right after the module is loaded, or at once if it is loaded already. Other modules that said
``from zero.flat import flatten_params`` get the new one too. The same is done in every rank: ranks
inherit the list of pieces in their environment, and ``zero.launch`` calls :func:`preload` before
it unpickles what they are to run.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path

from course import limits, pieces, source

PIECES_VARIABLE = "ZERO_PIECES"
PRELOAD_VARIABLE = "ZERO_PRELOAD"
LIBRARIES = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class PieceError(ImportError):
    """A learner's file cannot take the place of ours."""


_originals: dict[str, object] = {}  # what stood there before, by path
_helpers: dict[tuple[str, str], Path] = {}  # (module, name) of further names, and whose they are
_later: dict[str, tuple[str, Path]] = {}  # module and file of pieces whose module is not loaded
_failed: dict[str, Exception] = {}  # what those raised, when their module was loaded with ours


def install(chosen: dict[str, Path]) -> None:
    """Put these pieces (path: file) in place, here and in all ranks started from now on.

    Raises what the learner's file raises when it is executed, or :class:`PieceError`; those whose
    module is not loaded yet are executed when it is.
    """
    for path, file in chosen.items():
        module = source.locate(path).module
        if module in sys.modules:
            replace(path, file)
        else:
            _later[path] = module, file
    _tell_ranks({**_told(), **{path: str(file) for path, file in chosen.items()}})


def install_and_load(path: str, file: Path) -> None:
    """Like :func:`install` for one piece, and load its module, so that its errors show at once."""
    install({path: file})
    importlib.import_module(source.locate(path).module)
    if path in _failed:
        raise _failed.pop(path)


def restore(*paths: str) -> None:
    """Put ours back: for these paths, or for all."""
    for path in paths or [*_originals, *_later]:
        _later.pop(path, None)
        if path in _originals:
            _set(source.locate(path), _originals.pop(path))
    _tell_ranks({path: file for path, file in _told().items() if paths and path not in paths})


def in_place() -> dict[str, Path]:
    """The pieces that are the learner's at this moment: path and file."""
    return {path: Path(file) for path, file in _told().items()}


def preload() -> None:
    """In a rank: put the pieces in place that the parent process named in the environment."""
    limits.start_if_asked()
    install(in_place())


def replace(path: str, file: Path) -> None:
    """Put one piece in place; its module must be loaded."""
    piece = source.locate(path)
    module = sys.modules[piece.module]
    new = _execute(piece, module, file)
    _originals.setdefault(path, _get(piece))
    _set(piece, new)


def _execute(piece: source.Piece, module: types.ModuleType, file: Path) -> object:
    code = compile(file.read_text(encoding="utf-8"), str(file), "exec")
    found: dict[str, object] = {}
    exec(code, vars(module), found)
    if piece.name not in found:
        raise PieceError(f"{pieces.shown(file)} does not define {piece.name}")
    new = found.pop(piece.name)
    if isinstance(new, types.FunctionType):
        new.__qualname__ = ".".join((*piece.owners, piece.name))
    _add_helpers(piece.module, vars(module), found, file)
    return new


def _add_helpers(module: str, namespace: dict, found: dict[str, object], file: Path) -> None:
    """Imports and helper functions of a learner's file, visible in the module as ours are."""
    for name, value in found.items():
        if name.startswith("__"):
            continue
        owner = _helpers.get((module, name))
        taken = name in namespace and namespace[name] is not value and owner != file
        if taken:
            whose = f"in {pieces.shown(owner)}" if owner else f"in {module} itself"
            raise PieceError(
                f"{pieces.shown(file)} defines {name}, but there is another {name} {whose}, and "
                f"both would stand in one module. Give yours another name."
            )
        if name not in namespace or owner == file:
            _helpers[module, name] = file
        namespace[name] = value


def _get(piece: source.Piece) -> object:
    return vars(_owner(piece))[piece.name]


def _set(piece: source.Piece, new: object) -> None:
    owner = _owner(piece)
    old = vars(owner)[piece.name]
    setattr(owner, piece.name, new)
    if not piece.is_method:
        for names in _namespaces():
            for name in [n for n, value in list(names.items()) if value is old]:
                names[name] = new


def _namespaces() -> Iterator[dict[str, object]]:
    """Those of all loaded modules that may have imported from the package.

    Python's library and installed packages have not, and they are thousands: looking through them
    would take longer than a check does.
    """
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if not str(names.get("__file__")).startswith(LIBRARIES):
            yield names


def _owner(piece: source.Piece) -> object:
    owner = sys.modules[piece.module]
    for name in piece.owners:
        owner = getattr(owner, name)
    return owner


def _told() -> dict[str, str]:
    return json.loads(os.environ.get(PIECES_VARIABLE) or "{}")


def _tell_ranks(chosen: dict[str, str]) -> None:
    os.environ[PIECES_VARIABLE] = json.dumps(chosen)
    os.environ[PRELOAD_VARIABLE] = f"{__name__}:{preload.__name__}"


class _Loader(importlib.abc.Loader):
    """Loads a module as usual, then puts the pieces in place that were waiting for it."""

    def __init__(self, usual: importlib.abc.Loader):
        self.usual = usual

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.usual.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self.usual.exec_module(module)
        for path in [p for p, (waits_for, _) in _later.items() if waits_for == module.__name__]:
            try:
                replace(path, _later.pop(path)[1])
            except Exception as error:  # the module itself is whole: it is loaded, with ours
                _failed[path] = error

    def __getattr__(self, name: str) -> object:  # get_source and friends, for tracebacks
        return getattr(self.usual, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Answers only for modules that a piece is waiting for."""

    def find_spec(self, name, path=None, target=None):
        if name not in [waits_for for waits_for, _ in list(_later.values())]:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
