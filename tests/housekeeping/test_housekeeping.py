"""Old MLflow runs, Airflow rows and logs go, but nothing that something on record names or an open run may read."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.core.config.settings import Settings
from pipelines.models.train import EXPERIMENT
from pipelines.operate import housekeeping as rules
from pipelines.operate.backup import backup
from pipelines.operate.services import postgres
from pipelines.registry import versions
from pipelines.registry.journal import Journal
from pipelines.registry.versions import Registry
from pipelines.workspace.clone import workspace
from tests import airflow_database as empty_database
from tests import mlflow_database, mlflow_server
from tests.commands import answered
from tests.privacy import used_corpus as used
from tests.refusals import refused

NAME = "crisis-memes-severity"
NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=400)
DAYS = timedelta(days=1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus that was used, with an empty MLflow database that its commands open as a file."""
    settings = used.copy_with_params(tmp_path / "home")
    address = mlflow_database.place(settings.home)
    monkeypatch.setenv("CORPUS_HOME", str(settings.home))
    monkeypatch.setenv("CORPUS_SECRET", used.SECRET)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    for name in ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "CORPUS_AIRFLOW_DATABASE_URL", "AIRFLOW_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return settings.home


@pytest.fixture
def served(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same behind an MLflow server that stores the files of runs for its clients."""
    with mlflow_server.serving(home, files=home / "mlflow") as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        yield address


def registry() -> Registry:
    return Registry.open(Settings.from_env())


def run_of(experiment: str, *, at: datetime = OLD, status: str = "FINISHED", **tags: str) -> str:
    """Make a run of that time, with a file of weights; return its id."""
    client = registry().client
    known = client.get_experiment_by_name(experiment)
    place = known.experiment_id if known else client.create_experiment(experiment)
    moment = int(at.timestamp() * 1000)
    run_id = str(client.create_run(place, start_time=moment, tags=tags).info.run_id)
    client.log_text(run_id, "weights " * 100, "model/weights.safetensors")
    if status != "RUNNING":
        client.set_terminated(run_id, status, end_time=moment)
    return run_id


def stage(run_id: str) -> str:
    """Return ``active``, ``deleted`` or ``gone``."""
    with closing(sqlite3.connect(Settings.from_env().home / "mlflow.sqlite")) as connection:
        found = connection.execute("SELECT lifecycle_stage FROM runs WHERE run_uuid = ?", [run_id]).fetchone()
    return found[0] if found else "gone"


def trashed_for(days: int) -> None:
    """Let all deleted runs be in the trash for so long."""
    then = int((datetime.now(UTC) - days * DAYS).timestamp() * 1000)
    with closing(sqlite3.connect(Settings.from_env().home / "mlflow.sqlite")) as connection, connection:
        connection.execute("UPDATE runs SET deleted_time = ? WHERE lifecycle_stage = 'deleted'", [then])


def housekeeping(*options: str) -> dict[str, Any]:
    return dict(answered("housekeeping", *options)["mlflow"])


def champion() -> str:
    """Register a version of an old run, and make it champion, with both decisions on record; return the run's id."""
    run_id = run_of("memes-registry", name=NAME)
    opened = registry()
    source = f"{opened.client.get_run(run_id).info.artifact_uri}/model"
    version = opened.add(NAME, source=source, run_id=run_id, tags={})
    given: dict[str, Any] = {"who": "ada", "why": "better on the frozen test"}
    with Journal.of(Settings.from_env()) as journal:
        journal.append(NAME, event="registered", to_version=version.version, metrics={"run": run_id}, **given)
        journal.append(NAME, event="promoted", to_version=version.version, **given)
    opened.point(NAME, "champion", version.version)
    return run_id


def named_by_a_promotion() -> str:
    """Return a training run that only the record of a promotion names, not the registry."""
    run_id = run_of(EXPERIMENT.format(corpus="memes"))
    with Journal.of(Settings.from_env()) as journal:
        given: dict[str, Any] = {"metrics": {"trained": {"run": run_id}}, "who": "ada", "why": "better"}
        journal.append(NAME, event="promoted", to_version=1, **given)
    return run_id


def test_a_run_goes_unless_something_on_record_names_it(home: Path) -> None:
    kept = {"champion": champion(), "promotion record": named_by_a_promotion()}
    kept["metrics"] = run_of(EXPERIMENT.format(corpus="memes"))
    settings = Settings.from_env()
    with workspace(settings) as clone:
        (clone.path / "metrics" / "memes").mkdir(parents=True, exist_ok=True)
        (clone.path / "metrics" / "memes" / "train.json").write_text(json.dumps({"weights": {"run": kept["metrics"]}}))
        clone.commit("trained", paths=["metrics"])
        released = git_head = clone.head
    (home / "releases" / "first").mkdir(parents=True)
    (home / "releases" / "first" / "release.json").write_text(json.dumps({"commit": git_head}))
    numbers = versions.numbers_experiment("memes")
    kept["release"] = run_of(numbers, data_commit=released)
    for number in range(versions.SEARCHED):
        kept[f"newest numbers {number}"] = run_of(numbers, at=OLD + (number + 1) * DAYS)
    kept["young"] = run_of(EXPERIMENT.format(corpus="memes"), at=OLD + 100 * DAYS)
    kept["unfinished"] = run_of(EXPERIMENT.format(corpus="memes"), status="RUNNING")
    kept["of another project"] = run_of("elsewhere")
    gone = {
        "failed": run_of(EXPERIMENT.format(corpus="memes"), status="FAILED"),
        "numbers": run_of(numbers, at=OLD - DAYS),
    }
    found = housekeeping("--dry-run")
    assert found["deleted"] == len(gone) and found["collected"] == 0 and found["kept_on_record"] == 4
    assert {stage(run) for run in {**kept, **gone}.values()} == {"active"}, "a dry run changes nothing"

    assert housekeeping("--yes")["deleted"] == len(gone)
    assert {name: stage(run) for name, run in kept.items()} == dict.fromkeys(kept, "active")
    assert {name: stage(run) for name, run in gone.items()} == dict.fromkeys(gone, "deleted")
    assert housekeeping("--yes")["deleted"] == 0, "a second time changes nothing"

    # a person may have deleted runs on record, too
    for name in ("champion", "promotion record"):
        registry().client.delete_run(kept[name])
    trashed_for(29)
    assert housekeeping("--yes")["collected"] == 0
    trashed_for(31)
    done = housekeeping("--yes")
    assert done["collected"] == len(gone) and done["bytes"] == len(gone) * len("weights " * 100)
    assert {name: stage(run) for name, run in gone.items()} == dict.fromkeys(gone, "gone")
    assert stage(kept["champion"]) == stage(kept["promotion record"]) == "deleted"
    assert registry().alias(NAME, "champion") == 1
    registry().client.restore_run(kept["champion"])
    assert registry().client.download_artifacts(kept["champion"], "model/weights.safetensors")


@pytest.mark.faults
def test_old_traces_of_labelling_go(home: Path) -> None:
    import mlflow
    from mlflow.entities import SpanType

    mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
    place = mlflow.set_experiment("labelling").experiment_id
    for at in (OLD, datetime.now(UTC)):
        moment = int(at.timestamp() * 1_000_000_000)
        span = mlflow.start_span_no_context("votes", SpanType.CHAIN, experiment_id=place, start_time_ns=moment)
        span.end(end_time_ns=moment + 1)
    mlflow.flush_trace_async_logging()
    assert housekeeping("--dry-run")["traces"] == 1
    assert housekeeping("--yes")["traces"] == 1
    assert len(registry().client.search_traces(locations=[place])) == 1
    assert housekeeping("--yes")["traces"] == 0


@pytest.mark.faults
def test_behind_a_server_files_go_and_the_champion_stays(served: str, home: Path) -> None:
    kept, gone = champion(), run_of(EXPERIMENT.format(corpus="memes"))
    assert any((home / "mlflow").rglob(f"{gone}/**/weights.safetensors"))
    assert housekeeping("--yes")["deleted"] == 1
    trashed_for(31)
    assert housekeeping("--yes") | {"kept_on_record": 1} == {
        "deleted": 0, "collected": 1, "bytes": len("weights " * 100), "traces": 0, "kept_on_record": 1,
    }  # fmt: skip
    assert (stage(gone), stage(kept)) == ("gone", "active")
    assert not any((home / "mlflow").rglob(f"{gone}/**/weights.safetensors"))
    assert any((home / "mlflow").rglob(f"{kept}/**/weights.safetensors"))


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
    found = rules.old_rows(rows.url, before=before(90))
    assert found.open == 1 and found.before.date() == before(200).date() and found.tables["xcom"] == 1
    assert len(rows.left()) == 3, "nothing is removed by a look"
    removed = rules.remove_rows(found, url=rows.url)
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
    found = rules.old_rows(rows.url, before=before(90))
    assert found.open == 0 and found.dags == ("doctor",)
    rules.remove_rows(found, url=rows.url)
    assert rows.left("dag_run") == rows.left() == {("other", "manual__300"), ("other", "manual__200")}


def test_a_database_that_is_none_is_named_without_its_address(tmp_path: Path) -> None:
    with refused("AirflowNotCleaned", match="cannot be read") as error:
        rules.old_rows(f"sqlite:///{tmp_path}/secret-name.db", before=before(90))
    assert "secret-name" not in str(error.value)


def test_a_task_gets_the_address_from_this_projects_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(postgres.AIRFLOW_URL, raising=False)
    monkeypatch.setenv(postgres.OPTION, "airflow-db-not-allowed:///")
    assert postgres.airflow_url() is None
    # a backup by a Dag leaves out what it cannot reach
    assert backup.AIRFLOW not in backup.addresses(Settings.from_env())
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
