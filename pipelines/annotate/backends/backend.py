"""Define the interface of annotation backends, independent of the tool.

A *queue* holds one annotator's items of one round; the queues of a round are isolated, which blinds annotators to each
other. Backends hold plain content while a round is open, and nothing after ``purge``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from pipelines.annotate.form import Form

T = TypeVar("T")
Item = tuple[str, int]
"""A record and the number of its image; a text is image 0."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One annotator's queue: ``corpus/round`` (or ``corpus/round/adjudication``) and the annotator's pseudonym."""

    name: str
    annotator: str

    @property
    def title(self) -> str:
        """The string by which a tool shows and finds the queue."""
        return f"{self.name} · {self.annotator}"


@dataclass(frozen=True)
class AnnotationTask:
    """One item with the content that is shown.

    ``text`` holds named passages (``title``, ``body``), ``image`` the bytes of a picture and ``media_type`` their type
    (``image/png``). ``sides`` are the answers between which an adjudicator decides, by category and without names;
    ``disputed`` are the categories to decide. ``position`` orders tasks within the queue.
    """

    item: Item
    position: int
    text: Mapping[str, str] = field(default_factory=dict)
    image: bytes | None = None
    media_type: str | None = None
    sides: tuple[Mapping[str, tuple[str, ...]], ...] = ()
    disputed: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnnotatorAnswer:
    """The unchecked answer to one item, unchanged from the tool.

    ``values`` has the strings chosen for each answered question. ``note`` is the annotator's free text (an
    adjudicator's rationale). ``by`` is the tool's name of the account that answered. ``id`` and ``answered``
    distinguish several answers to one item.
    """

    item: Item
    by: str
    id: str
    answered: datetime
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""
    seconds: float | None = None
    skipped: bool = False


class Backend(Protocol):
    """An annotation tool. Every call is repeatable: existing queues and items are left unchanged.

    ``accounts`` has the account (``Answer.by``) of each pseudonym, if the tool distinguishes accounts.
    """

    accounts: Mapping[str, str]

    def prepare(self, queue: Queue, *, form: Form) -> None:
        """Create the queue with its form if it does not exist.

        Raises:
            BackendUnavailable: the tool does not answer or rejects the credentials.
        """

    def present(self, queue: Queue) -> dict[Item, datetime]:
        """Return the queue's items and the time each was added; empty if the queue does not exist."""

    def add(self, queue: Queue, *, tasks: Sequence[AnnotationTask]) -> None:
        """Add tasks to the queue; items that it already holds are left out."""

    def answers(self, queue: Queue) -> list[AnnotatorAnswer]:
        """Return all answers and skips without drafts, sorted by item, time and id."""

    def remove(self, queue: Queue, *, items: Collection[Item]) -> None:
        """Remove items with their answers, for records that were taken down while the round was open."""

    def purge(self, queues: Collection[Queue]) -> None:
        """Remove the queues with all their data, including deleted rows in the tool's database.

        Raises:
            BackendUnavailable: data may be left; repeat the call.
        """

    def address(self, queue: Queue) -> str:
        """Return the URL or path where the annotator answers."""


PROBLEMS = (
    "unanswered",
    "answered_twice",
    "outside_scheme",
    "against_rules",
    "incomplete",
    "not_assigned",
    "other_account",
)
"""Possible problems of an annotator's queue; they are only counted, by pseudonym."""


def in_chunks(rows: Iterable[tuple[T, int]], *, size: int, most: int | None = None) -> Iterator[list[T]]:
    """Yield rows, each given with its size, in chunks of at most ``size`` in total and of at most ``most`` rows.

    A row that is larger is a chunk of its own.
    """
    chunk: list[T] = []
    left = size
    for row, length in rows:
        if chunk and (length > left or len(chunk) == most):
            yield chunk
            chunk, left = [], size
        chunk.append(row)
        left -= length
    if chunk:
        yield chunk
