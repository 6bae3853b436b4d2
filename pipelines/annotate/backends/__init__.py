"""Annotation backends: one class each, in a module of this package or in another distribution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from pipelines.annotate.backend import AnnotationTask, AnnotatorAnswer, Item, Queue
from pipelines.annotate.forms.form import Form
from pipelines.core.config.base import Section
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.parts import Parts


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
