"""What a place where people annotate must be able to do, whatever tool it is.

A *queue* is what one annotator is asked in one round; queues of a round know nothing of each other, which is what makes
annotators blind to one another. Backends keep plain content for as long as a round lasts, and nothing after ``purge``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pipelines.annotate.form import Form

Item = tuple[str, int]
"""A record and the number of its image; a text is image 0."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Where one annotator answers: ``corpus/round`` (or ``corpus/round/adjudication``) and their pseudonym."""

    name: str
    annotator: str

    @property
    def title(self) -> str:
        """The one string that a tool shows and finds the queue by."""
        return f"{self.name} · {self.annotator}"


@dataclass(frozen=True)
class Task:
    """One item as it is shown.

    ``text`` holds named passages (``title``, ``body``), ``image`` the bytes of a picture and ``media_type`` what they
    are (``image/png``). ``sides`` are the answers between which an adjudicator decides, by category and without names;
    ``disputed`` the categories that are to be decided. ``position`` orders tasks within the queue.
    """

    item: Item
    position: int
    text: Mapping[str, str] = field(default_factory=dict)
    image: bytes | None = None
    media_type: str | None = None
    sides: tuple[Mapping[str, tuple[str, ...]], ...] = ()
    disputed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came back for one item, as the tool has it and unchecked.

    ``values`` has the strings chosen for each question that was answered at all. ``note`` is the annotator's own words
    (an adjudicator's rationale). ``by`` is the account that answered, as the tool names it. ``id`` and ``answered``
    tell two answers to one item apart.
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
    """A place where people annotate. Every call may be repeated: what is there already is left as it is.

    ``accounts`` says which account each pseudonym answers from (``Answer.by``), where the place tells accounts apart.
    """

    accounts: Mapping[str, str]

    def prepare(self, queue: Queue, *, form: Form) -> None:
        """Make the queue with its form, where it does not exist.

        Raises:
            BackendUnavailable: the tool does not answer or rejects the credentials.
        """

    def present(self, queue: Queue) -> dict[Item, datetime]:
        """Return the items that the queue holds and when each came in; empty where there is no such queue."""

    def add(self, queue: Queue, *, tasks: Sequence[Task]) -> None:
        """Put tasks into the queue; items that it holds already are left out."""

    def answers(self, queue: Queue) -> list[Answer]:
        """Return everything that was answered or skipped, drafts left out, in the order of item, time and id."""

    def remove(self, queue: Queue, *, items: Collection[Item]) -> None:
        """Take items out with their answers: the records were taken down while the round was open."""

    def purge(self, queues: Collection[Queue]) -> None:
        """Remove the queues with all that the tool keeps of them, deleted rows in its database included.

        Raises:
            BackendUnavailable: something of them may be left; repeat it.
        """

    def address(self, queue: Queue) -> str:
        """Return where the annotator goes: an address or a path."""


PROBLEMS = (
    "unanswered",
    "answered_twice",
    "outside_scheme",
    "against_rules",
    "incomplete",
    "not_assigned",
    "other_account",
)
"""What may be wrong with an annotator's queue, counted by pseudonym and never more than counted."""
