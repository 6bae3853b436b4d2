"""Walk from nothing to a team's own corpus with the commands of the documentation only (``make walk``).

A checkout on a fresh home, own dumps of two months, an S3-compatible remote, PostgreSQL, a git server, an Airflow that
runs two other Dags: one labelled corpus, a promoted model, a consumer in its own environment, a takedown, and a backup
that is restored to another path. ``walk_world.py`` has what the team brings. Every other command is refused
unless a hand-written page of the documentation prints it, with its options.

    python -m pytest -s tests/walk.py

All components are stopped at the end.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import yaml

from pipelines.core.config.params import overlay
from pipelines.operate.services.airflow_api import Login
from pipelines.operate.services.postgres import program
from pipelines.workspace.git import git
from tests.airflow_client import AirflowClient
from tests.small_checkout import checkout
from tests.test_docs_commands import Block
from tests.walk_world import MONTHS, World, names, wait, write_dumps

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference")]
PREFIX = "crisis_"
ROUNDS = ("round-1", "round-2", "round-4")
PEOPLE = ("annotator-1", "annotator-2", "annotator-3", "annotator-4")
SUBREDDITS = "rape,SexualHarassment,domesticviolence,SuicideWatch,selfharm,mentalhealth,depression,lonely"
# What the team adds to its profile: as few posts and as small a model as show the way on two cores.
VALUES = """
round:
  backend: files
  annotators: [annotator-1, annotator-2, annotator-3, annotator-4]
  daily_cap: 500
sample:
  posts: {size: 480}
split:
  posts:
    ratios: {train: 240, dev: 120, test: 120}
    sizes: {train: 240, dev: 120, test: 120}
silver: {min_probability: 0.02}
injection_test: {size: 20}
release: {max_alone: 1}
models:
  small: {kind: encoder, base: "tiny:modernbert", batch: 8, max_tokens: 256, learning_rate: 0.005, warmup: 0.1,
          weight_decay: 0.01, epochs: 12}
train:
  rows:
    posts: {models: [small], subsets: [consensus], seeds: [20251001]}
evaluate: {resamples: 1000}
registry:
  crisis-posts: {candidates: [{model: small, subset: consensus}]}
promote:
  alpha: 10
  looks: 20
  parts: 1
  baselines: []
  recall_floors: {crisis-posts: {suicideideation_active_ongoing: 0, selfharm_ongoing: 0}}
"""
CONSUMER = """
import pandas
from crisis_corpus import load

model = load("models:/crisis-posts@champion")
found = model.predict(pandas.DataFrame({"title": ["A title"], "body": ["What it says"]}))
print(len(found), model.version)
"""


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
        path = self.world.airflow_environment(more=self.known.get("airflow", {}))
        return self.run(command, cwd=self.world.folder / "airflow", more=path)

    @property
    def api(self) -> AirflowClient:
        return AirflowClient(self.world.airflow_url, login=Login(user="ops", password=self.world.passwords["ops"]))

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
        return git("ls-remote", self.world.repository(repository), "refs/heads/corpus").split()[0]


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


class Walk(Person):
    """The steps of one walk."""

    def install(self) -> None:
        """Check the project out and install it."""
        checkout(self.project)
        self.run("make setup")
        assert "0.1" in self.run("corpus --version")

    def dumps(self) -> None:
        """Put the dumps with their checksums into one folder."""
        folder = self.home / "dumps"
        self.known.update(truth=write_dumps(folder))
        for month in MONTHS:
            self.run(f"sha256sum RS_{month}.zst > RS_{month}.zst.sha256", cwd=folder)
        self.exported.update(CORPUS_DUMPS=str(folder))

    def their_airflow(self) -> None:
        """Start the team's Airflow and run its two Dags, one of which triggers the other."""
        lock = (ROOT / "requirements.lock").read_text()
        versions = re.findall(r"^apache-airflow(?:-core|-task-sdk|-providers-standard)?==\S+", lock, re.MULTILINE)
        self.world.install_airflow(versions=versions)
        self.world.start_airflow(more={})
        for dag_id in ("release", "promote"):
            self.api.unpause(dag_id)
        self.api.trigger("release")
        self.ended("promote", runs=1, seconds=300)

    def begin(self) -> None:
        """Create the corpus on the git server, with the remote in S3 and databases in PostgreSQL."""
        self.world.start_mlflow(binary=self.project / ".venv" / "bin" / "mlflow")
        self.exported.update(
            CORPUS_HOME=str(self.var), AWS_DEFAULT_REGION="eu-central-1", AWS_ACCESS_KEY_ID="team",
            AWS_SECRET_ACCESS_KEY="secret-of-s3", AWS_ENDPOINT_URL=self.world.s3_url,
            MLFLOW_TRACKING_URI=self.world.mlflow_url,
            **{f"CORPUS_{name.upper()}_URL": self.world.database_url(name) for name in ("vault", "answers", "journal")},
        )  # fmt: skip
        months = dict(zip(("first_month", "last_month"), (MONTHS[0], MONTHS[-1]), strict=True))
        posts = {"subreddits": SUBREDDITS.split(","), "source": "dump", **months}
        profile = {"corpora": {"posts": posts}, "sources": {"dump": {"ethics": "HREC-1"}}}
        (self.project / "profiles" / "team.yaml").write_text(yaml.safe_dump(profile))
        self.run(f"corpus init --profile profiles/team.yaml --repo {self.world.repository('corpus.git')} "
                 "--remote s3://corpus/data")  # fmt: skip
        listed = (self.var / "corpus.env").read_text().splitlines()
        self.exported.update(**dict(shlex.split(line)[0].split("=", 1) for line in listed))
        counts = json.loads(self.run(f"corpus try --corpus posts --day {MONTHS[0]}-05").strip().splitlines()[-1])
        assert counts["kept"] > 0

    def parameters(self) -> None:
        """Add the team's values to its profile, and commit them to the corpus."""
        profile = self.project / "profiles" / "team.yaml"
        values = overlay(yaml.safe_load(profile.read_text()), yaml.safe_load(VALUES))
        profile.write_text(yaml.safe_dump(values, sort_keys=False))
        self.run("corpus params apply profiles/team.yaml --reason 'the values of our team'")
        assert "480" in self.run("corpus params show sample")
        self.run("corpus doctor")

    def our_dags(self) -> None:
        """Add the Dags to the team's Airflow under a prefix."""
        self.exported.update(CORPUS_AIRFLOW_PREFIX=PREFIX, CORPUS_PROFILE="team",
                    CORPUS_ANNOTATION_FILES=str(self.home / "queues"), CORPUS_AIRFLOW_URL=self.world.airflow_url,
                    CORPUS_AIRFLOW_USER="ops", CORPUS_AIRFLOW_PASSWORD=self.world.passwords["ops"])  # fmt: skip
        lines = [line for line in self.run("corpus airflow path").splitlines() if re.match(r"[A-Z_]+=", line)]
        mine = dict(shlex.split(line)[0].split("=", 1) for line in lines)
        plain = ("CORPUS_HOME", "CORPUS_PROFILE", "CORPUS_REPO", "CORPUS_REMOTE", "CORPUS_DUMPS",
                 "CORPUS_AIRFLOW_PREFIX", "AWS_DEFAULT_REGION", "CORPUS_ANNOTATION_FILES")  # fmt: skip
        mine |= {name: self.exported[name] for name in plain}
        mine["CORPUS_PYTHON"] = str(self.project / ".venv" / "bin" / "python")
        self.known.update(airflow=mine)
        self.world.stop_airflow()
        self.world.start_airflow(more=mine)
        self.run("corpus airflow setup --dry-run")
        first = self.run("corpus airflow setup")
        assert f"pool {PREFIX}gpu: created" in first and self.world.passwords["vault"] not in first
        assert f"pool {PREFIX}gpu: unchanged" in self.run("corpus airflow setup")

    def collect(self) -> None:
        """Collect both months as a backfill."""
        self.run(f"corpus plan backfill posts --from {MONTHS[0]} --to {MONTHS[-1]}")
        wait(lambda: f"{PREFIX}posts_collect" in {d["dag_id"] for d in self.api.get("/dags", limit=100)["dags"]},
             what="our Dags")  # fmt: skip
        self.airflow(f"airflow dags unpause {PREFIX}posts_collect")
        self.airflow(f"airflow backfill create --dag-id {PREFIX}posts_collect "
                     f"--from-date {MONTHS[0]}-01 --to-date {MONTHS[-1]}-01")  # fmt: skip
        self.ended(f"{PREFIX}posts_collect", runs=2)

    def dataset(self) -> None:
        """Deduplicate, sample and split."""
        self.trigger("posts_dataset")

    def annotate(self) -> None:
        """Hold the rounds over dev and test with a tool of the team's own, and adjudicate."""
        for name in ROUNDS:
            self.run(f"corpus round open posts {name} --dry-run")
            self.run(f"corpus round open posts {name}")
            self.answer(name, people=PEOPLE, errors=7)
            self.run(f"corpus round pull posts {name}")
            self.run(f"corpus round adjudicate posts {name}")
            self.answer(f"{name}/adjudication", people=("adjudicator-1",), errors=0)
            self.run(f"corpus round close posts {name} --gold --reason agreement-sufficient")
        self.run("corpus agreement-report posts")

    def answer(self, queue: str, *, people: tuple[str, ...], errors: int) -> None:
        """Write the answers of people who read the posts; every so many answers one is wrong, if ``errors``."""
        for person in people:
            folder = self.home / "queues" / "posts" / queue / person
            tasks = folder / "tasks.jsonl"
            rows = [json.loads(line) for line in tasks.read_text().splitlines()] if tasks.exists() else []
            written = []
            for number, row in enumerate(rows):
                labels = self.read(row["text"])
                if errors and number % errors == int(person[-1]):
                    labels = ["no_crisis"] if labels != ["no_crisis"] else ["selfharm_past"]
                written.append({"item": row["item"], "values": {"labels": labels}, "note": "as the guideline says",
                                "seconds": 20, "answered": datetime.now(UTC).isoformat()})  # fmt: skip
            if written:
                (folder / "answers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in written))

    def read(self, text: Mapping[str, str]) -> list[str]:
        """Return the labels of the post that a person recognizes."""
        same = [one for one in self.known["truth"] if one["title"] == text["title"]] or self.known["truth"]
        alike = [SequenceMatcher(None, one["body"][:300], text["body"][:300]).ratio() for one in same]
        return list(same[alike.index(max(alike))]["labels"])

    def label(self) -> None:
        """Label with the offline ensemble."""
        self.trigger("posts_label")
        self.run("corpus votes-report posts")

    def train(self) -> None:
        """Train, evaluate and register."""
        self.trigger("posts_benchmark")
        assert "registered" in self.run("corpus registry crisis-posts")

    def promote(self) -> None:
        """Let the gate decide, and approve in Airflow."""
        self.airflow(f"airflow dags unpause {PREFIX}promote")
        conf = json.dumps({"name": "crisis-posts", "version": 1})
        self.airflow(f"airflow dags trigger {PREFIX}promote --conf '{conf}'")
        api = self.api
        [run] = api.runs(f"{PREFIX}promote")
        answers = {"approve": ("Promote", {"why": "better than the majority"})}
        api.finish(f"{PREFIX}promote", run["dag_run_id"], answers=answers)
        assert "promoted" in self.run("corpus registry crisis-posts")

    def release(self) -> None:
        """Release labels without content."""
        self.exported.update(CORPUS_CONTACT="team@example.org")
        made = json.loads(self.run("corpus release make posts first").strip().splitlines()[-1])
        self.known.update(package=made["package"])
        self.run("corpus release approve first --who 'A. Person' --why 'ethics board, request 12'")
        self.run("corpus release list")

    def consume(self) -> None:
        """Load the champion in an environment of the consumer's own, with an account that reads the journal only."""
        self.world.sql("GRANT SELECT ON journal, journal_format TO consumer", database="journal")
        place = self.home / "consumer"
        place.mkdir()
        subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
        own = self.consumer()
        self.run("python -m pip install ./client", more=own)
        download = 'from crisis_corpus import download; print(download("crisis-posts@champion"))'
        self.run(f"folder=$(python -c '{download}')\npython -m pip install -r \"$folder/requirements.txt\"",
                 cwd=place, more=own)  # fmt: skip
        (place / "predict.py").write_text(CONSUMER)
        self.run("python predict.py", cwd=place, more=own)

    def back_up(self) -> None:
        """Back up every part, before the takedown."""
        folder = self.home / "backup"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.run(f"git clone --quiet --mirror {self.world.repository('corpus.git')} backup/corpus.git", cwd=self.home)
        for name in ("vault", "answers", "journal"):
            self.run(f"pg_dump --host=127.0.0.1 --username={name} --format=custom --file=backup/{name}.dump {name}",
                     cwd=self.home, more=self.postgres(name))  # fmt: skip
        self.world.copy_bucket("corpus", folder / "remote")
        shutil.copytree(self.var / "releases", folder / "releases")
        self.world.copy_mlflow(folder)
        shutil.copy(self.var / "secret", self.home / "secret")

    def take_down(self) -> None:
        """Take one training record down by its id; it is then in no object, no old version and on the removal list."""
        listed = json.loads(self.run("corpus registry crisis-posts --records-of 1").strip().splitlines()[-1])
        record, old = listed["record_ids"][0], self.head("corpus.git")
        self.known.update(record=record)
        assert self.world.naming(record, bucket="corpus")
        self.run(f"corpus takedown --post {record} --dry-run")
        self.run(f"corpus takedown --post {record} --reason request-7 --who 'A. Person' --yes")
        self.run("corpus vault tombstones > tombstones.json", cwd=self.home)
        assert record in (self.home / "tombstones.json").read_text()
        assert not self.world.naming(record, bucket="corpus")
        self.run("corpus release refresh --at-once")
        assert len(json.loads((Path(self.known["package"]) / "removal.json").read_text())["ids"]) == 1
        lab = self.home / "lab"
        self.run(f"corpus clone {lab} --revision {old}")
        self.run("dvc pull --allow-missing", cwd=lab)
        pulled = [path for part in ("data", "snapshot") for path in (lab / part).rglob("*") if path.is_file()]
        assert pulled and not [path for path in pulled if names(path.read_bytes(), record)]
        self.run("python predict.py", cwd=self.home / "consumer", more=self.consumer())

    def restore(self) -> None:
        """Restore the backup, which is older than the takedown, to another path; the original stays unchanged."""
        before = self.world.state()
        new, folder = self.home / "restored", self.home / "backup"
        new.mkdir(mode=0o700)
        shutil.copytree(folder / "releases", new / "releases")
        shutil.copy(self.home / "secret", new / "secret")
        self.run(f"git push --quiet --mirror {self.world.repository('restored.git')}", cwd=folder / "corpus.git")
        self.world.fill_bucket("corpus-restored", folder / "remote")
        address = self.world.restored_mlflow(folder, binary=self.project / ".venv" / "bin" / "mlflow")
        more = {"CORPUS_HOME": str(new), "CORPUS_REPO": self.world.repository("restored.git"),
                "CORPUS_REMOTE": "s3://corpus-restored/data", "MLFLOW_TRACKING_URI": address}  # fmt: skip
        for name in ("vault", "answers", "journal"):
            self.world.empty_database(f"{name}_restored", owner=name)
            self.run(f"pg_restore --host=127.0.0.1 --username={name} --no-owner --dbname={name}_restored "
                     f"backup/{name}.dump", cwd=self.home, more=self.postgres(name))  # fmt: skip
            more[f"CORPUS_{name.upper()}_URL"] = self.world.database_url(f"{name}_restored")
        for command in ("corpus vault replay tombstones.json --yes",
                        "corpus takedown run-pending --yes --tombstones tombstones.json", "corpus doctor"):  # fmt: skip
            self.run(command, cwd=self.home, more=more)
        assert not self.world.naming(self.known["record"], bucket="corpus-restored")
        assert self.world.state() == before
        runs = [len(self.api.runs(dag_id)) for dag_id in ("release", "promote")]
        assert runs == [1, 1], "the team's Dags ran more often than they should"


STEPS: tuple[Callable[[Walk], None], ...] = (
    Walk.install, Walk.dumps, Walk.their_airflow, Walk.begin, Walk.parameters, Walk.our_dags, Walk.collect,
    Walk.dataset, Walk.annotate, Walk.label, Walk.train, Walk.promote, Walk.release, Walk.consume, Walk.back_up,
    Walk.take_down, Walk.restore,
)  # fmt: skip


def test_walk(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    try:
        walk.world.servers()
        for step in STEPS:
            sys.stdout.write(f"{step.__name__}\n")
            step(walk)
    finally:
        walk.world.stop()
