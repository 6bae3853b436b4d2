import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

pytestmark = [pytest.mark.airflow, pytest.mark.faults]

DAG, OLDER, DAYS = "housekeeping", "backup", 120


def aged(world: Any, run_id: str) -> Path:
    """Let a run and its logs be old; return the folder of its logs."""
    given = {"dag": OLDER, "run": run_id, "days": timedelta(days=DAYS)}
    engine = sa.create_engine(world.deployment.database.url)
    with engine.begin() as connection:
        for table, columns in {
            "dag_run": ("start_date", "end_date", "queued_at", "run_after"),
            "task_instance": ("start_date", "end_date"),
            "xcom": ("timestamp",),
        }.items():
            moved = ", ".join(f"{name} = {name} - :days" for name in columns)
            statement = f"UPDATE {table} SET {moved} WHERE dag_id = :dag AND run_id = :run"
            connection.execute(sa.text(statement), given)
    engine.dispose()
    [logs] = (world.settings.home / "airflow" / "logs").rglob(f"dag_id={OLDER}/run_id={run_id}")
    then = (datetime.now(UTC) - timedelta(days=DAYS)).timestamp()
    for path in logs.rglob("*.log"):
        os.utime(path, (then, then))
    return Path(logs)


def answer(world: Any, run_id: str) -> dict[str, Any]:
    place = f"/dags/{DAG}/dagRuns/{run_id}/taskInstances/{DAG}/xcomEntries/return_value"
    return dict(world.airflow.get(place, deserialize="true")["value"])


def test_old_runs_and_logs_go_and_young_ones_stay(world: Any) -> None:
    airflow = world.airflow
    young, old = world.run_now(OLDER), airflow.trigger(OLDER)  # Airflow keeps the last run of a schedule
    airflow.finish(OLDER, old, answers={})
    logs = aged(world, old)

    told = answer(world, world.run_now(DAG))
    assert told["airflow"]["tables"]["dag_run"] == 1, told
    assert told["task_logs"]["files"] >= 1
    assert not [name for name, found in told.items() if "skipped" in found or "not_collected" in found]
    assert airflow.find(f"/dags/{OLDER}/dagRuns/{old}") is None and not logs.exists()
    assert airflow.get(f"/dags/{OLDER}/dagRuns/{young}")["state"] == "success"
    assert logs.with_name(f"run_id={young}").is_dir()
