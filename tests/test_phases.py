"""The phase log: a line for each process, exclusive phases, nothing unless it is asked for. Progress in a log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.process import reporter

ROOT = Path(__file__).resolve().parents[1]
OUTER = """
import subprocess, sys, time
from pipelines.core.telemetry import measured, phase
with measured():
    with phase("clone"):
        time.sleep(0.2)
        with phase("push"):
            time.sleep(0.1)
        import wsgiref.handlers
    {}
    time.sleep(0.1)
"""
INNER = (
    "subprocess.run([sys.executable, '-c', 'from pipelines.core.telemetry import measured\\nwith measured(): pass'])"
)


def ran(code: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CORPUS_PHASES")}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**kept, **environment}, check=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "phases.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_phases_are_exclusive_and_start_with_the_process(path: Path) -> None:
    ids = {"AIRFLOW_CTX_DAG_ID": "d", "AIRFLOW_CTX_TASK_ID": "t", "AIRFLOW_CTX_DAG_RUN_ID": "r"}
    assert ran(OUTER.format(""), CORPUS_PHASES=str(path), **ids).returncode == 0
    [line] = lines(path)
    assert (line["dag"], line["task"], line["run"], line["inner"]) == ("d", "t", "r", False)
    seconds = line["seconds"]
    assert set(seconds) == {"clone", "push", "imports", "work"}
    assert 0.2 <= seconds["clone"] < 0.3 + seconds["push"]
    assert seconds["push"] >= 0.1 and seconds["work"] >= 0.1 and seconds["imports"] > 0
    assert line["cpu"] > 0


def test_a_process_that_a_command_starts_is_inner(path: Path) -> None:
    assert ran(OUTER.format(INNER), CORPUS_PHASES=str(path)).returncode == 0
    inner, outer = lines(path)
    assert inner["inner"] and not outer["inner"]
    assert outer["seconds"]["work"] >= inner["seconds"]["imports"]


def test_a_failed_command_writes_its_line_without_its_arguments(path: Path) -> None:
    code = "import sys; sys.argv = ['corpus', 'takedown', 't3_abc']\n" + OUTER.format("sys.exit(3)")
    assert ran(code, CORPUS_PHASES=str(path)).returncode == 3
    [line] = lines(path)
    assert line["command"] == "takedown" and "t3_abc" not in str(line)


def test_nothing_is_measured_or_written_without_the_variable(path: Path) -> None:
    code = OUTER.format("b = sys.modules['_frozen_importlib']; assert b._find_and_load.__name__ == '_find_and_load'")
    assert ran(code).returncode == 0
    assert not path.exists()


def test_a_log_gets_some_lines_with_the_remaining_time(capsys: pytest.CaptureFixture[str]) -> None:
    report = reporter("images", total=1000)
    for done in range(1, 1001):
        report(done)
    lines = capsys.readouterr().err.splitlines()
    assert 15 <= len(lines) <= 25 and lines[-1] == "images: 1000/1000"
    assert all(line.endswith("left") for line in lines[:-1])
