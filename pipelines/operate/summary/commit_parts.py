"""Read the numbers of the newest commit of the corpus branch from its metrics, with the commit of each number."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pipelines.annotate.forms.manifest import FILE, opened
from pipelines.collect.month_ledger import GAPS
from pipelines.core.config.params import FILES, read_params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import GitFailed
from pipelines.label import votes_report
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git
from pipelines.workspace.pointer import read_pointer
from pipelines.workspace.scratch import scratch_folder

Json = dict[str, Any]

# The metrics that the page shows; those of every trained model are left out.
METRICS = ("agreement", "batch_predict", "dedupe", "evaluate", "gold", "quality", "sample", "split")
METRICS_OF = ("injection_test-", "silver-", "votes-")
# Latest commits that are listed even if no number of the page comes from them.
LATEST = 20
LOG = "--format=%x01%H%x02%cI%x02%s%x02%(trailers:key=Dag-Run,valueonly,separator=%x20)"


def read(settings: Settings, *, before: Mapping[str, Any]) -> tuple[Json, list[str], Json]:
    """Return what the newest commit says, the paths of its tables' pointers, and its parameters.

    The first part has ``commit``, ``commits`` (those of the numbers, and the latest), ``origin`` (metrics file or
    month's folder -> its last commit) and ``corpora``.
    """
    with history(settings) as repository, scratch_folder(settings.home) as folder:
        where = ("--git-dir", str(repository))
        paths = git(*where, "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", BRANCH).splitlines()
        wanted = [path for path in paths if _wanted(path)]
        git(*where, "archive", "--format=tar", f"--output={folder / 'files.tar'}", BRANCH, "--", *wanted)
        with tarfile.open(folder / "files.tar") as archive:
            archive.extractall(folder, filter="data")
        pointers = [path for path in paths if path.startswith("data/") and path.endswith(".dvc")]
        corpora = sorted({PurePosixPath(path).parts[1] for path in [*wanted, *pointers] if "/" in path})
        measured = {corpus: parts(folder, corpus) for corpus in corpora}
        for corpus, part in measured.items():
            part["gaps"] = _gaps(folder, corpus)
        facts = {"corpora": measured, **_commits(repository, before=before)}
        return facts, pointers, read_params(folder)


def _wanted(path: str) -> bool:
    name = PurePosixPath(path)
    if path in FILES:
        return True
    if name.parts[0] == "metrics" and name.suffix == ".json":
        return name.stem in METRICS or name.stem.startswith(METRICS_OF)
    return name.name in (FILE, f"{GAPS}.dvc") and name.parts[0] in ("annotations", "data")


def parts(root: Path, corpus: str) -> Json:
    """Return the numbers of one corpus from its metrics and the manifests of its rounds, without labels of items."""
    folder = root / "metrics" / corpus
    votes = votes_report.gather(root, corpus)
    shown = {name: _metrics(folder / f"{name}.json") or {} for name in ("dedupe", "gold", "sample", "split")}
    quality = _metrics(folder / "quality.json") or {}
    agreement = (_metrics(folder / "agreement.json") or {}).get("rounds", {})
    return {
        "funnel": {
            "collect": quality.get("collect") or {},
            "dedupe": _some(shown["dedupe"], "items", "kept", "dropped", "clusters", "pairs", "taken_down"),
            "sample": _some(shown["sample"], "candidates", "taken", "size", "missing"),
            "gold": _some(shown["gold"], "records", "labels", "pending", "unfit", "without", "outside"),
            "split": _some(shown["split"], "sizes", "excluded", "leakage", "withheld", "max_deviation"),
        },
        "ocr": quality.get("ocr") or {},
        "rounds": [_round(manifest, measured=agreement.get(manifest.round)) for manifest in opened(root, corpus)],
        "votes": {name: _some(labeller, *VOTES) for name, labeller in votes.get("votes", {}).items()},
        "silver": {name: _silver(ensemble) for name, ensemble in votes.get("silver", {}).items()},
        "models": {name: _model(model) for name, model in (_metrics(folder / "batch_predict.json") or {}).items()},
    }


VOTES = ("outcomes", "reasons", "cost", "records", "repaired")


def _round(manifest: Any, *, measured: Mapping[str, Any] | None) -> Json:
    categories = (measured or {}).get("categories", {})
    return {
        "round": manifest.round,
        "phase": manifest.phase,
        "status": manifest.status,
        "opened": manifest.opened.isoformat(),
        "closed": manifest.closed and manifest.closed.isoformat(),
        "reason": manifest.decision and manifest.decision.reason,
        "gold": manifest.decision and manifest.decision.go_on,
        "size": manifest.size,
        "sufficient": (measured or {}).get("sufficient"),
        "agreement": {
            name: {"items": category["items"], "alpha": category["alpha"], "kappa": category["kappa"]}
            for name, category in categories.items()
        },
    }


def _silver(silver: Mapping[str, Any]) -> Json:
    return {
        "records": silver["records"],
        "agreement": {split: dict(counts) for split, counts in silver["agreement"].items()},
        "queue": {"records": silver["queue"]["records"], "reasons": dict(silver["queue"]["reasons"])},
    }


def _model(model: Mapping[str, Any]) -> Json:
    drift = model.get("drift") or {}
    return {
        **_some(model, "version", "items", "records", "alerts", "labels", "outcomes"),
        "drift": {
            "months": drift.get("months", 0),
            "exceeded": {month: list(names) for month, names in (drift.get("exceeded") or {}).items()},
            "newest": drift.get("newest"),
        },
    }


def _gaps(root: Path, corpus: str) -> dict[str, str]:
    pointers = sorted((root / "data" / corpus).glob(f"*/{GAPS}.dvc"))
    return {path.parent.name: read_pointer(path.read_text()).md5 for path in pointers}


def _commits(repository: Path, *, before: Mapping[str, Any]) -> Json:
    """Return the newest commit, the last commit of each file of metrics and month, and these commits."""
    where = ("--git-dir", str(repository))
    tip = git(*where, "rev-parse", BRANCH)
    known = before.get("commit")
    span = f"{known}..{BRANCH}" if known and _reaches(repository, known) else BRANCH
    log = git(*where, "-c", "core.quotePath=false", "log", LOG, "--name-only", span, "--", "metrics", "data")
    newest = git(*where, "log", LOG, f"--max-count={LATEST}", BRANCH)
    origin: dict[str, str] = {} if span == BRANCH else dict(before.get("origin", {}))
    commits = dict(before.get("commits", {}))
    fresh: dict[str, str] = {}
    for commit, files in _entries(log):
        commits[commit["commit"]] = commit
        for file in files:
            fresh.setdefault(_key(file), commit["commit"])
    latest = [commit for commit, _ in _entries(newest)]
    commits |= {commit["commit"]: commit for commit in latest}
    origin |= fresh
    used = {*origin.values(), *(commit["commit"] for commit in latest)}
    return {"commit": tip, "origin": origin, "commits": {key: commit for key, commit in commits.items() if key in used}}


def _reaches(repository: Path, commit: str) -> bool:
    try:
        git("--git-dir", str(repository), "merge-base", "--is-ancestor", commit, BRANCH)
    except GitFailed:
        return False
    return True


def _entries(log: str) -> Iterable[tuple[Json, list[str]]]:
    for block in log.split("\x01")[1:]:
        head, _, files = block.partition("\n")
        commit, at, subject, run = head.split("\x02", 3)
        yield (
            {"commit": commit, "at": at, "subject": subject, "run": run or None},
            [file for file in files.splitlines() if file],
        )


def _key(file: str) -> str:
    names = PurePosixPath(file).parts
    return "/".join(names[:3]) if names[0] == "data" else file


def _some(values: Mapping[str, Any], *names: str) -> Json:
    return {name: values[name] for name in names if name in values}


def _metrics(path: Path) -> Json | None:
    return json.loads(path.read_text()) if path.exists() else None
