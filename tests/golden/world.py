"""Make corpora from dumps to registered models by commands alone, without Airflow, under one secret."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx
import yaml

from tests import mlflow_server
from tests.golden.annotators import answer_queues

SECRET = "5e" * 64
RUN = "golden"
CORPORA = {"memes": "images", "posts": "texts"}
# The addresses of pictures name the port, and the digest of a post covers them.
PORT = 8917
# Another comparison on this host may have the port.
PATIENCE = 3600.0
# One round of each corpus, whose answers are drawn here.
ROUNDS = {"memes": ("calibration", "--no-gold"), "posts": ("round-1", "--gold")}
VENDORS = {
    "OPENAI": "/openai/v1",
    "ANTHROPIC": "/anthropic",
    "GOOGLE": "/google",
    "AZURE": "/azure",
    "GUARD": "/guard/v1",
    "LOCAL": "/local/v1",
}
# What a round of annotation needs, and what runs after champions exist.
FIRST = ("dedupe@", "sample@", "gold@", "split@")
LAST = "batch_predict"
# The gate may refuse a model.
REFUSED = 77


class CommandFailed(Exception):
    """A command of the checkout failed."""


def overlay(base: Any, values: Any) -> Any:
    """Lay the values of a profile over those of another one."""
    if isinstance(base, dict) and isinstance(values, dict):
        return base | {key: overlay(base.get(key), value) for key, value in values.items()}
    return values


def read(path: Path) -> dict[str, Any]:
    """Read a profile."""
    values: dict[str, Any] = yaml.safe_load(path.read_text())
    return values


def check_out(
    root: Path,
    folder: Path,
    *,
    profile: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> Path:
    """Commit the working tree of ``root``, the profile ``golden`` and further files into a checkout of its own.

    Args:
        without: folders that are left out.
    """
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", cwd=root).splitlines()
    listed = [name for name in listed if name.partition("/")[0] not in without]
    for name in (name for name in listed if (root / name).is_file()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name)
    for name, text in {"profiles/golden.yaml": yaml.safe_dump(dict(profile), sort_keys=False), **(files or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git("init", "--quiet", "-b", "main", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "-m", "the working tree", cwd=folder)
    return folder


def git(*argv: str, cwd: Path) -> str:
    who = ["-c", "user.name=golden", "-c", "user.email=golden@localhost"]
    return subprocess.run(["git", *who, *argv], cwd=cwd, check=True, text=True, stdout=subprocess.PIPE).stdout


@dataclass
class World:
    """A checkout, a home, and the environment of their commands.

    Args:
        corpora: the content of each corpus by its name.
        rounds: of each corpus that people label here, a round and the decision on its labels.
        port: of the sandbox.
    """

    checkout: Path
    home: Path
    corpora: Mapping[str, str] = field(default_factory=CORPORA.copy)
    rounds: Mapping[str, tuple[str, str]] = field(default_factory=ROUNDS.copy)
    port: int = PORT

    def __post_init__(self) -> None:
        address = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CORPUS_", "MLFLOW_"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "CORPUS_HOME": str(self.home),
            "CORPUS_SECRET": SECRET,
            "CORPUS_SANDBOX_PORT": str(self.port),
            "CORPUS_CONTACT": "golden@localhost",
            "CORPUS_ANNOTATION_FILES": str(self.home / "queues"),
            **dict.fromkeys(("CORPUS_REDDIT_URL", "CORPUS_REDDIT_OAUTH_URL", "CORPUS_ARCTIC_SHIFT_URL"), address),
            **dict.fromkeys(("CORPUS_REDDIT_CLIENT_ID", "CORPUS_REDDIT_CLIENT_SECRET"), "golden"),
            **{f"CORPUS_{vendor}_URL": address + path for vendor, path in VENDORS.items()},
            **{f"CORPUS_{vendor}_KEY": "golden" for vendor in VENDORS},
            "DVC_NO_ANALYTICS": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "TQDM_DISABLE": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
        }
        self._publishing = threading.Lock()
        self.registered: list[str] = []

    def run(self, *argv: str, given: Any = None, refused: int = 0, cwd: Path | None = None) -> str:
        """Run a command of the checkout; return what it prints. It may also exit with the status ``refused``."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pipelines", *argv],
            cwd=cwd or self.checkout,
            env=self.environment,
            input=None if given is None else json.dumps(given),
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL if given is None else None,
            check=False,
        )
        if os.environ.get("GOLDEN_VERBOSE"):
            sys.stderr.write(f"{time.monotonic() - began:6.1f} s {' '.join(argv[:6])}\n")
        if done.returncode not in (0, refused):
            raise CommandFailed(f"`corpus {' '.join(argv)}` exited with {done.returncode}: {done.stderr[-3000:]}")
        return done.stdout

    def call(self, *argv: str, given: Any = None) -> Any:
        """Run a command; return the JSON in the last line of its output."""
        return json.loads(self.run(*argv, given=given).strip().rpartition("\n")[2])

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve the offline Reddit with its vendors, MLflow, and a process that has imported the libraries."""
        self.home.mkdir(parents=True)
        with _alone():
            yield from self._served()

    def reddit(self) -> None:
        """Write the offline Reddit that is served."""
        self.run("sandbox", "build", "--profile", "golden")

    def _served(self) -> Iterator[None]:
        started = []
        try:
            socket_file = self.home / "fork.sock"
            script = next((self.checkout / "pipelines").rglob("forkserver.py"))
            started.append(self._start("fork", [sys.executable, "-P", str(script), str(socket_file)]))
            self.reddit()
            serve = [sys.executable, "-m", "pipelines", "sandbox", "serve"]
            started.append(self._start("sandbox", serve))
            (self.home / "mlflow").mkdir()
            with mlflow_server.serving(self.home / "mlflow", files=self.home / "mlflow" / "files") as address:
                if started[-1].poll() is not None:
                    raise CommandFailed(f"the sandbox ended: another program has port {self.port}?")
                self.environment |= {"MLFLOW_TRACKING_URI": address, "CORPUS_FORKSERVER": str(socket_file)}
                yield
        finally:
            for process in started:
                process.kill()
                process.wait()

    def _start(self, name: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                argv, cwd=self.checkout, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def make(self) -> None:
        """Make all corpora, side by side."""
        self.run("init", "--profile", "golden")
        self.stages = self._stages()
        with ThreadPoolExecutor(len(self.corpora)) as pool:
            list(pool.map(self._corpus, self.corpora))

    def months(self) -> Sequence[str]:
        """Return the months that are collected."""
        months: list[str] = json.loads((self.home / "sandbox" / "truth_images.json").read_text())["months"]
        return months

    def _corpus(self, corpus: str) -> None:
        for month in self.months():
            self._month(corpus, month)
        self.labels(corpus)
        stages = [name for name in self.stages if self._owner(name) == corpus]
        stages = [name for name in stages if not name.startswith(LAST)]
        self._snapshot(corpus, [name for name in stages if name.startswith(FIRST)])
        if corpus in self.rounds:
            self._annotate(corpus)
        self._snapshot(corpus, stages)
        for name, versions in self.call("register", "--corpus", corpus)["registered"].items():
            self.registered.append(name)
            for version in versions:
                self.run(
                    "promote", name, str(version["version"]), "--who", "golden", "--why", "complete", refused=REFUSED
                )
        with self._publishing:
            champions = self.call("task", "champions", corpus)["champions"]
        if champions:
            self._snapshot(corpus, [f"{LAST}@{corpus}"])

    def _owner(self, stage: str) -> str:
        """Return the corpus of a stage: the key of a row begins with its name."""
        key = stage.partition("@")[2]
        return max((name for name in self.corpora if key == name or key.startswith(f"{name}-")), key=len, default="")

    def labels(self, corpus: str) -> None:
        """Put the labels in that exist before the sample is drawn."""

    def clone(self) -> Path:
        """Return a clone with everything that the corpus branch has."""
        folder = self.home / "result"
        self.run("clone", str(folder))
        pull = [sys.executable, "-m", "dvc", "pull", "--quiet", "--allow-missing"]
        subprocess.run(pull, cwd=folder, env=self.environment, check=True)
        return folder

    def journal(self) -> dict[str, Any]:
        """Return what the journal has of each registered model."""
        return {name: json.loads(self.run("registry", name, "--json")) for name in sorted(self.registered)}

    def _stages(self) -> list[str]:
        """Return the stages of the resolved ``dvc.yaml``, each after those that it needs."""
        from dvc.repo import Repo

        folder = self.home / "resolved"
        git("clone", "--quiet", "--branch", "corpus", str(self.home / "corpus.git"), str(folder), cwd=self.home)
        with Repo(str(folder)) as repo:
            named = repo.index.graph.subgraph(stage for stage in repo.index.stages if hasattr(stage, "name"))
            return list(
                nx.lexicographical_topological_sort(nx.relabel_nodes(named, lambda stage: stage.name).reverse())
            )

    def _month(self, corpus: str, month: str) -> None:
        which = (corpus, "--month", month)
        collected = self._step("collect", *which, out=[f"work/{corpus}/{month}/*.parquet"])
        pointers = dict(collected["pointers"])
        out = [f"data/{corpus}/{month}/{self.corpora[corpus]}/*.parquet", f"work/{corpus}/{month}/drops/*.parquet"]
        for shard in range(collected["result"]["shards"]):
            made = self._step(self.corpora[corpus], *which, "--shard", str(shard), out=out, given=collected["pointers"])
            pointers |= made["pointers"]
        made = self._step("partition", *which, out=[f"data/{corpus}/{month}/*.parquet"], given=pointers)
        kept = {path: text for path, text in (pointers | made["pointers"]).items() if path.startswith("data/")}
        with self._publishing:
            self.call("task", "publish-partition", *which, "--pointers", "-", given=kept)

    def _step(self, *argv: str, out: Sequence[str], given: Mapping[str, str] | None = None) -> Any:
        globs = [word for pattern in out for word in ("--out", pattern)]
        return self.call("task", "step", "--pointers", "-", *globs, "--", *argv, given=dict(given or {}))

    def _snapshot(self, corpus: str, stages: Sequence[str]) -> None:
        at = ("--base", self.call("task", "pin")["commit"], "--run", RUN)
        tokens = self.call("task", "stage", *stages, *at)["results"]
        with self._publishing:
            self.call("task", "publish-snapshot", corpus, stages[-1], *at, "--results", "-", given=tokens)

    def answer(self, queues: Path) -> None:
        """Answer the queues of a round as people would."""
        answer_queues(queues, sandbox=self.home / "sandbox")

    def _annotate(self, corpus: str) -> None:
        """Hold a round of annotation."""
        name, decision = self.rounds[corpus]
        queues = self.home / "queues" / corpus / name
        with self._publishing:
            self.run("round", "open", corpus, name)
            self.answer(queues)
            self.run("round", "pull", corpus, name)
            self.run("round", "adjudicate", corpus, name)
            self.answer(queues / "adjudication")
            self.run("round", "close", corpus, name, decision, "--reason", "complete")


@contextmanager
def _alone() -> Iterator[None]:
    """Wait for other comparisons on this host, which use the same port."""
    with (Path(tempfile.gettempdir()) / f"golden-{PORT}.lock").open("w") as lock:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(2)
        yield
