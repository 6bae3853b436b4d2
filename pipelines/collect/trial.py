"""Try the source of a corpus for one day: collect into a scratch folder, count, and remove everything."""

from __future__ import annotations

import secrets
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pipelines.collect import collect
from pipelines.collect.month import Window
from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.errors import UnknownName
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import workspace


def run(settings: Settings, *, corpus: str, day: date, now: datetime) -> dict[str, Any]:
    """Collect one day with the parameters of the corpus branch; return counts by outcome.

    Nothing stays: the vault has a secret of its own and is removed with the scratch folder, with every key in it. No
    tombstone is known, so a real month may have fewer records.

    Returns:
        ``day``, ``source``, ``submissions``, ``kept``, ``dropped`` by reason, and ``closed`` subreddits.

    Raises:
        UnknownName: there is no such corpus.
        SourceError: the source is unreadable.
        SourceNotApproved: the source is live, and its approval is missing or has ended.
    """
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    with workspace(settings) as clone:
        params = load(clone.path)
        if corpus not in params.corpora:
            raise UnknownName(kind="corpus", name=corpus, known=", ".join(params.corpora))
        # beside the clone: removed with it, also after a kill
        home = clone.path.parent / "trial"
        home.mkdir()
        with Vault.open(f"sqlite:///{home}/vault.sqlite", secret=secrets.token_bytes(64)) as vault:
            done = collect.run(
                corpus,
                window=Window(start, start + timedelta(days=1)),
                params=params,
                settings=settings.model_copy(update={"home": home}),
                vault=vault,
                now=now,
                root=home,
            )
    return {"day": day.isoformat(), "source": params.corpora[corpus].source} | {
        key: done[key] for key in ("submissions", "kept", "dropped", "closed")
    }
