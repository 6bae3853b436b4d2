"""Asking about memes over real HTTP: a vendor that reads the pictures themselves, and what is made of its answers."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageColor

from pipelines.core import rows
from pipelines.core.config.params import Params, overlay, read_params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BudgetSpent
from pipelines.datasets import items
from pipelines.models import predict
from pipelines.models.kinds.prompted import Prompted
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests.contexts import context_of
from tests.json_server import Request, completion, json_server
from tests.refusals import refused
from tests.train import small_memes as small
from tests.train.small_tuned import entry

SECRET = "5e" * 64
FIGSIM = Prompted(
    kind="prompted", labeller="seer", examples=0, runs=1, shots="train", splits=("test",), max_output_tokens=128,
    stop="}",
)  # fmt: skip
SIZES = {"train": 18, "validation": 2, "test": 8}
QUESTIONS = 3 * SIZES["test"]
TASKS = ("figurative", "severity", "related")
Reply = tuple[int, dict[str, Any]]
NO: dict[str, Any] = {"content": None, "refusal": "no"}


@dataclass
class Seer:
    """A vendor that labels the last picture of a question by its patches, and keeps every question."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    # what is answered in the place of the truth, if anything, by task and picture
    instead: Callable[[str, bytes], Reply | dict[str, Any] | None] = lambda _task, _picture: None

    def answer(self, request: Request) -> Reply:
        """Answer one question as the schema asks, cut at the stop string as real vendors do."""
        self.asked.append(body := request.body)
        [(key, form)] = body["response_format"]["json_schema"]["schema"]["properties"].items()
        picture = pictures(body)[-1]
        other = self.instead(key, picture)
        if isinstance(other, tuple):
            return other
        allowed = form.get("enum", form.get("items", {}).get("enum"))
        seen = [label for label in read(picture, key=key) if label in allowed]
        content = json.dumps({key: seen[0] if "enum" in form else seen})
        for stop in body.get("stop") or []:
            content = content.partition(stop)[0]
        return 200, completion({"content": content} | (other or {}), model=body["model"], tokens=(1000, 10))


def parts(body: dict[str, Any]) -> list[dict[str, Any]]:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def pictures(body: dict[str, Any]) -> list[bytes]:
    urls = [part["image_url"]["url"] for part in parts(body) if part["type"] == "image_url"]
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


def text(body: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in parts(body) if part["type"] == "text")


def read(picture: bytes, *, key: str) -> list[str]:
    """Return the labels of a category that a picture of the small corpus shows, as models name them."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    side, found = small.SIDE // 4, []
    places = [(category, label) for category, words in small.WORDS.items() for label in words]
    for place, (category, label) in enumerate(places):
        centre = (place % 4 * side + side // 2, place // 4 * side + side // 2)
        colour = ImageColor.getrgb(small.PALETTE[place % len(small.PALETTE)])
        if category == key and image.getpixel(centre) == colour:
            found.append("Suicide attempt/death" if label in ("Suicide attempts", "Suicide death") else label)
    return found


@dataclass
class Lab:
    """The small corpus, the vendor, and a prompted model of every wanted kind."""

    memes: small.SmallMemes
    params: Params
    settings: Settings
    seer: Seer

    def run(self, name: str = "asked", *, mode: str = "paper", usd: float = 100.0, **changed: Any) -> dict[str, Any]:
        """Ask about every task; return what is measured by task."""
        votes = self.params.votes.model_copy(update={"budget_usd": usd, "mode": mode})
        asked = FIGSIM.model_copy(update=changed)
        section = self.params.predict.model_copy(update={"rows": {"memes": (name,)}})
        sections = {
            "models": {**self.params.models, "asked": entry(asked)}, "votes": votes, "predict": section,
            "train": self.params.train.model_copy(update={"rows": {}}), "registry": {},
        }  # fmt: skip
        params = self.params.model_copy(update=sections)
        root = self.memes.root
        (root / rows.FILE).write_text(rows.text(params, root=root))
        given: dict[str, Any] = {"settings": self.settings, "vault": self.memes.vault, "root": root}
        return {task: predict.run(context_of("memes", row=f"{task}-{name}", params=params, **given)) for task in TASKS}

    def files(self) -> dict[str, Path]:
        folder = self.memes.root / "snapshot" / "memes" / "predictions"
        return {task: folder / f"{task}-asked" / "predictions.parquet" for task in TASKS}

    def rows(self) -> list[dict[str, Any]]:
        return [row for path in self.files().values() for row in tables.read(path, name="predictions").to_pylist()]

    def truth(self, row: dict[str, Any]) -> frozenset[str]:
        meme = self.memes.memes[row["record_id"], row["image"]]
        return self.memes.task(row["task"]).seen(meme.labels[row["task"]])


@pytest.fixture
def seer() -> Iterator[Seer]:
    made = Seer()
    with json_server(made.answer) as address:
        made.url = f"{address}/v1"
        yield made


@pytest.fixture
def lab(tmp_path: Path, seer: Seer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CORPUS_SECRET", SECRET)
    monkeypatch.setenv("CORPUS_ANSWERS_URL", f"sqlite:///{tmp_path}/answers.sqlite")
    monkeypatch.setenv("CORPUS_LOCAL_URL", seer.url)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings = Settings.from_env()
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=settings.secret()) as vault:
        memes = small.write(tmp_path / "clone", vault=vault, sizes=SIZES)
        model = {"kind": "remote", "provider": "local", "system": "open", "price": {"input": 1.0, "output": 1.0}}
        names = {"seer": "Qwen/Qwen3-VL-8B-Instruct", "blind": "Qwen3-8B"}
        own = {
            "labellers": {key: model | {"model": name} for key, name in names.items()},
            "providers": {"local": {"max_retries": 0, "timeout_seconds": 10.0, "ready_seconds": 0}},
        }
        yield Lab(memes, Params.model_validate(overlay(read_params(small.REPO), own)), settings, seer)


def test_predictions_are_what_the_pictures_show(lab: Lab) -> None:
    told = lab.run(runs=2)
    rows = lab.rows()
    test = {item for item, meme in lab.memes.memes.items() if meme.split == "test"}
    wanted = sorted((*item, task, seed) for item in test for task in TASKS for seed in (1, 2))
    assert sorted((r["record_id"], r["image"], r["task"], r["seed"]) for r in rows) == wanted
    assert all(row["outcome"] == "vote" and frozenset(row["labels"]) == lab.truth(row) for row in rows)
    assert {row["split"] for row in rows} == {"test"}
    assert {task: one["outcomes"] for task, one in told.items()} == {
        task: {"test": {"vote": 2 * SIZES["test"]}} for task in TASKS
    }
    assert all(one["reasons"] == {"brace": 2 * SIZES["test"]} for one in told.values()), "the stop string swallows it"
    assert all(one["spent"]["cost"] > 0 for one in told.values())


def test_the_paper_shows_the_picture_alone_and_decodes_as_its_table_says(lab: Lab) -> None:
    lab.run()
    secrets = {word for words in small.WORDS.values() for word in words.values()}
    for body in lab.seer.asked:
        assert len(pictures(body)) == 1
        assert "Words read" not in text(body)
        asked = text(body).rpartition("YOUR MEME")[2].split()
        assert not secrets & set(asked)
        assert (body["temperature"], body["top_p"], body["stop"]) == (0, 1, ["}"])
        assert (body.get("max_completion_tokens") or body["max_tokens"]) == 128


def test_improved_tells_the_words_that_were_read_too(lab: Lab) -> None:
    lab.run(mode="improved")
    told = set()
    for body in lab.seer.asked:
        _, _, words = text(body).rpartition("YOUR MEME")[2].partition("Words read from the picture: ")
        told.add((pictures(body)[-1], words.splitlines()[0] if words else None))
    assert told == {(meme.image, meme.text) for meme in lab.memes.memes.values() if meme.split == "test"}


def test_few_shot_shows_six_memes_of_train_with_every_label(lab: Lab) -> None:
    told = lab.run(examples=6, runs=2)
    train, test = ({m.image for m in lab.memes.memes.values() if m.split == s} for s in ("train", "test"))
    shown: dict[str, set[tuple[bytes, ...]]] = {task: set() for task in TASKS}
    for body in lab.seer.asked:
        *examples, asked = pictures(body)
        assert len(examples) == 6
        assert set(examples) <= train
        assert asked in test
        (key,) = body["response_format"]["json_schema"]["schema"]["properties"]
        shown[key].add(tuple(examples))
        answers = [json.loads(line)[key] for line in text(body).splitlines() if line.startswith(f'{{"{key}": ')][-6:]
        labels = [[label for label in read(p, key=key) if label != "Third-person description"] for p in examples]
        assert answers == [found[0] if key == "severity" else found for found in labels]
    for key, drawn in shown.items():
        (examples,) = drawn
        assert {label for p in examples for label in read(p, key=key)} >= set(lab.memes.task(key).labels)
    assert [one["unshown"] for one in told.values()] == [[]] * len(TASKS)
    assert all(frozenset(row["labels"]) == lab.truth(row) for row in lab.rows())


def test_a_refusal_and_prose_are_no_predictions_and_are_not_asked_again(lab: Lab) -> None:
    test = sorted(meme.image for meme in lab.memes.memes.values() if meme.split == "test")
    refused, prose = set(test[:2]), set(test[2:4])

    def instead(_: str, picture: bytes) -> dict[str, Any] | None:
        return NO if picture in refused else {"content": "It depends."} if picture in prose else None

    lab.seer.instead = instead
    told = lab.run()
    for row in lab.rows():
        image = lab.memes.memes[row["record_id"], row["image"]].image
        wanted = "refused" if image in refused else "malformed" if image in prose else "vote"
        assert row["outcome"] == wanted
        assert frozenset(row["labels"]) == (lab.truth(row) if wanted == "vote" else frozenset())
    before, sent = [path.read_bytes() for path in lab.files().values()], len(lab.seer.asked)
    assert lab.run() == told
    assert [path.read_bytes() for path in lab.files().values()] == before
    assert len(lab.seer.asked) == sent
    lab.run(runs=2)
    assert len(lab.seer.asked) == 2 * sent, "another run is another measurement"


def test_what_was_paid_for_before_the_budget_ended_is_kept(lab: Lab) -> None:
    with pytest.raises(BudgetSpent):
        lab.run(usd=0.02)
    assert 0 < len(lab.seer.asked) < QUESTIONS
    assert not lab.files()["related"].exists()
    lab.run()
    assert len(lab.seer.asked) == QUESTIONS
    assert all(row["outcome"] == "vote" for row in lab.rows())


def test_too_many_failures_write_nothing(lab: Lab) -> None:
    lab.seer.instead = lambda task, _: (500, {"error": {"message": "down"}}) if task == "related" else None
    with refused("TooManyFailed"):
        lab.run()
    assert not lab.files()["related"].exists()


@pytest.mark.parametrize("split", ["validation", "test"])
def test_an_example_that_is_not_of_train_is_refused(lab: Lab, split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = items.load

    def leaking(*args: Any, **given: Any) -> Any:
        material = honest(*args, **given)
        leaked = replace(getattr(material, split)[0], labels=material.train[0].labels)
        return replace(material, train=(*material.train, leaked))

    monkeypatch.setattr(items, "load", leaking)
    with refused("LeakRefused", match=split):
        lab.run(examples=6)
    assert not lab.seer.asked


def test_what_cannot_be_asked_is_said_before_anything_is_sent(lab: Lab) -> None:
    with refused("NotUntuned", match="bert"):
        lab.run("bert")
    with refused("NotAsked", match="offline"):
        lab.run(labeller="words")
    with refused("CannotSee", match="Qwen3-8B"):
        lab.run(labeller="blind")
    assert not lab.seer.asked
    with refused("TooFewExamples", match="severity"):
        lab.run(examples=4)
    assert not lab.files()["severity"].exists()


def test_no_words_of_a_meme_leave_the_stage(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    told = lab.run(examples=6, mode="improved")
    captured = capsys.readouterr()
    assert "asked severity 1/1: 8/8" in captured.err
    written = [path.read_bytes() for path in lab.memes.root.rglob("*asked*") if path.is_file()]
    written += [json.dumps(told).encode(), captured.out.encode(), captured.err.encode()]
    texts = [meme.text.encode() for meme in lab.memes.memes.values() if meme.text]
    assert not [1 for data in written for words in texts if words in data]
