"""The package's own source, cut into pieces: where a piece stands, its reference text, its stub.

A piece is a function or method named by its path, ``zero.flat.flatten_params`` or
``zero.stage1.Zero1.reduce_gradients``. Nothing here imports the package: files are found by name
and read with ``ast``, so a stub costs a millisecond and can never drift from the source.
"""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

BODY_OF_A_STUB = "raise NotImplementedError"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class PieceNotFound(LookupError):
    """No function or method of the package has this path."""


@dataclass(frozen=True)
class Piece:
    """Where a piece stands: its module, the classes around it, its name, its lines in the file."""

    path: str
    module: str
    owners: tuple[str, ...]
    name: str
    file: Path
    node: Function
    lines: tuple[str, ...]

    @property
    def is_method(self) -> bool:
        return bool(self.owners)


def locate(path: str) -> Piece:
    """Find a piece by its path. Raises :class:`PieceNotFound`, naming the part that is missing."""
    module, file, rest = _split(path)
    text = file.read_text(encoding="utf-8")
    scope: ast.AST = _parse(text)
    for name in rest:
        found = [n for n in getattr(scope, "body", []) if getattr(n, "name", None) == name]
        if not found:
            raise PieceNotFound(f"{path}: there is no {name!r} in {file.name}")
        scope = found[-1]
    if not isinstance(scope, Function):
        raise PieceNotFound(f"{path} is not a function or a method")
    return Piece(path, module, tuple(rest[:-1]), rest[-1], file, scope, tuple(text.splitlines()))


def reference(path: str) -> str:
    """The source text of a piece, decorators included; a method as a plain ``def``."""
    piece = locate(path)
    return _cut(piece, piece.node.end_lineno)


def stub(path: str) -> str:
    """The piece with its body taken out: decorators, signature, docstring, and nothing else."""
    piece = locate(path)
    first = piece.node.body[0]
    last_line = first.end_lineno if _is_docstring(first) else first.lineno - 1
    return _cut(piece, last_line) + f"    {BODY_OF_A_STUB}\n"


def is_stub(text: str, name: str) -> bool:
    """Is the body of function ``name`` in this text still only ``raise NotImplementedError``?

    A text that does not parse, or does not define ``name``, is somebody's work: not a stub.
    """
    node = definition(text, name)
    if node is None:
        return False
    body = node.body[1:] if _is_docstring(node.body[0]) else node.body
    return not body or (len(body) == 1 and _raises_not_implemented(body[0]))


def definition(text: str, name: str) -> Function | None:
    """The top-level function called ``name`` in this text, or None."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    found = [n for n in tree.body if isinstance(n, Function) and n.name == name]
    return found[-1] if found else None


def _split(path: str) -> tuple[str, Path, list[str]]:
    """Module name, its file, and what stands inside it; found on disk, without an import."""
    top, *parts = path.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise PieceNotFound(f"{path}: there is no package {top!r}")
    folder, module = Path(next(iter(spec.submodule_search_locations))), top
    for i, part in enumerate(parts):
        module = f"{module}.{part}"
        file = folder / f"{part}.py"
        if file.is_file():
            return module, file, parts[i + 1 :]
        folder = folder / part
        if not folder.is_dir():
            break
    raise PieceNotFound(f"{path}: there is no module {module!r}")


@lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


def _cut(piece: Piece, last_line: int) -> str:
    first_line = min([piece.node.lineno, *(d.lineno for d in piece.node.decorator_list)])
    return textwrap.dedent("\n".join(piece.lines[first_line - 1 : last_line])) + "\n"


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _raises_not_implemented(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(error, ast.Name) and error.id == "NotImplementedError"
