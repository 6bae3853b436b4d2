"""Define the sections of ``params.yaml`` for annotation rounds, agreement, gold and the description of a corpus."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from pipelines.core.config.base import Fraction, Positive, Pseudonym, Section


class Round(Section):
    """Settings of annotation rounds: backend, protocols, annotators, daily cap, content warning and contacts.

    ``backends`` has the parameters of annotation backends by name.
    """

    backend: str
    backends: dict[str, dict[str, Any]] = Field(default_factory=dict)
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


class LexiconFile(Section):
    """A lexicon of the user's: its path on the machine that runs the stage, and the SHA-256 that the file must have."""

    path: str | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class Lexicons(Section):
    """A dictionary in LIWC's format, and the NRC emotion lexicon."""

    liwc: LexiconFile = LexiconFile()
    nrc: LexiconFile = LexiconFile()


class Analysis(Section):
    """Parameters of the stage ``analysis``.

    ``heatmaps`` are pairs of categories, and ``factors`` the categories by which features are compared; those that a
    scheme lacks are left out. ``least``: the smallest count of items that is shown, and level that is tested.
    """

    heatmaps: tuple[tuple[str, str], ...]
    factors: tuple[str, ...]
    alpha: Annotated[float, Field(gt=0, lt=1)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    least: Annotated[Positive, Field(ge=2)]
    seed: int
    lexicons: Lexicons = Lexicons()


class AnnotateSections(Section):
    round: Round
    agreement: Agreement
    gold: dict[str, GoldParams]
    analysis: Analysis
