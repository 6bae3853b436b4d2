"""Tasks in an Airflow whose environment has none of this project's libraries."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dvc_airflow import graph
from dvc_airflow.tasks import month_of, revised
from tests.plugins.handed import Handed

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Run:
    partition_key: str | None = None
    logical_date: datetime | None = None
    dag_id: str = "memes_collect"


def test_a_run_of_either_kind_gives_its_month() -> None:
    assert month_of(Run(partition_key="2022-11")) == "2022-11"
    late = Run(logical_date=datetime(2022, 12, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    assert month_of(late) == "2022-11"


def test_a_run_without_a_month_says_what_to_pass() -> None:
    with pytest.raises(AirflowFailException, match="memes_collect --partition-key"):
        month_of(Run())


def test_a_refresh_revises_the_month_that_it_names_or_skips() -> None:
    assert revised(Run(), Handed(revised="2022-11")) == "2022-11"
    with pytest.raises(AirflowSkipException):
        revised(Run(), Handed(revised=None))


def test_only_a_corpus_with_listings_is_refreshed_on_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = {"a": {"source": "dump"}, "b": {"source": "reddit"}, "c": {"source": ["dump", "reddit"]}}
    monkeypatch.setattr(graph, "resolved", lambda: {"corpora": corpora, "refresh": "17 * * * *"})
    assert [graph.refreshes(name) for name in corpora] == [None, "17 * * * *", "17 * * * *"]
    # written by code of before
    monkeypatch.setattr(graph, "resolved", lambda: {"corpora": corpora})
    assert graph.refreshes("b") is None


def test_no_task_imports_what_only_the_environment_of_commands_has() -> None:
    for path in (*(ROOT / "plugins").rglob("*.py"), *(ROOT / "dags").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                assert not {"pipelines", "dvc"} & {name.split(".")[0] for name in names}, path.name
