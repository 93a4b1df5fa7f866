"""The warm process: torch is imported once, and each grading is a fork of it.

Reads one JSON request a line on stdin, writes one JSON answer a line on stdout, ends when stdin
closes.
Where forking is not safe, it answers once and ends; the next grading starts a new one.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time

SECONDS = 180
CAN_FORK = sys.platform.startswith("linux")  # once torch is imported, elsewhere it is not safe


def main() -> None:
    """Serve until stdin closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what pytest prints is no answer
    for line in _prepared(sys.stdin):
        request = json.loads(line)
        answer = _in_a_fork(request) if CAN_FORK else {"report": _grade(request)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if not CAN_FORK:
            return


def _prepared(lines):
    """Do what every grading needs, before the first line is asked for."""
    import pytest
    import torch
    import torch._dynamo  # the first optimizer would import it, in each fork, for seconds

    import course.plugin  # noqa: F401
    from zero.launch import warm_up

    torch.set_num_threads(1)
    warm_up()
    # Installed plugins (nbval, hypothesis) take seconds to import, and no check needs them.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    pytest.main(["--version"])  # imports the rest of pytest
    gc.collect()
    gc.freeze()  # pytest collects garbage at its end: not ours, in each fork
    return lines


def _in_a_fork(request: dict) -> dict:
    """Grade in a child process, and wait for it; a child that dies or hangs is an answer too."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        _child(request, send)
    os.close(send)
    text = _read_all(receive, SECONDS)
    if text is None:
        os.kill(child, 9)
    _, status = os.waitpid(child, 0)
    if text:
        return {"report": json.loads(text)}
    if text is None:
        return {"died": f"The grading did not end within {SECONDS} seconds."}
    return {"died": f"The process ended in the middle of a check ({_cause(status)})."}


def _child(request: dict, send: int) -> None:
    try:
        report = _grade(request)
        with os.fdopen(send, "w") as pipe:
            json.dump(report, pipe)
    finally:
        os._exit(0)


def _grade(request: dict) -> dict:
    """Run pytest on the checks of one exercise; the first failure ends it."""
    import pytest
    import pytest_timeout

    from course.report import FAILED, PASSED, Report

    recorder = Recorder()
    arguments = [request["grader"], "--exercise", request["path"], "--answer", request["file"]]
    quiet = ["-x", "-q", "--no-header", "--no-summary", "-p", "no:cacheprovider"]
    status = pytest.main([*arguments, *quiet], plugins=[recorder, pytest_timeout])
    report = Report(request["path"], request["file"], PASSED, recorder.total, recorder.checks)
    if status != 0:
        report.outcome = FAILED
        if report.failure is None:
            recorder.complain(f"pytest could not run the checks (status {int(status)}).")
    return report.as_json()


class Recorder:
    """A pytest plugin that keeps the checks' verdicts."""

    def __init__(self):
        self.total = 0
        self.checks = []

    def pytest_collection_finish(self, session):
        self.total = len(session.items)

    def pytest_runtest_logreport(self, report):
        if hasattr(report, "check"):
            self.checks.append(report.check)

    def pytest_collectreport(self, report):
        if report.failed:
            self.complain(f"The grader itself cannot be loaded:\n{report.longreprtext}")

    def complain(self, text: str) -> None:
        from course.report import FAILED, Check

        self.checks.append(Check("", "", FAILED, text, "grader"))


def _read_all(fd: int, seconds: float) -> str | None:
    """What comes from the pipe until it closes; None if it stays open too long."""
    end, parts = time.monotonic() + seconds, []
    with os.fdopen(fd, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            part = pipe.read(65536)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)
    return None


def _cause(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.WEXITSTATUS(status)}"


if __name__ == "__main__":
    main()
