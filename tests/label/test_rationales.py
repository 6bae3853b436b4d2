"""The stage ``rationales``: asked for over HTTP, paid once, sealed and never shown, opened again for the models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core import rows
from pipelines.core.config.models import FitRows
from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets import features
from pipelines.datasets.features import HEADS, Cues
from pipelines.label import rationales
from pipelines.label.rationales import RationaleQuery
from pipelines.llm.outcome import Outcome, Raw
from pipelines.models import train
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests.contexts import context_of
from tests.json_server import Request, completion, json_server
from tests.label.conftest import VendorHost
from tests.refusals import refused
from tests.train.small_memes import NOW, REPO, SmallMemes, write

SECRET = bytes(range(32))
BERT, INFUSED, OTHER = None, "gpt", "gpt-5-mini"
SIZES = {"train": 6, "validation": 6, "test": 6}
REMARK = "the empty chair stands for a day off"


@dataclass
class Explainer:
    """A vendor that speaks chat completions: what it was asked, and how it behaves."""

    url: str = ""
    manner: str = "remark"
    asked: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        question = request.body
        self.asked.append(question)
        message: dict[str, Any] = {"content": None, "refusal": None}
        if self.manner == "down" or (self.manner == "stumble" and len(self.asked) % 2 == 0):
            return 500, {"error": {"message": "down"}}
        if self.manner == "refuse" or (self.manner == "moody" and len(self.asked) == 1):
            message["refusal"] = "no"
        else:
            seen = said(question)
            named = f"{REMARK}: {sum('image' in part['type'] for part in seen)} picture, {len(self.asked)}"
            message["content"] = json.dumps(dict(zip(HEADS, ("because", named, ""), strict=True)))
        return 200, completion(message, model=question["model"], tokens=(2000, 20))


def said(question: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of the user's turn."""
    content = question["messages"][-1]["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


@pytest.fixture
def explainer() -> Iterator[Explainer]:
    made = Explainer()

    with json_server(made.answer) as address:
        made.url = f"{address}/v1"
        yield made


@dataclass
class Lab:
    """A small corpus with everything that asking needs."""

    memes: SmallMemes
    params: Params
    settings: Settings

    def ask(self) -> RationaleQuery:
        """Return what the labeller gpt says of each item."""
        places = {"settings": self.settings, "vault": self.memes.vault, "root": self.memes.root}
        with rationales.explainers(context_of("memes", params=self.given({"infused": INFUSED}), **places)) as (
            [asked],
            posts,
            _,
        ):
            return asked.explain(posts, most=self.params.votes.max_failed)

    def given(self, models: Mapping[str, str | None]) -> Params:
        """Return the parameters as if ``models`` were fitted and read the rationales of these labellers."""
        fitted = FitRows(models=tuple(models), subsets=("gold",), seeds=(1,))
        entry = self.params.models["bert"]
        described = {name: entry.model_copy(update={"rationales": labeller}) for name, labeller in models.items()}
        train = self.params.train.model_copy(update={"rows": {"memes": fitted}})
        return self.params.model_copy(update={"train": train, "models": {**self.params.models, **described}})

    def run(self, models: Mapping[str, str | None]) -> dict[str, Any]:
        """Run the stage as if ``models`` were fitted and read the rationales of these labellers."""
        places = {"settings": self.settings, "vault": self.memes.vault, "root": self.memes.root}
        return rationales.run(context_of("memes", params=self.given(models), **places))

    def load(self, model: str, *, labeller: str = "gpt") -> Cues:
        return features.load("memes", model=model, labeller=labeller, vault=self.memes.vault, root=self.memes.root)

    def file(self, model: str) -> Path:
        return self.memes.root / "snapshot" / "memes" / "rationales" / model / "rationales.parquet"


@contextmanager
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Iterator[Lab]:
    monkeypatch.setenv("CORPUS_HOME", str(folder))
    monkeypatch.setenv("CORPUS_SECRET", SECRET.hex())
    monkeypatch.setenv("CORPUS_OPENAI_URL", url)
    monkeypatch.setenv("CORPUS_OPENAI_KEY", "k")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    params = load_params(REPO)
    own = {"max_retries": 0, "timeout_seconds": 60, "concurrency": 1}
    own |= {"requests_per_minute": None, "tokens_per_minute": None}
    calm = params.providers["openai"].model_copy(update=own)
    params = params.model_copy(
        update={
            "providers": {**params.providers, "openai": calm},
            "votes": params.votes.model_copy(update={"budget_usd": 20, "max_failed": 0.01}),
        }
    )
    with Vault.open(f"sqlite:///{folder}/vault.sqlite", secret=SECRET) as vault:
        memes = write(folder, vault=vault, sizes=SIZES)
        yield Lab(memes, params, Settings.from_env())


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explainer: Explainer) -> Iterator[Lab]:
    with opened(tmp_path, monkeypatch, explainer.url) as lab:
        yield lab


def test_every_meme_of_the_split_is_remarked_on_once(lab: Lab, explainer: Explainer) -> None:
    told = lab.run({"bert": BERT, "infused": INFUSED, "infused-too": INFUSED, "infused-other": OTHER})
    assert len(explainer.asked) == 2 * 18, "once for each labeller"
    assert told["items"] == 18
    assert told["outcomes"] == {"gpt": {"vote": 18}, "gpt-5-mini": {"vote": 18}}
    assert set(told["prompts"]) == {"gpt", "gpt-5-mini"}
    assert json.loads((lab.memes.root / "metrics/memes/rationales.json").read_text()) == told
    cues, other = lab.load("infused"), lab.load("infused-other", labeller="gpt-5-mini")
    assert set(cues.of) == set(lab.memes.memes)
    assert cues.outcomes == {"vote": 18}
    assert lab.load("infused-too").of == cues.of
    found = [said for item in lab.memes.memes if (said := cues.remarks(item))]
    assert [said[0] for said in found] == ["because"] * 18
    assert len({said[1] for said in found} | {said[1] for said in other.of.values() if said}) == 36
    assert not lab.file("bert").exists()


def test_another_run_asks_for_nothing_and_gives_the_same_bytes(lab: Lab, explainer: Explainer) -> None:
    told = lab.run({"infused": INFUSED, "bert": BERT})
    before = {"infused": lab.file("infused").read_bytes()}
    assert told["cost"] > 0
    assert lab.run({"bert": BERT, "infused": INFUSED, "infused-too": INFUSED}) == told
    assert {name: lab.file(name).read_bytes() for name in before} == before
    assert len(explainer.asked) == 18


def test_memes_are_asked_about_before_there_is_gold(lab: Lab, explainer: Explainer) -> None:
    shutil.rmtree(lab.memes.root / "snapshot" / "memes" / "gold")
    assert lab.run({"infused": INFUSED})["outcomes"] == {"gpt": {"vote": 18}}
    shutil.rmtree(lab.memes.root / "snapshot" / "memes" / "split")
    with refused("NoSplit", match="memes"):
        lab.run({"infused": INFUSED})


def test_without_a_model_that_reads_them_no_labeller_is_asked(lab: Lab, explainer: Explainer) -> None:
    shutil.rmtree(lab.memes.root / "data")
    told = lab.run({"bert": BERT})
    assert told == {"items": 0, "taken_down": 0, "outcomes": {}, "prompts": {}, "cost": 0}
    assert list(lab.file("bert").parents[1].iterdir()) == []
    assert explainer.asked == []


def test_every_labeller_is_looked_up_before_one_is_asked(lab: Lab, explainer: Explainer) -> None:
    with refused("NotAsked", match="words"):
        lab.run({"infused": INFUSED, "infused-other": "words"})
    assert explainer.asked == []


def test_a_record_that_was_taken_down_has_no_remarks(lab: Lab, explainer: Explainer) -> None:
    early, late, kept = sorted(lab.memes.memes)[:3]
    lab.memes.vault.destroy([early[0]], reason="request", now=NOW)
    told = lab.run({"infused": INFUSED})
    assert (told["items"], told["taken_down"], len(explainer.asked)) == (17, 1, 17)
    lab.memes.vault.destroy([late[0]], reason="request", now=NOW)
    cues = lab.load("infused")
    assert cues.remarks(late) is None
    assert cues.remarks(kept) is not None
    with refused("NoCues", match=early[0]):
        cues.remarks(early)
    before = tables.read(lab.file("infused"), name="rationales").num_rows
    lab.run({"infused": INFUSED})
    assert tables.read(lab.file("infused"), name="rationales").num_rows == before - 1, "the row goes with the next run"


def test_remarks_of_another_labeller_or_of_none_are_no_cues(lab: Lab) -> None:
    with refused("NoCues", match="stage `rationales`"):
        lab.load("infused")
    lab.run({"infused": INFUSED, "bert": BERT})
    for model, match in {"infused": "claude", "bert": "stage `rationales`"}.items():
        with refused("NoCues", match=match):
            lab.load(model, labeller="claude")


@given(st.tuples(st.text(), st.text(), st.text()))
def test_any_remarks_survive_the_table(said: tuple[str, str, str]) -> None:
    assert features.unpacked(features.packed(said).encode()) == said


def test_picture_and_words_are_sent_and_no_label_is(lab: Lab, explainer: Explainer) -> None:
    lab.ask()
    texts = {meme.text for meme in lab.memes.memes.values() if meme.text}
    shown = ["".join(part.get("text", "") for part in said(question)) for question in explainer.asked]
    assert all(sum(part["type"] == "image_url" for part in said(question)) == 1 for question in explainer.asked)
    assert all(sum(text in whole for whole in shown) == 1 for text in texts)
    names = [name for key in ("figurative", "severity", "related") for name in task_of(load("figsim"), key).labels]
    told = "".join(json.dumps(question["messages"][0]) for question in explainer.asked) + "".join(shown)
    assert [name for name in names if name != "None" and name in told] == []


def test_remarks_lie_sealed_and_are_never_shown(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = lab.run({"infused": INFUSED})
    said = capsys.readouterr()
    assert "rationales of gpt: 18/18" in said.err
    shown = [repr(lab.ask()), repr(lab.load("infused")), json.dumps(told), said.out, said.err]
    assert not [text for text in shown if REMARK in text or "because" in text]
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"answers.sqlite", "rationales.parquet"} <= {path.name for path in stored}
    assert not [path.name for path in stored if REMARK.encode() in path.read_bytes()]


def test_remarks_on_equal_content_do_not_reach_a_meme_that_was_taken_down(lab: Lab, explainer: Explainer) -> None:
    kept, gone = sorted(lab.memes.memes)[:2]
    places = {"settings": lab.settings, "vault": lab.memes.vault, "root": lab.memes.root}
    with rationales.explainers(context_of("memes", params=lab.given({"infused": INFUSED}), **places)) as (
        [asked],
        posts,
        _,
    ):
        both = {kept: posts[kept], gone: replace(posts[kept], record_id=gone[0])}
        lab.memes.vault.destroy([gone[0]], reason="request", now=NOW)
        found = asked.explain(both, most=0.0)
    assert set(found.remarks) == {kept}


def test_refusals_are_counted_and_are_no_remarks(lab: Lab, explainer: Explainer) -> None:
    explainer.manner = "moody"
    assert lab.run({"infused": INFUSED})["outcomes"] == {"gpt": {"refused": 1, "vote": 17}}
    cues = lab.load("infused")
    assert cues.outcomes == {"refused": 1, "vote": 17}
    assert sum(said is None for said in cues.of.values()) == 1


def test_labeller_that_remarks_on_nothing_is_an_error(lab: Lab, explainer: Explainer) -> None:
    explainer.manner = "refuse"
    with refused("NoCues", match="none of 18"):
        lab.ask()


def test_failures_end_it_and_the_next_run_asks_only_for_them(lab: Lab, explainer: Explainer) -> None:
    explainer.manner = "stumble"
    with refused("TooManyFailed"):
        lab.run({"infused": INFUSED})
    assert not lab.file("infused").exists()
    before, explainer.manner = len(explainer.asked), "remark"
    assert set(lab.ask().outcomes.values()) == {Outcome.VOTE}
    assert len(explainer.asked) - before == before // 2


@pytest.mark.parametrize(
    ("text", "refused", "outcome"),
    [
        ('{"cause_effect": "a", "figures_of_speech": " b\\n c ", "mental_state": ""}', None, Outcome.VOTE),
        ('```json\n{"cause_effect": "a", "figures_of_speech": "b c", "mental_state": ""}\n```', None, Outcome.VOTE),
        ('{"cause_effect": "a", "figures_of_speech": "b c"}', None, Outcome.MALFORMED),
        ('{"cause_effect": "a", "figures_of_speech": "b c", "mental_state": 3}', None, Outcome.MALFORMED),
        (
            '{"cause_effect": "a", "figures_of_speech": "b c", "mental_state": "", "severity": "None"}',
            None,
            Outcome.MALFORMED,
        ),
        ("It is a joke.", None, Outcome.MALFORMED),
        ("I'm sorry, I can't help with that.", None, Outcome.REFUSED),
        (None, None, Outcome.MALFORMED),
        (None, "policy", Outcome.REFUSED),
    ],
)
def test_answers_are_remarks_or_nothing(text: str | None, refused: str | None, outcome: Outcome) -> None:
    found = rationales.read(Raw(text, "stop", refused, 1, 1, {}))
    assert found == (outcome, ("a", "b c", "") if outcome is Outcome.VOTE else None)


@pytest.mark.faults
def test_the_sandbox_trains_m3h_on_its_rationales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vendors").mkdir()
    host = VendorHost(tmp_path / "vendors")
    host.calm()
    with host.server, opened(tmp_path / "lab", monkeypatch, host.url("openai")) as lab:
        spec = load_params(REPO, profile="sandbox").models["tiny-m3h"].model_copy(update={"epochs": 1})
        fitted = FitRows(models=("tiny-m3h",), subsets=("gold",), seeds=(1,))
        train_rows = lab.params.train.model_copy(update={"rows": {"memes": fitted}})
        models = {**lab.params.models, "tiny-m3h": spec}
        params = lab.params.model_copy(update={"train": train_rows, "models": models})
        given: dict[str, Any] = {"settings": lab.settings, "vault": lab.memes.vault, "root": lab.memes.root}
        rationales.run(context_of("memes", params=params, **given))
        (lab.memes.root / rows.FILE).write_text(rows.text(params, root=lab.memes.root))
        done = train.run(context_of("memes", row="severity-tiny-m3h-gold-1", params=params, **given))
    assert done["remarks"] == {"vote": 18}
    assert done["fit"]["epoch"] == 1
