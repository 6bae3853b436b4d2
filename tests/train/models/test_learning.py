"""Every tiny base learns from its stated inputs, and generalizes to memes that it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import f1_score

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example, targets
from pipelines.models import base_files
from pipelines.models.backbones import Built
from pipelines.models.fitting.classifier import Classifier
from pipelines.models.kinds.fusion import Fusion
from pipelines.models.kinds.image import Image
from pipelines.models.kinds.text import Text
from tests.refusals import refused
from tests.train.models.fitting import build, logits
from tests.train.models.test_build import YADAV
from tests.train.small_memes import FILLERS, WORDS, picture

EPOCHS, RATE = 8, 0.003
TASK: Task = task_of(load("figsim"), "severity")
BASES: dict[str, Classifier] = {
    "tiny:bert": Text(kind="text", base="tiny:bert"),
    "tiny:vit": Image(kind="image", base="tiny:vit"),
    "tiny:resnet": Image(kind="image", base="tiny:resnet"),
    "tiny:dinov2": Image(kind="image", base="tiny:dinov2"),
    "tiny:clip": Fusion(kind="fusion", base="tiny:clip"),
    "tiny:blip2": Fusion(kind="fusion", base="tiny:blip2"),
    "tiny:modernbert": Text(kind="text", base="tiny:modernbert"),
    "tiny:bart": Text(kind="text", base="tiny:bart"),
    "yadav": YADAV,
}


@cache
def memes(count: int, seed: int) -> tuple[Example, ...]:
    """Memes whose severity shows as a word among others and as a patch of colour."""
    rng = Random(seed)
    return tuple(_meme(number, rng=rng) for number in range(count))


def _meme(number: int, *, rng: Random) -> Example:
    label = rng.choice(TASK.labels)
    raw = {"Suicide attempt/death": "Suicide attempts"}.get(label, label)
    words = [*rng.sample(FILLERS, 4), WORDS["severity"][raw]]
    rng.shuffle(words)
    nothing: dict[str, frozenset[str]] = dict.fromkeys(WORDS, frozenset())
    drawn = picture(nothing | {"severity": frozenset({raw})})
    return Example((f"r{number}", 0), "train", " ".join(words), drawn, frozenset({label}), str(number))


def fitted(built: Built, examples: Sequence[Example], *, epochs: int, rate: float) -> Built:
    wanted = torch.tensor(targets(examples, task=TASK)).argmax(dim=1)
    learned = [p for p in built.module.parameters() if p.requires_grad]
    optimiser, order = torch.optim.AdamW(learned, lr=rate), Random(1)
    torch.manual_seed(1)
    built.module.train()
    for _ in range(epochs):
        for rows in np.array_split(order.sample(range(len(examples)), len(examples)), len(examples) // 16):
            logits = built.module(**built.prepare([examples[i] for i in rows]))
            torch.nn.functional.cross_entropy(logits, wanted[rows]).backward()
            optimiser.step()
            optimiser.zero_grad()
    return built


def macro_f1(examples: Sequence[Example], predicted: Any) -> float:
    return float(f1_score(targets(examples, task=TASK).argmax(axis=1), predicted, average="macro", zero_division=0))


@cache
def made(base: str, folder: Path) -> Built:
    return build(BASES[base], task=TASK, seed=1, folder=folder, max_tokens=16)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def test_every_tiny_base_is_tried() -> None:
    assert set(BASES) - {"yadav"} == set(base_files.NAMES) - set(base_files.WITH_CHAT)


# One of each kind learns in the quick tier.
QUICK = {"tiny:bert", "tiny:vit", "tiny:clip"}
LEARNERS = [pytest.param(base, marks=() if base in QUICK else pytest.mark.faults) for base in BASES]


@pytest.mark.parametrize("base", LEARNERS)
def test_it_learns_what_shows_and_beats_the_majority_on_memes_it_did_not_see(base: str, tmp_path: Path) -> None:
    train, held_out = memes(96, 1), memes(60, 2)
    built = fitted(build(BASES[base], task=TASK, seed=1, folder=tmp_path), train, epochs=EPOCHS, rate=RATE)
    majority = np.bincount(targets(train, task=TASK).argmax(axis=1)).argmax()
    assert macro_f1(held_out, logits(built, held_out).argmax(dim=1)) > 0.6
    assert macro_f1(held_out, [majority] * len(held_out)) < 0.2


@pytest.mark.parametrize("base", BASES)
def test_a_meme_is_scored_alike_alone_and_in_company(base: str, place: Path) -> None:
    some = [*memes(3, 5), replace(memes(1, 6)[0], text="one " * 9)]
    together = logits(made(base, place), some)
    assert together.shape == (len(some), len(TASK.labels))
    for number, example in enumerate(some):
        assert torch.allclose(together[number], logits(made(base, place), [example])[0], atol=1e-5)


@pytest.mark.parametrize("base", BASES)
def test_it_reads_what_its_kind_reads_and_nothing_else(base: str, place: Path) -> None:
    one, other = memes(2, 8)
    said, drawn = replace(one, text=other.text), replace(one, image=other.image)
    first, second, third = (logits(made(base, place), [each]) for each in (one, said, drawn))
    kind = BASES[base].kind
    assert torch.allclose(first, second) == (kind == "image")
    assert torch.allclose(first, third) == (kind == "text")


@pytest.mark.parametrize("base", BASES)
def test_a_meme_without_text_or_picture_has_scores(base: str, place: Path) -> None:
    empty = replace(memes(1, 8)[0], text="", image=None)
    assert torch.isfinite(logits(made(base, place), [empty])).all()


@pytest.mark.parametrize("base", base_files.WITH_TEXT)
def test_a_long_text_is_cut_and_its_length_is_in_tokens(base: str, place: Path) -> None:
    built, short, long = made(base, place), *(replace(memes(1, 8)[0], text="one " * n) for n in (3, 500))
    assert (built.length(short), built.length(long)) == (5, 16)
    assert built.prepare([short, long])["input_ids"].shape == (2, 16)
    uncut = build(BASES[base], task=TASK, seed=1, folder=place, max_tokens=10**6)
    assert torch.isfinite(logits(uncut, [long])).all()


def test_blip_2_keeps_its_picture_encoder_as_it_was_and_has_no_language_model(tmp_path: Path) -> None:
    built = build(BASES["tiny:blip2"], task=TASK, seed=1, folder=tmp_path)
    before = {name: value.clone() for name, value in built.module.vision.state_dict().items()}
    built = fitted(built, memes(16, 1), epochs=1, rate=0.01)
    assert built.module.training
    assert not built.module.vision.training
    assert all(torch.equal(value, before[name]) for name, value in built.module.vision.state_dict().items())
    assert not [name for name, _ in built.module.named_modules() if "language" in name]


def test_a_blip_2_saved_with_its_language_model_lacks_words(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    base_files.make("tiny:blip2", folder=folder, seed=1)
    held = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in held.items() if not name.startswith("embeddings.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with refused("BaseUnfit", match=r"lacks 2 weights \(such as embeddings\."):
        build(Fusion(kind="fusion", base=str(folder)), task=TASK, seed=1, folder=tmp_path)
