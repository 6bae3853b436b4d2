"""The listener that writes the summary of the Corpus page after tasks that change the corpus."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from corpus_view import page_plugin, summary_listener
from dvc_airflow import command

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
# commands of tasks that change nothing the page shows
OTHERS = {
    ("task", "step"), ("task", "pin"), ("task", "champions"), ("task", "stage"), ("task", "estimate"), ("gate",),
    ("task", "agreement"), ("task", "drift"), ("deliver",), ("doctor",), ("backup",), ("housekeeping",),
}  # fmt: skip


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, ...]]]:
    """What the listener runs, in place of a command."""
    commands: list[tuple[str, ...]] = []
    command.started.clear()  # of other tests of this process; a task has a process of its own
    monkeypatch.setattr(command, "run", lambda *argv: commands.append(argv))
    yield commands
    command.started.clear()


@pytest.mark.parametrize(
    ("started", "writes"),
    [
        (("takedown", "run-pending", "--yes"), True),
        (("task", "publish-snapshot", "memes"), True),
        (("task", "stage", "split@memes"), False),
        (("doctor", "--json"), False),
    ],
)
def test_it_writes_after_what_changes_the_corpus(
    started: tuple[str, ...], writes: bool, ran: list[tuple[str, ...]]
) -> None:
    given: dict[str, Any] = {"previous_state": None, "task_instance": None}
    for ended in (
        lambda: summary_listener.on_task_instance_success(**given),
        lambda: summary_listener.on_task_instance_failed(**given, error=None),
    ):
        command.started.append(started)
        ended()
        ended()
        assert ran == [("status", "--write")] * writes, "once for a task"
        ran.clear()


def test_no_task_fails_because_of_the_page(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(command, "run", lambda *argv: 1 / 0)
    command.started.append(("release", "make"))
    summary_listener.on_task_instance_success(previous_state=None, task_instance=None)
    assert "corpus status --write" in caplog.text and not command.started


def test_every_command_of_a_task_is_known_to_change_the_page_or_not() -> None:
    words = set()
    for path in (PLUGINS / "dvc_airflow").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "run":
                words.add(tuple(a.value for a in takewhile(lambda a: isinstance(a, ast.Constant), node.args[:2])))
    words = {argv if argv[0] == "task" else argv[:1] for argv in words if argv}
    writing = {argv for argv in words if argv[0] in summary_listener.CHANGING}
    writing |= {argv for argv in words if argv[1:] and argv[1] in summary_listener.PUBLISHING}
    assert words - writing == OTHERS
    assert page_plugin.CorpusPage.listeners == [summary_listener]
