"""A busy subreddit with a simulated clock: every post of a month, refreshes of it, kills, outages and a pause."""

from __future__ import annotations

import json
import math
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.collect import collect, month_ledger, partition, refresh, texts
from pipelines.collect.month import Window
from pipelines.collect.month_ledger import GAPS
from pipelines.core.config.collect import Listing
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import SourceError
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests.collect.listed_source import with_source

ROOT = Path(__file__).resolve().parents[2]
CORPUS, BUSY, QUIET = "posts", "Busy", "Quiet"
MONTH = Window.from_key("2026-09")
START, END = int(MONTH.start.timestamp()), int(MONTH.end.timestamp())
HOUR = 3600
BODY = "I have walked by the river every morning this week and it helps me more than I thought it would."


def write_world(root: Path, *, posts: int, seed: int = 5) -> dict[str, list[int]]:
    """Write posts whose rate varies with the hour and the day, and bursts; return their times by subreddit."""
    chance, times = random.Random(seed), {BUSY: list[int](), QUIET: list[int]()}
    first, last = START - 3 * 86400, END + 4 * 86400
    hourly = posts / ((END - START) / HOUR)
    for hour in range(first, last, HOUR):
        wave = 1 + 0.5 * math.sin(2 * math.pi * (hour % 86400) / 86400)
        count = hourly * wave * (2 if chance.random() < 0.02 else 1)
        # several in one second, too
        times[BUSY] += [hour + int(3600 * chance.random() ** 1.1) for _ in range(round(count + chance.random() - 0.5))]
        times[QUIET] += [hour + chance.randrange(3600)] if chance.random() < 0.05 else []
    made = sorted((moment, subreddit) for subreddit, several in times.items() for moment in several)
    root.mkdir(parents=True, exist_ok=True)
    with (root / "submissions.jsonl").open("w") as file:
        for number, (moment, subreddit) in enumerate(made):
            short = f"{50_000_000 + number:x}"
            item = {
                "id": short, "name": f"t3_{short}", "author": f"author_{number % 997}", "subreddit": subreddit,
                "created_utc": float(moment), "title": f"Post number {number}", "selftext": BODY, "is_self": True,
                "url": "https://www.reddit.com/", "over_18": False, "spoiler": False, "removed_by_category": None,
            }  # fmt: skip
            file.write(json.dumps(item) + "\n")
    return times


@dataclass
class Deployment:
    """The home of a corpus of these subreddits, at a server."""

    settings: Settings
    params: Params
    root: Path
    revisions: int = 0
    requests: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, home: str, address: str, limit: str) -> Deployment:
        there = {
            "home": Path(home), "vault_url": f"sqlite:///{home}/vault.sqlite", "contact": "team@example.org",
            "refresh_url": f"sqlite:///{home}/refresh.sqlite", "reddit_url": address, "reddit_oauth_url": address,
            "arctic_shift_url": address, "reddit_client_id": CLIENT_ID, "reddit_client_secret": CLIENT_SECRET,
        }  # fmt: skip
        base = load(ROOT, profile="sandbox")
        corpus = base.corpora[CORPUS].model_copy(
            update={"subreddits": (BUSY, QUIET), "source": ("reddit", "arctic_shift")}
        )
        listing = Listing(limit=int(limit), page_size=min(100, int(limit) // 4))
        params = with_source(base.model_copy(update={"corpora": {CORPUS: corpus}}), "reddit", listing=listing)
        return cls(Settings.from_env().model_copy(update=there), params, Path(home) / "checkout")

    @contextmanager
    def vault(self) -> Iterator[Vault]:
        with Vault.open(self.settings.vault_url, secret=b"s" * 64) as vault:
            yield vault

    def refresh_at(self, moment: int, **given: Any) -> dict[str, Any]:
        now = datetime.fromtimestamp(moment, tz=UTC)
        with self.vault() as vault:
            return refresh.run(CORPUS, params=self.params, settings=self.settings, vault=vault, now=now, **given)

    def publish_at(self, moment: int, *, window: Window = MONTH) -> dict[str, Any]:
        """Collect and publish a month as the Dag does: collect, texts of each shard, partition, close."""
        now = datetime.fromtimestamp(moment, tz=UTC)
        given: dict[str, Any] = {"window": window, "params": self.params, "root": self.root}
        with self.vault() as vault:
            done = collect.run(CORPUS, settings=self.settings, vault=vault, now=now, **given)
            for shard in range(done["first"], done["first"] + done["shards"]):
                texts.run(CORPUS, shard=shard, vault=vault, **given)
            # the clone of this step has the shards of its run only
            earlier = [p for p in self._shards() if int(p.stem) < done["first"]]
            aside = self.root / "aside"
            aside.mkdir(parents=True, exist_ok=True)
            for path in earlier:
                path.rename(aside / path.name)
            partition.run(CORPUS, vault=vault, **given)
            for path in earlier:
                (aside / path.name).rename(path)
        self.close(moment, window=window)
        for path in sorted((self.root / "work").rglob("*.parquet")):
            path.unlink()
        self.revisions += 1
        return done

    def close(self, moment: int, *, window: Window = MONTH) -> None:
        now = datetime.fromtimestamp(moment, tz=UTC)
        month_ledger.close_tables(CORPUS, window, folder=self.month(), settings=self.settings, now=now)

    def month(self) -> Path:
        return self.root / "data" / CORPUS / MONTH.key

    def _shards(self) -> list[Path]:
        return sorted((self.month() / "texts").glob("*.parquet"))

    def gaps(self) -> list[dict[str, Any]]:
        return list(tables.read(self.month() / GAPS, name="gaps").to_pylist())

    def published(self) -> list[str]:
        """The record ids of the month's posts, each of which must have its text in one shard."""
        ids = list(tables.read(self.month() / "records.parquet", name="records")["record_id"].to_pylist())
        items = tables.concat(self._shards(), name="texts", columns=["record_id"])["record_id"].to_pylist()
        assert sorted(ids) == sorted(items)
        return ids

    def killed_at(self, moment: int, server: SandboxServer, *, page: int) -> None:
        """Run a refresh in a process that is killed while it requests its n-th page."""
        shown, real = [0], server.catalogue.new
        process = os.fork()
        if not process:
            self.refresh_at(moment, every=True)
            os._exit(0)

        def new(subreddit: str, *, query: Any) -> Any:
            shown[0] += 1
            if shown[0] >= page:
                os.kill(process, signal.SIGKILL)
            return real(subreddit, query=query)

        server.catalogue.new = new  # type: ignore[method-assign]
        _, status = os.waitpid(process, 0)
        server.catalogue.new = real  # type: ignore[method-assign]
        assert os.WTERMSIG(status) == signal.SIGKILL


def expected(vault: Vault, root: Path) -> dict[str, int]:
    """Return the record ids of the month's posts in the truth, with their times."""
    items = (json.loads(line) for line in (root / "submissions.jsonl").open())
    return {
        vault.record_id(item["name"]): int(item["created_utc"]) for item in items if START <= item["created_utc"] < END
    }


def attempt(deployment: Deployment, moment: int, **given: Any) -> bool:
    """Refresh at this hour; return whether it succeeded."""
    try:
        deployment.refresh_at(moment, **given)
    except SourceError:
        return False
    return True


def down(**_: object) -> list[object]:
    """Answer as Arctic Shift's search while it is down."""
    raise ValueError("down")
