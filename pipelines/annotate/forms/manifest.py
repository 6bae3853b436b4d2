"""Read and write the manifest of an annotation round: its fixed settings and its status.

A manifest is plain YAML in git. It holds digests, counts, dates and pseudonyms, never content.
"""

from __future__ import annotations

import re
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, AwareDatetime, Field, ValidationError, model_validator

from pipelines.annotate.forms.protocol import NAME, Draw, Name, Phase
from pipelines.core.config.base import Fraction, Positive, Pseudonym, Section, faults, read_section
from pipelines.core.errors import AnnotationError, DataError
from pipelines.store import tables

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
    protocol are explained in :class:`pipelines.annotate.forms.protocol.Planned`.
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
        RoundManifest, path, refuse=lambda detail: DataError("BadManifest", file=_short(path), detail=detail)
    )


def write(manifest: RoundManifest, path: Path) -> None:
    """Write a manifest as YAML, keys in the order of the class's fields; the same values give the same bytes."""
    try:
        whole = RoundManifest.model_validate(manifest.model_dump())
    except ValidationError as error:
        raise DataError("BadManifest", file=_short(path), detail=faults(error)) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(whole.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
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
