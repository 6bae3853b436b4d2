"""Read months of a sandbox through every source of posts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.collect.month import Window
from pipelines.collect.sources import open_source
from pipelines.collect.submission import Submission
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from tests.collect.listed_source import ListedSource


def kept_by_source(
    built: Path, *, params: Params, corpus: str, months: Collection[str], subreddits: Sequence[str]
) -> dict[str, dict[str, Submission]]:
    """Return the kept submissions by source and full name, without what tells the sources apart."""
    kept = {}
    with SandboxServer(built) as server:
        update = {"dumps": built / "dumps", "contact": "team@example.org", "reddit_client_id": CLIENT_ID}
        update |= {"reddit_client_secret": CLIENT_SECRET, "reddit_url": server.address}
        update |= {"reddit_oauth_url": server.address, "arctic_shift_url": server.address}
        settings = Settings.from_env().model_copy(update=update)
        given: dict[str, Any] = {"params": params, "today": date(2023, 1, 1)}
        sources: dict[str, Any] = {"reddit": ListedSource(settings, corpus=corpus, **given)}
        sources |= {name: open_source(name, settings=settings, **given) for name in ("dump", "arctic_shift")}
        for name, source in sources.items():
            items = [i for m in months for i in source.submissions(Window.from_key(m), subreddits=subreddits)]
            posts = [item for item in items if isinstance(item, Submission)]
            kept[name] = {post.fullname: replace(post, source="", source_digest="") for post in posts}
    return kept
