"""Decide which posts of a source may enter a corpus, and convert them to rows without personal data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pipelines.collect.refresh_store import StoredPost
from pipelines.collect.scrub import scrub
from pipelines.collect.submission import DELETIONS, Dropped, Submission
from pipelines.core.config.params import Params
from pipelines.store.vault.vault import Vault

OTHER_MONTH = "other_month"


@dataclass(frozen=True)
class Admission:
    """Admits the posts of one corpus to the vault, each under the month of its creation."""

    corpus: str
    params: Params
    vault: Vault
    now: datetime

    def posts(
        self, items: Iterable[tuple[Submission | Dropped, str, int]], *, source: str, known: Collection[str] = ()
    ) -> list[StoredPost]:
        """Return the posts to store, without taken-down records; of ``known`` (stored) records only deletions.

        ``items`` have a subreddit and a creation time (epoch seconds), as a drop has neither.
        """
        content = self.params.corpora[self.corpus].content
        fit: dict[str, Submission] = {}
        stored: dict[str, StoredPost] = {}
        for item, subreddit, created in items:
            record_id = self.vault.record_id(item.fullname)
            reason = item.reason if isinstance(item, Dropped) else unfit(item, content=content)
            deleted = reason in DELETIONS
            if record_id in known and not deleted:
                continue
            if reason is None and isinstance(item, Submission):
                fit[record_id] = item
            stored[record_id] = StoredPost(record_id, subreddit, created, source, reason=reason, deleted=deleted)
        months = self._admit(fit)
        for record_id, item in fit.items():
            post = stored[record_id]
            if months.get(record_id) != f"{item.created:%Y-%m}":
                # another import has it already
                stored[record_id] = replace(post, reason=OTHER_MONTH)
                continue
            scrubbed = row(item, record_id=record_id, vault=self.vault, kinds=self.params.collect.scrub)
            stored[record_id] = replace(post, content=scrubbed | {"created": post.created})
        gone = self.vault.tombstoned(stored)
        return [post for record_id, post in sorted(stored.items()) if record_id not in gone]

    def _admit(self, fit: dict[str, Submission]) -> dict[str, str]:
        """Add new records to the vault; return the month under which each live one was collected."""
        by_month: dict[str, list[tuple[str, str]]] = {}
        for record_id, item in fit.items():
            by_month.setdefault(f"{item.created:%Y-%m}", []).append((record_id, item.fullname))
        admitted = set[str]()
        for month, ids in by_month.items():
            admitted |= self.vault.admit(ids, corpus=self.corpus, month=month, now=self.now)
        return self.vault.months(admitted)


def dated(item: Submission | Dropped, subreddit: str, created: int) -> tuple[Submission | Dropped, str, int]:
    """Return an item with its subreddit and creation time (epoch seconds); a drop, which has neither, gets these."""
    if isinstance(item, Dropped):
        return item, subreddit, created
    return item, item.subreddit, int(item.created.timestamp())


def unfit(item: Submission, *, content: str) -> str | None:
    """Return why a submission does not fit a corpus of this content, or ``None`` if it fits."""
    if content == "images":
        return None if item.media else "album" if item.kind == "album" else "no_image"
    if item.kind != "text":
        return "not_text"
    return None if item.body.strip() else "no_text"


def row(submission: Submission, *, record_id: str, vault: Vault, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return a submission as a row of the table ``records``, its text scrubbed and its content not yet sealed."""
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


def revived(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored content as a row of the table ``records``."""
    return {**content, "created": datetime.fromtimestamp(content["created"], tz=UTC)}
