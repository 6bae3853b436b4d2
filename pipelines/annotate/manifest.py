"""Load annotation protocols, the planned rounds of a corpus; read and write the manifest of a round, with its status.

A protocol is one YAML file in ``protocols/``; adding a protocol needs no code. The included protocols are those of the
papers.

A manifest is plain YAML in git. It holds digests, counts, dates and pseudonyms, never content.
"""

from __future__ import annotations

import re
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, AwareDatetime, Field, ValidationError, model_validator

from pipelines.core import formats
from pipelines.core.config.base import Fraction, Positive, Pseudonym, Section, faults, read_section
from pipelines.core.errors import AnnotationError, ConfigError, DataError
from pipelines.store import tables

FOLDER = Path(__file__).parent / "protocols"
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
    whether the round counts in the published agreement. ``splits`` are the splits to draw from, ``None`` for those that
    get gold (``gold.<corpus>.splits``). ``draw`` is how items are selected: ``sample``, a seeded draw; ``again``, the
    items of the earlier rounds named in ``again``; or ``disagreement``, the items whose gold differs from the votes of
    all labellers in ``against`` and, with ``marked``, those that an annotator marked as ambiguous or unfit. ``scheme``
    is the label scheme of the round if it is not the corpus's; its labels are no gold, and its agreement is measured in
    its own labels. ``described`` is whether items need a description and a note, approved by a second annotator, before
    labels become gold. A round of phase ``qualification`` asks about the hard cases of the rounds in ``again``, and
    ``bound`` is the mean Jaccard index from which on a person qualified; a later round with ``qualification`` takes
    only people of these rounds and people who qualified.
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


def protocols() -> list[str]:
    """Return the names of the annotation protocols included in the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def load_protocol(name: str) -> Protocol:
    """Return the annotation protocol with this name."""
    if name not in protocols():
        raise ConfigError("UnknownProtocol", name=name, known=", ".join(protocols()))
    return protocol_file(FOLDER / f"{name}.yaml")


def protocol_file(path: Path) -> Protocol:
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


FILE = "manifest.yaml"

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Moment = Annotated[AwareDatetime, AfterValidator(lambda moment: moment.astimezone(UTC))]
Status = Literal["open", "adjudicating", "closed"]


class RoundDecision(Section):
    """The decision at the end of an annotation round: whether its labels become gold (``go_on``), and a reason code."""

    go_on: bool
    reason: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
    at: Moment


class RoundManifest(Section):
    """The manifest of one annotation round: its fixed settings and its status.

    ``scheme_digest`` and ``guideline`` are the first 16 hex digits of the SHA-256 of the scheme's file and of the
    rendered guideline. ``blinding`` is always ``queues``: each annotator has a queue of their own and sees no other
    person's answers and no votes. ``size`` is the number of drawn items, which may be less than the size in the
    protocol. ``base`` is the commit of the corpus repository from which the items were drawn. Fields copied from the
    protocol are explained in :class:`pipelines.annotate.manifest.Planned`.
    """

    corpus: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
    round: Name
    protocol: str
    phase: Phase
    scheme: str
    scheme_digest: Digest
    guideline_version: Positive
    guideline: Digest
    seed: int
    size: Annotated[int, Field(ge=0)]
    overlap: Annotated[int, Field(ge=0)]
    batch_size: Positive
    blinding: Literal["queues"] = "queues"
    annotators: tuple[Pseudonym, ...]
    adjudicator: Pseudonym
    backend: str
    daily_cap: Positive
    gold: bool
    agreement: bool
    splits: tuple[str, ...] | None
    draw: Draw
    against: tuple[str, ...]
    marked: bool = False
    again: tuple[str, ...] = ()
    described: bool = False
    bound: Fraction | None = None
    qualification: Name | None = None
    # of a closed qualification: each person's mean Jaccard index against the settled labels
    scores: dict[Pseudonym, Fraction] = Field(default_factory=dict)
    base: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")]
    status: Status
    opened: Moment
    closed: Moment | None = None
    decision: RoundDecision | None = None

    @model_validator(mode="after")
    def _consistent(self) -> RoundManifest:
        ended = self.status == "closed"
        if ended != (self.closed is not None) or ended != (self.decision is not None):
            raise ValueError("a closed round must have a closing date and a decision; another round has neither")
        if len({*self.annotators, self.adjudicator}) <= len(self.annotators):
            raise ValueError("annotators and adjudicator must be different people")
        return self


def folder(root: Path, corpus: str, name: str) -> Path:
    """Return the folder of an annotation round: ``annotations/<corpus>/<round>``."""
    if not re.fullmatch(NAME, name):
        raise AnnotationError("UnknownRound", corpus=corpus, name=name, known=f"see `corpus round status {corpus}`")
    return root / "annotations" / corpus / name


def read(path: Path) -> RoundManifest:
    """Read the manifest of an annotation round from a file."""
    return read_section(
        RoundManifest, path, form="round", refuse=lambda why: DataError("BadManifest", file=_short(path), detail=why)
    )


def write(manifest: RoundManifest, path: Path) -> None:
    """Write a manifest as YAML, keys in the order of the class's fields; the same values give the same bytes."""
    try:
        whole = RoundManifest.model_validate(manifest.model_dump())
    except ValidationError as error:
        raise DataError("BadManifest", file=_short(path), detail=faults(error)) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    values = formats.stamped("round", whole.model_dump(mode="json"))
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    path.write_text(text, encoding="utf-8")


def opened(root: Path, corpus: str) -> list[RoundManifest]:
    """Return the manifests of a corpus's annotation rounds, open and closed, sorted by opening date and name."""
    manifests = []
    for path in sorted((root / "annotations" / corpus).glob(f"*/{FILE}")):
        manifest = read(path)
        if (manifest.corpus, manifest.round) != (corpus, path.parent.name):
            detail = f"the file is the manifest of {manifest.corpus}/{manifest.round}"
            raise DataError("BadManifest", file=_short(path), detail=detail)
        manifests.append(manifest)
    return sorted(manifests, key=lambda m: (m.opened, m.round))


def rows(root: Path, manifest: RoundManifest, name: str) -> list[dict[str, Any]] | None:
    """Return the rows of a round's table without content, or ``None`` if the round has no such table."""
    path, schema = folder(root, manifest.corpus, manifest.round) / f"{name}.parquet", tables.SCHEMAS[name]
    columns = [column for column in schema.names if column not in tables.sealed_columns(schema)]
    return tables.read(path, name=name, columns=columns).to_pylist() if path.exists() else None


def _short(path: Path) -> str:
    return "/".join(path.parts[-3:])
