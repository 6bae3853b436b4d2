"""Define ``model.json`` of a model package: the settings that a registered model needs besides its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from crisis_corpus.integrity import Learnt, TrainedWeights
from pipelines.core.config.base import Section
from pipelines.core.config.collect import Decode, Ocr
from pipelines.core.config.models import Model
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy.loader import load_file
from pipelines.core.taxonomy.task import Task, task_of

FILE, SCHEME = "model.json", "scheme.yaml"
# The weights of the head, which the library does not save with the base.
REST = "rest.safetensors"

# The kinds whose input is title and body; the input of all others is an image.
OF_POSTS = ("encoder", "sft")


class Described(Section):
    """The content of ``model.json``: a model, the origin of its data, and the preprocessing of its input.

    Args:
        kind: the kind of model, ``encoder`` or ``sft`` (posts); ``text``, ``image`` or ``fusion`` (memes).
        model: the name of its entry in ``params.models``.
        subset: posts: the subset of labels that it was trained on.
        base: the base model; for a folder only the last part of the path.
        labels: the labels that it predicts, in the scheme's order, which is the order of the probabilities.
        scheme: the name of the label scheme; its file is ``scheme.yaml`` in the model package.
        weights: the training run and the digests of its weights, as committed by the training stage; for memes, the
            package has these weights in another format.
        spec: the entry in ``params.models``, with the folder of the model package as the base model.
        scrub: the kinds of personal data that are removed from the input, as in the corpus.
        max_new_tokens: ``sft``: the maximum length of an answer.
        thresholds: memes: label -> the least probability at which the label is predicted.
    """

    name: str
    corpus: str
    kind: str
    task: str
    model: str
    subset: str | None = None
    base: str
    seed: int
    labels: tuple[str, ...]
    definitions: dict[str, str]
    scheme: str
    scheme_digest: str
    data_commit: str
    split_digest: str
    votes_digest: str | None = None
    train: Learnt
    weights: TrainedWeights
    spec: Model
    scrub: tuple[str, ...]
    batch: Annotated[int, Field(ge=1)]
    max_tokens: int | None = None
    max_new_tokens: int | None = None
    thresholds: tuple[float, ...] | None = None
    decode: Decode | None = None
    ocr: Ocr | None = None

    @property
    def measured_as(self) -> str:
        """The name of this model in ``evaluate.json``, the metrics of the stage ``evaluate``."""
        return self.model if self.subset is None else f"{self.model}-{self.subset}"

    @classmethod
    def read(cls, pack: Path) -> Described:
        return cls.model_validate_json((pack / FILE).read_bytes())

    def write(self, pack: Path) -> None:
        (pack / FILE).write_text(self.model_dump_json(indent=2) + "\n")


def asked(pack: Path, *, described: Described) -> tuple[Scheme, Task]:
    """Return the label scheme and the task of a model from its package, not from the installed schemes."""
    scheme = load_file(pack / SCHEME)
    return scheme, task_of(scheme, described.task)
