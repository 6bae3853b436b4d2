"""Run the step ``collect``: read one month from one source into a sealed table of submissions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from pipelines.collect.month import Window
from pipelines.collect.sources import open_source
from pipelines.collect.submission import Dropped, Submission, Uncollected
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.extract.decode import require_sandbox
from pipelines.pii.scrub import scrub
from pipelines.storage.exclusions import CLOSED, WHOLE, write_exclusions
from pipelines.storage.seal import write_rows
from pipelines.vault.vault import Vault

STEP, TOMBSTONED = "collect", "tombstoned"


def work(root: Path, *, corpus: str, month: str) -> Path:
    """Return the folder of a month's intermediate tables, which later tasks read and git never contains."""
    return root / "work" / corpus / month


def run(
    corpus: str, *, window: Window, params: Params, settings: Settings, vault: Vault, now: datetime, root: Path = Path()
) -> dict[str, Any]:
    """Scan the corpus's source once and write ``posts`` and ``drops`` of the month under ``work/``.

    Submissions of records that were taken down (tombstoned in the vault) are left out.

    Returns:
        ``submissions`` (seen), ``kept``, ``dropped`` by reason, ``closed``: the subreddits that the source does not
        show, with the reason, and ``shards`` for the following tasks (at least 1).

    Raises:
        SourceError: the source is unreadable; nothing was written.
        SourceNotApproved: the source is live and its approval is not stated in ``params.yaml``, or has ended.
        SandboxMissing: the source is live, its pictures would be fetched, and this system has no sandbox for them.
    """
    settings_of = params.corpora[corpus]
    # sealed, private and removed when the source is fully read: a retry requests only the missing pages
    state = settings.home / "resume" / f"{corpus}-{window.key}"
    source = open_source(settings_of.source, params=params, settings=settings, today=now.date(), state=state)
    if settings_of.content == "images" and params.sources[settings_of.source].live:
        # before anything is requested; the step `images` may run on another host and checks again
        require_sandbox(params.images.decode)
    submissions: list[Submission] = []
    drops: dict[str, str] = {}
    closed: dict[str, str] = {}
    for item in source.submissions(window, subreddits=settings_of.subreddits):
        if isinstance(item, Uncollected):
            closed[item.fullname] = item.reason
        elif isinstance(item, Dropped):
            drops[vault.record_id(item.fullname)] = item.reason
        elif unfit := _unfit(item, content=settings_of.content):
            drops[vault.record_id(item.fullname)] = unfit
        else:
            submissions.append(item)
    ids = [(vault.record_id(s.fullname), s.fullname) for s in submissions]
    admitted = vault.admit(ids, corpus=corpus, month=window.key, now=now)
    # an import may have added the post under another month; two rows of one record would be near-duplicates
    elsewhere = {r for r, month in vault.months(admitted).items() if month != window.key}
    kept_out = {r: TOMBSTONED for r, _ in ids if r not in admitted} | dict.fromkeys(elsewhere, "other_month")
    drops |= kept_out | dict.fromkeys(vault.tombstoned(drops), TOMBSTONED)

    folder = work(root, corpus=corpus, month=window.key)
    rows = [
        row(submission, record_id=record_id, vault=vault, kinds=params.collect.scrub)
        for (record_id, _), submission in zip(ids, submissions, strict=True)
        if record_id not in kept_out
    ]
    kept = write_rows(rows, folder / "posts.parquet", name="posts", vault=vault)
    named = nameless(drops, month=window.key)
    # not records: rows that name what the month lacks, and stay with the month
    named |= {f"{CLOSED}{window.key}/{name}": why for name, why in closed.items()}
    dropped = write_exclusions({(r, WHOLE): why for r, why in named.items()}, folder / "drops.parquet", step=STEP)
    return {
        "submissions": len(submissions) + len(drops) - len(kept_out),
        "kept": kept,
        "dropped": {why: n for why, n in dropped.items() if why not in closed.values()},
        "closed": closed,
        "shards": max(1, -(-kept // params.collect.shard_size)),
    }


def _unfit(item: Submission, *, content: str) -> str | None:
    """Return why a submission does not fit a corpus of this content, or ``None`` if it fits."""
    if content == "images":
        return None if item.media else "album" if item.kind == "album" else "no_image"
    if item.kind != "text":
        return "not_text"
    return None if item.body.strip() else "no_text"


def nameless(drops: Mapping[str, str], *, month: str) -> dict[str, str]:
    """Replace the ids of tombstoned records in ``drops`` by numbers, so that they are counted but not identified."""
    numbers = count()
    return {f"{TOMBSTONED}/{month}/{next(numbers)}" if why == TOMBSTONED else r: why for r, why in drops.items()}


def row(submission: Submission, *, record_id: str, vault: Vault, kinds: tuple[str, ...]) -> dict[str, Any]:
    title, in_title = scrub(submission.title, kinds=kinds)
    body, in_body = scrub(submission.body, kinds=kinds)
    counts = Counter(in_title) + Counter(in_body)
    return {
        "record_id": record_id,
        "author_id": vault.author_id(submission.author),
        "subreddit": submission.subreddit,
        "created": submission.created,
        "kind": submission.kind,
        "title": title,
        "body": body,
        "media": json.dumps(submission.media),
        "nsfw": submission.nsfw,
        "spoiler": submission.spoiler,
        "source": submission.source,
        "source_digest": submission.source_digest,
        "scrubbed": json.dumps(dict(sorted(counts.items()))),
    }
