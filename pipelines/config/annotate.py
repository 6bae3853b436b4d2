"""Define the sections of ``params.yaml`` for annotation rounds, agreement and gold."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.config.base import Fraction, Positive, Pseudonym, Section


class Round(Section):
    """Settings of annotation rounds: backend, protocols, annotators, daily cap, content warning and contacts."""

    backend: Literal["label_studio", "files"]
    protocol: dict[str, str]
    annotators: tuple[Pseudonym, ...]
    adjudicator: Pseudonym
    daily_cap: Positive
    warning: str
    contacts: tuple[str, ...]

    @model_validator(mode="after")
    def _apart(self) -> Round:
        if len({*self.annotators, self.adjudicator}) <= len(self.annotators):
            raise ValueError("annotators and adjudicator must be different people")
        return self


class Agreement(Section):
    resamples: Positive
    confidence: Annotated[float, Field(gt=0, lt=1)]
    enough: Fraction
    seed: int


class GoldParams(Section):
    """The splits whose items get gold labels (``None`` means all sampled items), and further sources of gold.

    ``truth`` is whether the sandbox's ground truth is used; ``published`` is a CSV file. Answers from rounds take
    precedence over both.
    """

    splits: tuple[str, ...] | None
    truth: bool
    published: str | None
