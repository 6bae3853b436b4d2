"""Define what annotation backends, the tools in which people annotate, get and give: tasks, queues and answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from pipelines.annotate.form import DOUBTFUL, REJECTED, UNFIT, Form
from pipelines.core.config.base import Section
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.parts import Parts

T = TypeVar("T")
Item = tuple[str, int]
"""A record and the number of its image; a text is image 0."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One annotator's queue of a round; ``name`` is ``corpus/round`` or ``corpus/round/adjudication``."""

    name: str
    annotator: str

    @property
    def title(self) -> str:
        """The name under which an annotation tool shows the queue."""
        return f"{self.name} · {self.annotator}"


@dataclass(frozen=True)
class AnnotationTask:
    """One item of an annotation queue, with the content that the annotator sees.

    ``text`` holds named passages (``title``, ``body``), ``image`` the bytes of a picture, and ``media_type`` the type
    of these bytes (``image/png``). ``sides`` are the conflicting answers shown to an adjudicator, by category and
    without names; ``disputed`` are the categories to decide. ``position`` orders tasks within the queue.
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
    """One annotator's answer to one item as the tool returned it, before validation.

    ``values`` maps each answered category, and ``UNFIT``, to the chosen strings. ``note`` is the annotator's free text;
    in an adjudication it is the rationale. ``by`` is the tool's name of the account that answered. ``id`` and
    ``answered`` (the time of the answer) distinguish several answers to one item. ``place`` is where a person finds it
    in a file, to correct it.
    """

    item: Item
    by: str
    id: str
    answered: datetime
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""
    seconds: float | None = None
    skipped: bool = False
    place: str = ""

    @property
    def unfit(self) -> bool:
        """Whether the annotator found that the item does not belong in the corpus; its labels do not count then."""
        return not self.skipped and REJECTED in self.values.get(UNFIT, ())

    @property
    def ambiguous(self) -> bool:
        """Whether the annotator marked the item as ambiguous; its labels count, and a review takes it in."""
        return not self.skipped and not self.unfit and DOUBTFUL in self.values.get(UNFIT, ())


def name_of(item: Item) -> str:
    """Return the name of an item in task and answer files: ``record_id/image``."""
    return f"{item[0]}/{item[1]}"


def item_of(name: str) -> Item:
    """Return the item (record id, image) of a name ``record_id/image``, or raise ``ValueError``."""
    record_id, slash, image = name.rpartition("/")
    if not (slash and record_id and image.isdecimal() and image.isascii()):
        raise ValueError("an item is record_id/image")
    return record_id, int(image)


def in_chunks(rows: Iterable[tuple[T, int]], *, size: int) -> Iterator[list[T]]:
    """Group ``(row, size)`` pairs into lists whose sizes sum to at most ``size``; a larger row is a list of its own."""
    chunk: list[T] = []
    left = size
    for row, length in rows:
        if chunk and length > left:
            yield chunk
            chunk, left = [], size
        chunk.append(row)
        left -= length
    if chunk:
        yield chunk


class Backend(ABC):
    """An annotation tool; repeating a call leaves existing queues and items unchanged.

    Attributes:
        accounts: the tool's account of each pseudonym, if it has accounts.
        keeps: whether the content of a round whose closing was interrupted can still be found without a server.
        Parameters: the model of its entry in ``round.backends`` of ``params.yaml``.
    """

    keeps: ClassVar[bool] = False
    Parameters: ClassVar[type[Section]] = Section
    accounts: Mapping[str, str]

    @classmethod
    @abstractmethod
    def open(cls, settings: Settings, *, params: Any, pseudonyms: Collection[str]) -> Backend:
        """Connect to the tool, with access for these pseudonyms."""

    @staticmethod
    def serve(settings: Settings, *, params: Params, port: int | None) -> dict[str, object]:
        """Start a server of the tool on this machine; return its address and what people need to log in."""
        raise ConfigError("NoServer", backend=params.round.backend)

    @abstractmethod
    def prepare(self, queue: Queue, *, form: Form) -> None:
        """Create the annotator's queue with its form in the tool if it does not exist."""

    @abstractmethod
    def present(self, queue: Queue) -> dict[Item, datetime]:
        """Return each item in the queue with the time at which it was added; empty if the queue does not exist."""

    @abstractmethod
    def add(self, queue: Queue, *, tasks: Sequence[AnnotationTask]) -> None:
        """Add annotation tasks to the queue; skip items that are already in it."""

    @abstractmethod
    def answers(self, queue: Queue) -> list[AnnotatorAnswer]:
        """Return all submitted answers and skips in the queue, sorted by item, time and id, without drafts."""

    @abstractmethod
    def remove(self, queue: Queue, *, items: Collection[Item]) -> None:
        """Remove items from the annotator's queue, with the answers to them."""

    @abstractmethod
    def purge(self, queues: Collection[Queue]) -> None:
        """Delete the queues and all their data, including deleted rows that remain in the tool's database."""

    @abstractmethod
    def address(self, queue: Queue) -> str:
        """Return the URL or file path where the annotator works on the queue."""


BACKENDS: Parts[Backend] = Parts("pipelines.annotate.backends", Backend)
