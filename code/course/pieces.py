"""The learner's own pieces: files in ``mine/``, one an exercise, named by its path.

A notebook cell saves itself there; an editor works on the same file. Every version that is replaced
is kept in ``mine/.history/``.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

from course import registry, source

FOLDER_VARIABLE = "COURSE_MINE"
DEFINITIONS = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign),
)


def folder() -> Path:
    """The learner's folder: ``mine/`` in the repository, or ``$COURSE_MINE``."""
    return Path(os.environ.get(FOLDER_VARIABLE) or registry.ROOT / "mine").resolve()


def file_of(path: str) -> Path:
    return folder() / f"{path}.py"


def shown(file: Path) -> str:
    """The file as a reader knows it: from the repository's folder on."""
    try:
        return str(file.relative_to(registry.ROOT))
    except ValueError:
        return f"{file.parent.name}/{file.name}"


def read(path: str) -> str | None:
    """The learner's text for an exercise, or None if there is no file yet."""
    file = file_of(path)
    return file.read_text(encoding="utf-8") if file.exists() else None


def save(path: str, text: str) -> Path:
    """Write the learner's text; the version that it replaces goes to ``mine/.history/``."""
    file = file_of(path)
    if read(path) == text:
        return file
    keep(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def keep(path: str) -> Path | None:
    """Copy the present version to ``mine/.history/`` and say where, unless it is only the stub."""
    text = read(path)
    if text is None or source.is_stub(text, name_of(path)):
        return None
    history = folder() / ".history" / path
    history.mkdir(parents=True, exist_ok=True)
    copy = history / f"{len(list(history.glob('*.py'))) + 1:03}.py"
    copy.write_text(text, encoding="utf-8")
    return copy


def start(path: str) -> Path:
    """The learner's file, made from the stub if there is none yet."""
    file = file_of(path)
    return file if file.exists() else save(path, f"# {path}\n{source.stub(path)}")


def written() -> dict[str, Path]:
    """The exercises that the learner has begun to write, path and file; not the stubs."""
    found = {}
    for _, exercise in registry.exercises():
        text = read(exercise.path)
        if text is not None and not source.is_stub(text, name_of(exercise.path)):
            found[exercise.path] = file_of(exercise.path)
    return found


def strangers() -> list[Path]:
    """Python files in the learner's folder that are named like no exercise: nothing uses them."""
    paths = {exercise.path for _, exercise in registry.exercises()}
    return sorted(file for file in folder().glob("*.py") if file.stem not in paths)


def name_of(path: str) -> str:
    return path.rpartition(".")[2]


def problem(path: str, text: str) -> str | None:
    """What keeps this text from being used as the piece, in plain words; None if nothing does.

    Found without running it: a syntax error, another name, another signature, statements that are
    not definitions.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return _explain_syntax(error)
    except ValueError as error:
        return f"Python cannot read this: {error}"
    piece = source.locate(path)
    node = source.definition(text, piece.name)
    if node is None:
        return _explain_missing(tree, piece)
    stray = [n for n in tree.body if not isinstance(n, DEFINITIONS) and not _is_text(n)]
    if stray:
        return (
            f"Line {stray[0].lineno} runs something. Only definitions and imports belong here; "
            f"try your function in another cell:\n    {ast.unparse(stray[0]).splitlines()[0]}"
        )
    return _explain_signature(piece.node, node)


def _explain_syntax(error: SyntaxError) -> str:
    lines = [f"Python cannot read line {error.lineno}: {error.msg}"]
    if error.text:
        lines.append(f"    {error.text.rstrip()}")
        lines.append("    " + " " * max((error.offset or 1) - 1, 0) + "^")
    return "\n".join(lines)


def _explain_missing(tree: ast.Module, piece: source.Piece) -> str:
    names = [n.name for n in tree.body if isinstance(n, source.Function)]
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name in piece.owners]
    if classes:
        return (
            f"Write {piece.name} as a plain `def {piece.name}(self, ...)`, without the class "
            f"{classes[0].name} around it."
        )
    instead = f" It defines {', '.join(names)}." if names else " It defines no function."
    return f"There must be a function named {piece.name} here.{instead}"


def _explain_signature(wanted: source.Function, got: source.Function) -> str | None:
    for decorator in map(ast.unparse, wanted.decorator_list):
        if decorator not in map(ast.unparse, got.decorator_list):
            return f"Keep the line @{decorator} above the def, as in the stub."
    if _parameters(wanted) == _parameters(got):
        return None
    return (
        f"The parameters must be as in the stub:\n"
        f"    wanted  def {wanted.name}({', '.join(_parameters(wanted))})\n"
        f"    got     def {got.name}({', '.join(_parameters(got))})"
    )


def _parameters(node: source.Function) -> list[str]:
    """Names and defaults in order, without annotations, so that these are the learner's choice."""
    args = node.args
    plain = [a.arg for a in args.posonlyargs + args.args]
    values = [""] * (len(plain) - len(args.defaults)) + [
        f"={ast.unparse(d)}" for d in args.defaults
    ]
    found = [n + v for n, v in zip(plain, values)]
    if args.posonlyargs:
        found.insert(len(args.posonlyargs), "/")
    if args.vararg:
        found.append(f"*{args.vararg.arg}")
    elif args.kwonlyargs:
        found.append("*")
    for arg, default in zip(args.kwonlyargs, args.kw_defaults):
        found.append(arg.arg + (f"={ast.unparse(default)}" if default else ""))
    return [*found, f"**{args.kwarg.arg}"] if args.kwarg else found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
