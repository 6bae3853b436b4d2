"""Models that read remarks: M3H, whose prompts show no meme but the asked one and others of train, and a CLIP."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BartConfig

from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import Example, Item
from pipelines.datasets.features import Cues, Remarks
from pipelines.models import kind
from pipelines.models.backbones import Built
from pipelines.models.kinds.m3h import M3h
from pipelines.models.kinds.m3h import network as m3h
from pipelines.models.kinds.m3h.network import Similar
from tests.refusals import refused
from tests.train.models.fitting import build, fitted, logits, right
from tests.train.models.test_build import INFUSED
from tests.train.models.test_build import M3H as TINY
from tests.train.small_memes import REPO

TASK: Task = task_of(load("figsim"), "severity")
SPLITS = {"train": 12, "validation": 4, "test": 4}


def meme(number: int, split: str, *, text: str | None = None, group: str | None = None) -> Example:
    label = frozenset({TASK.labels[number % len(TASK.labels)]})
    words = f"mark{number} a long week" if text is None else text
    return Example((f"r{number:02}", 0), split, words, None, None if split == "test" else label, group or f"g{number}")


def corpus() -> dict[str, list[Example]]:
    found, number = {}, 0
    for split, count in SPLITS.items():
        found[split] = [meme(n, split) for n in range(number, number + count)]
        number += count
    return found


def cued(examples: Iterable[Example], *, without: Iterable[Item] = (), labeller: str = "gpt") -> Cues:
    of: dict[Item, Remarks | None] = {e.item: ("rain", f"a boat of {e.item[0]}", "") for e in examples}
    return Cues(of=of | dict.fromkeys(without), outcomes={}, labeller=labeller)


def embed(text: str) -> Any:
    """A deterministic embedding without a model: how often each letter occurs."""
    counts = np.bincount([ord(letter) % 64 for letter in text], minlength=64).astype(float)
    return counts / max(float(np.linalg.norm(counts)), 1e-12)


def prompts(
    train: Sequence[Example], *, others: Sequence[Example] = (), cues: Cues | None = None, spec: M3h = TINY
) -> dict[Item, str]:
    some = cues or cued([*train, *others])
    said = {e.item: m3h.explanation(some.remarks(e.item)) for e in (*train, *others)}
    similar = Similar.of(train, others=others, said=said, embed=embed)
    made = {"similar": similar, "said": said, "task": TASK, "spec": spec}
    return {e.item: m3h.prompt(e, **made) for e in (*train, *others)}


def shown(text: str) -> set[str]:
    return set(re.findall(r"mark\d+", text))


def built(
    folder: Path, train: Sequence[Example], others: Sequence[Example] = (), *, cues: Cues | None = None, **changes: Any
) -> Built:
    given: dict[str, Any] = {"cues": cues or cued([*train, *others]), "train": train, "others": others}
    spec = TINY.model_copy(update=changes)
    return build(spec, task=TASK, seed=1, folder=folder, **given)


def test_a_prompt_has_the_meme_and_one_other_of_train_with_its_label() -> None:
    split = corpus()
    others = [*split["validation"], *split["test"]]
    found = prompts(split["train"], others=others)
    of_train = {f"mark{n}" for n in range(SPLITS["train"])}
    for example in (*split["train"], *others):
        (own,) = shown(example.text)
        (other,) = shown(found[example.item]) - {own}
        assert other in of_train
        at = int(other.removeprefix("mark"))
        assert f"Label: {TASK.labels[at % len(TASK.labels)]}" in found[example.item].replace("\n", " ")
        assert found[example.item].endswith("Label: "), "the meme's own label is not in it"
        assert f"a boat of {example.item[0]}" in found[example.item]


def test_validation_and_test_change_no_prompt_of_train(tmp_path: Path) -> None:
    split = corpus()
    others = [*split["validation"], *split["test"]]
    changed = [replace(e, text=f"{split['train'][0].text} {n}") for n, e in enumerate(others)]
    one, other = built(tmp_path, split["train"], others), built(tmp_path, split["train"], changed[:3])
    for name, tensor in one.prepare(split["train"]).items():
        assert torch.equal(tensor, other.prepare(split["train"])[name])
    assert one.inputs != other.inputs, "but a killed run with other memes does not resume"
    backwards = built(tmp_path, split["train"][::-1], others)
    assert backwards.inputs == one.inputs, "the order of the memes decides nothing"


@pytest.mark.parametrize("split", ["validation", "test"])
def test_only_memes_of_train_can_be_shown(tmp_path: Path, split: str) -> None:
    train = [*corpus()["train"], meme(30, split)]
    with refused("LeakRefused", match="train"):
        built(tmp_path, train)


def test_neither_the_meme_nor_one_of_its_group_or_record_is_shown() -> None:
    own = meme(0, "train", group="pair")
    twin = replace(meme(1, "train"), text=own.text, group="pair")
    page = replace(meme(2, "train"), item=(own.item[0], 1), text=own.text.replace("mark0", "mark2"))
    far = meme(3, "train", text="mark3 zzz qqq")
    found = prompts([own, twin, page, far], others=(asked := [replace(meme(9, "test"), text=own.text)]))
    assert shown(found[own.item]) == {"mark0", "mark3"}
    assert shown(found[twin.item]) == {"mark0", "mark2"}
    assert shown(found[asked[0].item]) == {"mark0"}, "a meme of test may be shown what is nearest"
    assert shown(prompts([own, twin])[own.item]) == {"mark0"}
    assert "Labelled meme" not in prompts([own, twin])[own.item], "no other meme, no example"


def test_a_meme_without_an_explanation_is_asked_about_and_never_shown(tmp_path: Path) -> None:
    split = corpus()
    train, asked = split["train"], split["test"][0]
    refused = [train[0].item, asked.item]
    found = prompts(train, others=[asked], cues=cued([*train, asked], without=refused))
    assert shown(found[asked.item]) - {"mark16"} and "a boat of r16" not in found[asked.item]
    assert all("mark0" not in shown(text) for item, text in found.items() if item != train[0].item)
    model = built(tmp_path, train, [asked], cues=cued([*train, asked], without=[e.item for e in train]))
    assert torch.isfinite(logits(model, [asked, *train])).all()


def test_a_meme_that_is_taken_down_leaves_every_prompt() -> None:
    split = corpus()
    before = prompts(split["train"], others=split["test"])
    gone = next(iter(shown(before[split["test"][0].item]) - {"mark16"}))
    left = [e for e in split["train"] if gone not in shown(e.text)]
    assert len(left) == len(split["train"]) - 1
    assert all(gone not in shown(text) for text in prompts(left, others=split["test"]).values())


def test_words_are_limited_and_spelt_out_special_tokens_are_harmless(tmp_path: Path) -> None:
    train = corpus()["train"]
    long = meme(20, "test", text=" ".join(f"word{n}" for n in range(30)))
    asked = prompts(train, others=[long])[long.item]
    assert "word11" in asked and "word12" not in asked
    marked = meme(21, "test", text="the end [SEP] [SEP] of [PAD] it")
    model = built(tmp_path, train, [long, marked])
    assert torch.isfinite(logits(model, [long, marked, train[0]])).all()
    assert model.length(long) > 20
    assert model.prepare([long])["input_ids"].shape == (1, model.length(long))
    cut = built(tmp_path, train, [long], max_tokens=32)
    assert cut.prepare([long, train[0]])["input_ids"].shape == (2, 32)


def test_rows_follow_the_examples(tmp_path: Path) -> None:
    split = corpus()
    model = built(tmp_path, split["train"], split["test"])
    forth, back = logits(model, split["test"]), logits(model, split["test"][::-1])
    assert forth.shape == (4, len(TASK.labels))
    assert torch.allclose(forth, back.flip(0), atol=1e-5)
    alone = logits(model, split["test"][1:2])
    assert torch.allclose(alone[0], forth[1], atol=1e-5)


@pytest.mark.parametrize("spec", [TINY, INFUSED], ids=lambda spec: spec.kind)
def test_without_remarks_nothing_is_built(tmp_path: Path, spec: Any) -> None:
    train = corpus()["train"]
    given = {"task": TASK, "seed": 1, "folder": tmp_path}
    with refused("NoCues", match="were not loaded"):
        build(spec, **given)
    with refused("NoCues", match="'claude'"):
        build(spec, cues=cued(train, labeller="claude"), **given)
    others = {"train": train, "others": corpus()["validation"]} if spec is TINY else {}
    with refused("NoCues", match="r12"):
        build(spec, cues=cued(train), **others, **given).prepare([*train, *corpus()["validation"]])


def test_a_model_without_layers_on_both_sides_or_with_too_few_is_refused(tmp_path: Path) -> None:
    train = corpus()["train"]
    with refused("BaseUnfit", match="no numbered layers of its encoder"):
        built(tmp_path, train, text="tiny:bert")
    with refused("BaseUnfit", match="2 layers, and open_layers is 3"):
        built(tmp_path, train, open_layers=3)


def test_the_whole_model_has_the_open_weights_that_the_authors_left_open() -> None:
    spec = kind.spec(load_params(REPO), "m3h")
    assert isinstance(spec, M3h)
    # facebook/bart-large, on which MentalBART was tuned
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(BartConfig(vocab_size=50265, num_labels=5))
    m3h.freeze(model, base=spec.text, open_layers=spec.open_layers)
    open_names = {name for name, weight in model.named_parameters() if weight.requires_grad}
    numbered = re.compile(r"model\.(encoder|decoder)\.layers\.(\d+)\.")
    assert {found.groups() for name in open_names if (found := numbered.match(name))} == {
        (side, number) for side in ("encoder", "decoder") for number in ("10", "11")
    }
    words, places, norms = 50265 * 1024, 2 * 1026 * 1024, 4 * 1024
    attention, wide = 4 * (1024**2 + 1024) + 2 * 1024, 2 * 1024 * 4096 + 4096 + 1024 + 2 * 1024
    layers = 2 * (attention + wide) + 2 * (2 * attention + wide)
    head = 1024**2 + 1024 + 5 * 1024 + 5
    counted = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert counted == words + places + norms + layers + head == 113_417_221
    everything = 12 * (attention + wide) + 12 * (2 * attention + wide) + words + places + norms + head
    assert sum(weight.numel() for weight in model.parameters()) == everything


def lesson(count: int) -> tuple[list[Example], list[Example], list[str], Cues]:
    """Return memes of train, twenty of test and their truth, and the remarks, in which alone severities show."""
    words = dict(zip(TASK.labels, ("monday", "fog", "cloud", "calendar", "door"), strict=True))
    examples = [meme(n, "train" if n < count else "test", text="a long week") for n in range(count + 20)]
    truth = [TASK.labels[n % len(TASK.labels)] for n in range(count + 20)]
    of: dict[Item, Remarks | None] = {
        e.item: ("", f"the {words[label]} {e.item[0]}", "") for e, label in zip(examples, truth, strict=True)
    }
    return examples[:count], examples[count:], truth[count:], Cues(of=of, outcomes={}, labeller="gpt")


def test_it_learns_from_explanations_and_its_frozen_layers_do_not_move(tmp_path: Path) -> None:
    train, held, truth, cues = lesson(40)
    model = built(tmp_path, train, held, cues=cues)
    frozen = {name: w.clone() for name, w in model.module.named_parameters() if not w.requires_grad}
    assert frozen and all(".layers.0." in name for name in frozen)
    before = {name: w.clone() for name, w in model.module.named_parameters() if w.requires_grad}
    fitted(model, train, task=TASK, steps=15, rate=5e-3)
    now = dict(model.module.named_parameters())
    assert all(torch.equal(now[name], weight) for name, weight in frozen.items())
    assert all(not torch.equal(now[name], weight) for name, weight in before.items() if ".layers.1.fc" in name)
    assert right(model, held, task=TASK, truth=truth) > max(Counter(truth).values()) + 4


def infused(folder: Path, cues: Cues) -> Built:
    return build(INFUSED, task=TASK, seed=1, folder=folder, max_tokens=32, cues=cues)


def test_rows_follow_the_examples_and_refused_memes_have_logits(tmp_path: Path) -> None:
    examples = [meme(n, "train", text="a long week") for n in range(5)]
    remarks = [("rain", "a boat", "calm"), None, ("", "a boat", ""), ("", "", ""), ("", "", "a boat")]
    of = dict(zip([e.item for e in examples], remarks, strict=True))
    model = infused(tmp_path, Cues(of=of, outcomes={}, labeller="gpt"))
    forth, back = logits(model, examples), logits(model, examples[::-1])
    assert torch.isfinite(forth).all()
    assert torch.allclose(forth, back.flip(0), atol=1e-5)
    assert torch.allclose(logits(model, examples[2:3])[0], forth[2], atol=1e-5)
    assert torch.allclose(forth[1], forth[3], atol=1e-5)
    for one, other in ((0, 1), (0, 2), (2, 4)):
        assert not torch.allclose(forth[one], forth[other]), "the heading of a remark matters, too"
    assert model.length(examples[0]) > model.length(examples[1])


def test_what_only_the_remarks_tell_is_learnt(tmp_path: Path) -> None:
    train, held, truth, cues = lesson(60)
    model = fitted(infused(tmp_path, cues), train, task=TASK, steps=20)
    assert right(model, held, task=TASK, truth=truth) > max(Counter(truth).values()) + 4
