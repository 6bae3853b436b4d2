"""The parts of a picture sent to each labeller, the pictures in a prompt, and the answers of the sandbox's vendors."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example
from pipelines.datasets.post import Post
from pipelines.label.remote import Decoding, Remote, described
from pipelines.llm import prompt_examples as examples
from pipelines.llm.outcome import Outcome, Raw
from pipelines.llm.pictures import SIDE, Picture, picture, shown
from pipelines.llm.prompts import Prompt, PromptExample, build, delimiter
from pipelines.store import answers as store
from pipelines.store.answers import AnswerStore
from pipelines.store.vault.vault import Vault
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
SECRET = "5e" * 64
SCHEME = load_scheme("figsim")
NOW = datetime(2023, 1, 2, tzinfo=UTC)
METAPHOR, PUN, IRONY = "Metaphor", "Pun/Double meaning", "Irony/sarcasm"
MODELS = {
    "mini": ("openai", "gpt-5-mini"),
    "four": ("openai", "gpt-4o"),
    "sonnet": ("anthropic", "claude-sonnet-4-5"),
    "gem": ("google", "gemini-2.5-pro"),
}


def drawn_picture(colour: str = "red", *, side: int = 8, form: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (side, side // 2), colour).save(out, form)
    return out.getvalue()


def example(number: int, *labels: str, split: str = "train", text: str = "", image: bytes | None = None) -> Example:
    shade = f"rgb({number % 256},{number // 256},7)"
    return Example((f"r{number:03d}", 0), split, text, image or drawn_picture(shade), frozenset(labels), f"g{number}")


def meme(example: Example, *, words: bool) -> Picture:
    images = (example.image,) if example.image else ()
    return picture(Post(example.item[0], "", example.text, images), words=words)


def figurative() -> Task:
    return task_of(SCHEME, "figurative")


def many() -> list[Example]:
    """Mostly irony, and of every other label one item alone."""
    rare = {17: (METAPHOR,), 31: (PUN,), 44: ()}
    return [example(n, *rare.get(n, (IRONY,))) for n in range(60)]


def test_examples_show_every_label_however_rare_in_an_order_of_the_seed() -> None:
    task, train = figurative(), many()
    drawn = examples.draw(train, task=task, count=6, seed=1)
    assert len({e.item for e in drawn}) == 6
    assert {e.labels for e in drawn} == {frozenset({x}) for x in (METAPHOR, PUN, IRONY)} | {frozenset()}
    shuffled = random.Random(3).sample(train, len(train))
    assert examples.draw(shuffled, task=task, count=6, seed=1) == drawn
    assert examples.draw(train, task=task, count=6, seed=2) != drawn
    assert examples.unshown(drawn, task=task) == []
    without = examples.draw([e for e in train if e.labels != {PUN}], task=task, count=6, seed=1)
    assert examples.unshown(without, task=task) == [PUN]
    assert examples.draw(train, task=task, count=0, seed=1) == []


@pytest.mark.parametrize("count", [3, 61])
def test_examples_that_cannot_show_every_label_are_refused(count: int) -> None:
    with refused("TooFewExamples", match=f"cannot show {count} examples"):
        examples.draw(many(), task=figurative(), count=count, seed=1)


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("count", [0, 6])
def test_nothing_but_train_is_ever_an_example(split: str, count: int) -> None:
    leaked = example(99, PUN, split=split)
    with refused("LeakRefused", match=split):
        examples.draw([*many(), leaked], task=figurative(), count=count, seed=1)
    with refused("LeakRefused", match=split):
        examples.in_prompt([leaked], task=figurative(), words=False)


def test_a_prompt_shows_each_picture_inside_its_lines_with_its_labels_after_it() -> None:
    task = figurative()
    train = [example(1, IRONY, PUN, text="so lovely"), example(2, text="a plain day")]
    secret = bytes.fromhex(SECRET)
    shown_ = examples.in_prompt(train, task=task, words=False)
    prompt = build(SCHEME, keys=[task.key], system="open", examples=shown_, secret=secret)
    asked = meme(example(3, text="rain again"), words=False)
    mark = delimiter(asked, secret=secret)
    _, parts = prompt.render(asked, delimiter=mark)
    kinds = [type(part) for part in parts]
    assert kinds == [str, bytes, str, bytes, str, bytes, str]
    assert [part for part in parts if isinstance(part, bytes)] == [train[0].image, train[1].image, asked.images[0]]
    texts = [part for part in parts if isinstance(part, str)]
    assert '{"figurative": ["Pun/Double meaning", "Irony/sarcasm"]}' in texts[1]
    assert '{"figurative": []}' in texts[2]
    assert texts[2].rstrip().endswith(mark)
    assert texts[3].strip() == mark
    assert not [t for t in texts if "lovely" in t or "plain day" in t or "rain" in t]
    worded = examples.in_prompt(train, task=task, words=True)
    told = build(SCHEME, keys=[task.key], system="open", examples=worded, secret=secret)
    assert "Words read from the picture: so lovely" in "".join(
        part for part in told.render(asked, delimiter=mark)[1] if isinstance(part, str)
    )
    assert told.digest != prompt.digest
    assert meme(example(4), words=True).text == "", "without words there is nothing to introduce"


def test_only_a_picture_that_is_too_large_is_reencoded() -> None:
    small = drawn_picture(side=SIDE, form="JPEG")
    assert shown(small) is small
    large = drawn_picture(side=2 * SIDE)
    with Image.open(io.BytesIO(shown(large))) as sent:
        assert sent.size == (SIDE, SIDE // 2)
        assert sent.format == "JPEG"
    assert shown(large) == shown(large)


@pytest.fixture
def params() -> Params:
    values = load(ROOT, profile="sandbox")
    added = {
        name: RemoteLabeller(kind="remote", provider=provider, model=model, system="commercial")
        for name, (provider, model) in MODELS.items()
    }
    blind = added["four"].model_copy(update={"model": "gpt-4"})
    return values.model_copy(update={"labellers": {**values.labellers, **added, "blind": blind}})


def test_a_labeller_without_picture_input_is_refused_by_name(params: Params) -> None:
    assert described("sonnet", params=params, pictures=True).model == "claude-sonnet-4-5"
    assert described("blind", params=params, pictures=False).model == "gpt-4"
    for name, code in {"blind": "CannotSee", "words": "NotAsked", "nobody": "NotAsked"}.items():
        with refused(code):
            described(name, params=params, pictures=True)


@pytest.fixture
def places(vendors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What a labeller needs beside its name, the parameters and a prompt."""
    for name, value in vendors.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    monkeypatch.setenv("CORPUS_SECRET", SECRET)
    settings = Settings.from_env()
    with (
        Vault.open(settings.vault_url, secret=settings.secret()) as vault,
        AnswerStore.open(settings.answers_url) as answers,
    ):
        vault.admit([(f"r{n:03d}", f"t3_{n}") for n in range(120)], corpus="memes", month="2022-12", now=NOW)
        yield {"settings": settings, "vault": vault, "answers": answers, "scheme": SCHEME, "sources": {}}


def labeller(name: str, *, run: int = 1, **given: Any) -> Remote:
    """Return a labeller with FigSIM's decoding settings."""
    return Remote.of(name, pictures=True, decoding=Decoding(max_output_tokens=128, stop="}", run=run), **given)


def prompt(*train: Example) -> Prompt:
    shown_ = examples.in_prompt(train, task=figurative(), words=True)
    return build(SCHEME, keys=["figurative"], system="commercial", examples=shown_, secret=bytes.fromhex(SECRET))


@pytest.mark.parametrize("name", MODELS)
def test_each_vendor_is_asked_with_what_it_takes_of_the_papers_decoding(
    name: str, params: Params, places: dict[str, Any], vendors: Any
) -> None:
    vendors.calm()
    shown_ = prompt(example(100, IRONY, text="so much fun as always"))
    asked = labeller(name, params=params, prompt=shown_, **places)
    captions = {"life is a leaky boat": (METAPHOR,), "running low like the printer": (PUN,), "a plain day": ()}
    memes = [meme(example(n, text=text), words=True) for n, text in enumerate(captions)]
    found = asked.label(memes)
    assert [(a.outcome, a.labels) for a in found] == [(Outcome.VOTE, labels) for labels in captions.values()]
    sent = effective(places["answers"], vault=places["vault"])
    stops = name != "mini"
    assert [a.reason for a in found] == ["brace" if stops else ""] * 3
    config = sent.get("generationConfig", sent)
    assert next((config[k] for k in ("stop", "stop_sequences", "stopSequences") if k in config), None) == (
        ["}"] if stops else None
    )
    assert config.get("temperature") == (0 if stops else None)
    assert config.get("top_p", config.get("topP")) == (1 if name in ("four", "gem") else None)
    most = next(config[k] for k in ("max_completion_tokens", "max_tokens", "maxOutputTokens") if k in config)
    assert most == (128 if name in ("four", "sonnet") else 8 * 128)


@pytest.mark.filterwarnings("error::pydantic_ai.exceptions.UnsupportedSettingWarning")
@pytest.mark.parametrize("name", ["four", "sonnet"])
def test_a_batch_is_asked_with_what_its_endpoint_takes(
    name: str, params: Params, places: dict[str, Any], vendors: Any
) -> None:
    vendors.calm()
    batched = params.model_copy(update={"votes": params.votes.model_copy(update={"batch": True})})
    asked = labeller(name, params=batched, prompt=prompt(), **places)
    (found,) = asked.label([meme(example(1, text="life is a leaky boat"), words=True)])
    assert (found.outcome, found.labels) == (Outcome.VOTE, (METAPHOR,))
    sent = effective(places["answers"], vault=places["vault"])
    assert sent["batch"]
    assert ("stop_sequences" in sent) == (name == "sonnet")


def effective(answers: AnswerStore, *, vault: Vault) -> dict[str, Any]:
    """Return the parameters that were sent with every question, from what was kept."""
    with answers._engine.reading() as connection:
        keys = [row.key for row in connection.execute(store.answers.select())]
    kept = [Raw.from_json(one.data).effective for one in answers.get(keys, vault=vault).values()]
    assert all(one == kept[0] for one in kept)
    return kept[0]


def test_a_repetition_is_asked_once_and_another_one_again(params: Params, places: dict[str, Any], vendors: Any) -> None:
    vendors.calm()

    def ask(run: int) -> list[Any]:
        asked = labeller("four", params=params, prompt=prompt(), run=run, **places)
        first = example(1, text="so much fun as always")
        # two pictures of one record
        second = replace(first, item=(first.item[0], 1), text="life is a leaky boat", image=drawn_picture("blue"))
        return asked.label([meme(first, words=True), meme(second, words=True)])

    found = ask(1)
    assert [a.labels for a in found] == [(IRONY,), (METAPHOR,)]
    assert ask(1) == found
    assert vendors.counts("openai")["answered"] == 2
    ask(2)
    assert vendors.counts("openai")["answered"] == vendors.counts("openai")["keys"] == 4


PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")
# The digest of a prompt of either paper, and the keys of requests with it, before images and texts shared one labeller.
FIGSIM = [
    "39bdf32c383ef0b61ce20e5fd4023ac04ca15f3d73cfadfa40b513b914cb4bc3",
    "0c1f07ed4f41bbde9a5ef5885e63e2792a05fa1010ac3ef8ad7fcac754155756",
    "62f0aacdd43981ea6cc24e41a49587902ac2f0728382440c84b6797711f375c4",
    "fec44f5c2c8b1f723c014a6b4383e2d7e0e70b24c8843d3e15397525bee14662",
]
CRADLE = [
    "e8f68f48e48b74bd7a157479453bcf3aa655ae99aac67924c1c2fa5b3986adc5",
    "cc2b34022b0c417a2a4f5791e31b77836dded884aad77a69eefcffb194dc662f",
]


def test_an_answer_about_a_picture_is_found_under_the_key_that_it_always_had(
    params: Params, places: dict[str, Any]
) -> None:
    train = [example(1, IRONY, PUN, text="so lovely", image=PIXEL), example(2, text="a plain day", image=PIXEL)]
    asked, made = example(3, text="rain again", image=PIXEL), prompt(*train)
    keys = [
        labeller(name, params=params, prompt=made, run=run, **places)._key(meme(asked, words=words))
        for name, run, words in [("four", 1, True), ("mini", 1, True), ("four", 2, False)]
    ]
    assert [made.digest, *keys] == FIGSIM


def test_an_answer_about_a_text_is_found_under_the_key_that_it_always_had(
    params: Params, places: dict[str, Any]
) -> None:
    cradle, shown_ = load_scheme("cradle"), Post("r001", "A day", "it rained")
    few = [PromptExample("r001", shown_, {"labels": ("no_crisis",)})]
    made = build(cradle, keys=["labels"], system="commercial", examples=few, secret=bytes.fromhex(SECRET))
    asked = Remote.of("gpt", params=params, prompt=made, **places | {"scheme": cradle})
    assert [made.digest, asked._key(Post("r002", "Another day", "it rained again"))] == CRADLE


def test_an_item_whose_picture_is_missing_is_not_sent(params: Params, places: dict[str, Any], vendors: Any) -> None:
    blind = replace(example(3, text="rain again"), image=None)
    found = labeller("four", params=params, prompt=prompt(), **places).label([meme(blind, words=True)])
    assert [(a.outcome, a.reason, a.labels) for a in found] == [(Outcome.ABSTAINED, "no_picture", ())]
    assert vendors.counts("openai")["received"] == 0
