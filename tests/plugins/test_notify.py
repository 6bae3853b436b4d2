"""People are notified of a failed or late run by the deployment's callable or notifier, with ids only."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from dvc_airflow import notify, settings

SENT: list[dict[str, Any]] = []


def keep(facts: dict[str, Any], *, channel: str) -> None:
    SENT.append({**facts, "channel": channel})


class Notifier(BaseNotifier):
    """A notifier as providers have them: its text is a template."""

    template_fields = ("text",)

    def __init__(self, *, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        SENT.append({"text": self.text})


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    SENT.clear()
    monkeypatch.setitem(__import__("sys").modules, "team_alerts", SimpleNamespace(keep=keep, Notifier=Notifier))


def configure(monkeypatch: pytest.MonkeyPatch, name: str, **kwargs: str) -> None:
    monkeypatch.setattr(settings, "NOTIFY", json.dumps({"path": f"team_alerts.{name}", "kwargs": kwargs}))


def failed_run() -> dict[str, Any]:
    """A context as the Dag processor hands over, with values that must not be sent."""
    return {
        "dag": SimpleNamespace(dag_id="deletion_sweep"),
        "run_id": "scheduled__1",
        "reason": "task_failure",
        "dag_run": SimpleNamespace(partition_key=None, conf={"request": "private"}),
        "ti": SimpleNamespace(task_id="swept"),
        "params": {"reason": "private"},
        "exception": ValueError("private"),
    }


def test_a_callable_gets_the_ids_of_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "keep", channel="alerts")
    notify.failed(failed_run())
    [facts] = SENT
    assert (facts["event"], facts["dag_id"], facts["run_id"]) == ("failed", "deletion_sweep", "scheduled__1")
    assert facts["text"] == "Run scheduled__1 of deletion_sweep failed at task swept."
    assert facts["channel"] == "alerts"
    assert "private" not in json.dumps(facts)


def test_a_notifiers_template_may_use_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "Notifier", text="{{ dag_id }}: {{ event }}")
    notify.failed(failed_run())
    assert SENT == [{"text": "deletion_sweep: failed"}]


def test_a_late_run_is_notified_of(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "keep", channel="alerts")
    run = {"dag_id": "memes_collect", "dag_run_id": "one", "partition_key": "2022-12", "conf": {"note": "private"}}
    asyncio.run(notify.late(context={"dag_run": run, "deadline": {}}))
    [facts] = SENT
    assert (facts["event"], facts["dag_id"], facts["partition_key"]) == ("late", "memes_collect", "2022-12")
    assert "private" not in json.dumps(facts)


def test_without_a_notifier_a_late_run_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    run = {"dag_id": "memes_collect", "dag_run_id": "one"}
    asyncio.run(notify.late(context={"dag_run": run}))
    assert SENT == []
    assert "Run one of memes_collect has not ended by its deadline." in caplog.text
