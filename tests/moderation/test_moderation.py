"""The audit over real HTTP: each item is asked once per system, and only a verdict counts as one."""

import itertools
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.label import ProviderNotConsented
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BudgetSpent, LabellerRefused
from pipelines.evaluate.moderation import moderation
from pipelines.evaluate.moderation.channels import CUT, AuditedItem, System
from pipelines.evaluate.moderation.moderator import Moderator
from pipelines.evaluate.report import analysis_parts, page
from pipelines.evaluate.report.papers import Paper
from pipelines.llm.sender import WORKERS_PER_SLOT
from pipelines.operate.plan import cost
from pipelines.store.answers import AnswerStore
from tests.contexts import context_of
from tests.json_server import Request, json_server
from tests.label.conftest import VendorHost
from tests.moderation.conftest import SIZES, SYSTEMS, Audit, asked, audit, digest, opened
from tests.refusals import refused
from tests.train import small_posts

ITEMS = sum(SIZES.values())
VENDORS = ("openai", "azure", "guard")


def counts(host: VendorHost) -> dict[str, int]:
    """Return how many requests each vendor received."""
    return {vendor: host.counts(vendor)["received"] for vendor in VENDORS}


def test_every_system_is_asked_once_about_every_item(lab: Audit, vendors: VendorHost) -> None:
    told = lab.run()
    assert told["items"] == ITEMS
    words = sum(meme.text is not None for meme in lab.memes.memes.values())
    received = counts(vendors)
    assert received == {"openai": ITEMS, "azure": ITEMS + words, "guard": words}
    assert [told["systems"][name]["requests"] for name in SYSTEMS] == [*received.values()]
    assert told["systems"]["llama-guard-3"]["outcomes"] == {"abstained": ITEMS - words, "vote": words}
    assert json.loads((lab.memes.root / "metrics/memes/moderation.json").read_text()) == told
    rows = lab.rows()
    assert len(rows) == len(SYSTEMS) * ITEMS
    assert all((row["overall"] is None) == (row["outcome"] != "vote") for row in rows)
    again = lab.run()
    assert again == told
    assert received == counts(vendors), "nothing is asked twice"


def test_copies_of_an_item_are_asked_about_and_paid_once(lab: Audit, vendors: VendorHost) -> None:
    ids = [record_id for record_id, _ in list(lab.memes.memes)[:3]]
    copies = [AuditedItem(record_id, title="", body="a small one for the weekend") for record_id in ids]
    with AnswerStore.open(lab.settings.answers_url) as answers:
        given: dict[str, Any] = {"params": lab.params, "settings": lab.settings, "vault": lab.memes.vault}
        given["sources"] = {}
        told = System("azure", answers=answers, **given).judge(copies)
    assert len({verdict.score for verdict in told.verdicts}) == 1
    assert vendors.counts("azure")["received"] == 1
    assert told.cost == pytest.approx(0.00038)


def test_another_snapshot_or_threshold_asks_nothing_again(lab: Audit, vendors: VendorHost) -> None:
    first = lab.run(items=10)
    assert vendors.counts("openai")["keys"] == 10
    lab.run()
    whole = counts(vendors)
    lab.moderator("azure", flag_from=6)
    stricter = lab.run(items=10)
    assert counts(vendors) == whole
    flags = [told["systems"]["azure"]["flags"]["overall"]["all"]["flagged"] for told in (first, stricter)]
    assert flags[1] < flags[0]
    assert whole["openai"] == ITEMS == len(set(asked(vendors, "openai")))


def test_without_a_system_nothing_is_sent_and_the_table_is_empty(lab: Audit, vendors: VendorHost) -> None:
    section = lab.params.moderation.model_copy(update={"systems": {}})
    lab.params = lab.params.model_copy(update={"moderation": section})
    told = moderation.run(context_of("memes", params=lab.params, **lab.places))
    assert told == {"items": 0, "systems": {}, "pairs": []}
    assert lab.rows() == []
    assert sum(counts(vendors).values()) == 0


def test_a_refusal_or_a_partial_answer_is_no_verdict(lab: Audit, vendors: VendorHost) -> None:
    vendors.change("azure", malformed=0.4)
    vendors.change("guard", malformed=0.3, refuses_any=0.3)
    told = lab.run("azure", "llama-guard-3")["systems"]
    azure, guard = told["azure"], told["llama-guard-3"]
    assert azure["outcomes"]["malformed"] and azure["reasons"] == {"category_missing": azure["outcomes"]["malformed"]}
    assert 0 < azure["partial"] <= azure["outcomes"]["malformed"], "text judged, picture not, or the other way round"
    assert guard["outcomes"]["refused"] and guard["outcomes"]["malformed"]
    for system in (azure, guard):
        assert system["flags"]["overall"]["all"]["n"] == system["outcomes"]["vote"]
        assert sum(system["outcomes"].values()) == ITEMS
        counts = [n for level in system["unanswered"].values() for n in level.values()]
        assert counts and all(n is None or n >= lab.params.analysis.least for n in counts)
    for row in lab.rows():
        empty = [row[name] is None for name in ("self_harm", "overall", "categories")]
        assert set(empty) == {row["outcome"] != "vote"}


def test_throttling_and_errors_are_waited_out(lab: Audit, vendors: VendorHost) -> None:
    vendors.change(*VENDORS, throttled=0.3, failing=0.3, retry_after=0.02)
    told = lab.run(items=12)
    served = [vendors.counts(vendor) for vendor in VENDORS]
    assert all(c["throttled"] and c["errors"] and c["answered"] == c["keys"] for c in served)
    assert all("failed" not in system["outcomes"] for system in told["systems"].values())


def test_a_rejected_account_or_a_missing_address_ends_the_run(lab: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("wrong", "empty"):
        monkeypatch.setenv("CORPUS_AZURE_KEY", key)
        with pytest.raises(LabellerRefused, match="azure"):
            lab.run("azure")
    assert not (lab.memes.root / "metrics/memes/moderation.json").exists()
    monkeypatch.delenv("CORPUS_GUARD_URL")
    with pytest.raises(LabellerRefused, match="no address is set"):
        lab.run("llama-guard-3")


def test_a_budget_stops_paid_requests_and_free_ones_need_none(lab: Audit, vendors: VendorHost) -> None:
    lab.change("votes", budget_usd=0.01)
    with pytest.raises(BudgetSpent):
        lab.run("azure")
    sent = vendors.counts("azure")["keys"]
    assert 0 < sent < 2 * ITEMS
    lab.change("votes", budget_usd=0)
    assert lab.run("openai")["systems"]["openai"]["cost"] == 0
    lab.change("votes", budget_usd=1)
    told = lab.run("azure")["systems"]["azure"]
    texts = told["requests"] - ITEMS
    assert told["cost"] == pytest.approx((texts * 0.38 + ITEMS * 0.75) / 1000)
    keys = asked(vendors, "azure")
    assert len(keys) == len(set(keys)) == told["requests"]


def test_nothing_leaves_without_consent_and_the_estimate_says_so(lab: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_AZURE_URL", "http://0.0.0.0:1/azure")
    told = cost.run(context_of("memes", params=lab.given("azure", "openai"), **lab.places), steps=["moderation"])
    azure, openai = told["leaves"]
    assert azure["to"] == "0.0.0.0"
    assert azure["consent"].startswith("its consent lacks terms")
    assert azure["pictures"] == ITEMS and azure["texts"] == azure["requests"] - ITEMS
    assert (openai["to"], openai["consent"]) == ("this machine", "not needed")
    with pytest.raises(ProviderNotConsented, match="azure"):
        lab.run("azure")


def test_the_estimate_covers_all_steps_under_one_budget(lab: Audit, vendors: VendorHost) -> None:
    told = cost.run(context_of("memes", params=lab.given(), **lab.places))
    assert told["steps"] == ["votes", "injection_test", "rationales", "predict", "moderation"]
    assert set(told["estimates"]["moderation"]) == set(SYSTEMS)
    [prompted] = told["estimates"]["predict"].values()
    assert prompted["to_ask"] == 3 * SIZES["test"]
    parts = [one["usd_expected"] for step in told["estimates"].values() for one in step.values()]
    assert told["usd_expected"] == pytest.approx(sum(parts), abs=1e-4)
    assert sum(counts(vendors).values()) == 0, "nothing is sent"
    lab.change("votes", budget_usd=told["usd_expected"] / 2)
    with refused("BudgetTooSmall", match="requests would cost"):
        cost.run(context_of("memes", params=lab.given(), **lab.places))
    with refused("UnknownName", match="rationales, predict, moderation"):
        cost.run(context_of("memes", params=lab.given(), **lab.places), steps=["silver"])


def test_a_record_that_was_taken_down_is_not_asked_about(lab: Audit, vendors: VendorHost) -> None:
    gone = next(iter(lab.memes.memes))[0]
    lab.memes.vault.destroy([gone], reason="author_request", now=datetime(2023, 1, 1, tzinfo=UTC))
    told = lab.run("openai")
    assert (told["items"], told["taken_down"]) == (ITEMS - 1, 1)
    assert vendors.counts("openai")["received"] == ITEMS - 1


@contextmanager
def broken(answer: Callable[[int], Any]) -> Iterator[tuple[str, list[int]]]:
    """Serve a vendor that answers its n-th request with ``answer(n)``; yield its address and the numbers so far."""
    numbers: list[int] = []
    count = itertools.count(1)

    def numbered(_: Request) -> Any:
        numbers.append(number := next(count))
        return answer(number)

    with json_server(numbered) as url:
        yield url, numbers


SAFE = {"choices": [{"message": {"content": "safe"}, "finish_reason": "stop"}]}
HALF = 200, json.dumps(SAFE).encode()[:9], {"Content-Length": str(len(json.dumps(SAFE))), "Connection": "close"}


def test_an_answer_that_breaks_off_is_requested_again(lab: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken(lambda n: HALF if n % 6 == 1 else (200, SAFE)) as (url, numbers):
        monkeypatch.setenv("CORPUS_GUARD_URL", url)
        told = lab.run("llama-guard-3")["systems"]["llama-guard-3"]
    assert len(numbers) > told["outcomes"]["vote"] == told["requests"]


def test_an_unanswered_item_fails_and_is_asked_in_the_next_run(lab: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = lab.params.providers["guard"].model_copy(update={"max_retries": 0})
    lab.params = lab.params.model_copy(update={"providers": {**lab.params.providers, "guard": limits}})
    with broken(lambda n: (500, {}) if n == 3 else (200, SAFE)) as (url, numbers):
        monkeypatch.setenv("CORPUS_GUARD_URL", url)
        with refused("TooManyFailed", match="llama-guard-3"):
            lab.run("llama-guard-3")
        first = len(numbers)
        told = lab.run("llama-guard-3")["systems"]["llama-guard-3"]
        assert len(numbers) == first + 1
    assert "failed" not in told["outcomes"]


def test_a_picture_that_a_provider_cannot_read_is_refused_and_counted(
    lab: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"error": {"code": "InvalidImageSize", "message": "The words of an item."}}
    with json_server(lambda _: (400, body)) as url:
        monkeypatch.setenv("CORPUS_OPENAI_URL", url)
        told = lab.run("openai-image")["systems"]["openai-image"]
    assert told["outcomes"] == {"refused": ITEMS}
    assert told["reasons"] == {"invalidimagesize": ITEMS}
    assert told["flags"]["overall"]["all"] == {"flagged": 0, "n": 0, "rate": None, "low": None, "high": None}


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(4, 8))])
def test_killed_and_resumed_asks_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendors: VendorHost, seed: int
) -> None:
    draw, answers = random.Random(seed), tmp_path / "answers.sqlite"
    vendors.change(latency=0.02)
    with audit(tmp_path, vendors.server.address, monkeypatch) as lab:
        kept: list[tuple[set[str], int]] = []
        for share in (0.3, 0.7):
            child = multiprocessing.get_context("fork").Process(target=lab.run, args=("azure",))
            child.start()
            while len(asked(vendors, "azure")) < share * 2 * ITEMS and child.is_alive():
                time.sleep(0.002)
            time.sleep(draw.uniform(0, 0.02))
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
            with closing(sqlite3.connect(answers)) as database:
                stored = {digest(key) for (key,) in database.execute("SELECT key FROM answers")}
            kept.append((stored, len(asked(vendors, "azure"))))
        told = lab.run("azure")["systems"]["azure"]
    sent = asked(vendors, "azure")
    assert len(set(sent)) == told["requests"] == sum(told["outcomes"].values()) + told["requests"] - ITEMS
    for stored, before in kept:
        assert stored
        assert not stored & set(sent[before:]), "a stored answer is never requested again"
    # only a request whose answer was on its way when its sender was killed is repeated, under the same key
    slots = lab.params.providers["azure"].concurrency
    assert len(sent) - len(set(sent)) <= len(kept) * slots * WORKERS_PER_SLOT


def test_posts_with_gold_are_audited_by_label(
    tmp_path: Path, vendors: VendorHost, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Moderator, "characters", 120)
    sent: list[Any] = []
    serve = vendors.vendors.serve

    def seen(request: Any, *, body: bytes, **given: Any) -> None:
        sent.append(json.loads(body))
        serve(request, body=body, **given)

    monkeypatch.setattr(vendors.vendors, "serve", seen)
    with opened(tmp_path, vendors.server.address, monkeypatch) as (usual, vault):
        section = usual.moderation.model_copy(update={"systems": {"posts": ("openai", "llama-guard-3")}})
        params = usual.model_copy(update={"moderation": section})
        corpus = small_posts.write(tmp_path, vault=vault, sizes={"train": 4, "dev": 8, "test": 8})
        labelled = [post for post in corpus.posts.values() if post.split != "train"]
        given: dict[str, Any] = {"params": params, "settings": Settings.from_env(), "vault": vault, "root": tmp_path}
        leaves = cost.run(context_of("posts", **given), steps=["moderation"])["leaves"]
        told = moderation.run(context_of("posts", **given))
    assert {(row["texts"], row["pictures"]) for row in leaves} == {(len(labelled), 0)}
    assert told["items"] == len(labelled) == told["systems"]["openai"]["outcomes"]["vote"]
    assert told["by"] == "labels"
    assert "no_crisis" in told["levels"]
    assert "trend" not in told["systems"]["openai"], "labels without an order have no trend"
    texts = [part["text"] for body in sent for part in body.get("input", ())]
    texts += [message["content"] for body in sent for message in body.get("messages", ())]
    assert len(texts) == 2 * len(labelled)
    assert all(len(text) <= 120 for text in texts) and any(CUT in text for text in texts)
    titles = {post.title for post in labelled}
    assert all(any(text.startswith(title[:50]) for title in titles) for text in texts)
    [section] = analysis_parts.moderation_sections(told, paper=Paper())
    assert page.Page("t", (), (section,))
    shown = json.dumps(told) + "".join(capfd.readouterr())
    assert not any(title in shown for title in titles)
