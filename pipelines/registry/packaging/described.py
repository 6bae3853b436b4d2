"""Define ``model.json`` of a model package: the settings that a registered model needs besides its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crisis_corpus.integrity import MODEL, Learnt, TrainedWeights
from pipelines.core import formats
from pipelines.core.config.base import Section
from pipelines.core.config.collect import Decode, Ocr
from pipelines.core.config.models import Entry
from pipelines.core.taxonomy import Scheme, load_file
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.models.kind import KINDS, Kind

SCHEME = "scheme.yaml"
# imported by name, and only for a model of pictures
PICTURES = "pipelines.registry.packaging.pictures"


class Described(Section):
    """The content of ``model.json``: a model, the origin of its data, and the preprocessing of its input.

    Args:
        model: the name of its entry in ``params.models``.
        subset: the subset of labels that it was trained on.
        shown: its name in tables of predictions and in ``evaluate.json``.
        base: the base model; for a folder only the last part of the path.
        labels: the labels that it predicts, in the scheme's order, which is the order of the probabilities.
        item: the scheme's noun for what it labels, such as ``post``; ``items`` is the plural.
        scheme: the name of the label scheme; its file is ``scheme.yaml`` in the model package.
        weights: the training run and the digests of its weights, as committed by the training stage.
        spec: the parameters of its kind: the entry in ``params.models``.
        inputs: the columns of its input (:mod:`pipelines.registry.packaging.inputs`).
        scrub: the kinds of personal data that are removed from words, as in the corpus.
        batch: how many texts a causal model reads together.
        decode: how pictures are decoded; ``None`` if there is none among the inputs.
        ocr: how words are read from a picture without a text; ``None`` if they must be given.
    """

    name: str
    corpus: str
    kind: str
    task: str
    model: str
    subset: str
    shown: str
    base: str
    seed: int
    labels: tuple[str, ...]
    definitions: dict[str, str]
    item: str
    items: str
    scheme: str
    scheme_digest: str
    data_commit: str
    split_digest: str
    votes_digest: str | None = None
    train: Learnt
    weights: TrainedWeights
    spec: dict[str, Any]
    inputs: tuple[str, ...]
    scrub: tuple[str, ...]
    batch: int
    decode: Decode | None = None
    ocr: Ocr | None = None

    @property
    def entry(self) -> Kind:
        """The model as an object of its kind."""
        return KINDS.of(Entry.model_validate(self.spec), {}, where=f"models.{self.model}")

    @classmethod
    def read(cls, pack: Path) -> Described:
        return cls.model_validate(formats.opened("model_package", json.loads((pack / MODEL).read_bytes())))

    def write(self, pack: Path) -> None:
        stamped = formats.stamped("model_package", self.model_dump(mode="json"))
        (pack / MODEL).write_text(json.dumps(stamped, indent=2, ensure_ascii=False) + "\n")


def asked(pack: Path, *, described: Described) -> tuple[Scheme, Task]:
    """Return the label scheme and the task of a model from its package, not from the installed schemes."""
    scheme = load_file(pack / SCHEME)
    return scheme, task_of(scheme, described.task)
