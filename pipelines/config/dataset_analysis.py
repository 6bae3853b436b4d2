"""Define the section of ``params.yaml`` for the description of a corpus and the tests of its features."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.config.base import Positive, Section


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
