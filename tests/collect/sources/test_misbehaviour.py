"""Whatever a server answers: a typed error, a retry or a counted exclusion, with a bound on requests and waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import pipelines.core.errors
from pipelines.collect import image_fetch, service
from pipelines.collect.admission import Admission
from pipelines.collect.month import Window
from pipelines.collect.refresh import ListingReader
from pipelines.collect.refresh_store import RefreshStore
from pipelines.collect.service import SubredditClosed
from pipelines.collect.sources import entry_of
from pipelines.collect.sources.arctic_shift import ArcticShift, QueryTimedOut
from pipelines.collect.sources.reddit import Reddit
from pipelines.collect.submission import Submission
from pipelines.core.config.collect import Fetch, Listing
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError, SourceRefused, SourceThrottled
from pipelines.store.vault.vault import Vault
from pipelines.takedown.sweep import LivenessContext, SweepImplausible
from tests.collect.listed_source import with_source
from tests.collect.sources.misbehaving_server import TABLE, TARGETS, Case, MisbehavingServer, cases
from tests.privacy.test_sweep import TERMS

WINDOW = Window.from_key("2022-12")
SANDBOX = load(Path(__file__).resolve().parents[3], profile="sandbox")
PARAMS = with_source(SANDBOX, "reddit", listing=Listing(limit=30, page_size=3))
ALL = [case for target in TARGETS for case in cases(target)]
ASKED = ["t3_a1", "t3_a2", "t3_a3"]
# Ours, in seconds: the deadline of an answer; the server's slow answers take five and more.
DEADLINE = 0.25
LONGEST_WAIT = 600
CLASSES = [SourceRefused, SubredditClosed, QueryTimedOut, SweepImplausible]
KNOWN = {**vars(pipelines.core.errors), **{one.__name__: one for one in CLASSES}}
HOPELESS = {64, 65, 77, 78}
FETCH = Fetch(
    hosts=("127.0.0.1",), allow_http=True, allow_loopback=True, per_host=4, concurrency=8, max_bytes=100_000,
    timeout_seconds=DEADLINE, min_bytes_per_second=2048, max_redirects=3, max_retry_after_seconds=0.1, retries=1,
    user_agent="crisis-corpus/1 (research; {contact})", placeholders=(),
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[MisbehavingServer]:
    with MisbehavingServer() as server:
        yield server


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings.from_env().model_copy(
        update={
            "home": (home := tmp_path_factory.mktemp("home")),
            "vault_url": f"sqlite:///{home}/vault.sqlite",
            "reddit_client_id": "id",
            "reddit_client_secret": "secret",
        }
    )


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_BYTES", 2**17)
    monkeypatch.setattr(image_fetch, "BACKOFF_SECONDS", 0.0)


class Runner:
    """Runs one case through the real source or fetcher."""

    def __init__(self, case: Case, *, server: MisbehavingServer, settings: Settings, waits: list[float]) -> None:
        self.case, self.server, self.waits = case, server, waits
        number = server.add(case)
        there = dict.fromkeys(("reddit_url", "reddit_oauth_url", "arctic_shift_url"), server.address)
        self.settings = settings.model_copy(update={**there, "contact": f"case-{number}-@example.org"})
        self.path = f"case-{number}-/x.png"

    def reddit(self) -> Reddit:
        seconds = DEADLINE if self.case.slow else 5.0
        kind = type("Patient", (Reddit,), {"answer_seconds": seconds})
        return kind(self.settings, params=entry_of("reddit", PARAMS))

    def read(self, *subreddits: str) -> dict[str, Any]:
        """Return what a source makes of the case: counts of kept and dropped posts, and closed subreddits."""
        if self.case.target == "arctic_shift":
            small = {"page_size": 40, "timeout_seconds": DEADLINE if self.case.slow else 5.0}
            params = entry_of("arctic_shift", with_source(PARAMS, "arctic_shift", **small))
            source: Any = ArcticShift(self.settings, params=params)
            source.pause = self.waits.append
        else:
            return self.refresh(*subreddits)
        items = list(source.submissions(WINDOW, subreddits=subreddits))
        dropped = Counter(i.reason for i in items if not isinstance(i, Submission))
        return {"kept": sum(isinstance(i, Submission) for i in items), "dropped": dict(dropped)}

    def refresh(self, subreddit: str) -> dict[str, Any]:
        """Return what a refresh stores of the case's listing."""
        url = f"sqlite:///{self.settings.home}/{uuid4()}.sqlite"
        interval = int(WINDOW.start.timestamp()), int(WINDOW.end.timestamp())
        with Vault.open(self.settings.vault_url, secret=b"s" * 64) as vault, RefreshStore.open(url) as store:
            admission = Admission("posts", PARAMS, vault, WINDOW.end - timedelta(seconds=1))
            done = ListingReader(admission, self.reddit(), store).read(subreddit, floor=interval[0])
            contents, drops = store.waiting("posts", interval, vault=vault)
            covered = store.covered("posts").get(subreddit.lower(), [])
        assert all(start > interval[0] for start, _ in covered), "no listing reaches the start of the month"
        others = {"other_subreddit": done.others} if done.others else {}
        return {"kept": len(contents), "dropped": dict(Counter(drops.values())) | others}

    def sweep(self) -> dict[str, int]:
        context = LivenessContext(self.reddit(), corpus="posts", subreddits=("Control",), terms=TERMS, believe=False)
        context.open()
        return dict(Counter(context.ask(ASKED).values()))

    def picture(self) -> dict[str, Any]:
        job = (f"{self.server.address}/{self.path}",)
        params = FETCH if self.case.slow else FETCH.model_copy(update={"timeout_seconds": 5.0})
        [found] = asyncio.run(image_fetch.fetch_images([job], params=params))
        return {"ok": 1} if isinstance(found, bytes) else {"reason": found}


@pytest.mark.parametrize("case", ALL, ids=[f"{case.target}: {case.name}" for case in ALL])
def test_an_answer_is_an_error_of_this_project_or_counted(
    case: Case, server: MisbehavingServer, settings: Settings, waits: list[float]
) -> None:
    runner = Runner(case, server=server, settings=settings, waits=waits)
    run = {"info": runner.sweep, "image": runner.picture}.get(case.target, lambda: runner.read("Alpha"))
    expect, started = dict(case.expect), time.monotonic()
    limits = expect.pop("limits", None)
    if "closed" in expect:
        expect["error"] = "SubredditClosed"
    if "error" in expect:
        with pytest.raises(CorpusError) as caught:
            run()
        check(caught.value, name=expect["error"])
    else:
        found = run()
        if "reason" in expect:
            reasons = expect["reason"] if isinstance(expect["reason"], list) else [expect["reason"]]
            assert any(found.get("reason", "").startswith(reason) for reason in reasons), found
        elif "kept" in expect:
            assert found == {"dropped": {}} | expect
        else:
            assert found == expect
    assert limits in (None, case.limits)
    assert case.counts[case.target] <= case.requests
    assert max(waits, default=0) <= LONGEST_WAIT
    assert time.monotonic() - started < 5


def test_a_body_that_is_given_up_leaves_no_thread(server: MisbehavingServer) -> None:
    number = server.add(Case("listing", "stalled", [{"body": "page", "timing": {"stall": 300}}], {}, 1))
    session = service.BoundedSession(seconds=DEADLINE)
    with pytest.raises(service.AnswerTooSlow):
        session.get(f"{server.address}/case-{number}-/new")
    until = time.monotonic() + 2
    while any(thread.name == "exchange" for thread in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    assert time.monotonic() < until


def check(error: CorpusError, *, name: str) -> None:
    """Assert class, family, exit code and whether a retry may help, as the table states them for the error."""
    stated = TABLE["errors"][name]
    assert error.code == name, error
    assert isinstance(error, KNOWN[stated["family"]])
    assert error.exit_code == stated["exit_code"]
    assert (error.exit_code not in HOPELESS) == stated["retryable"]
    assert "t3_" not in str(error)
    if isinstance(error, SourceThrottled):
        # of a picture's host: the step compares it with the parameters and stops
        longest = 10**9 if error.fields["source"] == "127.0.0.1" else service.MAX_WAIT_SECONDS
        assert 0 < error.fields["retry_after"] <= longest
