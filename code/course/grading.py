"""Grade one exercise: ask a warm process, read its verdict.

Importing torch takes seconds, so one process does it once (``course.server``) and forks a child
for each grading. The child runs pytest on the checks of that exercise and reports. Whatever a
learner's code does there (loop, crash, exit, print), the notebook that asked goes on.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from course import overlay, pieces, registry, source, verdicts
from course.report import NOT_WRITTEN, Report, cannot_grade
from course.server import CAN_FORK

SECONDS_PER_GRADING = 200
_lock = threading.Lock()
_server: subprocess.Popen | None = None
_errors: IO[str] | None = None  # what the warm process writes to stderr


def grade(path: str, file: Path | None = None) -> Report:
    """The verdict on one exercise: the learner's file in ``mine/``, or another file.

    Only the learner's own file counts for :func:`course.progress`.
    """
    lesson, exercise = registry.find(path)
    path = exercise.path
    mine = file is None
    verdict = _judge(lesson, path, Path(file or pieces.file_of(path)).resolve())
    if mine:
        verdicts.record(path, verdict.outcome)
    return verdict


def warm_up() -> None:
    """Start the warm process now, so that it is ready when the first answer comes."""
    with _lock:
        _running_server()


def _judge(lesson: registry.Lesson, path: str, file: Path) -> Report:
    text = file.read_text(encoding="utf-8") if file.exists() else None
    if text is None or source.is_stub(text, pieces.name_of(path)):
        return Report(path, str(file), NOT_WRITTEN)
    problem = pieces.problem(path, text)
    if problem:
        return cannot_grade(path, file, problem, "cannot-read")
    request = {"path": path, "grader": str(lesson.grader), "file": str(file)}
    with _lock:
        try:
            answer = _ask(request)
        except BaseException:  # interrupted: what is still running must not answer the next one
            stop()
            raise
    if "report" in answer:
        return Report.from_json(answer["report"])
    return cannot_grade(path, file, answer["died"], "died")


def _ask(request: dict) -> dict:
    server = _running_server()
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    answer: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=lambda: answer.put(server.stdout.readline()), daemon=True).start()
    try:
        line = answer.get(timeout=SECONDS_PER_GRADING)
    except queue.Empty:
        stop()
        return {"died": f"The grading did not end within {SECONDS_PER_GRADING} seconds."}
    if not CAN_FORK:  # it has answered once and ends: let the next one get warm
        server.wait()
        _running_server()
    return json.loads(line) if line else {"died": f"The grader ended:\n{_last_words()}"}


def _running_server() -> subprocess.Popen:
    global _server, _errors
    if _server is None or _server.poll() is not None:
        unset = {overlay.PIECES_VARIABLE, overlay.PRELOAD_VARIABLE, "PYTEST_CURRENT_TEST"}
        env = {k: v for k, v in os.environ.items() if k not in unset}
        code = str(registry.ROOT / "code")
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [code, env.get("PYTHONPATH")]))
        _errors = tempfile.TemporaryFile("a+")  # noqa: SIM115  it lives as long as the process
        _server = subprocess.Popen(
            [sys.executable, "-m", "course.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=_errors,
            text=True,
            cwd=registry.ROOT,
            env=env,
            start_new_session=True,  # Ctrl-C is for the one who asked
        )
    return _server


def _last_words() -> str:
    _errors.seek(0)
    return "".join(_errors.readlines()[-3:])


@atexit.register
def stop() -> None:
    """End the warm process and everything it has started."""
    global _server
    if _server is not None and _server.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(_server.pid, signal.SIGKILL)
        _server.kill()
        _server.wait()
    _server = None
