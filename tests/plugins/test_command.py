"""Run a task's child process, report its failure, and leave no process behind after the task."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from airflow.sdk import RetryAction

from dvc_airflow import command, settings

CHILD = """
import json, pathlib, signal, subprocess, sys, time
from pipelines.core.process import die_with_parent
what = sys.argv[1]
if what == "answer":
    print("chatter"); print(json.dumps({"kept": 3}))
elif what == "throttled":
    print(json.dumps({"error": "SourceThrottled", "retry_after": 12.5})); sys.exit(75)
elif what == "bad":
    sys.exit(65)
elif what == "read":
    print(json.dumps({"read": len(sys.stdin.read())}))
elif what == "bars":
    for done in range(500):
        sys.stderr.write(f"\\r{done}/500")
    print(json.dumps({}))
elif what == "progress":
    for done in (1, 2, 3):
        print(f"images: {done}/3", file=sys.stderr, flush=True)
    print(json.dumps({})); sys.exit(int(sys.argv[2]))
elif what == "break":
    print("images: 1/3", file=sys.stderr)
    try:
        raise ValueError("first")
    except ValueError as error:
        raise RuntimeError("second") from error
elif what == "live":
    for done in (1, 2):
        print(f"images: {done}/2", file=sys.stderr, flush=True)
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.02)
    print(json.dumps({}))
elif what == "leave":
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    inner = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL)
    print(json.dumps({"pid": inner.pid}))
else:
    die_with_parent()
    inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    pathlib.Path(sys.argv[2]).write_text(str(inner.pid))
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def fake_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root whose ``python -m pipelines`` is the child above."""
    real = Path(__file__).resolve().parents[2]
    root = tmp_path / "root" / "pipelines"
    root.mkdir(parents=True)
    (root / "__init__.py").write_text(f"__path__ = [{str(root)!r}, {str(real / 'pipelines')!r}]\n")
    (root / "__main__.py").write_text(CHILD)
    monkeypatch.setattr(settings, "ROOT", root.parent)
    # no server to read connections from
    monkeypatch.setattr(settings, "CONNECTIONS", "")
    monkeypatch.setenv("CORPUS_AIRFLOW_CONNECTIONS", "")
    return root.parent


@pytest.mark.parametrize(
    ("what", "action", "delay"),
    [
        ("bad", RetryAction.FAIL, None),
        ("throttled", RetryAction.RETRY, timedelta(seconds=12.5)),
        ("unknown", RetryAction.DEFAULT, None),
    ],
)
def test_a_failure_decides_how_it_is_tried_again(what: str, action: RetryAction, delay: timedelta | None) -> None:
    error: BaseException = OSError()
    if what != "unknown":
        with pytest.raises(command.CommandFailed) as caught:
            command.run(what)
        error = caught.value
    decision = command.ByFailure().evaluate(error, try_number=1, max_tries=2)
    assert (decision.action, decision.retry_delay) == (action, delay)


Records = list[tuple[str, str]]


def records(caplog: pytest.LogCaptureFixture) -> Records:
    return [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "dvc_airflow.command"]


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dvc_airflow.command")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("answer",), []),
        (("progress", "0"), ["INFO images: 1/3", "INFO images: 2/3", "INFO images: 3/3"]),
        (("progress", "65"), ["INFO images: 1/3", "INFO images: 2/3", "ERROR images: 3/3"]),
        (("bars",), ["INFO 499/500"]),
    ],
)
def test_the_last_line_is_the_answer_and_messages_are_logged(
    caplog: pytest.LogCaptureFixture, argv: tuple[str, ...], told: list[str]
) -> None:
    with contextlib.suppress(command.CommandFailed):
        assert command.run(*argv) == ({"kept": 3} if argv == ("answer",) else {})
    assert [f"{level} {text}" for level, text in records(caplog)] == told


def test_a_traceback_is_one_record(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(command.CommandFailed):
        command.run("break")
    (first, (level, text)) = records(caplog)
    assert first == ("INFO", "images: 1/3")
    assert level == "ERROR"
    assert text.startswith("Traceback") and text.endswith("RuntimeError: second") and "ValueError: first" in text


def test_messages_are_logged_while_the_child_runs(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(command.run, "live", str(tmp_path / "go"))
        deadline = time.monotonic() + 30
        while not records(caplog) and time.monotonic() < deadline:
            time.sleep(0.02)
        seen, done = records(caplog), running.done()
        (tmp_path / "go").touch()
        running.result()
    assert (seen, done) == ([("INFO", "images: 1/2")], False)


@pytest.mark.parametrize("given", [None, "", "é" * 1_000_000])
def test_the_input_is_the_childs_stdin(given: str | None) -> None:
    assert command.run("read", given=given) == {"read": len(given or "")}


def test_a_process_that_keeps_stderr_open_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "GRACE", 0.5)
    began = time.monotonic()
    left = command.run("leave")["pid"]
    took = time.monotonic() - began
    os.kill(left, signal.SIGKILL)
    assert took < 30


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_task_that_dies_takes_its_children_along(number: int, fake_root: Path, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from dvc_airflow import command, settings\n"
        f"settings.ROOT = Path({str(fake_root)!r})\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
        f"command.run('hang', {str(note)!r})\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(p) for p in sys.path if p)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as task:
        deadline = time.monotonic() + 30
        while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        inner = int(note.read_text())
        assert alive(inner)
        task.send_signal(number)
        task.wait(20)
    assert gone(inner)
