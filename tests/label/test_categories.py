"""Labelling images in several categories: from few-shot examples and votes to silver and injected copies."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import Params, overlay, read_params
from pipelines.core.config.settings import Settings
from pipelines.label import few_shot, injection_test, silver, votes, votes_report
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests.contexts import context_of
from tests.json_server import Request, completion, json_server
from tests.train import small_memes as small

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crowdkit")

SECRET = "5e" * 64
SIZES = {"train": 18, "validation": 60, "test": 8}
TASKS = ["figurative", "severity", "related"]
MEMBERS = ("words", "characters")


@dataclass
class Seer:
    """A vendor that knows the truth about every picture, and keeps every question."""

    url: str = ""
    truth: dict[bytes, dict[str, list[str]]] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    refuses: set[bytes] = field(default_factory=set)

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        self.asked.append(body := request.body)
        picture = pictures(body)[-1]
        said = {key: labels[0] if key == "severity" else labels for key, labels in self.truth[picture].items()}
        message = {"content": json.dumps(said), "refusal": None}
        if picture in self.refuses:
            message = {"content": None, "refusal": "no"}
        return 200, completion(message, model=body["model"], tokens=(1000, 10))


def pictures(body: dict[str, Any]) -> list[bytes]:
    parts = body["messages"][-1]["content"]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


def words(body: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in body["messages"][-1]["content"])


@dataclass
class Lab:
    memes: small.SmallMemes
    params: Params
    settings: Settings
    seer: Seer

    @property
    def places(self) -> dict[str, Any]:
        return {"params": self.params, "settings": self.settings, "vault": self.memes.vault, "root": self.memes.root}

    def votes(self, labeller: str) -> list[dict[str, Any]]:
        votes.run(context_of("memes", row=labeller, **self.places))
        path = self.memes.root / "snapshot" / "memes" / "votes" / labeller / "votes.parquet"
        rows: list[dict[str, Any]] = tables.read(path, name="votes").to_pylist()
        return rows

    def silver(self, ensemble: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        places = {"params": self.params, "vault": self.memes.vault, "root": self.memes.root}
        metrics = silver.run(context_of("memes", row=ensemble, **places))
        path = self.memes.root / "snapshot" / "memes" / "silver" / ensemble / "silver.parquet"
        return metrics, tables.read(path, name="silver").to_pylist()

    def truth(self, row: dict[str, Any]) -> frozenset[str]:
        meme = self.memes.memes[row["record_id"], row["image"]]
        return self.memes.task(row["category"]).seen(meme.labels[row["category"]])


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    seer = Seer()
    with json_server(seer.answer) as address:
        monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("CORPUS_SECRET", SECRET)
        monkeypatch.setenv("CORPUS_ANSWERS_URL", f"sqlite:///{tmp_path}/answers.sqlite")
        monkeypatch.setenv("CORPUS_LOCAL_URL", f"{address}/v1")
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        settings = Settings.from_env()
        model = {"kind": "remote", "provider": "local", "system": "open", "price": {"input": 1.0, "output": 1.0}}
        own = {
            "labellers": {"seer": model | {"model": "Qwen/Qwen3-VL-8B-Instruct"}},
            "providers": {"local": {"max_retries": 0, "timeout_seconds": 10.0, "ready_seconds": 0}},
            "few_shot": {"examples": {"memes": 3}},
            "votes": {"min_positives": 3, "budget_usd": 100, "labellers": {"memes": ["seer"]}},
            "silver": {"resamples": 50, "min_probability": 0, "ensembles": {"memes": ["readers", "seers"]}},
            "injection_test": {"size": 6},
            "ensembles": {
                "readers": {"members": MEMBERS, "aggregate": "mean_logit", "fallback": None},
                "seers": {"members": ["seer"], "aggregate": "label_set_majority", "fallback": None},
            },
        }
        params = Params.model_validate(overlay(read_params(small.REPO), own))
        with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=settings.secret()) as vault:
            memes = small.write(tmp_path / "clone", vault=vault, sizes=SIZES)
            for meme in memes.memes.values():
                seer.truth[meme.image] = {key: sorted(memes.task(key).seen(meme.labels[key])) for key in TASKS}
            few_shot.run(context_of("memes", params=params, root=memes.root))
            yield Lab(memes, params, settings, seer)


def test_a_labeller_is_asked_once_about_all_categories_and_shown_examples_of_all(lab: Lab) -> None:
    shown = {lab.memes.memes[item].image for item in tables.examples(lab.memes.root / "snapshot" / "memes")}
    assert len(shown) == 3
    [planned] = votes.planned(context_of("memes", **lab.places))
    rows = lab.votes("seer")
    assert planned.cost["to_ask"] == len(lab.seer.asked) == len(lab.memes.memes)
    for body in lab.seer.asked:
        assert list(body["response_format"]["json_schema"]["schema"]["properties"]) == TASKS
        assert set(pictures(body)[:-1]) == shown
        assert "Words read from the picture" in words(body)
    assert {(row["record_id"], row["image"], row["category"]) for row in rows} == {
        (*item, key) for item in lab.memes.memes for key in TASKS
    }
    assert all(row["outcome"] == "vote" and frozenset(row["labels"]) == lab.truth(row) for row in rows)
    metrics, decided = lab.silver("seers")
    assert all(row["labels"] is not None and frozenset(row["labels"]) == lab.truth(row) for row in decided)
    assert metrics["categories"]["severity"]["test"]["ensemble"]["all"]["exact"] == 1
    assert metrics["agreement"]["train"]["unanimous"] == 3 * SIZES["train"]


def test_a_model_that_answers_freely_is_sent_no_schema_and_asked_anew(lab: Lab) -> None:
    """The papers' prompts alone ask for JSON (FigSIM T11, CRADLE B.1)."""
    constrained = lab.votes("seer")
    section = lab.params.votes.model_copy(update={"constrained": False})
    lab.params = lab.params.model_copy(update={"votes": section})
    free = lab.votes("seer")
    before, after = lab.seer.asked[: len(lab.memes.memes)], lab.seer.asked[len(lab.memes.memes) :]
    assert len(after) == len(before), "an answer under a schema is not one without"
    assert all("response_format" in body for body in before) and not any("response_format" in body for body in after)
    said = {body["messages"][0]["content"] for body in after}
    assert len(said) == 1 and all(f'"{key}"' in text and "no reasoning" in text for text in said for key in TASKS)
    assert [row["labels"] for row in free] == [row["labels"] for row in constrained]


def test_a_refusal_is_a_vote_in_no_category(lab: Lab) -> None:
    refused = sorted(item for item, meme in lab.memes.memes.items() if meme.split == "train")[0]
    lab.seer.refuses = {lab.memes.memes[refused].image}
    rows = [row for row in lab.votes("seer") if (row["record_id"], row["image"]) == refused]
    assert {row["category"] for row in rows} == set(TASKS)
    assert all(row["outcome"] == "refused" and row["labels"] == [] for row in rows)
    _, decided = lab.silver("seers")
    own = [row for row in decided if (row["record_id"], row["image"]) == refused]
    assert [row["labels"] for row in own] == [None] * len(TASKS)
    queue = tables.read(lab.memes.root / "snapshot/memes/silver/seers/queue.parquet", name="queue").to_pylist()
    waiting = [row for row in queue if (row["record_id"], row["image"]) == refused]
    assert {row["category"] for row in waiting} == set(TASKS)
    assert all("refused_by_most" in row["reasons"] for row in waiting)


def test_offline_labellers_read_the_words_and_decide_each_category_apart(lab: Lab) -> None:
    for member in MEMBERS:
        rows = lab.votes(member)
        single = [row for row in rows if row["category"] == "severity"]
        assert {len(row["labels"]) for row in single if row["outcome"] == "vote"} == {1}
        assert len(rows) == len(TASKS) * len(lab.memes.memes)
        assert len({row["prompt"] for row in rows}) == len(TASKS), "a model of each category"
    assert not lab.seer.asked
    metrics, rows = lab.silver("readers")
    assert set(metrics["categories"]) == set(TASKS)
    assert metrics["records"] == len(lab.memes.memes) and metrics["queue"]["unread"] == 0
    labels = {key: set(lab.memes.task(key).labels) for key in TASKS}
    for row in rows:
        assert row["labels"] is None or set(row["labels"]) <= labels[row["category"]]
        assert row["category"] != "severity" or row["labels"] is None or len(row["labels"]) == 1
    told = [row for row in rows if row["category"] == "severity" and row["labels"] is not None]
    assert sum(frozenset(row["labels"]) == lab.truth(row) for row in told) > 0.6 * len(told)
    probed = injection_test.run(context_of("memes", row="readers", **lab.places))
    assert {key: found["asked"] for key, found in probed["categories"].items()} == dict.fromkeys(TASKS, 6)
    titles = [s.title for s in votes_report.sheets(votes_report.gather(lab.memes.root, "memes"), root=small.REPO)]
    assert sum(title.startswith("readers, severity: ") for title in titles) > 2


def test_the_paper_shows_a_picture_without_its_words(lab: Lab) -> None:
    paper = lab.params.votes.model_copy(update={"mode": "paper"})
    lab.params = lab.params.model_copy(update={"votes": paper})
    lab.votes("seer")
    assert not [body for body in lab.seer.asked if "Words read" in words(body)]


def test_attacks_that_the_paper_does_not_send_are_counted_as_not_tested(lab: Lab) -> None:
    for member in ("seer", *MEMBERS):
        lab.votes(member)
    probed = injection_test.run(context_of("memes", row="seers", **lab.places))
    assert {key: found["n"] for key, found in probed["categories"].items()} == dict.fromkeys(TASKS, 6)
    paper = lab.params.votes.model_copy(update={"mode": "paper"})
    lab.params = lab.params.model_copy(update={"votes": paper})
    before = len(lab.seer.asked)
    probed = injection_test.run(context_of("memes", row="seers", **lab.places))
    assert probed == {"detected": 0, "not_tested": {"words_not_sent": 6}, "categories": {}}
    assert {planned.cost["to_ask"] for planned in injection_test.planned(context_of("memes", **lab.places))} == {0}
    assert len(lab.seer.asked) == before, "nothing is paid for"
    votes_report.gather(lab.memes.root, "memes")
    # offline labellers read the words
    probed = injection_test.run(context_of("memes", row="readers", **lab.places))
    assert {key: found["asked"] for key, found in probed["categories"].items()} == dict.fromkeys(TASKS, 6)
