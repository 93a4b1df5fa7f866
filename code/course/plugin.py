"""The pytest side of the grader: which piece a check grades, and how a failure reads.

A check is an ordinary test function with a mark that names its exercise::

    @exercise("zero.flat.flatten_params")
    def test_copies():
        "The flat tensor is a copy: changing it leaves the module alone."

For each check the learner's piece of *that* exercise is put in place, and everything else is ours;
so one unfinished piece never fails another. Options: ``--solutions`` grades ours,
``--exercise PATH`` runs only the checks of one exercise, ``--answer FILE`` grades that file as the
learner's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from course import limits, overlay, pieces, report, source, verdicts
from course.report import NOT_WRITTEN

RESULTS = pytest.StashKey[dict[str, list[str]]]()  # outcomes of the checks, by exercise


def exercise(path: str) -> pytest.MarkDecorator:
    """Mark a test function as a check of this exercise."""
    return pytest.mark.exercise(path)


class NotUsable(Exception):
    """The learner's file cannot be graded as it stands: the text says why."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("course", "grading the exercises of the lessons")
    group.addoption("--solutions", action="store_true", help="grade our solutions, not mine/")
    group.addoption("--exercise", metavar="PATH", help="only the checks of this exercise")
    group.addoption("--answer", metavar="FILE", help="grade FILE in place of the one in mine/")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exercise(path): the exercise that this check grades")
    config.stash[RESULTS] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--exercise")
    if wanted:
        dropped = [item for item in items if _path(item) != wanted]
        items[:] = [item for item in items if _path(item) == wanted]
        config.hook.pytest_deselected(items=dropped)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function):
    path = _path(pyfuncitem)
    if path is None:
        return (yield)
    with piece_in_place(path, _file(pyfuncitem.config, path)), limits.limited():
        return (yield)


@contextlib.contextmanager
def piece_in_place(path: str, file: Path | None) -> Iterator[None]:
    """The package with this one piece of the learner's in it; with file None, all ours.

    Skips the check if the file is missing or still the stub. Raises :class:`NotUsable` if it cannot
    stand in for ours.
    """
    overlay.restore()
    if file is not None:
        text = file.read_text(encoding="utf-8") if file.exists() else None
        if text is None or source.is_stub(text, pieces.name_of(path)):
            pytest.skip(NOT_WRITTEN)
        problem = pieces.problem(path, text)
        if problem:
            raise NotUsable(problem)
        overlay.install_and_load(path, file)
    try:
        yield
    finally:
        overlay.restore()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    result = yield
    path = _path(item)
    if path is None or (call.when != "call" and not result.failed):
        return result
    file = _file(item.config, path)
    result.check = report.Check(item.name, _title(item), result.outcome)
    result.exercise = path
    if result.skipped and call.excinfo.value.msg == NOT_WRITTEN:
        result.check.outcome = NOT_WRITTEN
        result.longrepr = (str(item.path), item.location[1], f"{NOT_WRITTEN}: {path}")
    elif result.failed:
        result.check.text, result.check.mistake = report.explain(call.excinfo, file)
        result.check.printed = "".join(text for _, _, text in item._report_sections)
        if file is not None:
            result.longrepr = f"{path}  ({pieces.shown(file)})\n{result.check.text}"
    item.config.stash[RESULTS].setdefault(path, []).append(result.check.outcome)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remember the verdicts on the learner's files, where all checks of an exercise were run."""
    options = session.config.option
    if options.solutions or options.answer:
        return
    only_some = options.keyword or options.markexpr or any("::" in a for a in session.config.args)
    for path, outcomes in session.config.stash[RESULTS].items():
        if report.FAILED in outcomes:
            verdicts.record(path, report.FAILED)
        elif not only_some and set(outcomes) == {report.PASSED}:
            verdicts.record(path, report.PASSED)


def pytest_report_teststatus(report: pytest.TestReport):
    check = getattr(report, "check", None)
    if check is not None and check.outcome == NOT_WRITTEN:
        return NOT_WRITTEN, "n", NOT_WRITTEN.upper()
    return None


def _path(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("exercise")
    return mark.args[0] if mark else None


def _file(config: pytest.Config, path: str) -> Path | None:
    """The file that is graded; None for our own solution."""
    if config.getoption("--solutions"):
        return None
    answer = config.getoption("--answer")
    return Path(answer).resolve() if answer else pieces.file_of(path)


def _title(item: pytest.Item) -> str:
    """The first line of the check's docstring: what it asks for, as a sentence."""
    doc = (getattr(item, "function", None) and item.function.__doc__) or item.name
    callspec = getattr(item, "callspec", None)
    return doc.strip().splitlines()[0].rstrip(".") + (f" [{callspec.id}]" if callspec else "")
