"""Protocols as data: the rounds that people go through, each with its size, its overlap and what its labels are for.

A protocol is one file of ``protocols/``; another one needs no code. The two that ship are the papers' own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from pipelines.config.base import Positive, Section
from pipelines.errors import ConfigError, UnknownRound

FOLDER = Path(__file__).parent / "protocols"
NAME = r"^[a-z][a-z0-9-]*$"
# Cohen's kappa and its kin compare people, so a figure wants two of them.
PAIR = 2

Name = Annotated[str, Field(pattern=NAME)]
Phase = Literal["pilot", "calibration", "large_scale", "double", "single", "review"]
Draw = Literal["sample", "disagreement"]


class UnknownProtocol(ConfigError):
    """No annotation protocol of this name is described."""

    message = "There is no annotation protocol '{name}'."
    remedy = "Name one of {known} as round.protocol in params.yaml, or add its file to pipelines/annotate/protocols."


class BadProtocol(ConfigError):
    """The data file of a protocol does not hold together."""

    message = "Protocol file {file}: {detail}."
    remedy = "pipelines/annotate/protocols/cradle.yaml shows every key in use."


class Planned(Section):
    """One round of a protocol.

    ``overlap`` is how many annotators answer an item, 0 where only the adjudicator does; ``annotators`` how many of
    ``round.annotators`` take part. ``gold`` says whether its labels become gold, ``agreement`` whether its figures
    count as the published agreement. ``splits`` are the splits it draws from, ``None`` the whole sample. ``draw`` is
    where its items come from: a seeded draw, or the items whose gold differs from all labellers of ``against``.
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
    seed: int

    @model_validator(mode="after")
    def _consistent(self) -> Planned:
        if self.annotators < self.overlap or (self.annotators > 0) != (self.overlap > 0):
            raise ValueError("annotators must be at least overlap, and 0 exactly where overlap is 0")
        if (self.phase == "review") != (self.overlap == 0):
            raise ValueError("a review, and nothing else, has an overlap of 0")
        if self.agreement and self.overlap < PAIR:
            raise ValueError("agreement needs an overlap of two")
        if (self.draw == "disagreement") != bool(self.against) or (self.against and self.overlap):
            raise ValueError("a draw of disagreements, and nothing else, has against and an overlap of 0")
        return self


class Protocol(Section):
    """All rounds of a corpus, in the order in which they are held; ``source`` is the section of the paper."""

    name: Name
    title: str
    source: str
    rounds: Annotated[tuple[Planned, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _named_once(self) -> Protocol:
        if len({planned.name for planned in self.rounds}) < len(self.rounds):
            raise ValueError("two rounds have one name")
        return self


def available() -> list[str]:
    """Return the names of the protocols that the package brings along."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def load(name: str) -> Protocol:
    """Return the protocol of this name.

    Raises:
        UnknownProtocol: there is none.
        BadProtocol: its file does not hold together.
    """
    if name not in available():
        raise UnknownProtocol(name=name, known=", ".join(available()))
    return load_file(FOLDER / f"{name}.yaml")


def load_file(path: Path) -> Protocol:
    """Return the protocol that a data file describes.

    Raises:
        BadProtocol: naming the file and every key at fault.
    """
    try:
        found = Protocol.model_validate(yaml.safe_load(path.read_bytes()))
    except (OSError, yaml.YAMLError) as error:
        raise BadProtocol(file=path.name, detail=f"cannot be read ({type(error).__name__})") from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'protocol'}: {e['msg']}" for e in error.errors())
        raise BadProtocol(file=path.name, detail=faults) from None
    if found.name != path.stem:
        raise BadProtocol(file=path.name, detail=f"its name is {found.name}")
    return found


def round_of(protocol: Protocol, name: str, *, corpus: str) -> Planned:
    """Return the round of this name.

    Raises:
        UnknownRound: the protocol plans none.
    """
    for planned in protocol.rounds:
        if planned.name == name:
            return planned
    raise UnknownRound(corpus=corpus, name=name, known=", ".join(planned.name for planned in protocol.rounds))
