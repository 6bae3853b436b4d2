"""Whose time is over, by the source that the partition's rows name."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import Params, load
from pipelines.store.vault.vault import Vault
from pipelines.takedown import selection
from tests.privacy.partition import write_posts

ROOT = Path(__file__).parents[2]
CAME = datetime(2023, 1, 5, tzinfo=UTC)


@pytest.fixture
def ids(vault: Vault, tmp_path: Path) -> dict[str, str]:
    """Four records of memes (one of them in no partition) and one of posts."""
    of = {"live": ("memes", "2022-12", "reddit"), "dump": ("memes", "2022-12", "dump"),
          "import": ("memes", "2022-11", "import/figsim"), "unlisted": ("memes", "2022-11", None),
          "text": ("posts", "2022-12", "reddit")}  # fmt: skip
    ids = {name: vault.record_id(f"t3_{name}") for name in of}
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for name, (corpus, month, source) in of.items():
        vault.admit([(ids[name], f"t3_{name}")], corpus=corpus, month=month, now=CAME)
        if source:
            rows.setdefault((corpus, month), {})[ids[name]] = {"source": source}
    for (corpus, month), found in rows.items():
        write_posts(tmp_path / f"data/{corpus}/{month}/records.parquet", rows=found)
    return ids


def stated(*, expires: date | None = None, days: int | None = None) -> Params:
    """Parameters in which Reddit's approval ends and everything else stays for good."""
    params = load(ROOT, profile="sandbox")
    forever = {"expires": None, "retention_days": None}
    sources = {name: source.model_copy(update=forever) for name, source in params.sources.items()}
    sources["reddit"] = sources["reddit"].model_copy(update={"expires": expires, "retention_days": days})
    return params.model_copy(update={"sources": sources})


def test_an_approval_ends_on_its_day_for_every_corpus(vault: Vault, ids: dict[str, str], tmp_path: Path) -> None:
    params = stated(expires=date(2023, 3, 1))
    before, on = datetime(2023, 2, 28, 23, 59, tzinfo=UTC), datetime(2023, 3, 1, tzinfo=UTC)
    assert selection.expired(params, vault, now=before, root=tmp_path) == {}
    assert selection.expired(params, vault, now=on, root=tmp_path) == dict.fromkeys(
        [ids["live"], ids["text"]], "approval-ended"
    )


def test_retention_counts_from_when_a_record_came_in(vault: Vault, ids: dict[str, str], tmp_path: Path) -> None:
    params = stated(days=30, expires=date(2099, 1, 1))
    vault.admit([(ids["live"], "t3_live")], corpus="memes", month="2022-12", now=CAME + timedelta(days=20))
    almost = CAME + timedelta(days=30) - timedelta(seconds=1)
    assert selection.expired(params, vault, now=almost, root=tmp_path) == {}
    due = selection.expired(params, vault, now=CAME + timedelta(days=30), root=tmp_path)
    assert due == dict.fromkeys([ids["live"], ids["text"]], "retention")


def test_what_was_taken_down_is_not_due_again(vault: Vault, ids: dict[str, str], tmp_path: Path) -> None:
    vault.destroy([ids["live"]], reason="retention", now=CAME)
    due = selection.expired(stated(days=1), vault, now=CAME + timedelta(days=9), root=tmp_path)
    assert due == {ids["text"]: "retention"}


def test_the_listing_counts_by_source_and_month(vault: Vault, ids: dict[str, str], tmp_path: Path) -> None:
    vault.admit([(vault.record_id("t3_more"), "t3_more")], corpus="memes", month="2022-11", now=CAME)
    rows = selection.listing(stated(days=1), vault, now=CAME + timedelta(days=9), root=tmp_path)
    assert [tuple(row.values()) for row in rows] == [
        ("memes", None, "2022-11", 2, {}),
        ("memes", "dump", "2022-12", 1, {}),
        ("memes", "import/figsim", "2022-11", 1, {}),
        ("memes", "reddit", "2022-12", 1, {"retention": 1}),
        ("posts", "reddit", "2022-12", 1, {"retention": 1}),
    ]
    assert not any(i in str(rows) for i in ids.values())
