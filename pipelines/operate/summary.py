"""Write what the Corpus page of Airflow shows to ``CORPUS_HOME/summary/corpus.json`` (``corpus status --write``).

The page (``plugins/corpus_view``) reads this file and Airflow's own runs, and nothing else: no vault, no secret, no
table of records. Its listener writes the file after each task that changes the corpus. It holds counts, dates, digests,
ids of runs, and the reasons that people recorded; no content, no record ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crisis_corpus import journal
from crisis_corpus.journal import of_rows
from pipelines.annotate.manifest import RoundManifest, opened
from pipelines.collect.month_ledger import coverage_of
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.process import now, write_private
from pipelines.core.telemetry import count
from pipelines.label import votes_report
from pipelines.operate import status
from pipelines.operate.status import some
from pipelines.registry import versions
from pipelines.release import release_store
from pipelines.store.answers import NANO, AnswerStore
from pipelines.store.metrics_file import read_metrics
from pipelines.store.vault import checks, locks
from pipelines.store.vault.database import records
from pipelines.store.vault.engine import file_missing
from pipelines.store.vault.vault import Vault
from pipelines.takedown import receipts, sweep
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git

Json = dict[str, Any]

# Raised when the page needs another form of the file; a page that finds another one asks for the command below.
VERSION = 1
# Journal rows of a model that the page lists, newest last (`corpus registry` lists all), and receipts of takedowns.
ROWS, RECEIPTS = 60, 20
# What the page shows of each step's metrics, of a labeller's votes, and of a champion's predictions.
STEPS = {
    "dedupe": ("items", "kept", "dropped", "taken_down"),
    "sample": ("candidates", "taken"),
    "gold": ("records", "pending", "unfit", "without"),
    "split": ("sizes", "excluded", "withheld"),
}
VOTES, MODEL = ("outcomes", "reasons", "cost"), ("version", "items", "alerts", "labels")
# Commit, time, subject and Dag run of each of the last commits, which are listed even if no number comes from them, and
# of those that changed metrics or months.
LOG = "--format=%x01%H%x02%cI%x02%s%x02%(trailers:key=Dag-Run,valueonly,separator=%x20)"
LATEST, CHANGES = ("--max-count=20",), ("--name-only", "--", "metrics", "data")


def place(settings: Settings) -> Path:
    """Return the path of the summary."""
    return settings.home / "summary" / "corpus.json"


def write(settings: Settings, *, at: datetime | None = None) -> Json:
    """Gather and write the summary, and return it.

    Writers of one host take turns, so that the last one to write has seen the newest state.
    """
    with locks.of_host(settings, "summary"):
        made = _gather(settings, at=at or now())
        count("corpus.takedowns.open", len(made["takedowns"]["open"]))
        count("corpus.takedowns.done", made["takedowns"]["done"])
        count("corpus.budget.spent_usd", made["budget"]["paid"] + made["budget"]["reserved"])
        count("corpus.budget.limit_usd", made["budget"]["limit"])
        write_private(place(settings), json.dumps(made, separators=(",", ":"), sort_keys=True) + "\n")
    return made


def _gather(settings: Settings, *, at: datetime) -> Json:
    with workspace(settings, folders=("annotations", "data", "metrics")) as clone, Vault.existing(settings) as vault:
        params, counts = load(clone.path), _by_month(vault)
        corpora = {corpus: _numbers(clone, corpus, counts=counts.get(corpus, {})) for corpus in params.corpora}
        commits = {"commit": clone.head, **_commits(clone.path)}
        takedowns = _takedown_facts(settings, params=params, vault=vault)
    for corpus, part in corpora.items():
        part["period"] = [params.corpora[corpus].first_month, params.corpora[corpus].last_month]
    paid = held = 0
    if not file_missing(settings.answers_url):
        with AnswerStore.open(settings.answers_url) as answers:
            paid, held = answers.spent()
    return {
        "version": VERSION,
        "written": at.isoformat(),
        **commits,
        "corpora": corpora,
        "budget": {"limit": params.votes.budget_usd, "paid": paid / NANO, "reserved": held / NANO},
        "registry": _registry_facts(settings),
        "takedowns": takedowns,
        "last_run": status.LAST_RUN if takedowns["done"] else None,
        "releases": release_store.summary(settings),
        "mlflow": versions.mlflow_web(settings.mlflow_tracking_uri),
        "tracked": status.tracked(settings),
    }


def _by_month(vault: Vault) -> dict[str, dict[str, Json]]:
    """Return for each corpus and month the number of live records and of tombstones."""
    query = sa.select(records.c.corpus, records.c.month, sa.func.count(), sa.func.count(records.c.deleted_at))
    with vault.database.reading() as connection:
        rows = connection.execute(query.group_by(records.c.corpus, records.c.month)).all()
    counts: dict[str, dict[str, Json]] = {}
    for corpus, month, total, deleted in rows:
        counts.setdefault(corpus, {})[month] = {"records": total - deleted, "deleted": deleted}
    return counts


def _numbers(clone: Workspace, corpus: str, *, counts: Mapping[str, Json]) -> Json:
    """Return the numbers of one corpus from its metrics and the manifests of its rounds, without labels of items.

    ``counts``: of live records and tombstones by month.
    """
    data, folder = clone.path / "data" / corpus, clone.path / "metrics" / corpus
    published = {path.relative_to(data).parts[0] for path in data.rglob("*.dvc")}
    gaps = coverage_of(clone, corpus).get("month_gap_hours", {})
    votes = votes_report.gather(clone.path, corpus)
    agreement = read_metrics(folder / "agreement.json").get("rounds", {})
    return {
        "funnel": {
            "collect": read_metrics(folder / "quality.json").get("collect") or {},
            **{step: some(read_metrics(folder / f"{step}.json"), *names) for step, names in STEPS.items()},
        },
        "months": {
            month: {"published": month in published, "gap_hours": gaps.get(month), **counts.get(month, {})}
            for month in sorted(published | counts.keys())
        },
        "rounds": [_round(manifest, agreement.get(manifest.round, {})) for manifest in opened(clone.path, corpus)],
        "votes": {name: some(labeller, *VOTES) for name, labeller in votes.get("votes", {}).items()},
        "silver": {
            name: some(ensemble, "records", "agreement") | {"queue": some(ensemble["queue"], "records", "reasons")}
            for name, ensemble in votes.get("silver", {}).items()
        },
        "models": {
            name: some(model, *MODEL) | {"drift": some(model.get("drift") or {}, "months", "exceeded", "newest")}
            for name, model in read_metrics(folder / "batch_predict.json").items()
        },
    }


def _round(manifest: RoundManifest, measured: Mapping[str, Any]) -> Json:
    categories = measured.get("categories", {})
    return {
        "round": manifest.round,
        "status": manifest.status,
        "opened": manifest.opened.isoformat(),
        "reason": manifest.decision and manifest.decision.reason,
        "size": manifest.size,
        "agreement": {name: some(category, "items", "alpha", "kappa") for name, category in categories.items()},
    }


def _commits(root: Path) -> Json:
    """Return the last commit of each file of metrics and month, and these commits with the latest."""
    origin: dict[str, str] = {}
    commits: dict[str, Json] = {}
    for options in (LATEST, CHANGES):
        log = git("-c", "core.quotePath=false", "log", LOG, *options, cwd=root)
        for entry in log.split("\x01")[1:]:
            head, *files = filter(None, entry.split("\n"))
            commit, at, subject, run = head.split("\x02", 3)
            keys = ["/".join(file.split("/")[:3]) if file.startswith("data/") else file for file in files]
            fresh = dict.fromkeys((key for key in keys if key not in origin), commit)
            origin |= fresh
            if fresh or options is LATEST:
                commits[commit] = {"commit": commit, "at": at, "subject": subject, "run": run or None}
    return {"origin": origin, "commits": commits}


def _registry_facts(settings: Settings) -> Json:
    """Return for each registered model its champion, its versions, the number of journal rows and the latest rows."""
    if file_missing(settings.journal_url):
        return {}
    with journal.opened(settings.journal_url) as opened:
        chains = {name: opened.rows(name) for name in opened.models()}
    models: Json = {}
    for name, chain in chains.items():
        standing = of_rows(name, chain)
        models[name] = {
            "champion": standing.champion,
            "open": standing.intention.number if standing.intention else None,
            "rows": len(chain),
            "journal": [_row(row) for row in chain[-ROWS:]],
            "runs": sorted({row.to_version for row in chain if row.event == "registered" and row.to_version}),
        }
    return models


def _row(row: journal.JournalRow) -> Json:
    fields = {name: getattr(row, name) for name in ("number", "at", "event", "who", "why")}
    reasons = {"reasons": list(row.metrics["reasons"])} if row.metrics.get("reasons") else {}
    return fields | {"from": row.from_version, "to": row.to_version} | reasons


def _takedown_facts(settings: Settings, *, params: Params, vault: Vault) -> Json:
    """Return open and completed takedowns, the posts that are due for one, and the last sweep of each corpus."""

    def moment(corpus: str, of: Callable[..., datetime | None]) -> str | None:
        time = of(connection, corpus=corpus)
        return time.isoformat() if time else None

    done = receipts.receipts(settings)
    with vault.database.reading() as connection:
        swept = {
            corpus: {"last": moment(corpus, checks.last_success), "first_seen": moment(corpus, checks.first_seen)}
            for corpus in params.corpora
        }
    return {
        "open": [_request(request) for request in receipts.opened(settings)],
        "done": len(done),
        "receipts": [_request(request) for request in done[-RECEIPTS:]],
        "due": {corpus: len(sweep.due(vault, corpus)) for corpus in params.corpora},
        "swept": swept,
        "sweep_hours": params.doctor.sweep_hours,
        **vault.counts(),
    }


def _request(request: receipts.TakedownRequest) -> Json:
    names = ("request", "begun", "ended", "records", "done", "commit", "weights_due", "reason", "pending")
    return {name: getattr(request, name) for name in names}
