"""Old rows of a real Airflow database go, and nothing that an unfinished run may still read."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.core.config.settings import Settings
from pipelines.operate.backup import database_copies
from pipelines.operate.housekeeping import airflow_rows
from pipelines.operate.services import postgres
from tests import airflow_database as empty_database
from tests.commands import answered
from tests.privacy import used_corpus as used
from tests.refusals import refused

NOW = datetime.now(UTC)


class Rows:
    """The database of one test: rows of runs with one task each, and what it returned."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = sa.create_engine(url)
        self.metadata = sa.MetaData()
        self.metadata.reflect(self.engine, only=["dag_bundle", "dag", "dag_run", "task_instance", "xcom", "log"])

    def add(self, table: str, **values: Any) -> None:
        """Insert a row; columns that need a value and have no default get one of their type."""
        into = self.metadata.tables[table]
        kinds = {int: 0, str: "x", bool: False, float: 0.0, datetime: NOW.replace(tzinfo=None)}
        for column in into.columns:
            if not column.nullable and column.server_default is None and not column.primary_key:
                values.setdefault(column.name, kinds.get(column.type.python_type))
        with self.engine.begin() as connection:
            connection.execute(into.insert().values(values))

    def run(self, dag: str, *, days: int, state: str = "success") -> None:
        """Add a run that began so many days ago, with a task and its XCom."""
        at = (NOW - timedelta(days=days)).replace(tzinfo=None)
        run, number = f"manual__{days}", days + len(dag) * 1000
        given: dict[str, Any] = {"dag_id": dag, "run_id": run, "start_date": at}
        of_run = {"run_type": "manual", "run_after": at, "queued_at": at, "log_template_id": None}
        self.add("dag_run", id=number, state=state, **of_run, **given)
        self.add("task_instance", id=uuid.uuid4().hex, task_id="open", map_index=-1, state="success", **given)
        del given["start_date"]
        self.add("xcom", dag_run_id=number, task_id="open", map_index=-1, key="return_value", timestamp=at, **given)

    def left(self, table: str = "xcom") -> set[tuple[str, str]]:
        rows = self.metadata.tables[table].c
        with self.engine.connect() as connection:
            return {(dag, run) for dag, run in connection.execute(sa.select(rows.dag_id, rows.run_id))}


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rows]:
    address = empty_database.place(tmp_path)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    monkeypatch.delenv("CORPUS_AIRFLOW_PREFIX", raising=False)
    made = Rows(address)
    made.add("dag_bundle", name="dags-folder", active=True)
    for dag in ("doctor", "annotation_round", "other"):
        made.add("dag", dag_id=dag, bundle_name="dags-folder", last_parsed_time=NOW.replace(tzinfo=None))
    yield made
    made.engine.dispose()


def before(days: int) -> datetime:
    return NOW - timedelta(days=days)


@pytest.mark.faults
def test_rows_of_an_open_round_and_younger_ones_stay(rows: Rows) -> None:
    rows.run("doctor", days=300)
    rows.run("annotation_round", days=200, state="running")
    rows.run("doctor", days=150)
    found = airflow_rows.due(rows.url, before=before(90))
    assert found.open == 1 and found.before.date() == before(200).date() and found.tables["xcom"] == 1
    assert len(rows.left()) == 3, "nothing is removed by a look"
    removed = airflow_rows.remove(found, url=rows.url)
    assert removed["dag_run"] == removed["xcom"] == removed["task_instance"] == 1
    left = {("annotation_round", "manual__200"), ("doctor", "manual__150")}
    assert rows.left("dag_run") == rows.left("task_instance") == rows.left() == left
    assert not [name for name in sa.inspect(rows.engine).get_table_names() if name.startswith("_airflow_deleted")]


@pytest.mark.faults
def test_only_dags_of_this_project_are_cleaned_in_a_shared_airflow(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_AIRFLOW_PREFIX", "doc")
    rows.run("other", days=300, state="running")
    rows.run("other", days=200)
    rows.run("doctor", days=100)
    found = airflow_rows.due(rows.url, before=before(90))
    assert found.open == 0 and found.dags == ("doctor",)
    airflow_rows.remove(found, url=rows.url)
    assert rows.left("dag_run") == rows.left() == {("other", "manual__300"), ("other", "manual__200")}


def test_a_database_that_is_none_is_named_without_its_address(tmp_path: Path) -> None:
    with refused("AirflowNotCleaned", match="cannot be read") as error:
        airflow_rows.due(f"sqlite:///{tmp_path}/secret-name.db", before=before(90))
    assert "secret-name" not in str(error.value)


def test_a_task_gets_the_address_from_this_projects_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(postgres.AIRFLOW_URL, raising=False)
    monkeypatch.setenv(postgres.OPTION, "airflow-db-not-allowed:///")
    assert postgres.airflow_url() is None
    # a backup by a Dag leaves out what it cannot reach
    assert database_copies.AIRFLOW not in database_copies.addresses(Settings.from_env())
    monkeypatch.setenv(postgres.AIRFLOW_URL, "postgresql://db/airflow")
    assert postgres.airflow_url() == "postgresql://db/airflow"


def test_the_command_removes_old_rows_and_logs_only(
    rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = used.copy_with_params(tmp_path / "home")
    monkeypatch.setenv("CORPUS_HOME", str(settings.home))
    monkeypatch.setenv("CORPUS_SECRET", used.SECRET)
    monkeypatch.setenv(postgres.AIRFLOW_URL, rows.url)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    rows.run("doctor", days=100)
    rows.run("annotation_round", days=95, state="running")
    rows.run("doctor", days=92)
    logs = tmp_path / "airflow" / "logs"
    for days in (100, 80):
        written(logs / "dag_id=doctor" / f"run_id=manual__{days}" / "task_id=doctor" / "attempt=1.log", days=days)
    written(settings.home / "logs" / "sandbox.log", days=100)
    large = written(settings.home / "logs" / "mlflow.log", days=0, lines=24_000_000)
    corpus = content(settings.home)

    found = answered("housekeeping", "--dry-run")
    assert found["task_logs"] == {"files": 1, "cut": 0, "bytes": 5} and found["airflow"]["tables"]["dag_run"] == 1
    assert found["component_logs"]["files"] == found["component_logs"]["cut"] == 1
    assert "skipped" in found["mlflow"] and len(rows.left()) == 3
    with monkeypatch.context() as patch:
        patch.delenv(postgres.AIRFLOW_URL)
        assert "skipped" in answered("housekeeping", "--dry-run")["airflow"]
        refused = CliRunner().invoke(app, ["housekeeping"])
    assert refused.exit_code and large.stat().st_size > 100_000_000, "without --yes a person is asked: there is none"

    done = answered("housekeeping", "--yes", "--airflow", sys.executable)
    assert done["task_logs"]["files"] == 1 and done["airflow"]["tables"]["dag_run"] == 1
    assert rows.left("dag_run") == rows.left() == {("annotation_round", "manual__95"), ("doctor", "manual__92")}
    assert [path.name for path in sorted((logs / "dag_id=doctor").iterdir())] == ["run_id=manual__80"]
    assert not (settings.home / "logs" / "sandbox.log").exists()
    assert 0 < large.stat().st_size <= 50_000_000 and large.read_bytes().startswith(b"line\n")
    assert content(settings.home) == corpus, "vault, receipts, journal, answers and objects are untouched"
    monkeypatch.delenv(postgres.AIRFLOW_URL)
    again = answered("housekeeping", "--yes")
    assert again["task_logs"]["files"] == again["component_logs"]["cut"] == 0


def written(path: Path, *, days: int, lines: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"line\n" * lines)
    then = (NOW - timedelta(days=days)).timestamp()
    os.utime(path, (then, then))
    return path


def content(home: Path) -> dict[str, bytes]:
    """Return every file of a home except its logs; database files by what they hold."""
    ours = (path for path in sorted(home.rglob("*")) if path.is_file() and home / "logs" not in path.parents)
    return {str(path): path.read_bytes() for path in ours if not path.name.endswith(("-wal", "-shm"))}
