"""A run killed at any moment neither pays twice nor overspends, as checked against the vendor's own log."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.errors import BudgetSpent, LabellerRefused
from pipelines.llm.outcome import Outcome
from pipelines.llm.sender import WORKERS_PER_SLOT
from pipelines.store.answers import AnswerStore
from tests.label import small_vendor as small
from tests.label.small_vendor import opened

COUNT = 120


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.jsonl").touch()
    return tmp_path / "log.jsonl"


@pytest.fixture
def url(log: Path) -> Iterator[str]:
    with small.vendor(log) as url:
        yield url


def stored(folder: Path) -> set[str]:
    path = folder / "answers.sqlite"
    if not path.exists():
        return set()
    with closing(sqlite3.connect(path)) as database:
        return {key for (key,) in database.execute("SELECT key FROM answers")}


def spent(answers: AnswerStore) -> float:
    """Return what was paid or is reserved, in US dollars."""
    return sum(answers.spent()) / 10**9


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(6, 10))])
def test_killed_and_resumed_equals_undisturbed(tmp_path: Path, seed: int) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    for folder in (calm, killed):
        folder.mkdir()
        (folder / "log.jsonl").touch()
    with small.vendor(calm / "log.jsonl", latency=0.02) as url, small.started(small.label, calm, url, COUNT) as process:
        process.join()
        assert process.exitcode == 0
    draw, log = random.Random(seed), killed / "log.jsonl"
    kept: list[tuple[set[str], int]] = []
    with small.vendor(log, latency=0.02) as url:
        for share in (0.3, 0.7):
            wanted = int(COUNT * (share + draw.uniform(-0.2, 0.2)))
            with small.started(small.label, killed, url, COUNT) as process:
                while len(small.answered(log)) < wanted and process.is_alive():
                    time.sleep(0.002)
                time.sleep(draw.uniform(0, 0.02))
                process.kill()
            kept.append((stored(killed), len(small.answered(log))))
        with small.started(small.label, killed, url, COUNT) as process:
            process.join()
            assert process.exitcode == 0
    once, all_sent = small.answered(calm / "log.jsonl"), small.answered(log)
    assert len(once) == len(set(once)) == COUNT
    assert set(all_sent) == set(once)
    for before, sent in kept:
        assert before
        assert not before & set(all_sent[sent:])
    # only what was out, or had come home and was just being written, can be asked again: a question for each worker
    assert len(all_sent) - COUNT <= len(kept) * 4 * WORKERS_PER_SLOT
    assert small.digest(calm / "votes.parquet") == small.digest(killed / "votes.parquet")


def test_second_run_asks_nothing_and_says_the_same(tmp_path: Path, url: str, log: Path) -> None:
    with opened(tmp_path) as (vault, answers):
        posts, told = small.posts(20, vault=vault), list[int]()
        asked = small.remote(url, answers=answers, vault=vault)
        assert asked.unanswered(posts) == 20
        first = asked.label(posts, progress=told.append)
        assert told == list(range(1, 21))
        again = small.remote("http://127.0.0.1:9/v1", answers=answers, vault=vault).label(posts)
        assert first == again == asked.label(posts)
        assert [a.record_id for a in first] == [p.record_id for p in posts]
        assert {(a.outcome, a.labels, a.cost) for a in first} == {(Outcome.VOTE, ("no_crisis",), small.COST)}
        assert spent(answers) == pytest.approx(20 * small.COST)
        assert asked.unanswered(posts) == 0
        assert len(small.answered(log)) == 20


def test_an_estimate_is_of_what_is_not_stored(tmp_path: Path, url: str) -> None:
    with opened(tmp_path) as (vault, answers):
        posts = small.posts(5, vault=vault)
        asked = small.remote(url, answers=answers, vault=vault)
        asked.label(posts[:1])
        one, four, none = (asked.estimate(some) for some in (posts[1:2], posts, posts[:1]))
        assert [(e["records"], e["cached"], e["to_ask"]) for e in (one, four, none)] == [
            (1, 0, 1),
            (5, 1, 4),
            (1, 1, 0),
        ]
        assert four["input_tokens"] == 4 * one["input_tokens"] and four["output_tokens"] == 4 * 64
        assert four["usd_at_most"] == pytest.approx(4 * one["usd_at_most"], rel=1e-4)
        assert four["usd_expected"] < four["usd_at_most"] and none["usd_expected"] == none["usd_at_most"] == 0
        at = {"answers": answers, "vault": vault, "model": "gpt-5"}
        plain, batch = (small.remote(url, **at, batch=batch).estimate(posts) for batch in (False, True))
        assert batch["usd_expected"] == pytest.approx(plain["usd_expected"] / 2, rel=1e-3)
        assert batch["usd_at_most"] == plain["usd_at_most"]


def test_equal_posts_are_asked_once_and_paid_once(tmp_path: Path, url: str, log: Path) -> None:
    with opened(tmp_path) as (vault, answers):
        one, *others = small.posts(3, vault=vault)
        posts = [one, *(replace(one, record_id=other.record_id) for other in others)]
        found = small.remote(url, answers=answers, vault=vault).label(posts)
    assert [a.labels for a in found] == [("no_crisis",)] * 3
    assert [a.cost for a in found] == [small.COST, 0.0, 0.0]
    assert len(small.answered(log)) == 1


@pytest.mark.parametrize("workers", [1, 8])
def test_budget_ends_it_without_overshoot(tmp_path: Path, url: str, log: Path, workers: int) -> None:
    with opened(tmp_path) as (vault, answers):
        posts = small.posts(40, vault=vault)
        asked = small.remote(url, answers=answers, vault=vault, budget=0.205, concurrency=workers)
        with pytest.raises(BudgetSpent, match=r"budget of 0\.2\d US dollars: 0\.\d{4} are spent") as caught:
            asked.label(posts)
        paid = len(small.answered(log))
        assert spent(answers) <= 0.205
        assert caught.value.fields["left"] == 40 - paid
        assert len(stored(tmp_path)) == paid
        # what is left of the budget is less than one request can cost at most
        estimate = asked.estimate(posts[-1:])
        assert spent(answers) + estimate["usd_at_most"] > 0.205
        more = small.remote(url, answers=answers, vault=vault, budget=1.0)
        assert {a.outcome for a in more.label(posts)} == {Outcome.VOTE}
    assert len(small.answered(log)) == 40


def test_budget_of_nothing_sends_nothing(tmp_path: Path, url: str, log: Path) -> None:
    with opened(tmp_path) as (vault, answers), pytest.raises(BudgetSpent):
        small.remote(url, answers=answers, vault=vault, budget=0.0).label(small.posts(3, vault=vault))
    assert log.read_text() == ""


def test_two_processes_share_a_budget(tmp_path: Path, log: Path) -> None:
    with small.vendor(log, latency=0.01) as url, opened(tmp_path) as (vault, answers):
        posts = small.posts(60, vault=vault)
        with small.started(small.label, tmp_path, url, 30) as process:
            here = small.remote(url, answers=answers, vault=vault, budget=0.3)
            with pytest.raises(BudgetSpent):
                here.label(posts[30:])
            process.join()
            assert process.exitcode == 0
        assert spent(answers) == pytest.approx(small.COST * len(small.answered(log)))


@pytest.mark.parametrize("model", ["throttle", "fail"])
def test_what_passes_is_tried_again(tmp_path: Path, url: str, log: Path, model: str) -> None:
    with opened(tmp_path) as (vault, answers):
        asked = small.remote(url, answers=answers, vault=vault, model=model)
        found = asked.label(small.posts(10, vault=vault))
        assert {a.outcome for a in found} == {Outcome.VOTE}
        assert answers.spent() == (round(10 * small.COST * 10**9), 0)
    assert Counter(small.answered(log)).most_common(1)[0][1] == 1


def test_timeout_is_tried_again_and_stays_held(tmp_path: Path, url: str) -> None:
    with opened(tmp_path) as (vault, answers):
        asked = small.remote(url, answers=answers, vault=vault, model="late", timeout=0.3)
        posts = small.posts(2, vault=vault)
        most = asked.estimate(posts)["usd_at_most"]
        assert {a.outcome for a in asked.label(posts)} == {Outcome.VOTE}
        assert spent(answers) == pytest.approx(2 * small.COST + most, rel=1e-4)


def test_failed_answers_are_not_kept(tmp_path: Path, url: str, log: Path) -> None:
    with opened(tmp_path) as (vault, answers):
        asked = small.remote(url, answers=answers, vault=vault, model="down", retries=1)
        found = asked.label(small.posts(3, vault=vault))
        assert {(a.outcome, a.reason, a.labels) for a in found} == {(Outcome.FAILED, "server", ())}
        assert spent(answers) == 0
    assert len(log.read_text().splitlines()) == 6
    assert stored(tmp_path) == set()


@pytest.mark.parametrize(("model", "outcome"), [("refuse", Outcome.REFUSED), ("prose", Outcome.MALFORMED)])
def test_refused_and_malformed_are_kept_and_not_asked_again(
    tmp_path: Path, url: str, log: Path, model: str, outcome: Outcome
) -> None:
    with opened(tmp_path) as (vault, answers):
        posts = small.posts(3, vault=vault)
        for _ in range(2):
            found = small.remote(url, answers=answers, vault=vault, model=model).label(posts)
            assert {(a.outcome, a.labels) for a in found} == {(outcome, ())}
    assert len(small.answered(log)) == 3


def test_rejected_key_stops_at_once(tmp_path: Path, url: str, log: Path) -> None:
    with opened(tmp_path) as (vault, answers):
        asked = small.remote(url, answers=answers, vault=vault, model="reject")
        with pytest.raises(LabellerRefused):
            asked.label(small.posts(50, vault=vault))
        assert spent(answers) == 0
    assert len(log.read_text().splitlines()) <= 8


def test_taken_down_record_is_not_sent_and_not_read(tmp_path: Path, url: str, log: Path) -> None:
    with opened(tmp_path) as (vault, answers):
        posts = small.posts(3, vault=vault)
        asked = small.remote(url, answers=answers, vault=vault)
        asked.label(posts[:1])
        vault.destroy([posts[0].record_id, posts[1].record_id], reason="test", now=small.NOW)
        found = asked.label(posts)
    assert [(a.outcome, a.reason) for a in found] == [
        (Outcome.ABSTAINED, "taken_down"),
        (Outcome.ABSTAINED, "taken_down"),
        (Outcome.VOTE, ""),
    ]
    assert len(small.answered(log)) == 2


def test_long_post_loses_its_middle(tmp_path: Path, url: str) -> None:
    with opened(tmp_path) as (vault, answers):
        (post,) = small.posts(1, vault=vault, words=3_000)
        post = replace(post, body=f"BEGINS {post.body} ENDS")
        asked = small.remote(url, answers=answers, vault=vault)
        short = asked._shortened(post)
        assert short.body.startswith("BEGINS") and short.body.endswith("ENDS")
        assert len(short.text) <= asked._room < len(post.text)
        assert asked.label([post])[0].outcome is Outcome.VOTE
        (kept,) = stored(tmp_path)
        assert b'"cut":true' in answers.get([kept], vault=vault)[kept].data


def test_no_more_at_once_than_the_provider_allows(tmp_path: Path, log: Path) -> None:
    with small.vendor(log, latency=0.02) as url, opened(tmp_path) as (vault, answers):
        small.remote(url, answers=answers, vault=vault, concurrency=5).label(small.posts(60, vault=vault))
    assert '"most": 5}' in log.read_text().splitlines()[-1]


def test_batch_of_a_killed_process_is_collected_not_sent_again(tmp_path: Path, vendors: Any) -> None:
    vendors.calm()
    address = vendors.url("openai")
    with small.started(small.hand_over, tmp_path, address, 12) as process, opened(tmp_path) as (_, answers):
        while not answers.jobs(labeller="small"):
            assert process.is_alive(), "it ended without a batch"
            time.sleep(0.005)
    with opened(tmp_path) as (vault, answers):
        assert stored(tmp_path) == set()
        assert answers.spent()[1] > 0
        asked = small.remote(address, answers=answers, vault=vault, model="gpt-5", batch=True)
        found = asked.label(small.posts(12, vault=vault)[:6])
        assert {a.outcome for a in found} == {Outcome.VOTE}
        # the answers of the other six came with the same batch
        assert len(stored(tmp_path)) == 12
        assert answers.jobs(labeller="small") == []
        assert answers.spent()[1] == 0
    keys = Counter(line["key"] for line in vendors.log() if line["answered"] and line["key"])
    assert sorted(keys.values()) == [1] * 12


def test_batch_hands_over_what_the_budget_allows(tmp_path: Path, vendors: Any) -> None:
    vendors.calm()
    with opened(tmp_path) as (vault, answers):
        posts = small.posts(10, vault=vault)
        at = {"answers": answers, "vault": vault, "model": "gpt-5", "batch": True}
        most = small.remote(vendors.url("openai"), **at).estimate(posts[:1])["usd_at_most"]
        with pytest.raises(BudgetSpent):
            small.remote(vendors.url("openai"), **at, budget=most * 2.5).label(posts)
        assert 2 <= len(stored(tmp_path)) < 10
        assert sum(answers.spent()) <= most * 2.5 * 10**9


def test_an_abandoned_batch_is_collected_later(tmp_path: Path, vendors: Any) -> None:
    vendors.calm()
    with opened(tmp_path) as (vault, answers):
        posts = small.posts(8, vault=vault)
        asked = small.remote(vendors.url("openai"), answers=answers, vault=vault, model="gpt-5", batch=True)
        handed = asked.hand_over(posts)
        assert handed == [job.id for job in answers.jobs(labeller="small")]
        assert stored(tmp_path) == set()
        assert asked.hand_over(posts) == handed, "what is handed over is not handed over again"
        assert {a.outcome for a in asked.label(posts)} == {Outcome.VOTE}
        assert asked.hand_over(posts) == []
    keys = Counter(line["key"] for line in vendors.log() if line["answered"] and line["key"])
    assert sorted(keys.values()) == [1] * 8
