"""Sources of records: one class each, in a module of this package or in another distribution.

A source is what it can do: :class:`Monthly` ones have the records of a past month, :class:`Listed` ones show their
newest records, which a refresh reads, and :class:`Lookup` ones tell which of their records still exist.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import ConfigDict

from pipelines.collect.month import Gaps, Interval, Window
from pipelines.collect.submission import FULLNAME, Dropped, Submission
from pipelines.core.config.base import fitted
from pipelines.core.config.collect import SourceEntry
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.parts import Parts

if TYPE_CHECKING:
    from pipelines.collect.refresh_store import ResumeJournal

# Before the colon of a name; names of Reddit, of imported datasets and of malformed items have no such colon.
SCHEME = re.compile(r"(?!comment$|malformed$)[a-z][a-z0-9_-]*|")


class ClosedEntry(SourceEntry):
    """Base class of the entries of sources: of keys of their own, only those that they declare are accepted."""

    model_config = ConfigDict(extra="forbid")


class Source(ABC):
    """A source of records; nothing is sent before the first request.

    Its ``name`` is that in section ``sources`` of ``params.yaml``, and ``Parameters`` the model of the entry there.
    ``scheme`` is the namespace of its ids and authors (empty: Reddit's); records of one scheme with one id are one
    record. ``rate`` is the requests a minute that it grants, for estimates (0: it is read from disk). ``setting`` is
    the field of ``settings`` with its address; without one, ``CORPUS_<NAME>_URL`` and ``_KEY`` are read. ``variables``
    are needed.
    """

    name: ClassVar[str]
    scheme: ClassVar[str] = ""
    rate: ClassVar[int] = 0
    setting: ClassVar[str] = ""
    variables: ClassVar[tuple[str, ...]] = ()
    Parameters: ClassVar[type[SourceEntry]]
    params: Any

    def __init__(self, settings: Settings, *, params: Any, journal: ResumeJournal | None = None) -> None:
        """Take the parameters of the type :attr:`Parameters`; ``journal`` keeps what an interrupted read has got."""
        self.settings, self.params, self.journal = settings, params, journal
        self.connect()

    def connect(self) -> None:  # noqa: B027 - files need no connection
        """Check settings and create sessions; send nothing."""

    @abstractmethod
    def probe(self, *, windows: Sequence[Window], subreddits: Sequence[str]) -> str:
        """Make the cheapest request that shows that the source can be read; return what it showed, for the doctor."""

    @classmethod
    def address(cls, settings: Settings) -> str:
        """Return the address to which requests are sent, or ``""``."""
        return getattr(settings, cls.setting) if cls.setting else settings.endpoint(cls.name).url or ""

    @classmethod
    def estimate(cls, params: Any, *, posts: float, subreddits: int) -> tuple[int, list[str]]:
        """Return how many requests a month of so many posts takes, and notes about the estimate."""
        return 0, ["files are read from disk, each once for each month that it covers; pictures are downloaded"]

    def named(self, item: Submission | Dropped) -> Submission | Dropped:
        """Return an item with id and author in the namespace of the source's scheme."""
        prefix = f"{self.scheme}:" if self.scheme else ""
        if isinstance(item, Dropped):
            return replace(item, fullname=prefix + item.fullname) if prefix else item
        return replace(item, fullname=prefix + item.fullname, author=prefix + item.author, source=self.name)

    @classmethod
    def own(cls, fullname: str) -> str | None:
        """Return the id of a record in the source's own scheme, or ``None`` for one of another scheme."""
        if not cls.scheme:
            return fullname if FULLNAME.fullmatch(fullname) else None
        scheme, colon, own = fullname.partition(":")
        return own if colon and scheme == cls.scheme else None


class Monthly(Source):
    """A source of past months; it returns no data before it has read and verified all of it."""

    @abstractmethod
    def months(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield every record of the subreddits created in the window, each id once, in any order.

        What is marked as deleted is ``Dropped`` with a reason of ``submission.DELETIONS``. The addresses in ``media``
        are requested by the step ``images``, from the hosts of ``images.fetch.hosts`` only.
        """

    def submissions(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield the records of :meth:`months` under the names that the vault knows."""
        return map(self.named, self.months(window, subreddits=subreddits))

    def jobs(self, gaps: Gaps) -> Iterator[tuple[Interval, list[str]]]:
        """Yield what to read at once to fill gaps: an interval, and the subreddits."""
        yield from ((interval, [subreddit]) for subreddit, intervals in gaps.items() for interval in intervals)

    def covers(self, interval: Interval, *, newest: int) -> Interval:
        """Return the part of an interval of which nothing is missing once it is read; ``newest``: seen (epoch s)."""
        return interval


@dataclass(frozen=True, slots=True)
class ListedPost:
    """A post of a listing; ``name`` is what a page can begin after, ``created`` is ``None`` if unusable."""

    name: str
    subreddit: str
    created: datetime | None
    post: Submission | Dropped


class Listed(Source):
    """A source that lists its newest posts; its entry has ``listing``."""

    @abstractmethod
    def page(self, subreddit: str, *, after: str, limit: int) -> tuple[list[ListedPost], str]:
        """Return the posts after a cursor (empty: the newest) and the next cursor (empty on the last page)."""


class Lookup(Source):
    """A source that knows which of its records still exist. ``at_once``: names in a request at most."""

    at_once: ClassVar[int]

    @abstractmethod
    def info(self, names: Sequence[str]) -> Mapping[str, Submission | Dropped]:
        """Return those of these records that it shows now, by their own names."""

    @abstractmethod
    def newest(self, subreddit: str) -> str | None:
        """Return the name of a subreddit's newest post, or ``None`` if it shows no posts."""

    def remaining(self) -> float | None:
        """Return the unused share of the rate limit, if known."""
        return None


log = logging.getLogger(__name__)
Kind = TypeVar("Kind", bound=Source)
SOURCES: Parts[Source] = Parts("pipelines.collect.sources", Source)


def source_of(name: str, params: Params) -> type[Source]:
    """Return the class of a source."""
    source = SOURCES.get(name, params.distributions)
    if getattr(source, "name", None) != name or not SCHEME.fullmatch(source.scheme):
        raise ConfigError("BadPart", name=name, group=SOURCES.group, base="Source of that name and a valid scheme")
    return source


def sources_of(params: Params) -> dict[str, type[Source]]:
    """Return the classes of all sources; one whose part cannot be loaded is logged and left out."""
    classes = {}
    for name in params.sources:
        try:
            classes[name] = source_of(name, params)
        except ConfigError as error:
            log.warning("source %s is skipped: %s", name, error)
    return classes


def entry_of(name: str, params: Params) -> Any:
    """Return a source's entry in ``params.yaml`` as its own model."""
    return fitted(source_of(name, params).Parameters, params.sources[name], key=f"sources.{name}")


def open_source(
    name: str, kind: type[Kind], *, params: Params, settings: Settings, today: date, state: Path | None = None
) -> Kind:
    """Return a source of a kind if its approval is valid ``today``; a live one saves what it has read in ``state``."""
    live = params.sources[name].live
    params.sources[name].check(name, today=today)
    source = source_of(name, params)
    if live:
        settings.require_secret_apart(name, address=source.address(settings))
    journal = None
    if live and state:
        # brings the vault's libraries, which a check of parameters does not need
        from pipelines.collect.refresh_store import ResumeJournal

        journal = ResumeJournal(state, secret=settings.secret(), day=today)
    opened = source(settings, params=entry_of(name, params), journal=journal)
    if not isinstance(opened, kind):
        known = ", ".join(other for other in params.sources if issubclass(source_of(other, params), kind))
        raise ConfigError("UnknownName", kind=f"{kind.__name__.lower()} source", name=name, known=known or "none")
    return opened
