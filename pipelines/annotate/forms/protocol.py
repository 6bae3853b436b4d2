"""Load annotation protocols: the planned rounds of a corpus, their sizes and overlaps, and the use of their labels.

A protocol is one YAML file in ``protocols/``; adding a protocol needs no code. The two included protocols are those
of the papers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipelines.core.config.base import Fraction, Positive, Section, read_section
from pipelines.core.errors import AnnotationError, ConfigError

FOLDER = Path(__file__).parents[1] / "protocols"
NAME = r"^[a-z][a-z0-9-]*$"
# Cohen's kappa and related statistics compare at least two annotators.
PAIR = 2

Name = Annotated[str, Field(pattern=NAME)]
Phase = Literal["pilot", "calibration", "large_scale", "double", "single", "qualification", "review"]
Draw = Literal["sample", "disagreement", "again"]


class Planned(Section):
    """One annotation round as a protocol plans it.

    ``overlap`` is the number of annotators who answer each item, 0 if only the adjudicator does. ``annotators`` is the
    number of ``round.annotators`` who take part. ``gold`` is whether the round's labels become gold, ``agreement``
    whether the round counts in the published agreement. ``splits`` are the splits to draw from, ``None`` for the whole
    sample. ``draw`` is how items are selected: ``sample``, a seeded draw; ``again``, the items of the earlier rounds
    named in ``again``; or ``disagreement``, the items whose gold differs from the votes of all labellers in ``against``
    and, with ``marked``, those that an annotator marked as ambiguous or unfit. ``scheme`` is the label scheme of the
    round if it is not the corpus's; its labels are no gold, and its agreement is measured in its own labels.
    ``described`` is whether items need a description and a note, approved by a second annotator, before labels become
    gold. A round of phase ``qualification`` asks about the hard cases of the rounds in ``again``, and ``bound`` is the
    mean Jaccard index from which on a person qualified; a later round with ``qualification`` takes only people of these
    rounds and people who qualified.
    """

    name: Name
    phase: Phase
    size: Positive
    overlap: Annotated[int, Field(ge=0)]
    annotators: Annotated[int, Field(ge=0)]
    batch_size: Positive
    gold: bool
    agreement: bool
    splits: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    draw: Draw = "sample"
    against: tuple[str, ...] = ()
    marked: bool = False
    again: tuple[Name, ...] = ()
    scheme: str | None = None
    described: bool = False
    bound: Fraction | None = None
    qualification: Name | None = None
    seed: int

    @model_validator(mode="after")
    def _consistent(self) -> Planned:
        if self.annotators < self.overlap or (self.annotators > 0) != (self.overlap > 0):
            raise ValueError("annotators must be at least overlap; both must be 0, or neither")
        if (self.phase == "review") != (self.overlap == 0):
            raise ValueError("phase: review requires overlap: 0, and overlap: 0 requires phase: review")
        if self.agreement and self.overlap < PAIR:
            raise ValueError("agreement: true requires an overlap of at least 2")
        if self.scheme is not None and self.gold:
            raise ValueError("a round with a scheme of its own requires gold: false")
        if (self.draw == "again") != bool(self.again) or (self.again and not self.overlap):
            raise ValueError("draw: again requires `again` and annotators; no other draw may set `again`")
        test = self.phase == "qualification"
        if test != (self.bound is not None) or (test and (self.gold or self.agreement or self.draw != "again")):
            raise ValueError("phase: qualification requires bound and draw: again, and neither gold nor agreement")
        if self.marked and self.draw != "disagreement":
            raise ValueError("marked: true requires draw: disagreement")
        if (self.draw == "disagreement") != bool(self.against) or (self.against and self.overlap):
            raise ValueError("draw: disagreement requires `against` and overlap: 0; no other draw may set `against`")
        return self


class Protocol(Section):
    """An annotation protocol: the planned rounds of a corpus in order; ``source`` is the paper's section about them."""

    name: Name
    title: str
    source: str
    rounds: Annotated[tuple[Planned, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _named_once(self) -> Protocol:
        if len({planned.name for planned in self.rounds}) < len(self.rounds):
            raise ValueError("two rounds have the same name")
        for place, planned in enumerate(self.rounds):
            if {*planned.again, *filter(None, [planned.qualification])} - {
                earlier.name for earlier in self.rounds[:place]
            }:
                raise ValueError(f"round {planned.name}: `again` or `qualification` names no earlier round")
        return self


def available() -> list[str]:
    """Return the names of the annotation protocols included in the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def load(name: str) -> Protocol:
    """Return the annotation protocol with this name."""
    if name not in available():
        raise ConfigError("UnknownProtocol", name=name, known=", ".join(available()))
    return load_file(FOLDER / f"{name}.yaml")


def load_file(path: Path) -> Protocol:
    """Read an annotation protocol from a file."""
    protocol = read_section(
        Protocol, path, refuse=lambda detail: ConfigError("BadProtocol", file=path.name, detail=detail)
    )
    if protocol.name != path.stem:
        raise ConfigError(
            "BadProtocol", file=path.name, detail=f"name must equal the file's name, but its name is {protocol.name}"
        )
    return protocol


def round_of(protocol: Protocol, name: str, *, corpus: str) -> Planned:
    """Return the planned round with this name from an annotation protocol."""
    for planned in protocol.rounds:
        if planned.name == name:
            return planned
    raise AnnotationError(
        "UnknownRound", corpus=corpus, name=name, known=", ".join(planned.name for planned in protocol.rounds)
    )
