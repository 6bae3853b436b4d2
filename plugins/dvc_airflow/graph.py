"""Read the stage graph, resolved from ``dvc.yaml``, from the file that ``pipelines.workspace.dag_graph`` writes.

Every command that changes the stage graph of the corpus writes the file. Before there is a corpus, the graph is that of
the checkout with the profile, resolved once for each content of ``dvc.yaml``, ``params.yaml`` and the profile. Tasks
are grouped by package, step and task; group ids are no part of task ids, which stay the names of the stages.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from airflow.sdk import TaskGroup

from dvc_airflow import settings


@dataclass(frozen=True)
class Stage:
    """One DVC stage as Airflow needs it.

    ``package`` is the package of `pipelines` with its module, ``rest`` its key without ``corpus``, ``task`` what the
    model of its row predicts, ``answers`` whether the model's answers are ``computed`` here or ``asked`` of labellers.
    """

    name: str
    desc: str
    upstream: tuple[str, ...]
    package: str = ""
    corpus: str = ""
    rest: str = ""
    task: str = ""
    answers: str = ""

    @property
    def task_id(self) -> str:
        """The stage's Airflow task id: ``split`` for ``split@memes``; what a row's key has beside stays in the id."""
        return f"{self.step}__{self.rest}" if self.rest else self.step

    @property
    def doc(self) -> str:
        """The description of the stage's task, in Markdown."""
        where = f" Its code is in `pipelines/{self.package}/`." if self.package else ""
        return (
            f"{self.desc or self.step}.\n\nStage `{self.name}` of `dvc.yaml`, which `dvc repro {self.name}` runs on a"
            f" laptop.{where}"
        )

    @property
    def step(self) -> str:
        """The stage's name without its key: ``split`` for ``split@memes``."""
        return self.name.partition("@")[0]


def resolved(root: Path | None = None, *, profile: str | None = settings.PROFILE) -> dict[str, Any]:
    """Return the resolved stage graph of the corpus, else (with ``root``: always) that of a checkout."""
    path = settings.HOME / "graph" / "corpus.json"
    if root or not path.exists():
        path = _of_checkout(root or settings.ROOT, profile=profile)
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _of_checkout(root: Path, *, profile: str | None) -> Path:
    texts = {name: (root / name).read_text() for name in ("dvc.yaml", "params.yaml", "catalogue.yaml", "rows.yaml")}
    if profile:
        own = root / "corpora" / profile / "profile.yaml"
        texts["profile"] = (own if own.is_file() else root / "profiles" / f"{profile}.yaml").read_text()
    text = json.dumps(texts)
    # with the module that writes the file, and changes with its form
    writer = root / "pipelines" / "workspace" / "dag_graph.py"
    key = hashlib.sha256(text.encode() + writer.read_bytes()).hexdigest()[:16]
    cached = settings.HOME / "graph" / f"{key}.json"
    if not cached.exists():
        done = subprocess.run(
            [settings.PYTHON, "-m", "pipelines.workspace.dag_graph", str(cached)],
            cwd=root,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"dvc.yaml cannot be resolved: {done.stderr.strip()[-2000:]}")
    return cached


def graph(root: Path | None = None, *, profile: str | None = settings.PROFILE) -> dict[str, Stage]:
    """Return the DVC stages of the corpus (or of the checkout ``root``) by name."""
    stages = resolved(root, profile=profile)["stages"]
    return {stage["name"]: Stage(**stage | {"upstream": tuple(stage["upstream"])}) for stage in stages}


def months(corpus: str) -> list[tuple[list[str], list[str]]]:
    """Return the steps of a month, in order: the command, with month and shard to fill in, and globs of its files."""
    return [(step["argv"], step["out"]) for step in resolved()["months"][corpus]]


def targets_of(corpus: str, dag: str) -> tuple[list[str], list[str]]:
    """Return the last stages of a Dag of a corpus, and the stages that another Dag has run before."""
    found = resolved()["dags"][corpus][dag]
    return found["targets"], found["below"]


def listed(section: str) -> list[str]:
    """Return the names in a section of the resolved graph.

    Sections are ``corpora``, ``protocols`` (the corpora with an annotation protocol), ``providers`` (that are called
    over the network; each has a pool) and ``registry`` (MLflow's models).
    """
    return list(resolved()[section])


def ensembles(corpus: str) -> list[str]:
    """Return the ensembles whose votes on a corpus are aggregated, in order."""
    return list(resolved()["ensembles"].get(corpus, ()))


def asking(corpus: str) -> list[str]:
    """Return the steps of a corpus, other than votes, for which ``params.yaml`` names models or systems to ask."""
    return list(resolved()["asking"].get(corpus, ()))


def scoring(corpus: str) -> list[str]:
    """Return the registered names of the models in the parameter ``batch_predict`` of a corpus."""
    return list(resolved()["batch_predict"].get(corpus, ()))


def refreshes(corpus: str) -> str | None:
    """Return the cron schedule on which the listings of a corpus are read, or ``None`` if it reads none."""
    schedule: str | None = resolved()["refresh"].get(corpus)
    return schedule


def period(corpus: str) -> tuple[datetime, datetime | None]:
    """Return the dates of the Dag runs of a corpus's first and last month.

    The run of a month is on the next month's first day. Without a last month (``None``) the corpus is collected
    indefinitely.
    """
    section = resolved()["corpora"][corpus]
    first, last = section["first_month"], section["last_month"]
    return _month(first), _month(last, later=1) if last else None


def _month(key: str, *, later: int = 0) -> datetime:
    year, month = (int(part) for part in key.split("-"))
    return datetime(year + (month - 1 + later) // 12, (month - 1 + later) % 12 + 1, 1, tzinfo=UTC)


def closure(stages: dict[str, Stage], *, targets: Iterable[str]) -> list[Stage]:
    """Return the target stages and all stages upstream of them, in topological order."""
    ordered: dict[str, Stage] = {}

    def visit(name: str) -> None:
        if name not in stages:
            raise RuntimeError(f"dvc.yaml of the corpus has no stage {name}: run `corpus upgrade` in this checkout")
        if name not in ordered:
            for above in stages[name].upstream:
                visit(above)
            ordered[name] = stages[name]

    for target in targets:
        visit(target)
    return list(ordered.values())


def groups_of(stages: Sequence[Stage], *, waiting: Collection[str] = ()) -> dict[str, list[tuple[str, str]]]:
    """Return the groups of each stage's task, outermost first, as their names and tooltips.

    Stages of one package are a group unless groups would then depend on each other in a circle, as `split`, which reads
    `gold`, and `sample`, which `gold` reads, would; tasks of one step are a group; those of a step with rows of several
    tasks are a group for each, such as `train__severity`. Tasks of the steps that are ``waiting`` wait for further
    tasks, which may depend on all stages before.
    """
    counts, steps = Counter(stage.step for stage in stages), {stage.step for stage in stages}
    chosen: set[str] = set()
    for package in dict.fromkeys(stage.package for stage in stages):
        several = len({stage.step for stage in stages if stage.package == package}) > 1
        # a group and a task may not have the same id
        if package and several and package not in steps and _acyclic(stages, chosen | {package}, waiting=waiting):
            chosen.add(package)
    firsts: dict[str, Counter[str]] = defaultdict(Counter)
    for stage in stages:
        firsts[stage.step][stage.task] += 1
    docs, groups = resolved()["packages"], {}
    for stage in stages:
        path = [(stage.package, docs.get(stage.package, ""))] if stage.package in chosen else []
        if counts[stage.step] > 1:
            path.append((stage.step, stage.desc))
            if stage.task and len(firsts[stage.step]) > 1 and firsts[stage.step][stage.task] > 1:
                path.append((f"{stage.step}__{stage.task}", ""))
        groups[stage.name] = path
    return groups


def group(name: str, *, tooltip: str) -> Any:
    """Return a task group whose name is no part of the ids of its tasks."""
    return TaskGroup(name, prefix_group_id=False, tooltip=tooltip)


def _acyclic(stages: Sequence[Stage], chosen: Collection[str], *, waiting: Collection[str]) -> bool:
    """Return whether these packages as groups do not depend on each other in a circle, waiting tasks included."""
    nodes = {stage.name: f"package {stage.package}" if stage.package in chosen else stage.name for stage in stages}
    edges: dict[str, set[str]] = defaultdict(set)
    before: list[str] = []
    for stage in stages:
        node = nodes[stage.name]
        edges[node] |= {nodes[name] for name in stage.upstream if name in nodes} - {node}
        if stage.step in waiting:
            edges[f"wait {stage.step}"] |= set(before)
            edges[node].add(f"wait {stage.step}")
        else:
            before.append(node)
    try:
        TopologicalSorter(edges).prepare()
    except CycleError:
        return False
    return True
