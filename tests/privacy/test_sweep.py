"""The sweep against a real HTTP server: who is asked, what counts as gone, and what never does."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.collect.sources import entry_of
from pipelines.collect.sources.reddit import Reddit
from pipelines.core.config.operate import Sweep
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import SourceNotApproved, SourceRefused, SourceThrottled, SourceUnavailable
from pipelines.core.process import silent
from pipelines.store.vault.vault import Vault
from pipelines.takedown import sweep
from pipelines.takedown.selection import by_record
from pipelines.takedown.sweep import SweepImplausible
from tests.privacy.partition import write_posts

ROOT = Path(__file__).parents[2]
SECRET = bytes(range(32))
NOW = datetime(2023, 2, 1, 6, tzinfo=UTC)
DAY = timedelta(days=1)
MEMES, OTHER = "SuicideMeme", "lonely"
POSTS = 300
TERMS = Sweep.model_validate(
    {
        "bands": [
            {"until_days": 7, "every_days": 1},
            {"until_days": 30, "every_days": 3},
            {"until_days": None, "every_days": 60},
        ],
        "requests": 50,
        "remain": 0.1,
        "recheck_hours": 12,
        "max_missing": 0.05,
        "max_gone": 0.5,
        "few": 20,
    }
)


def fullname(number: int) -> str:
    return f"t3_{70_000 + number:x}"


def die(_: str) -> None:
    raise KeyboardInterrupt


def post(number: int) -> dict[str, Any]:
    """Every tenth post is of the other subreddit."""
    return {
        "id": fullname(number)[3:],
        "name": fullname(number),
        "author": f"author_{number}",
        "subreddit": OTHER if number % 10 == 3 else MEMES,
        "created_utc": datetime(2023, 1, 1, tzinfo=UTC).timestamp() + number,
        "title": f"Post {number}",
        "selftext": "plain words",
        "is_self": True,
        "over_18": False,
        "spoiler": False,
        "removed_by_category": None,
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reddit")
    (root / "submissions.jsonl").write_text("".join(json.dumps(post(n)) + "\n" for n in range(POSTS)))
    return root


@pytest.fixture(scope="module")
def params() -> Params:
    params = load(ROOT, profile="sandbox")
    memes = params.corpora["memes"].model_copy(update={"subreddits": (MEMES, OTHER)})
    return params.model_copy(update={"corpora": params.corpora | {"memes": memes}})


@pytest.fixture
def server(root: Path) -> Iterator[SandboxServer]:
    with SandboxServer(root, outage_status=501) as server:  # PRAW itself repeats the usual ones, for seconds
        yield server


def addresses(server: SandboxServer) -> dict[str, str]:
    return dict.fromkeys(("reddit_url", "reddit_oauth_url"), server.address)


@dataclass
class World:
    """A corpus whose records are the server's posts, by their numbers."""

    server: SandboxServer
    vault: Vault
    params: Params
    settings: Settings
    ids: dict[int, str] = field(default_factory=dict)
    homes: Any = None

    def admit(
        self, numbers: Iterable[int], *, month: str = "2023-01", now: datetime = NOW, name: Any = fullname
    ) -> None:
        fresh = {n: self.vault.record_id(name(n)) for n in numbers}
        self.vault.admit([(i, name(n)) for n, i in fresh.items()], corpus="memes", month=month, now=now)
        self.ids |= fresh

    def client(self, kind: type[Reddit] = Reddit) -> Reddit:
        return kind(self.settings, params=entry_of("reddit", self.params))

    def sweep(
        self, now: datetime = NOW, *, reddit: Any = None, believe: bool = False, say: Any = silent, **terms: Any
    ) -> Any:
        return sweep.run(
            "memes", params=self.params, terms=TERMS.model_copy(update=terms), vault=self.vault, now=now,
            sources=[reddit or self.client()], homes=self.homes, believe=believe, say=say,
        )  # fmt: skip

    def due(self) -> dict[int, str]:
        numbers = {i: n for n, i in self.ids.items()}
        return {numbers[i]: reason for i, reason in sweep.due(self.vault, "memes").items()}

    def hide(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.server.catalogue._by_name.pop(fullname(number))

    def show(self, numbers: Iterable[int]) -> None:
        self.server.catalogue._by_name |= {fullname(n): post(n) for n in numbers}

    def mark(self, number: int, **fields: Any) -> None:
        self.server.catalogue._by_name[fullname(number)] = post(number) | fields


@pytest.fixture
def settings(server: SandboxServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    names = {"reddit_client_id": CLIENT_ID, "reddit_client_secret": CLIENT_SECRET, "contact": "team@example.org"}
    return Settings.from_env().model_copy(update=addresses(server) | names)


@pytest.fixture
def world(server: SandboxServer, vault: Vault, params: Params, settings: Settings) -> World:
    return World(server, vault, params, settings)


def test_everybody_is_asked_about_by_ninety_nine_and_a_control(world: World) -> None:
    world.admit(range(250))
    done = world.sweep()
    assert done["asked"] == done["seen"] == done["due"] == 250
    assert world.server.counts["info"] == 3
    assert world.server.counts["listing"] == 1
    assert done["requests"] == 4
    assert done["left"] == done["takedown"] == done["quarantined"] == 0
    assert world.sweep(NOW + timedelta(hours=1))["due"] == 0
    assert world.server.counts["info"] == 3


@pytest.mark.parametrize(("month", "days"), [("2023-01", 1), ("2022-12", 60), ("2018-04", 60)])
def test_a_record_is_due_again_when_its_band_says(world: World, month: str, days: int) -> None:
    world.admit(range(3), month=month)
    world.sweep()
    assert world.sweep(NOW + days * DAY - timedelta(minutes=1))["asked"] == 0
    assert world.sweep(NOW + days * DAY)["asked"] == 3


def test_a_dry_run_counts_and_sends_nothing(world: World) -> None:
    world.admit(range(120))
    world.admit(range(120, 150), month="2019-05")
    world.admit(range(5), name=lambda n: f"cradle/{n}", month="2019-05")
    told = sweep.dry_run("memes", sources=[Reddit], terms=TERMS, vault=world.vault, now=NOW)
    assert told == {
        "records": 150, "imported": 5, "due": 150, "requests": 3, "left": 0, "takedown": 0,
        "bands": {"older": {"records": 30, "due": 30}, "under 7 days": {"records": 120, "due": 120}},
    }  # fmt: skip
    few = sweep.dry_run(
        "memes", sources=[Reddit], terms=TERMS.model_copy(update={"requests": 2}), vault=world.vault, now=NOW
    )
    assert (few["requests"], few["left"]) == (2, 51)
    assert sum(world.server.counts.values()) == 0
    done = world.sweep()
    assert [done[name] for name in ("asked", "requests", "imported")] == [told["due"], told["requests"], 5]
    later = sweep.dry_run("memes", sources=[Reddit], terms=TERMS, vault=world.vault, now=NOW + DAY)
    assert later["bands"]["under 7 days"] == {"records": 120, "due": 120}
    assert later["bands"]["older"] == {"records": 30, "due": 0}
    assert world.server.counts["info"] == 2


def test_missing_once_is_quarantined_and_twice_is_due(world: World) -> None:
    world.admit(range(40), month="2019-05")
    world.hide([3, 5])
    first = world.sweep()
    assert (first["missing"], first["quarantined"], first["takedown"]) == (2, 2, 0)
    assert world.due() == {}
    assert world.sweep(NOW + timedelta(hours=11))["asked"] == 0
    world.show([5])
    second = world.sweep(NOW + timedelta(hours=13))
    assert (second["asked"], second["missing"], second["returned"], second["quarantined"]) == (2, 1, 1, 1)
    assert world.due() == {3: "missing"}


def test_a_record_that_came_back_starts_over(world: World) -> None:
    world.admit(range(4))
    for day, gone in enumerate([True, False, True, False, True]):
        (world.hide if gone else world.show)([2])
        world.sweep(NOW + day * DAY)
        assert world.due() == {}
    world.sweep(NOW + 5 * DAY)
    assert world.due() == {2: "missing"}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("author", "[deleted]", "deleted"), ("selftext", "[deleted]", "deleted"), ("selftext", "[removed]", "removed"),
        ("removed_by_category", "deleted", "deleted"), ("removed_by_category", "moderator", "removed"),
    ],
)  # fmt: skip
def test_what_reddit_marks_is_due_at_once(world: World, field: str, value: str, reason: str) -> None:
    world.admit(range(4))
    world.mark(1, **{field: value})
    done = world.sweep()
    assert done[reason] == done["takedown"] == 1
    assert world.due() == {1: reason}
    world.show([1])
    assert world.sweep(NOW + DAY)["returned"] == 1
    assert world.due() == {}


def test_what_is_due_stays_due_until_the_takedown(world: World) -> None:
    world.admit(range(4))
    world.mark(1, author="[deleted]")
    world.sweep()
    world.sweep(NOW + DAY)
    assert world.due() == {1: "deleted"}
    world.vault.destroy(sweep.due(world.vault, "memes"), reason="deleted", now=NOW + DAY)
    assert world.due() == {}
    done = world.sweep(NOW + 2 * DAY)
    assert done["records"] == done["asked"] == 3


def test_a_failed_request_is_no_miss_and_is_repeated(world: World) -> None:
    class Healing(Reddit):
        def info(self, fullnames: Any) -> Any:
            try:
                return super().info(fullnames)
            except SourceUnavailable:
                world.server.outage_after = None
                raise

    world.admit(range(250))
    world.server.outage_after = 2
    done = world.sweep(reddit=world.client(Healing))
    assert (done["asked"], done["seen"], done["failed"], done["requests"]) == (250, 250, 0, 5)


@pytest.mark.parametrize(("status", "error"), [(501, SourceUnavailable), (403, SourceRefused), (429, SourceThrottled)])
def test_an_outage_keeps_the_answers_and_skips_no_record(world: World, status: int, error: type[Exception]) -> None:
    world.admit(range(250))
    world.server.outage_after, world.server.outage_status = 2, status
    with pytest.raises(error):
        world.sweep()
    world.server.outage_after = None
    rest = world.sweep(NOW + timedelta(minutes=5))
    assert (rest["due"], rest["seen"]) == (151, 151)
    assert world.due() == {} and rest["quarantined"] == 0


def test_a_private_subreddit_marks_no_record_as_missing(world: World) -> None:
    world.admit(range(40))
    world.server.private = {MEMES.lower(), OTHER.lower()}
    world.hide(range(40))
    for day in range(3):
        done = world.sweep(NOW + day * DAY)
        assert (done["closed"], done["missing"], done["quarantined"], done["takedown"]) == (40, 0, 0, 0)


def test_subreddits_are_looked_up_only_when_something_is_missing(world: World) -> None:
    def homes() -> dict[str, str]:
        raise AssertionError("nothing is missing")

    world.homes = homes
    world.admit(range(40))
    world.mark(1, author="[deleted]")
    assert world.sweep()["asked"] == 40


def test_a_missing_post_is_looked_up_by_its_own_subreddit(world: World, tmp_path: Path) -> None:
    world.admit(range(40))
    rows = {world.ids[n]: {"subreddit": post(n)["subreddit"]} for n in range(40)}
    write_posts(tmp_path / "data/memes/2023-01/records.parquet", rows=rows)
    world.server.private = {OTHER.lower()}
    world.hide([3, 13, 14])
    assert world.sweep()["closed"] == 3  # which of them the private one holds cannot be told without the partitions
    world.homes = lambda: by_record(tmp_path, corpus="memes", column="subreddit")
    done = world.sweep(NOW + DAY)
    assert (done["closed"], done["missing"]) == (2, 1)
    world.sweep(NOW + 2 * DAY)
    assert world.due() == {14: "missing"}


def test_an_answer_without_any_post_stops_the_sweep(world: World) -> None:
    world.admit(range(3))
    kept = dict(world.server.catalogue._by_name)
    world.server.catalogue._by_name.clear()
    for hour in (0, 13, 26):
        with pytest.raises(SweepImplausible, match="3 posts"):
            world.sweep(NOW + timedelta(hours=hour))
    assert world.due() == {}
    done = world.sweep(NOW + timedelta(hours=27), believe=True)
    assert (done["missing"], done["quarantined"]) == (3, 3)
    world.server.catalogue._by_name = kept
    assert world.sweep(NOW + timedelta(hours=40))["returned"] == 3


@pytest.mark.parametrize("shown", [1, 98])
def test_an_answer_without_the_control_post_marks_no_record(world: World, shown: int) -> None:
    class Partial(Reddit):
        def info(self, fullnames: Any) -> Any:
            return dict(list(super().info(list(fullnames)[:-1]).items())[:shown])

    world.admit(range(99))
    for hour in (0, 13, 26):
        with pytest.raises(SweepImplausible, match=rf"lacks the control post and {99 - shown} of the 99 posts"):
            world.sweep(NOW + timedelta(hours=hour), reddit=world.client(Partial), max_missing=1.0)
    assert world.due() == {}
    assert world.sweep(NOW + timedelta(hours=27))["seen"] == 99


def test_an_answer_without_the_control_post_takes_earlier_marks_back(world: World) -> None:
    class Late(Reddit):
        def info(self, fullnames: Any) -> Any:
            return super().info(list(fullnames)[:-1] if world.server.counts["info"] else fullnames)

    world.admit(range(150))
    ids = sorted(world.ids, key=world.ids.__getitem__)
    world.hide([ids[0], ids[-2]])  # one of each request
    with pytest.raises(SweepImplausible):
        world.sweep(reddit=world.client(Late))
    told = sweep.dry_run("memes", sources=[Reddit], terms=TERMS, vault=world.vault, now=NOW + DAY)
    assert "quarantined" not in told["bands"]


def test_after_an_implausible_answer_no_other_request_is_sent(world: World) -> None:
    world.admit(range(250))
    world.hide(range(0, 250, 2))
    with pytest.raises(SweepImplausible):
        world.sweep()
    assert world.server.counts["info"] == 1


def test_a_control_post_that_was_deleted_is_replaced(world: World) -> None:
    listed = world.server.catalogue._new[MEMES.lower()]

    class Late(Reddit):
        def info(self, fullnames: Any) -> Any:
            if world.server.counts["info"] == 0:
                world.hide([POSTS - 1])
                listed.pop(0)
            return super().info(fullnames)

    world.admit(range(150))
    world.hide([4])
    done = world.sweep(reddit=world.client(Late))
    assert (done["seen"], done["missing"]) == (149, 1)
    assert done["requests"] == 6  # two batches, one of them twice, two controls, and whether OTHER is private


def test_too_many_missing_are_an_outage_and_leave_no_mark(world: World) -> None:
    world.admit(range(250))
    world.hide(range(0, 250, 10))  # a tenth, in every request
    world.mark(1, author="[deleted]")
    for day in range(3):
        with pytest.raises(SweepImplausible, match="max_missing"):
            world.sweep(NOW + day * DAY)
        assert world.due() == {}
    told = sweep.dry_run("memes", sources=[Reddit], terms=TERMS, vault=world.vault, now=NOW + 3 * DAY)
    assert "quarantined" not in told["bands"]
    believed = world.sweep(NOW + 3 * DAY, believe=True)
    assert (believed["missing"], believed["deleted"], believed["takedown"]) == (25, 1, 1)


def test_a_run_that_ends_early_is_judged_by_what_it_asked(root: Path, world: World) -> None:
    world.admit(range(250))
    with SandboxServer(root, budget=4, period=2) as world.server:
        world.settings = world.settings.model_copy(update=addresses(world.server))
        world.hide(sorted(world.ids, key=world.ids.__getitem__)[:7])  # of 250 not too many, of the first 99 they are
        with pytest.raises(SweepImplausible, match="7 of 99"):
            world.sweep(remain=0.6, few=2)


def test_half_a_corpus_marked_as_deleted_is_not_believed_either(world: World) -> None:
    world.admit(range(60))
    for number in range(31):
        world.mark(number, author="[deleted]")
    with pytest.raises(SweepImplausible, match="max_gone"):
        world.sweep()
    assert world.due() == {}


def test_rechecked_records_are_no_share_of_anything(world: World) -> None:
    world.admit(range(20), month="2019-05")
    world.hide(range(20))
    assert world.sweep()["missing"] == 20  # so few are believed
    assert world.sweep(NOW + DAY, few=1)["missing"] == 20
    assert len(world.due()) == 20


def test_a_run_killed_after_its_last_request_is_ended_by_the_next(world: World) -> None:
    world.admit(range(40))
    world.mark(1, author="[deleted]")
    with pytest.raises(KeyboardInterrupt):
        world.sweep(say=die)
    assert world.due() == {}
    assert world.sweep(NOW + timedelta(minutes=5))["requests"] == 0
    assert world.due() == {1: "deleted"}


def test_an_outage_is_seen_across_a_killed_run(world: World) -> None:
    world.admit(range(250))
    world.hide(range(0, 250, 17))  # fifteen, which one half alone would not show
    with pytest.raises(KeyboardInterrupt):
        world.sweep(say=die, few=12, max_missing=0.055)
    with pytest.raises(SweepImplausible, match="of 250"):
        world.sweep(NOW + timedelta(minutes=5), few=12, max_missing=0.055)
    told = sweep.dry_run("memes", sources=[Reddit], terms=TERMS, vault=world.vault, now=NOW + timedelta(hours=1))
    assert "quarantined" not in told["bands"]


SWEPT = """
import os, signal, sys
from datetime import datetime
from pathlib import Path
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.process import silent
from pipelines.takedown import sweep
from pipelines.core.config.operate import Sweep
from pipelines.store.vault.vault import Vault
root, url, secret, terms, now = sys.argv[1:]
params, now = load(Path(root), profile="sandbox"), datetime.fromisoformat(now)
with Vault.open(url, secret=bytes.fromhex(secret)) as vault:
    sweep.run("memes", params=params, terms=Sweep.model_validate_json(terms), vault=vault, now=now, believe=False,
              sources=sweep.clients("memes", params=params, settings=Settings.from_env(), today=now.date()),
              say=lambda _: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_killed_process_has_lost_nothing(world: World, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.admit(range(250))
    first = min(world.ids, key=world.ids.__getitem__)
    world.mark(first, author="[deleted]")
    environment = {
        "REDDIT_URL": world.server.address, "REDDIT_OAUTH_URL": world.server.address, "CONTACT": "team@example.org",
        "REDDIT_CLIENT_ID": CLIENT_ID, "REDDIT_CLIENT_SECRET": CLIENT_SECRET,
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(f"CORPUS_{name}", value)
    argv = [str(ROOT), url, SECRET.hex(), TERMS.model_dump_json(), NOW.isoformat()]
    done = subprocess.run([sys.executable, "-c", SWEPT, *argv], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert world.server.counts["info"] == 1
    assert world.due() == {}  # it may yet turn out to be an outage
    rest = world.sweep(NOW + timedelta(minutes=1))
    assert rest["asked"] == 250 - 99
    assert world.server.counts["info"] == 3
    assert world.due() == {first: "deleted"}


def test_a_run_keeps_to_its_requests_and_the_oldest_go_first(world: World) -> None:
    world.admit(range(100, 250), now=NOW - DAY)
    world.admit(range(100), now=NOW - 3 * DAY)
    world.mark(0, author="[deleted]")
    world.mark(200, author="[deleted]")
    done = world.sweep(requests=2)  # one of them finds the control
    assert (done["asked"], done["left"], done["stopped"], done["requests"]) == (99, 151, "requests", 2)
    assert world.due() == {0: "deleted"}
    rest = world.sweep(NOW + timedelta(minutes=1))
    assert (rest["asked"], rest["left"], rest["stopped"]) == (151, 0, None)
    assert world.due() == {0: "deleted", 200: "deleted"}


def test_quarantined_records_go_before_those_due_longer(world: World) -> None:
    world.admit(range(99))
    world.hide([7])
    world.sweep()
    world.admit(range(100, 300), now=NOW - 30 * DAY)
    world.sweep(NOW + DAY, requests=2)
    assert world.due() == {7: "missing"}


def test_the_collectors_share_is_left_to_them(root: Path, world: World) -> None:
    world.admit(range(250))
    with SandboxServer(root, budget=4, period=2) as server:
        world.settings = world.settings.model_copy(update=addresses(server))
        done = world.sweep(remain=0.6)
        assert (done["stopped"], done["requests"], done["asked"]) == ("remain", 2, 99)


def test_imported_sets_are_left_alone(world: World) -> None:
    world.admit(range(4), name=lambda n: f"cssrs/{n}")
    done = world.sweep()
    assert (done["records"], done["imported"], done["requests"]) == (0, 4, 0)
    assert sum(world.server.counts.values()) == 0


def test_two_sweeps_at_once_miss_a_record_once(world: World) -> None:
    world.admit(range(150))
    world.hide([max(world.ids, key=world.ids.__getitem__)])  # of the second request
    other: list[Any] = []

    def meanwhile(_: str) -> None:
        if not other:
            other.append(None)
            other.append(world.sweep(NOW))

    world.sweep(say=meanwhile)
    assert other[1]["missing"] == 1
    assert world.due() == {}
    again = world.sweep(NOW + DAY)
    assert (again["missing"], again["takedown"]) == (1, 1)


def test_nothing_logged_or_raised_names_a_post(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.admit(range(120))
    world.hide(range(0, 120, 2))
    with caplog.at_level(logging.DEBUG), pytest.raises(SweepImplausible) as caught:
        world.sweep()
    world.server.outage_after = 0
    with caplog.at_level(logging.DEBUG), pytest.raises(SourceUnavailable) as out:
        world.sweep(NOW + DAY)
    for text in (caplog.text, str(caught.value), str(out.value)):
        assert "t3_" not in text and not any(i in text for i in world.ids.values())


def test_reddit_is_not_asked_without_an_approval(params: Params, settings: Settings) -> None:
    assert sweep.clients("memes", params=params, settings=settings, today=NOW.date())
    bare = params.sources["reddit"].model_copy(update={"access_basis": None})
    with pytest.raises(SourceNotApproved):
        changed = params.model_copy(update={"sources": params.sources | {"reddit": bare}})
        sweep.clients("memes", params=changed, settings=settings, today=NOW.date())


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t["bands"].pop(),
        lambda t: t["bands"].reverse(),
        lambda t: t["bands"][0].update(until_days=30),
        lambda t: t["bands"].clear(),
        lambda t: t.update(remain=1.5),
    ],
)
def test_bands_that_leave_a_gap_are_refused(change: Change) -> None:
    terms = json.loads(TERMS.model_dump_json())
    change(terms)
    with pytest.raises(ValidationError):
        Sweep.model_validate(terms)
