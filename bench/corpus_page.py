"""Measure one request of the Corpus page at 100,000 records in ten years of two corpora, in Airflow's web application.

The vault has 100,000 rows, the corpus repository 240 months and metrics, the journal 500 rows, and Airflow's database
(SQLite) 20,000 runs. The request passes Airflow's login and permissions. The baseline gathers the numbers of `corpus
status` for every request, as a page without a summary would; it shows fewer numbers.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

ROOT = Path(__file__).resolve().parents[1]
RECORDS, ROUNDS, RUNS = 100_000, 15, 20_000
MONTHS = [f"{year}-{month:02}" for year in range(2013, 2023) for month in range(1, 13)]
NAMES = ("crisis-posts", "meme-figurative", "meme-related", "meme-severity")
NOW = datetime.now(UTC)


def corpus(home: Path) -> None:
    """Make a home whose stores have the number of records."""
    from pipelines.core.config.settings import Settings
    from pipelines.registry.journal import Journal
    from pipelines.store.vault.database import records
    from pipelines.store.vault.vault import Vault
    from pipelines.workspace import trust
    from pipelines.workspace.git import git

    work, settings = home / "work", Settings.from_env()
    work.mkdir()
    for name in ("params.yaml", "catalogue.yaml"):
        shutil.copy(ROOT / name, work)
    (work / ".dvc").mkdir()
    (work / ".dvc" / "config").touch()
    for name in ("memes", "posts"):
        for month in MONTHS:
            folder = work / "data" / name / month
            folder.mkdir(parents=True)
            (folder / "records.parquet.dvc").write_text(
                f"outs:\n- md5: {'a' * 32}\n  size: 1\n  path: records.parquet\n"
            )
        folder = work / "metrics" / name
        folder.mkdir(parents=True)
        dropped = {f"reason_{n}": n for n in range(40)}
        found = {"collect": {"submissions": RECORDS, "kept": RECORDS // 2, "items": RECORDS // 2, "dropped": dropped}}
        (folder / "quality.json").write_text(json.dumps(found))
    git("init", "--quiet", "-b", "corpus", cwd=work)
    git("add", "--all", cwd=work)
    git("commit", "--quiet", "-m", "snapshot", cwd=work)
    trust.sign_head(settings, cwd=work)
    git("clone", "--quiet", "--bare", str(work), settings.repo)
    with Vault.create(settings) as vault:
        vault.admit([(vault.record_id("t3_a"), "t3_a")], corpus="memes", month=MONTHS[0], now=NOW)
        with vault.database.writing() as connection:
            row: dict[str, Any] = dict(connection.execute(sa.select(records)).mappings().one())
            made = [
                row | {"record_id": f"{n:064x}", "corpus": ("memes", "posts")[n % 2], "month": MONTHS[n % len(MONTHS)]}
                for n in range(1, RECORDS)
            ]
            connection.execute(sa.insert(records), made)
    with Journal.of(settings) as journal:
        for n in range(500):
            journal.append(NAMES[n % len(NAMES)], event="looked", who="bench", why=f"row {n}", to_version=1)


def airflow() -> Callable[[], Any]:
    """Fill Airflow's database and return a function that requests the page as a user who is logged in."""
    from airflow import settings
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models.base import Base
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.db import import_all_models
    from airflow.utils.session import create_session
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from corpus_view.attention import dag_ids
    from corpus_view.page_plugin import CorpusPage

    import_all_models()
    Base.metadata.create_all(settings.engine)
    manager = create_auth_manager()
    with create_session(scoped=False) as session:
        session.add(DagBundleModel(name="dags"))
        session.flush()
        dags = sorted(dag_ids(["memes", "posts"]))
        session.add_all([DagModel(dag_id=dag, bundle_name="dags", is_stale=False) for dag in dags])
        session.flush()
        rows: list[dict[str, Any]] = []
        for n in range(RUNS):
            dag = "deliver" if n % 2 else dags[n // 2 % len(dags)]
            key = MONTHS[n % len(MONTHS)] if dag.endswith("_collect") else None
            state = "failed" if n % 7 else "success"
            at = NOW - timedelta(minutes=RUNS - n)
            row = {"dag_id": dag, "run_id": f"r{n}", "run_type": "manual", "state": state, "run_after": at}
            rows.append(row | {"partition_key": key})
        session.execute(sa.insert(DagRun), rows)
    app = FastAPI()
    for one in CorpusPage.fastapi_apps:
        app.mount(one["url_prefix"], one["app"])
    client = TestClient(app)
    login = manager.generate_jwt(SimpleAuthManagerUser(username="bench", role="viewer"))

    def ask() -> Any:
        answer = client.get("/corpus/", headers={"Authorization": f"Bearer {login}"})
        if answer.status_code != 200 or f"memes: {RECORDS // 2:,} records" not in answer.text:
            raise RuntimeError(f"the page answered {answer.status_code}")
        return answer

    return ask


def main() -> None:
    """Print one line."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "var"
        home.mkdir()
        os.environ |= {
            "CORPUS_HOME": str(home),
            "CORPUS_SECRET": "5e" * 64,
            "AIRFLOW_HOME": folder,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__API_AUTH__JWT_SECRET": "s" * 64,
        }
        sys.path.insert(0, str(ROOT / "plugins"))
        from pipelines.core.config.settings import Settings
        from pipelines.operate import status
        from pipelines.operate import summary as written

        corpus(home)
        written.write(Settings.from_env())
        ask = airflow()
        ask()
        ours, theirs = [], []
        for _ in range(ROUNDS):
            began = time.monotonic()
            ask()
            ours.append(1000 * (time.monotonic() - began))
            began = time.monotonic()
            status.gather(Settings.from_env())
            theirs.append(1000 * (time.monotonic() - began))
        values = {"ours": statistics.median(ours), "baseline": statistics.median(theirs)}
        sys.stderr.write(f"corpus_page: slowest of {ROUNDS} requests {max(ours):.0f} ms\n")
        line = {"name": "corpus_page", "unit": "ms", "baseline_name": "`corpus status` for each request"}
        print(json.dumps(line | values | {"ratio": values["baseline"] / values["ours"]}))


if __name__ == "__main__":
    main()
