"""Define the sections of ``params.yaml`` for near-duplicates, the sample and the split."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Fraction, Positive, Section


class Dedupe(Section):
    radius: Annotated[int, Field(ge=0, le=31)]
    radius_no_text: Annotated[int, Field(ge=0, le=31)]
    radius_long_caption: Annotated[int, Field(ge=0, le=31)]
    long_caption: Positive
    word_difference: Positive
    misread_words: Annotated[int, Field(ge=0)]
    listed_copies: Positive
    similarity: Fraction


class Sample(Section):
    size: Positive
    seed: int


class Split(Section):
    version: Positive
    ratios: dict[str, Annotated[float, Field(gt=0)]]
    sizes: dict[str, Positive] | None = None
    strata: tuple[Literal["month", "kind", "has_text", "subreddit"], ...]
    seed: int
    proposals: Positive
    published: str | None = None

    @model_validator(mode="after")
    def _same_names(self) -> Split:
        if self.sizes is not None and list(self.sizes) != list(self.ratios):
            raise ValueError("sizes and ratios must name the same splits in the same order")
        return self


class Quality(Section):
    truth: bool


class CurateSections(Section):
    dedupe: Dedupe
    sample: dict[str, Sample]
    split: dict[str, Split]
    quality: Quality
