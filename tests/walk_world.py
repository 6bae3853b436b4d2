"""What a team has before it meets this project: dumps, a git server, S3, PostgreSQL, MLflow, an Airflow with two Dags.

Components run in sessions of their own, and are stopped with the walk.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import boto3
import orjson
import psutil
import psycopg2
import requests
from pyarrow import parquet

from crisis_corpus_sandbox.reddit.listing import DECLARED, frame, live
from crisis_corpus_sandbox.reddit.post_world import PostWorld
from pipelines.core.config.collect import Sandbox
from pipelines.operate.services.postgres import Postgres
from pipelines.workspace.git import git
from tests.ports import free_port

MONTHS = ("2024-03", "2024-04")
POSTS = 800
DATABASES = ("vault", "answers", "journal", "airflow")
BUCKETS = ("corpus", "corpus-restored")
# Variables that this program may have and a team's Airflow has not.
OURS = ("CORPUS_", "AIRFLOW", "MLFLOW", "AWS_", "PYTHONPATH")
READY_SECONDS = 180.0
DAG = """
from airflow.sdk import Asset, dag, task

@dag(dag_id="{name}", schedule={schedule}, tags=["posts"])
def theirs():
    @task(pool="{pool}", outlets={outlets})
    def work():
        return "done"
    work()

theirs()
"""
POSTS_ASSET = '[Asset("posts")]'
DAGS = {
    "release": {"schedule": None, "pool": "gpu", "outlets": POSTS_ASSET},
    "promote": {"schedule": POSTS_ASSET, "pool": "publish", "outlets": []},
}


class World:
    """The team's components below ``folder``, with addresses and passwords of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "logs").mkdir(parents=True)
        self.ports = {name: free_port() for name in ("git", "s3", "postgres", "mlflow", "restored", "airflow")}
        self.passwords = {name: secrets.token_hex(32) for name in ("postgres", "consumer", "ops", "jwt", *DATABASES)}
        self.passwords["airflow"] = self.passwords["postgres"]
        self.running: dict[str, psutil.Popen] = {}
        self.database = Postgres(folder / "postgres", self.ports["postgres"], self.passwords["postgres"])
        self.airflow_url = f"http://127.0.0.1:{self.ports['airflow']}"
        self.mlflow_url = f"http://127.0.0.1:{self.ports['mlflow']}"
        self.s3_url = f"http://127.0.0.1:{self.ports['s3']}"

    def repository(self, name: str) -> str:
        return f"git://127.0.0.1:{self.ports['git']}/{name}"

    def database_url(self, name: str, *, user: str | None = None) -> str:
        who = user or name.removesuffix("_restored")
        return f"postgresql+psycopg2://{who}:{self.passwords[who]}@127.0.0.1:{self.ports['postgres']}/{name}"

    def bucket(self, name: str) -> Any:
        s3 = boto3.resource("s3", endpoint_url=self.s3_url, region_name="eu-central-1",
                            aws_access_key_id="team", aws_secret_access_key="secret-of-s3")  # fmt: skip
        return s3.Bucket(name)

    def sql(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the server's administrator."""
        at = {"host": "127.0.0.1", "port": self.ports["postgres"], "user": "airflow", "dbname": database}
        with closing(psycopg2.connect(password=self.passwords["postgres"], **at)) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def servers(self) -> None:
        """Start the git server, S3, PostgreSQL with its databases."""
        for name in ("corpus.git", "restored.git"):
            git("init", "--quiet", "--bare", str(self.folder / "git" / name))
        daemon, root = f"{git('--exec-path')}/git-daemon", str(self.folder / "git")
        self.start("git", [daemon, "--export-all", "--enable=receive-pack", "--listen=127.0.0.1",
                           f"--port={self.ports['git']}", f"--base-path={root}", root])  # fmt: skip
        self.start("s3", [sys.executable, str(Path(__file__).parent / "store" / "s3_server.py"), str(self.ports["s3"])])
        self.database.initialize(log=self.folder / "logs" / "postgres.log")
        self.start("postgres", self.database.command())
        wait(self.database.ready, what="PostgreSQL")
        wait(lambda: answers(self.s3_url), what="S3")
        for name in BUCKETS:
            self.bucket(name).create(CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        for name in (*DATABASES, "consumer"):
            if name != "airflow":
                self.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{self.passwords[name]}'")
        for name in DATABASES:
            self.sql(f"CREATE DATABASE {name} OWNER {name}")

    def empty_database(self, name: str, *, owner: str) -> None:
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.sql(f"CREATE DATABASE {name} OWNER {owner}")

    def copy_bucket(self, name: str, folder: Path) -> None:
        """Copy a bucket's objects into a folder, as the store's own tool would."""
        for found in self.bucket(name).objects.all():
            path = folder / found.key
            path.parent.mkdir(parents=True, exist_ok=True)
            self.bucket(name).download_file(found.key, str(path))

    def fill_bucket(self, name: str, folder: Path) -> None:
        """Replace a bucket's objects by the files in a folder."""
        bucket = self.bucket(name)
        bucket.objects.all().delete()
        for path in (path for path in folder.rglob("*") if path.is_file()):
            bucket.upload_file(str(path), str(path.relative_to(folder)))

    def naming(self, record: str, *, bucket: str) -> list[str]:
        """Return the keys of the objects that name a record."""
        return [one.key for one in self.bucket(bucket).objects.all() if names(one.get()["Body"].read(), record)]

    def state(self) -> dict[str, Any]:
        """Return what a restored copy must not change: the repository, the remote's objects and the databases."""
        tables = {"vault": "records", "journal": "journal"}
        return {
            "repository": git("ls-remote", self.repository("corpus.git")),
            "objects": sorted((one.key, one.e_tag) for one in self.bucket("corpus").objects.all()),
            **{name: self.sql(f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {table} t", database=name)
               for name, table in tables.items()},
        }  # fmt: skip

    def copy_mlflow(self, folder: Path) -> None:
        shutil.copytree(self.folder / "mlflow", folder / "mlflow", dirs_exist_ok=True)
        here, there = (sqlite3.connect(place / "mlflow.sqlite") for place in (self.folder, folder))
        with closing(here), closing(there):
            here.backup(there)

    def restored_mlflow(self, folder: Path, *, binary: Path) -> str:
        """Start an MLflow on a copy of the backup; return its address."""
        new = self.folder / "mlflow-restored"
        shutil.copytree(folder / "mlflow", new / "mlflow", dirs_exist_ok=True)
        shutil.copy(folder / "mlflow.sqlite", new / "mlflow.sqlite")
        return self.start_mlflow(binary=binary, folder=new, port="restored")

    def start(self, name: str, argv: list[str], *, environment: Mapping[str, str] | None = None) -> None:
        """Start a component in a session of its own."""
        with (self.folder / "logs" / f"{name}.log").open("ab") as out:
            self.running[name] = psutil.Popen(argv, cwd=self.folder, env=dict(environment or os.environ), stdout=out,
                                              stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip

    def stop(self, *names: str) -> None:
        """Stop components, all without names, each with its children."""
        for name in names or list(self.running):
            process = self.running.pop(name)
            with suppress(psutil.Error):
                family = [process, *process.children(recursive=True)]
                process.terminate()
                for left in psutil.wait_procs(family, timeout=20)[1]:
                    with suppress(psutil.Error):
                        left.kill()

    def airflow_environment(self, *, more: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the team's Airflow, in an environment of its own, and its programs on the path."""
        home = self.folder / "airflow"
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
            "PATH": f"{home / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database_url("airflow"),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ops:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
            "AIRFLOW__API_AUTH__JWT_SECRET": self.passwords["jwt"],
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.ports["airflow"]),
            "AIRFLOW__API__BASE_URL": self.airflow_url,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.airflow_url}/execution/",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            **more,
        }

    def install_airflow(self, *, versions: list[str]) -> None:
        """Give the team its Airflow: an environment without this project, a database, a login, two Dags."""
        home = self.folder / "airflow"
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(home / "venv")], check=True)
        pip = [uv, "pip", "install", "--quiet", "--python", str(home / "venv" / "bin" / "python")]
        subprocess.run([*pip, *versions, "psycopg2-binary", "asyncpg"], check=True)
        (home / "dags").mkdir(exist_ok=True)
        for name, values in DAGS.items():
            (home / "dags" / f"{name}.py").write_text(DAG.format(name=name, **values))
        (home / "passwords.json").write_text(json.dumps({"ops": self.passwords["ops"]}))
        environment = self.airflow_environment(more={})
        with (self.folder / "logs" / "airflow-migrate.log").open("ab") as out:
            for argv in ("db migrate", "pools set gpu 1 theirs", "pools set publish 1 theirs"):
                subprocess.run(
                    ["airflow", *argv.split()], env=environment, cwd=home, stdout=out, stderr=out, check=True
                )

    def start_airflow(self, *, more: Mapping[str, str]) -> None:
        """Start the components of the team's Airflow."""
        environment = self.airflow_environment(more=more)
        binary = str(self.folder / "airflow" / "venv" / "bin" / "airflow")
        for name, *options in (("api-server", "--workers", "1"), ("dag-processor",), ("scheduler",), ("triggerer",)):
            self.start(f"airflow-{name}", [binary, name, *options], environment=environment)
        wait(lambda: answers(f"{self.airflow_url}/api/v2/monitor/health"), what="Airflow")

    def stop_airflow(self) -> None:
        self.stop(*(f"airflow-{name}" for name in ("api-server", "dag-processor", "scheduler", "triggerer")))

    def start_mlflow(self, *, binary: Path, folder: Path | None = None, port: str = "mlflow") -> str:
        """Start an MLflow on a folder, by default the team's; return its address."""
        folder, number = folder or self.folder, str(self.ports[port])
        url, store = f"http://127.0.0.1:{number}", f"sqlite:///{folder}/mlflow.sqlite"
        argv = [str(binary), "server", "--backend-store-uri", store, "--artifacts-destination", f"{folder}/mlflow"]
        argv += ["--host", "127.0.0.1", "--port", number, "--workers", "1"]
        self.start(f"mlflow-{number}", argv, environment={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})
        wait(lambda: answers(f"{url}/health"), what="MLflow")
        return url


def wait(ready: Callable[[], object], *, what: str, seconds: float = READY_SECONDS, pause: float = 0.5) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code < 500
    except requests.RequestException:
        return False


def write_dumps(folder: Path) -> list[dict[str, Any]]:
    """Write one file per month in Pushshift's form, and return what a reader of the posts would label.

    The posts of all subreddits of a month are in one file, as in the dumps of all of Reddit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = PostWorld(Sandbox(seed=4117, months=MONTHS, submissions=1, posts=POSTS, port=1)).build()
    lines = defaultdict(list)
    for post in drawn:
        lines[f"{post.created:%Y-%m}"].append(orjson.dumps(live(post, port=1)))
    for month in MONTHS:
        content = b"\n".join(lines[month]) + b"\n"
        half = len(content) // 2
        data = frame(content[:half], declared=DECLARED) + frame(content[half:], declared=DECLARED)
        (folder / f"RS_{month}.zst").write_bytes(data)
    return [{"title": post.title, "body": post.body, "labels": list(post.cradle)} for post in drawn]


def names(data: bytes, record: str) -> bool:
    """Return whether a file names a record, in plain bytes or in a column of a table."""
    if not data.startswith(b"PAR1"):
        return record.encode() in data
    table = parquet.read_table(io.BytesIO(data))
    return any(record in str(value) for column in table.columns for value in column.to_pylist())
