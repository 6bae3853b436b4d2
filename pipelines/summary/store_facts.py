"""Count what the vault, the journal, the answers, the takedowns and the releases say, for the Corpus page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crisis_corpus import journal
from crisis_corpus.state import of_rows
from crisis_corpus.versions import NAMES
from pipelines.collect.month_ledger import gap_hours_by_digest
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.release import release_store
from pipelines.storage.answers import NANO, AnswerStore
from pipelines.takedown import receipts, sweep
from pipelines.vault import checks
from pipelines.vault.database import records
from pipelines.vault.engine import database_file
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import workspace

Json = dict[str, Any]

# Journal rows of a model that the page lists, newest last; `corpus registry` lists all.
ROWS = 60
RECEIPTS = 20


def by_month(vault: Vault) -> dict[str, dict[str, Json]]:
    """Return for each corpus and month the number of live records and of tombstones."""
    query = sa.select(records.c.corpus, records.c.month, sa.func.count(), sa.func.count(records.c.deleted_at))
    with vault.database.reading() as connection:
        rows = connection.execute(query.group_by(records.c.corpus, records.c.month)).all()
    found: dict[str, dict[str, Json]] = {}
    for corpus, month, total, deleted in rows:
        found.setdefault(corpus, {})[month] = {"records": total - deleted, "deleted": deleted}
    return found


def gap_hours(digests: Mapping[str, Mapping[str, str]], *, before: Mapping[str, float], settings: Settings) -> Json:
    """Return the hours without a source for each digest of a table of gaps; only unknown tables are read.

    Args:
        digests: corpus -> month -> digest, at the newest commit.
        before: digest -> hours, as an earlier summary knew them.
        settings: the location of the corpus.
    """
    wanted = {digest for months in digests.values() for digest in months.values()}
    known = {digest: before[digest] for digest in wanted if digest in before}
    if wanted - known.keys():
        with workspace(settings) as clone:
            for corpus in digests:
                known |= gap_hours_by_digest(clone, corpus)
    return {digest: known[digest] for digest in sorted(wanted & known.keys())}


def budget(settings: Settings, *, params: Params) -> Json:
    """Return the limit of labelling costs and the paid and reserved amounts, in US dollars."""
    paid = held = 0
    if _exists(settings.answers_url):
        with AnswerStore.open(settings.answers_url) as answers:
            paid, held = answers.spent()
    return {"limit": params.votes.budget_usd, "paid": paid / NANO, "reserved": held / NANO}


def registry(settings: Settings) -> Json:
    """Return for each registered model its champion, the number of journal rows and the latest of them."""
    if not _exists(settings.journal_url):
        return {}
    with journal.opened(settings.journal_url) as opened:
        rows = opened.rows()
    found: Json = {}
    # the journal also has the copies of releases on a hub
    for name in sorted({row.name for row in rows} & NAMES.keys()):
        chain = [row for row in rows if row.name == name]
        standing = of_rows(name, chain)
        found[name] = {
            "champion": standing.champion,
            "open": standing.intention.number if standing.intention else None,
            "stale": {str(version): until for version, until in standing.stale.items()},
            "withdrawn": sorted(standing.withdrawn),
            "rows": len(chain),
            "journal": [_row(row) for row in chain[-ROWS:]],
            "runs": _runs(chain),
        }
    return found


def _row(row: journal.JournalRow) -> Json:
    told = {
        "number": row.number,
        "at": row.at,
        "event": row.event,
        "from": row.from_version,
        "to": row.to_version,
        "who": row.who,
        "why": row.why,
    }
    reasons = row.metrics.get("reasons")
    return told | ({"reasons": list(reasons)} if reasons else {})


def _runs(chain: list[journal.JournalRow]) -> dict[str, Json]:
    """Return for each registered version its MLflow run and the commit of its data."""
    versions = {row.to_version: row for row in chain if row.event == "registered"}
    return {
        str(version): {"run": row.metrics.get("run"), "data_commit": row.metrics.get("data_commit")}
        for version, row in versions.items()
    }


def takedowns(settings: Settings, *, params: Params, vault: Vault) -> Json:
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


def releases(settings: Settings) -> list[Json]:
    """Return the status and the counts of every release."""
    return release_store.summary(settings)


def _moment(found: datetime | None) -> str | None:
    return found.isoformat() if found else None


def _exists(url: str) -> bool:
    """Return whether there is a database at an address; that of a server is assumed to exist."""
    file: Path | None = database_file(url)
    return file is None or file.exists()
