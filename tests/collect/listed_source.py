"""Reddit's listings as a source of months, to compare it with the others: read by a refresh's reader into its store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Any

from pipelines.collect.admission import Admission
from pipelines.collect.month import Window
from pipelines.collect.refresh import ListingReader
from pipelines.collect.refresh_store import RefreshStore, StoredPost
from pipelines.collect.sources import Listed, open_source
from pipelines.collect.submission import Dropped, Submission
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.store.vault.vault import Vault


def with_source(params: Params, name: str, **changes: Any) -> Params:
    """Return parameters with changes of a source's entry."""
    entry = params.sources[name].model_copy(update=changes)
    return params.model_copy(update={"sources": params.sources | {name: entry}})


@dataclass(frozen=True)
class SeenAdmission(Admission):
    """Remembers the posts as they come from the listing, with their times."""

    seen: list[tuple[Submission | Dropped, int]] = field(default_factory=list)

    def posts(self, items: Iterable[tuple[Submission | Dropped, str, int]], **given: Any) -> list[StoredPost]:
        items = list(items)
        self.seen.extend((item, created) for item, _, created in items)
        return super().posts(items, **given)


class ListedSource:
    """Reads listings back to the start of a month on a day."""

    name = "reddit"

    def __init__(self, settings: Settings, *, params: Params, today: date, corpus: str = "posts") -> None:
        self.settings, self.params, self.corpus = settings, params, corpus
        self.now = datetime.combine(today, time(), tzinfo=UTC)
        self.client = open_source("reddit", Listed, params=params, settings=settings, today=today)

    def submissions(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        settings = self.settings
        settings.home.mkdir(parents=True, exist_ok=True)
        with (
            Vault.open(settings.vault_url, secret=b"s" * 64) as vault,
            RefreshStore.open(settings.refresh_url) as store,
        ):
            admission = SeenAdmission(self.corpus, self.params, vault, self.now)
            reader = ListingReader(admission, self.client, store)
            for subreddit in subreddits:
                reader.read(subreddit, floor=int(window.start.timestamp()))
        yield from (item for item, created in admission.seen if datetime.fromtimestamp(created, tz=UTC) in window)
