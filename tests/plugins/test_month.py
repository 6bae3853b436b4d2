"""Tasks in an Airflow whose environment has none of this project's libraries."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dvc_airflow.tasks import month_of

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


def test_no_task_imports_what_only_the_environment_of_commands_has() -> None:
    # resolve.py is run with CORPUS_PYTHON
    for path in {*(ROOT / "plugins").rglob("*.py"), *(ROOT / "dags").glob("*.py")} - {
        *(ROOT / "plugins").rglob("resolve.py")
    }:
        nodes = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        found = {
            name
            for node in nodes
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        assert not {name for name in found if name.split(".")[0] in {"pipelines", "dvc"}}, path.name
