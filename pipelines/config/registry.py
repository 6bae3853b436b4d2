"""The sections of ``params.yaml`` for registered models: candidates and the terms of promotion."""

from __future__ import annotations

from typing import Literal

from pipelines.config.base import Fraction, Positive, Section


class Chosen(Section):
    """A model that becomes a candidate: ``model`` of the section ``models``, and for posts the ``subset`` it learnt."""

    model: str
    subset: Literal["unanimous", "consensus", "gold"] | None = None


class Promote(Section):
    """All values are ours; neither paper deploys a model.

    Args:
        min_probability: the least share of the paired bootstrap's resamples of the test (SPEC 2.5) in which the
            candidate's macro-F1 is ahead, ties counting half: 0.95 is a one-sided test at 5 %.
        severe: the severity (of the scheme) from which a label's recall has a floor though none is named.
        tolerance: how far such a recall may lie below the champion's.
        recall_floors: registered name -> label -> the least recall on test, for every candidate, the first one too.
        min_positives: a label that fewer items of the test carry is reported and not judged: one item more or less
            would decide.
    """

    min_probability: Fraction
    severe: Positive
    tolerance: Fraction
    recall_floors: dict[str, dict[str, Fraction]]
    min_positives: Positive
