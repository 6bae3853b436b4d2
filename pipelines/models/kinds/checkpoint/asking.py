"""Ask a published checkpoint about items, and translate its labels to those of the task.

Only safetensors are loaded, and never code. What the checkpoint answers is translated, not improved: its own most
probable class, or its classes above their thresholds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

from pipelines.core.errors import ConfigError
from pipelines.datasets.example import Example, LabelSet
from pipelines.datasets.post import BOILERPLATE, Post
from pipelines.llm import own_prompts
from pipelines.llm.outcome import Outcome
from pipelines.llm.prompts import Prompt
from pipelines.llm.response_parser import DECLINES, THINKING, declines
from pipelines.models.backbones import Built, Pixels, SavedEncoder, Words, opened, unfit
from pipelines.models.base_files import identified, on_hub
from pipelines.models.fitting import inference
from pipelines.models.fitting.asking import ask
from pipelines.models.fitting.generate import Generator
from pipelines.models.kind import Answers, Desk
from pipelines.models.kinds.checkpoint import Causal, Checkpoint
from pipelines.models.label_map import LabelMap
from pipelines.models.label_prompts import pictured
from pipelines.models.prediction import VOTE, Prediction, Predictor, Progress

# of the post; a title that spells one out is not expanded
PLACE = re.compile(r"\{\{ (title|body) \}\}")
SAFE = ("model.safetensors", "model.safetensors.index.json")


def answer(spec: Checkpoint, desk: Desk) -> Answers:
    """Return a checkpoint's answers in the labels of the task, and its identity."""
    if spec.image and not pictured(desk):
        raise unfit(spec.base, f"it reads pictures, and items of {desk.corpus} have none")
    folder = desk.settings.home / "train"
    with opened(spec.base, revision=spec.revision, seed=0, folder=folder) as place:
        identity = _identity(spec, Path(place), model=desk.model)
        mapped = LabelMap(spec.labels, desk.task, desk.model)
        predictor: Predictor = (
            _causal(spec.causal, spec=spec, desk=desk, mapped=mapped)
            if spec.causal
            else Classifier(spec, place, mapped=mapped)
        )
    said, spent = ask(predictor, _examples(spec, desk), name=desk.model)
    return Answers({0: said}, spent, more={"bases": [identity]})


def _identity(spec: Checkpoint, place: Path, *, model: str) -> dict[str, Any]:
    """Return the checkpoint's name, revision and digest; refuse other weights, and what would be loaded unsafely."""
    if not on_hub(spec.base) and spec.base != str(place):
        raise unfit(spec.base, "a tiny base model has random weights")
    if (place / "adapter_config.json").is_file() or not any((place / name).is_file() for name in SAFE):
        raise unfit(spec.base, "it is no whole model in safetensors (save pickles anew, merge an adapter)")
    [identity] = identified(spec.bases)
    if spec.digest != identity["digest"] and (spec.digest or not on_hub(spec.base)):
        raise ConfigError("CheckpointAltered", base=spec.base, model=model, digest=identity["digest"])
    return identity | {"name": spec.named}


def _examples(spec: Checkpoint, desk: Desk) -> Sequence[Example]:
    def text(post: Post) -> str:
        return PLACE.sub(lambda place: BOILERPLATE.sub("", getattr(post, place[1])).strip(), spec.text or "")

    asked, posts = desk.material.asked, desk.material.posts
    return [replace(example, text=text(posts[example.item])) for example in asked] if spec.text else asked


class Classifier:
    """A text or image classifier that answers with its own labels; the map translates them."""

    def __init__(self, spec: Checkpoint, place: str, *, mapped: LabelMap) -> None:
        factory = AutoModelForImageClassification if spec.image else AutoModelForSequenceClassification
        module = SavedEncoder(place, base=spec.base, factory=factory)
        config = module.model.config
        self._names = [config.id2label[number] for number in sorted(config.id2label)]
        self._mapped, task = mapped.ordered(self._names), mapped.task
        several, trained = spec.thresholds is not None, config.problem_type
        if trained and several != (trained == "multi_label_classification"):
            raise unfit(spec.base, f"its problem_type is {trained}: {'remove' if several else 'set'} thresholds")
        if task.kind == "single" and several:
            raise unfit(spec.base, f"with thresholds it has several answers, and task {task.key} has one")
        self._several, self._batch = several, spec.batch
        levels = spec.thresholds if isinstance(spec.thresholds, dict) else dict.fromkeys(self._names, spec.thresholds)
        self._thresholds = [levels[name] for name in self._names]
        # inference reads kind and labels alone
        self._theirs = replace(task, kind="multi" if several else "single", labels=tuple(self._names))
        self._built = _pictures(module, place, spec=spec) if spec.image else _texts(module, place, spec=spec)

    def predict(self, examples: Sequence[Example], *, progress: Progress = None) -> list[Prediction]:
        found = inference.predict(self._built, examples=examples, task=self._theirs, batch=self._batch)
        if progress is not None:
            progress(len(examples))
        answers = [self._answer(row, tokens=self._built.length(e)) for row, e in zip(found, examples, strict=True)]
        return self._mapped.translated(answers)

    def forget(self) -> None:
        self._built.forget()

    def _answer(self, row: Any, *, tokens: int) -> Prediction:
        chosen = row >= np.array(self._thresholds, float) if self._several else np.arange(len(row)) == row.argmax()
        names = frozenset(name for name, here in zip(self._names, chosen, strict=True) if here)
        return Prediction(VOTE, names, tuple(row.tolist()), tokens)


def _texts(module: SavedEncoder, place: str, *, spec: Checkpoint) -> Built:
    most = getattr(module.model.config, "max_position_embeddings", spec.max_tokens)
    if spec.max_tokens > most:
        raise unfit(spec.base, f"it reads {most} tokens at most, and max_tokens is {spec.max_tokens}")
    words = Words(place, base=spec.base, limit=spec.max_tokens)
    module.model.config.pad_token_id = words.pad
    return Built(module, lambda examples: words([e.text for e in examples]), lambda example: words.count(example.text))


def _pictures(module: SavedEncoder, place: str, *, spec: Checkpoint) -> Built:
    pixels = Pixels(place, base=spec.base)
    return Built(module, lambda examples: pixels([e.image for e in examples]), lambda example: 1, pixels.forget)


def _causal(causal: Causal, *, spec: Checkpoint, desk: Desk, mapped: LabelMap) -> Generator:
    own = own_prompts.read(desk.params.prompts, root=desk.root)
    user = own.message(causal.prompt, kind="open", role="user") if own else None
    if own is None or user is None:
        todo = f"Write the model's prompt to {causal.prompt}.user.txt in that folder."
        raise ConfigError("OwnPromptsUnfit", detail=f"it has no prompt {causal.prompt}", todo=todo)
    system = (causal.chat and own.message(causal.prompt, kind="open", role="system")) or ""
    digest = hashlib.sha256(f"{system}\0{user}".encode()).hexdigest()
    prompt = Prompt(causal.prompt, system, user, {}, digest, own=own.digest)
    about: dict[str, Any] = {"task": desk.task, "scheme": desk.scheme, "folder": desk.settings.home / "train"}
    about |= {"max_length": spec.max_tokens, "max_new_tokens": causal.max_new_tokens, "batch": spec.batch}
    about |= {"prompt": prompt, "reader": partial(read, causal=causal, mapped=mapped), "chat": causal.chat}
    return Generator(spec.base, revision=spec.revision, **about)


def read(text: str, *, causal: Causal, mapped: LabelMap) -> tuple[str, LabelSet]:
    """Return the outcome and the labels of what a causal model wrote; case of labels does not matter.

    Text that declines is a refusal, even with a label in it; text without labels that the map has is malformed.
    """
    written = THINKING.sub("", text.strip())
    if DECLINES.match(written) or declines(text):
        return str(Outcome.REFUSED), frozenset()
    known = {name.casefold(): name for name in mapped.labels}
    match = re.fullmatch(causal.answer, written)
    parts = [] if match is None else match[1].split(causal.separator) if causal.separator else [match[1]]
    names = [known.get(part.strip(" \t\"'").casefold()) for part in parts]
    if not names or None in names:
        return str(Outcome.MALFORMED), frozenset()
    return mapped.named([name for name in names if name is not None])
