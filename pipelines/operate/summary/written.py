"""Write the summary for the Corpus page to ``CORPUS_HOME/summary/corpus.json``, after each change of the corpus.

The file holds counts, dates, digests, ids of runs, and the reasons that people recorded; no content, no record ids.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crisis_corpus import journal
from crisis_corpus.state import of_rows
from crisis_corpus.versions import NAMES
from pipelines.collect.month_ledger import gap_hours_by_digest
from pipelines.core.config.params import Params, validate
from pipelines.core.config.private_file import write_private
from pipelines.core.config.settings import Settings
from pipelines.core.errors import name_of
from pipelines.core.process import now
from pipelines.core.telemetry import count
from pipelines.operate.summary import commit_parts
from pipelines.registry import mlflow_pages
from pipelines.release import release_store
from pipelines.store.answers import NANO, AnswerStore
from pipelines.store.vault import checks, locks
from pipelines.store.vault.database import records
from pipelines.store.vault.engine import file_missing
from pipelines.store.vault.vault import Vault
from pipelines.takedown import receipts, sweep
from pipelines.workspace.address import local_path
from pipelines.workspace.clone import workspace

Json = dict[str, Any]

# Raised when the page needs another form of the file; a page that finds another one asks for the command below.
VERSION = 1
# Journal rows of a model that the page lists, newest last (`corpus registry` lists all), and receipts of takedowns.
ROWS, RECEIPTS = 60, 20
FAILED = "The summary for the Corpus page was not written ({cause}); `corpus status --write` writes it again.\n"


def place(settings: Settings) -> Path:
    """Return the path of the summary."""
    return settings.home / "summary" / "corpus.json"


def write(
    settings: Settings, *, at: datetime | None = None, tracked: Mapping[str, Mapping[str, Any]] | None = None
) -> Json:
    """Gather and write the summary, and return it.

    Writers of one host take turns, so that the last one to write has seen the newest state.

    Args:
        tracked: by corpus, what ``corpus track`` returned: the MLflow run with the numbers of the newest commit.
    """
    path = place(settings)
    with locks.of_host(settings, "summary"):
        before = _before(path)
        runs = {
            corpus: {"run": run_of["run"], "report": mlflow_pages.web(run_of.get("report"))}
            for corpus, run_of in (tracked or {}).items()
            if "run" in run_of
        }
        before["tracked"] = before.get("tracked", {}) | runs
        made = _gather(settings, before=before, at=at or now())
        count("corpus.takedowns.open", len(made["takedowns"]["open"]))
        count("corpus.takedowns.done", made["takedowns"]["done"])
        count("corpus.budget.spent_usd", made["budget"]["paid"] + made["budget"]["reserved"])
        count("corpus.budget.limit_usd", made["budget"]["limit"])
        write_private(path, json.dumps(made, separators=(",", ":"), sort_keys=True) + "\n")
    return made


def renew(settings: Settings) -> None:
    """Write the summary again if there is one."""
    if place(settings).exists():
        write(settings)


def quietly(writer: Callable[[Settings], object]) -> None:
    """Run a writer of the summary; print a fault on stderr instead of raising it.

    Nothing is written before there is a corpus.
    """
    try:
        settings = Settings.from_env()
        # a repository that is not on this host is assumed to exist
        if (local_path(settings.repo) or settings.home).exists():
            writer(settings)
    except Exception as error:  # a takedown must not fail because of a page
        sys.stderr.write(FAILED.format(cause=name_of(error)))


def _gather(settings: Settings, *, before: Json, at: datetime) -> Json:
    facts, pointers, values = commit_parts.read(settings, before=before)
    params = validate(values, where="params.yaml")
    digests = {corpus: part.pop("gaps") for corpus, part in facts["corpora"].items()}
    hours = _gap_hours(digests, before=before.get("gap_hours", {}), settings=settings)
    with Vault.existing(settings) as vault:
        counts = _by_month(vault)
        takedowns = _takedown_facts(settings, params=params, vault=vault)
    for corpus in params.corpora:
        part = facts["corpora"].setdefault(corpus, {})
        part["period"] = [params.corpora[corpus].first_month, params.corpora[corpus].last_month]
        part["months"] = _months(corpus, pointers=pointers, counts=counts.get(corpus, {}), gaps=digests, hours=hours)
        part["swept"] = takedowns["swept"].get(corpus)
    return {
        "version": VERSION,
        "written": at.isoformat(),
        **facts,
        "gap_hours": hours,
        "budget": _budget_facts(settings, params=params),
        "registry": _registry_facts(settings),
        "takedowns": takedowns,
        "releases": release_store.summary(settings),
        "tracked": before.get("tracked", {}),
        "mlflow": mlflow_pages.web(settings.mlflow_tracking_uri),
    }


def _months(
    corpus: str, *, pointers: list[str], counts: dict[str, Json], gaps: dict[str, dict[str, str]], hours: Json
) -> dict[str, Json]:
    published = {path.split("/")[2] for path in pointers if path.startswith(f"data/{corpus}/")}
    months: dict[str, Json] = {}
    for month in sorted(published | counts.keys()):
        gap = hours.get(gaps.get(corpus, {}).get(month, ""))
        months[month] = {"published": month in published, "gap_hours": gap, **counts.get(month, {})}
    return months


def _before(path: Path) -> Json:
    try:
        summary = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) and summary.get("version") == VERSION else {}


def _by_month(vault: Vault) -> dict[str, dict[str, Json]]:
    """Return for each corpus and month the number of live records and of tombstones."""
    query = sa.select(records.c.corpus, records.c.month, sa.func.count(), sa.func.count(records.c.deleted_at))
    with vault.database.reading() as connection:
        rows = connection.execute(query.group_by(records.c.corpus, records.c.month)).all()
    counts: dict[str, dict[str, Json]] = {}
    for corpus, month, total, deleted in rows:
        counts.setdefault(corpus, {})[month] = {"records": total - deleted, "deleted": deleted}
    return counts


def _gap_hours(digests: Mapping[str, Mapping[str, str]], *, before: Mapping[str, float], settings: Settings) -> Json:
    """Return the hours without a source for each digest of a table of gaps; only unknown tables are read.

    Args:
        digests: corpus -> month -> digest, at the newest commit.
        before: digest -> hours, as an earlier summary knew them.
    """
    wanted = {digest for months in digests.values() for digest in months.values()}
    known = {digest: before[digest] for digest in wanted if digest in before}
    if wanted - known.keys():
        with workspace(settings) as clone:
            for corpus in digests:
                known |= gap_hours_by_digest(clone, corpus)
    return {digest: known[digest] for digest in sorted(wanted & known.keys())}


def _budget_facts(settings: Settings, *, params: Params) -> Json:
    """Return the limit of labelling costs and the paid and reserved amounts, in US dollars."""
    paid = held = 0
    if not file_missing(settings.answers_url):
        with AnswerStore.open(settings.answers_url) as answers:
            paid, held = answers.spent()
    return {"limit": params.votes.budget_usd, "paid": paid / NANO, "reserved": held / NANO}


def _registry_facts(settings: Settings) -> Json:
    """Return for each registered model its champion, the number of journal rows and the latest of them."""
    if file_missing(settings.journal_url):
        return {}
    with journal.opened(settings.journal_url) as opened:
        rows = opened.rows()
    models: Json = {}
    # the journal also has the copies of releases on a hub
    for name in sorted({row.name for row in rows} & NAMES.keys()):
        chain = [row for row in rows if row.name == name]
        standing = of_rows(name, chain)
        models[name] = {
            "champion": standing.champion,
            "open": standing.intention.number if standing.intention else None,
            "stale": {str(version): until for version, until in standing.stale.items()},
            "withdrawn": sorted(standing.withdrawn),
            "rows": len(chain),
            "journal": [_row(row) for row in chain[-ROWS:]],
            "runs": _runs(chain),
        }
    return models


def _row(row: journal.JournalRow) -> Json:
    fields = {
        "number": row.number,
        "at": row.at,
        "event": row.event,
        "from": row.from_version,
        "to": row.to_version,
        "who": row.who,
        "why": row.why,
    }
    reasons = row.metrics.get("reasons")
    return fields | ({"reasons": list(reasons)} if reasons else {})


def _runs(chain: list[journal.JournalRow]) -> dict[str, Json]:
    versions = {row.to_version: row for row in chain if row.event == "registered"}
    return {
        str(version): {"run": row.metrics.get("run"), "data_commit": row.metrics.get("data_commit")}
        for version, row in versions.items()
    }


def _takedown_facts(settings: Settings, *, params: Params, vault: Vault) -> Json:
    """Return open and completed takedowns, the posts that are due for one, and the last sweep of each corpus."""
    done = receipts.receipts(settings)
    with vault.database.reading() as connection:
        swept = {
            corpus: {
                "last": _moment(checks.last_success(connection, corpus=corpus)),
                "first_seen": _moment(checks.first_seen(connection, corpus=corpus)),
            }
            for corpus in params.corpora
        }
    return {
        "open": [_request(request) for request in receipts.opened(settings)],
        "done": len(done),
        "receipts": [_request(request) for request in done[-RECEIPTS:]],
        "due": {corpus: len(sweep.due(vault, corpus)) for corpus in params.corpora},
        "swept": swept,
        "sweep_hours": params.doctor.sweep_hours,
        "weights_days": params.takedown.weights_days,
        **vault.counts(),
    }


def _request(request: receipts.TakedownRequest) -> Json:
    names = ("request", "begun", "ended", "records", "done", "commit", "weights_due", "reason", "pending")
    return {name: getattr(request, name) for name in names}


def _moment(time: datetime | None) -> str | None:
    return time.isoformat() if time else None
