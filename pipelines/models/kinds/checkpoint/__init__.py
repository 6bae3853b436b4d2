"""A model that others trained and published, with its own labels: a classifier, or a causal model with its prompt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from pipelines.core.config.base import Fraction, Positive, Section
from pipelines.models.kind import Answers, Based, Desk


class Causal(Section):
    """How a causal model is asked and how its answer is read.

    ``prompt`` names the model's texts in ``prompts.folder``: NAME.user.txt and, if it has one, NAME.system.txt, sent in
    its chat template; with ``chat: false`` the first alone, as plain text. ``answer`` is a regular expression of the
    whole answer; its one group has the label, or several of them, split at ``separator``.
    """

    prompt: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    chat: bool = True
    answer: str = r"\s*(.*?)\s*"
    separator: str | None = None
    max_new_tokens: Positive = 32

    @model_validator(mode="after")
    def _one_group(self) -> Self:
        try:
            groups = re.compile(self.answer).groups
        except re.error:
            groups = 0
        if groups != 1:
            raise ValueError("answer: is not a regular expression with exactly one group, the labels")
        return self


class Checkpoint(Based):
    """A published checkpoint, asked as it is: a row without a fit, and so none that can be registered.

    Its weights are those at ``revision`` of the hub, or have ``digest`` (``base_files.identified``), which a folder
    needs. Each of its labels is named in ``labels``: with ours, which several of them may share, or with null if it is
    left out; an answer of left-out labels alone is an abstention. With ``causal`` they are the labels that it writes.

    ``text`` makes what is read of an item from ``{{ title }}`` and ``{{ body }}``, by default as all models read it;
    ``image: true`` reads its picture instead. More than ``max_tokens`` are cut. With ``thresholds``, one or one for
    each of its labels, the labels are independent (sigmoid); without, the most probable is the answer (softmax).
    """

    note: ClassVar[str | None] = "trained elsewhere on unknown data, which may include items of test"
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    labels: Annotated[dict[str, str | None], Field(min_length=1)]
    text: Annotated[str, Field(pattern=r"\{\{ (title|body) \}\}")] | None = None
    image: bool = False
    thresholds: Fraction | dict[str, Fraction] | None = None
    causal: Causal | None = None
    max_tokens: Positive = 512
    batch: Positive = 16

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.causal and (self.image or self.thresholds is not None):
            raise ValueError("causal: a causal model has neither thresholds nor a picture")
        if isinstance(self.thresholds, dict) and self.thresholds.keys() != self.labels.keys():
            raise ValueError("thresholds: is not one number, nor one for each key of labels")
        return self

    @property
    def named(self) -> str:
        from pipelines.models.base_files import on_hub

        return self.base if on_hub(self.base) else Path(self.base).name

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.kinds.checkpoint.asking import answer

        return answer(self, desk)
