"""The person who follows the documentation: a shell, a browser for Airflow, and nothing that no page prints."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.operate.services.airflow_api import Login
from pipelines.operate.services.postgres import program
from pipelines.workspace.git import git
from tests.airflow_client import AirflowClient
from tests.test_docs_commands import Block
from tests.walk_world import World, airflow_environment, wait

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference")]
PREFIX = "crisis_"


class Person:
    """A person's shell below ``home``, with its variables, and what the person remembers between steps."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.world = World(home)
        self.project = home / "project"
        self.var = home / "corpus"
        self.exported: dict[str, str] = {}
        self.known: dict[str, Any] = {}

    def environment(self) -> dict[str, str]:
        outside = ("CORPUS_", "AIRFLOW", "MLFLOW_", "AWS_", "VIRTUAL_ENV", "PYTHONPATH", "HOME")
        (self.home / "person").mkdir(exist_ok=True)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(outside)},
            "HOME": str(self.home / "person"),
            "PATH": f"{self.project / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            **self.exported,
        }

    def run(self, command: str, *, cwd: Path | None = None, more: Mapping[str, str] | None = None,
            stdin: str = "") -> str:  # fmt: skip
        """Run a command of the documentation in the person's shell; return its output."""
        require_documented(command)
        environment = {**self.environment(), **(more or {})}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=cwd or self.project, env=environment,
                              input=stdin, capture_output=True, text=True, check=False)  # fmt: skip
        with (self.home / "logs" / "commands.log").open("a") as out:
            out.write(f"$ {command}\n{done.stdout}{done.stderr}-- exit status {done.returncode}\n")
        if done.returncode:
            raise AssertionError(f"`{command}` exited with {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
        return done.stdout

    def airflow(self, command: str) -> str:
        """Run a command of the documentation where the team's Airflow runs."""
        path = airflow_environment(self.world, more=self.known.get("airflow", {}))
        return self.run(command, cwd=self.world.folder / "airflow", more=path)

    @property
    def api(self) -> AirflowClient:
        login = Login(user="ops", password=self.world.passwords["ops"])
        return AirflowClient(self.world.airflow_url, login=login)

    def ended(self, dag_id: str, *, runs: int, seconds: float = 1500.0) -> None:
        """Wait until a Dag has that many runs, all successful."""
        api = self.api

        def there() -> bool:
            found = api.runs(dag_id)
            for run in found:
                if run["state"] == "failed":
                    tasks = api.get(f"/dags/{dag_id}/dagRuns/{run['dag_run_id']}/taskInstances")["task_instances"]
                    failed = [task["task_id"] for task in tasks if task["state"] == "failed"]
                    raise AssertionError(f"{dag_id} failed at {failed}; logs: {self.world.folder}/airflow/logs")
            return sum(run["state"] == "success" for run in found) >= runs

        wait(there, what=f"{runs} runs of {dag_id}", seconds=seconds, pause=3)

    def trigger(self, name: str) -> None:
        """Run a Dag on the snapshot and wait."""
        dag_id = PREFIX + name
        self.airflow(f"airflow dags unpause {dag_id}")
        self.run(f"corpus airflow trigger {name} --partition-key snapshot")
        self.ended(dag_id, runs=len(self.api.runs(dag_id)))

    def consumer(self) -> dict[str, str]:
        place = self.home / "consumer"
        return {
            "PATH": f"{place / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}", "CORPUS_HOME": str(place / "models"),
            "MLFLOW_TRACKING_URI": self.world.mlflow_url,
            "CORPUS_JOURNAL_URL": self.world.database_url("journal", user="consumer"),
        }  # fmt: skip

    def postgres(self, name: str) -> dict[str, str]:
        """Return what PostgreSQL's programs need: their place, and a login as the owner of a database."""
        place = str(Path(program("pg_dump")).parent)
        return {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "PGPORT": str(self.world.ports["postgres"]),
                "PGPASSWORD": self.world.passwords[name]}  # fmt: skip

    def head(self, repository: str) -> str:
        listed = git("ls-remote", self.world.repository(repository), "refs/heads/corpus")
        return listed.split()[0]


def require_documented(command: str) -> None:
    """Refuse a command of `corpus`, `airflow` or another program that no hand-written page prints with its options."""
    texts = [path.read_text() for path in PAGES]
    for words in Block("the walk", 0, "sh", "", command).words:
        path = " ".join(words[: 3 if words[0] in ("corpus", "airflow") else 1])
        while path.count(" ") > 1 and not any(re.search(rf"\b{re.escape(path)}\b", text) for text in texts):
            path = path.rpartition(" ")[0]
        pages = [text for text in texts if re.search(rf"(?<![\w-]){re.escape(path)}\b", text)]
        options = {word.partition("=")[0] for word in words if re.match(r"--\w", word)}
        missing = sorted(option for option in options if not any(option in text for text in pages))
        assert pages and not missing, f"no page prints `{path}` {' '.join(missing)}"
