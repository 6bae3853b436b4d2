"""Another distribution adds a vendor of a fourth protocol and a moderation system: one class each, asked over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.cli.parts import check_parts
from pipelines.core.config.collect import SourceEntry
from pipelines.core.config.label import ProviderNotConsented
from pipelines.core.config.params import Params, load, overlay, parse, read_params, validate
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, LabellerRefused
from pipelines.core.taxonomy import load as scheme_of
from pipelines.evaluate.moderation.channels import AuditedItem, System
from pipelines.evaluate.moderation.moderator import MODERATORS
from pipelines.label.remote import Remote
from pipelines.llm.outcome import Outcome
from pipelines.llm.prompts import build
from pipelines.llm.vendor import VENDORS
from pipelines.takedown import sweep
from pipelines.workspace.clone import workspace
from tests import small_distribution
from tests.json_server import Request, json_server
from tests.label.small_vendor import SECRET, opened, posts
from tests.privacy import used_corpus as used
from tests.refusals import refused
from tests.small_corpus import ROOT

VENDOR = """
from pipelines.llm.outcome import Raw
from pipelines.llm.vendor import Vendor


class Plain(Vendor):
    region: str

    address = "https://plain.example.org"
    model_page = "/have/{model}"

    def headers(self, key):
        return {"x-plain-key": key, "x-plain-region": self.region}

    async def ask(self, client, system, parts, *, schema, key):
        reply = await client.post("/ask", {"model": client.model, "words": [system, *parts]}, key=key)
        if reply.status != 200:
            raise client.fault(reply)
        said, why = reply.body["said"], reply.body["declined"]
        return Raw(said, "stop", why, input_tokens=7, output_tokens=3, effective={"path": "/ask"})
"""
MODERATOR = """
from pipelines.llm.outcome import Outcome
from pipelines.evaluate.moderation.moderator import FREE, Moderator, Request, Verdict


class Words(Moderator):
    least: int

    api = "plain"

    @property
    def requests(self):
        return [Request("text", "/look", {}, FREE)]

    def body(self, contents):
        return {"text": contents[0]}

    def verdict(self, answer):
        return Verdict(Outcome.VOTE, self_harm=False, overall=answer["grade"] >= self.least)
"""
FILES = {"foreign_vendor.py": VENDOR, "foreign_moderator.py": MODERATOR}
POINTS = """
[crisis_corpus.vendors]
plain = foreign_vendor:Plain
[crisis_corpus.moderators]
words = foreign_moderator:Words
"""
UNLIMITED = dict.fromkeys(("requests_per_minute", "tokens_per_minute"))
LIMITS = {"concurrency": 2, "timeout_seconds": 5, "max_retries": 2, "max_retry_after_seconds": 1}
NOT_ALLOWED = (
    f"providers.plain.api: is none of {', '.join(VENDORS.names({}))}; "
    f"moderators.words.kind: is none of {', '.join(MODERATORS.names({}))}"
)


def described(**distributions: Any) -> dict[str, Any]:
    labeller = {"kind": "remote", "provider": "plain", "model": "m", "system": "open"}
    return {
        "distributions": distributions,
        "providers": {"plain": {"api": "plain", "region": "here", "batch_poll_seconds": 1, **LIMITS, **UNLIMITED}},
        "labellers": {"mine": labeller | {"price": {"input": 1, "output": 1}}},
        "moderators": {"words": {"kind": "words", "provider": "plain", "input": "text", "least": 3}},
        "votes": {"budget_usd": 1},
    }


def checked(*over: dict[str, Any]) -> Params:
    values = read_params(ROOT)
    for each in over:
        overlay(values, each)
    return validate(values, where="params.yaml")


class Plain:
    """The server: what it answers next, and what it was asked."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, Any, dict[str, str]]] = []
        self.asked: list[Request] = []

    def answer(self, request: Request) -> tuple[int, Any, dict[str, str]]:
        self.asked.append(request)
        if request.path == "/look":
            return 200, {"grade": len(request.body["text"])}, {}
        said = {"said": '{"labels": ["no_crisis"]}', "declined": None}
        return self.replies.pop(0) if self.replies else (200, said, {})


@pytest.fixture(autouse=True)
def _checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.core.config.params.checks", {check_parts})


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Params]:
    with small_distribution.installed(tmp_path, monkeypatch, files=FILES, points=POINTS):
        yield checked(described(foreign=small_distribution.entry()))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Plain]:
    made = Plain()
    with json_server(made.answer) as address:
        given = {"HOME": str(tmp_path), "SECRET": SECRET.hex(), "PLAIN_URL": address, "PLAIN_KEY": "k"}
        for name, value in given.items():
            monkeypatch.setenv(f"CORPUS_{name}", value)
        yield made


def label(params: Params, folder: Path, *, count: int = 1) -> list[Outcome]:
    scheme = scheme_of("cradle")
    with opened(folder) as (vault, answers):
        prompt = build(scheme, keys=["labels"], system="open")
        given: dict[str, Any] = {"prompt": prompt, "scheme": scheme, "answers": answers, "vault": vault}
        given |= {"params": params, "settings": Settings.from_env(), "sources": {}}
        asked = Remote.of("mine", **given)
        return [answer.outcome for answer in asked.label(posts(count, vault=vault))]


def test_its_answers_are_votes_and_are_asked_once(params: Params, plain: Plain, tmp_path: Path) -> None:
    assert label(params, tmp_path, count=3) == [Outcome.VOTE] * 3
    assert label(params, tmp_path, count=3) == [Outcome.VOTE] * 3
    assert len(plain.asked) == 3
    headers = plain.asked[0].headers
    assert (headers["x-plain-key"], headers["x-plain-region"]) == ("k", "here") and headers["Idempotency-Key"]


def test_its_refusal_is_no_vote_and_its_throttling_is_waited_out(params: Params, plain: Plain, tmp_path: Path) -> None:
    plain.replies = [(429, {}, {"Retry-After": "0.05"}), (500, {}, {}), (200, {"said": None, "declined": "policy"}, {})]
    assert label(params, tmp_path) == [Outcome.REFUSED]
    assert len(plain.asked) == 3


def test_a_rejection_ends_the_run(params: Params, plain: Plain, tmp_path: Path) -> None:
    plain.replies = [(401, {"error": {"code": "Bad_Key"}}, {})]
    with pytest.raises(LabellerRefused, match=r"HTTP 401 bad_key[\s\S]*CORPUS_PLAIN_KEY"):
        label(params, tmp_path)


def test_nothing_leaves_without_consent(
    params: Params, plain: Plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CORPUS_PLAIN_URL")
    with pytest.raises(ProviderNotConsented, match="plain"):
        label(params, tmp_path)


def test_its_moderation_system_judges(params: Params, plain: Plain, tmp_path: Path) -> None:
    with opened(tmp_path) as (vault, answers):
        ids = [post.record_id for post in posts(2, vault=vault)]
        items = [AuditedItem(i, title="", body=text) for i, text in zip(ids, ("ab", "abcd"), strict=True)]
        given: dict[str, Any] = {"settings": Settings.from_env(), "answers": answers, "vault": vault, "sources": {}}
        judged = System("words", params=params, **given).judge(items)
    assert [verdict.overall for verdict in judged.verdicts] == [False, True]


@pytest.mark.parametrize(
    ("name", "code"), [(None, "BadParams"), ("nowhere", "NoDistribution"), ("foreign", "OtherDistribution")]
)
def test_a_part_that_is_gone_stops_no_deletion(
    name: str | None, code: str, tmp_path: Path, params: Params, caplog: pytest.LogCaptureFixture
) -> None:
    given = described(**({name: {"version": "1", "sha256": "0" * 64}} if name else {}))
    values = overlay(read_params(ROOT), parse((ROOT / "profiles/sandbox.yaml").read_text(), where="sandbox"))
    known = SourceEntry.model_fields.keys() - {"listing", "uses"}
    forum = {name: values["sources"]["dump"][name] for name in known}
    overlay(values, given | {"sources": {"forum": forum}})
    house_settings = used.copy(tmp_path / "home")
    with workspace(house_settings) as clone:
        (clone.path / "params.yaml").write_text(yaml.safe_dump(values))
        clone.commit("params", paths=["params.yaml"])
        with refused(code):
            load(clone.path)
        broken = load(clone.path, parts=False)
    with used.opened(house_settings) as house:
        house.params = broken
        receipt = house.take_down(house.posts())
        assert receipt.ended and receipt.steps["annotation"]["items"] and house.left() == []
        left = range(1, used.EACH, 2)
        subreddits = broken.corpora["memes"].subreddits
        write_reddit(tmp_path / "reddit", [used.fullname("memes", n) for n in left], subreddit=subreddits[0])
        with SandboxServer(tmp_path / "reddit") as server:
            reached = {"reddit_url": server.address, "reddit_oauth_url": server.address, "contact": "a@example.org"}
            keys = {"reddit_client_id": CLIENT_ID, "reddit_client_secret": CLIENT_SECRET}
            settings = house.settings.model_copy(update=reached | keys)
            clients = sweep.clients("memes", params=broken, settings=settings, today=date(2023, 2, 1))
            assert "source forum is skipped" in caplog.text
            terms: dict[str, Any] = {"params": broken, "terms": broken.sweep, "vault": house.vault, "believe": True}
            done = sweep.run("memes", sources=clients, now=datetime(2023, 2, 1, tzinfo=UTC), **terms)
    assert done["seen"] and done["missing"] and not done["left"]


def test_a_distribution_that_is_gone_is_refused_though_no_part_needs_it() -> None:
    with refused("NoDistribution", match="nowhere"):
        checked({"distributions": {"nowhere": {"version": "1", "sha256": "0" * 64}}})


def write_reddit(folder: Path, names: list[str], *, subreddit: str) -> None:
    folder.mkdir()
    shown = {"subreddit": subreddit, "title": "t", "selftext": "words", "is_self": True, "over_18": False}
    shown |= {"author": "somebody", "spoiler": False, "removed_by_category": None, "created_utc": 1672531200.0}
    rows = [json.dumps(shown | {"id": name[3:], "name": name}) + "\n" for name in names]
    (folder / "submissions.jsonl").write_text("".join(rows))


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ({"distributions": None}, NOT_ALLOWED),
        ({"providers": {"plain": {"region": None}}}, "providers.plain.region: "),
        ({"providers": {"openai": {"radius": 3}}}, "providers.openai.radius: Extra inputs"),
        ({"moderators": {"azure": {"flag_from": 9}}}, "moderators.azure.flag_from: "),
        ({"moderators": {"azure": {"provider": "openai"}}}, "moderators.azure.provider: does not have api: azure"),
        ({"labellers": {"mine": {"provider": "azure"}}}, "labellers.mine.provider: its api azure labels nothing"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_key(params: Params, over: dict[str, Any], told: str) -> None:
    allowed = {"foreign": small_distribution.entry()}
    given = described(**allowed) if "distributions" not in over else described()
    with pytest.raises(BadParams) as caught:
        checked(given, {key: value for key, value in over.items() if value})
    assert caught.value.fields["detail"].startswith(told)
