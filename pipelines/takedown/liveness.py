"""How Reddit is asked about posts: within a budget, and with a control in each request that shows it is answering.

Reddit leaves out posts that it does not show, and so does a Reddit that is unwell. A post that was just listed goes
along with every request: an answer without even that one says nothing of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pipelines.collect.sources.service import SubredditClosed
from pipelines.collect.submission import Dropped, parse
from pipelines.config.sweep import Sweep
from pipelines.errors import DataError
from pipelines.vault.checks import MARKS, MISSING, SEEN

# Reddit answers a hundred names a request; one of them is the control.
BATCH = 99


class Reddit(Protocol):
    """What is asked of :class:`pipelines.collect.sources.reddit.RedditSource`."""

    def info(self, fullnames: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return what is shown now of at most 100 posts."""

    def newest(self, subreddit: str) -> str | None:
        """Return the fullname of a subreddit's newest post."""

    def remaining(self) -> float | None:
        """Return which share of the client id's requests is left."""


class SweepImplausible(DataError):
    """Reddit's answers look like an outage; a sweep that believed them would take down much of a corpus."""

    message = "The sweep of {corpus} stopped: {detail}."
    remedy = (
        "Nothing that it found missing was kept. If Reddit is well and the posts are gone, run corpus sweep --believe."
    )


class Desk:
    """One run's requests: counts them, knows which subreddits Reddit shows, and reads the answers."""

    def __init__(self, reddit: Reddit, *, corpus: str, subreddits: Sequence[str], terms: Sweep, believe: bool) -> None:
        """``believe``: take an answer that is empty for what it says."""
        self._reddit, self._corpus, self._subreddits = reddit, corpus, subreddits
        self._terms, self._believe = terms, believe
        self._open: dict[str, bool] = {}
        self._control: list[str] = []
        self.requests = 0

    def open(self) -> None:
        """Find the control: the newest post of the first subreddit that shows one.

        Raises:
            SourceError: Reddit cannot be asked.
        """
        for subreddit in self._subreddits:
            self.shows(subreddit)
            if self._control:
                return

    def spent(self) -> str | None:
        """Return what keeps the next request from being sent, ``requests`` or ``remain``, or ``None``."""
        if self.requests >= self._terms.requests:
            return "requests"
        left = self._reddit.remaining()
        return "remain" if left is not None and left < self._terms.remain else None

    def shows(self, subreddit: str) -> bool:
        """Say whether a subreddit can be read at all; each is asked for once a run."""
        name = subreddit.lower()
        if name not in self._open:
            self.requests += 1
            try:
                newest = self._reddit.newest(subreddit)
            except SubredditClosed:
                self._open[name] = False
            else:
                self._open[name] = True
                self._control = self._control or [n for n in (newest,) if n]
        return self._open[name]

    def ask(self, fullnames: Sequence[str]) -> dict[str, str]:
        """Return the outcome of each: ``seen``, ``deleted``, ``removed``, or ``missing`` from the answer.

        Raises:
            SweepImplausible: the answer is empty though Reddit shows a subreddit.
            SourceError: Reddit cannot be asked; nothing is known of any of them.
        """
        self.requests += 1
        shown = self._reddit.info([*fullnames, *self._control])
        if not shown and any(self._open.values()) and not self._believe:
            detail = f"a request for {len(fullnames)} posts was answered with none at all"
            raise SweepImplausible(corpus=self._corpus, detail=detail)
        return {name: _outcome(shown[name]) if name in shown else MISSING for name in fullnames}

    def hides(self, subreddit: str | None) -> bool:
        """Say whether a post may be missing because its subreddit is closed; of an unknown one, any of the corpus's."""
        return not all(self.shows(name) for name in ([subreddit] if subreddit else self._subreddits))


def _outcome(item: Mapping[str, Any]) -> str:
    parsed = parse(item, source="reddit", source_digest="")
    return parsed.reason if isinstance(parsed, Dropped) and parsed.reason in MARKS else SEEN
