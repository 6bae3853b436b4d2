"""Read the resolved stage graph from a cached file, rebuilt when dvc.yaml, params.yaml or the profile change."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dvc_airflow import settings


@dataclass(frozen=True)
class Stage:
    """One stage as Airflow needs it; ``airflow`` is the stage's own ``meta.airflow``."""

    name: str
    desc: str
    upstream: tuple[str, ...]
    airflow: dict[str, Any]

    @property
    def task_id(self) -> str:
        """The task id: ``split`` for ``split@memes``; further matrix values stay in the id."""
        rest = self.name.partition("@")[2].partition("-")[2]
        return f"{self.step}__{rest}" if rest else self.step

    @property
    def step(self) -> str:
        """The step: ``split`` for ``split@memes``."""
        return self.name.partition("@")[0]


def resolved(root: Path | None = None, *, profile: str | None = settings.PROFILE) -> dict[str, Any]:
    """Return the resolved stage graph of :mod:`dvc_airflow.resolve` for the current files, from the cache if possible.

    Raises:
        RuntimeError: DVC cannot resolve the graph; the error contains DVC's message, which Airflow shows as an import
            error of the Dag.
    """
    root = root or settings.ROOT
    resolver = Path(__file__).with_name("resolve.py")
    sources = [root / "dvc.yaml", root / "params.yaml", *([root / "profiles" / f"{profile}.yaml"] if profile else [])]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in [*sources, resolver]))
    cached = settings.HOME / "graph" / f"{digest.hexdigest()[:16]}.json"
    if not cached.exists():
        done = subprocess.run(
            [settings.PYTHON, str(resolver), str(root), profile or "", str(cached)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"dvc.yaml cannot be resolved: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(cached.read_text())
    return found


def graph(root: Path | None = None, *, profile: str | None = settings.PROFILE) -> dict[str, Stage]:
    """Return the stages by name."""
    stages = resolved(root, profile=profile)["stages"]
    return {stage["name"]: Stage(**{**stage, "upstream": tuple(stage["upstream"])}) for stage in stages}


def ensembles() -> list[str]:
    """Return the names of the ensembles in ``silver.ensembles``, in order."""
    return list(resolved()["ensembles"])


def providers() -> list[str]:
    """Return the names of the providers that are called over the network; each has an Airflow pool of the same name."""
    return list(resolved()["providers"])


def protocols() -> list[str]:
    """Return the names of the corpora that have an annotation protocol."""
    return list(resolved()["protocols"])


def corpora() -> list[str]:
    """Return the names of the corpora."""
    return list(resolved()["corpora"])


def models() -> list[str]:
    """Return the names under which models are registered."""
    return list(resolved()["registry"])


def scoring(corpus: str) -> list[str]:
    """Return the registered names of the models in ``batch_predict`` of a corpus."""
    return list(resolved()["batch_predict"].get(corpus, ()))


def period(corpus: str) -> tuple[datetime, datetime | None]:
    """Return the run dates of a corpus's first and last month; the run of a month is on the next month's first day.

    Without a last month the corpus is collected indefinitely.
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
        if name not in ordered:
            for above in stages[name].upstream:
                visit(above)
            ordered[name] = stages[name]

    for target in targets:
        visit(target)
    return list(ordered.values())
