"""Re-check known records at their source, and mark those that are deleted there as due for a takedown.

A source omits posts that it does not show, and a partial outage looks the same. Every request therefore includes a post
that was just listed (the control): an answer that lacks the control proves nothing about the other posts. A record that
the source does not show is quarantined and checked again in the next run. A record that is missing twice in a row, or
marked at the source as deleted or removed, is due. The sweep takes nothing down itself: due records are stored in the
vault until a takedown has processed them, so that a killed process loses nothing. After a failed request, no record
counts as missing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any

from pipelines.collect.month import Window
from pipelines.collect.service import SubredditClosed
from pipelines.collect.sources import Lookup, open_source, sources_of
from pipelines.collect.submission import Dropped, Submission
from pipelines.core.config.operate import Band, Sweep
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import DataError, SourceUnavailable
from pipelines.core.process import silent
from pipelines.store.vault import checks
from pipelines.store.vault.checks import CLOSED, MARKS, MISSING, SEEN, Known, SweepTally
from pipelines.store.vault.vault import Vault


class SweepImplausible(DataError):
    """A source's answers suggest an outage; if they were believed, the sweep would take down much of a corpus."""


class LivenessContext:
    """The requests to a source of one sweep: count and interpret them, and cache which subreddits are readable."""

    def __init__(self, source: Lookup, *, corpus: str, subreddits: Sequence[str], terms: Sweep, believe: bool) -> None:
        self._source, self._corpus, self._subreddits = source, corpus, subreddits
        self._terms, self.believe = terms, believe
        # one of the names is the control
        self.batch = source.at_once - 1
        self._open: dict[str, bool] = {}
        self._control: list[str] = []
        self.requests = 0

    def open(self) -> None:
        """Choose the control post of this sweep: the newest post of the first subreddit that has one."""
        for subreddit in self._subreddits:
            self.shows(subreddit)
            if self._control:
                return

    def spent(self) -> str | None:
        """Return the exhausted limit of the sweep, ``requests`` or ``remain``; ``None`` if a request is allowed."""
        if self.requests >= self._terms.requests:
            return "requests"
        left = self._source.remaining()
        return "remain" if left is not None and left < self._terms.remain else None

    def shows(self, subreddit: str) -> bool:
        """Return whether the source shows a subreddit; each subreddit is requested once per sweep."""
        name = subreddit.lower()
        if name not in self._open:
            self.requests += 1
            try:
                newest = self._source.newest(subreddit)
            except SubredditClosed:
                self._open[name] = False
            else:
                self._open[name] = True
                self._control = self._control or [n for n in (newest,) if n]
        return self._open[name]

    def ask(self, fullnames: Sequence[str]) -> dict[str, str]:
        """Ask the source for posts; return each one's outcome: ``seen``, ``deleted``, ``removed``, or ``missing``."""
        shown, proven = self._info(fullnames)
        if not proven and not shown.keys() >= set(fullnames) and any(self._open.values()):
            # the control itself may have been deleted since it was listed
            self._open.clear()
            self._control.clear()
            self.open()
            shown, proven = self._info(fullnames)
        missing = len(set(fullnames) - shown.keys())
        if missing and not proven and any(self._open.values()):
            detail = f"an answer lacks the control post and {missing} of the {len(fullnames)} posts that were requested"
            raise SweepImplausible(corpus=self._corpus, detail=detail)
        # without a control, as every subreddit is closed, an answer proves no miss
        absent = MISSING if proven else CLOSED
        return {name: _outcome(shown[name]) if name in shown else absent for name in fullnames}

    def _info(self, fullnames: Sequence[str]) -> tuple[Mapping[str, Submission | Dropped], bool]:
        self.requests += 1
        shown = self._source.info([*fullnames, *self._control])
        return shown, self.believe or any(name in shown for name in self._control)

    def hides(self, subreddit: str | None) -> bool:
        """Return whether a post may be missing only because its subreddit (``None``: any of the corpus) is closed."""
        return not all(self.shows(name) for name in ([subreddit] if subreddit else self._subreddits))


def _outcome(post: Submission | Dropped) -> str:
    return post.reason if isinstance(post, Dropped) and post.reason in MARKS else SEEN


QUARANTINED = "quarantined"


def band_of(month: str, *, bands: Sequence[Band], now: datetime) -> Band:
    """Return the age band (with its re-check interval) of the records of a month."""
    age = now - _end(month)
    return next(b for b in bands if b.until_days is None or age < timedelta(days=b.until_days))


def name_of(known: Known, *, bands: Sequence[Band], now: datetime) -> str:
    """Return the displayed name of a record's age band: ``quarantined``, ``under 30 days`` or ``older``."""
    if known.quarantined:
        return QUARANTINED
    end = band_of(known.month, bands=bands, now=now).until_days
    return "older" if end is None else f"under {end} days"


def due_at(known: Known, *, terms: Sweep, now: datetime) -> datetime:
    """Return when a record's re-check is due: never checked ones at once, quarantined ones in the next run."""
    if known.checked_at is None:
        return known.first_seen
    if known.quarantined:
        return known.checked_at + timedelta(hours=terms.recheck_hours)
    return known.checked_at + timedelta(days=band_of(known.month, bands=terms.bands, now=now).every_days)


def due_records(records: Iterable[Known], *, terms: Sweep, now: datetime) -> list[Known]:
    """Return the records whose re-check is due now: quarantined ones first, then by how long they have been due."""
    times = {known: due_at(known, terms=terms, now=now) for known in records}
    ready = [known for known, time in times.items() if time <= now]
    return sorted(ready, key=lambda known: (not known.quarantined, times[known], known.record_id))


@cache
def _end(month: str) -> datetime:
    return Window.from_key(month).end


# Ours: after this many failed requests in a row, each tried three times by PRAW, the rest would fail as well.
FAILURES = 3

Say = Callable[[str], None]
Homes = Callable[[], Mapping[str, str]]


def lookups(params: Params, *, corpus: str | None = None) -> dict[str, type[Lookup]]:
    """Return the sources that know which of their records still exist, of all or of a corpus, whose ids they share."""
    classes = sources_of(params)
    schemes = {classes[n].scheme for n in (params.corpora[corpus].sources if corpus else classes) if n in classes}
    return {n: kind for n, kind in classes.items() if issubclass(kind, Lookup) and kind.scheme in schemes}


def clients(corpus: str, *, params: Params, settings: Settings, today: date) -> list[Lookup]:
    """Return clients of a corpus's lookups with the collectors' approval; no request is sent yet."""
    terms: dict[str, Any] = {"params": params, "settings": settings, "today": today}
    return [open_source(name, Lookup, **terms) for name in lookups(params, corpus=corpus)]


def due(vault: Vault, corpus: str) -> dict[str, str]:
    """Return the records of a corpus due for a takedown -> ``deleted``, ``removed`` or ``missing`` (twice in a row).

    What a sweep found that did not complete (killed, or the source failed) is due only after a complete sweep.
    """
    with vault.database.reading() as connection:
        return checks.gone(connection, corpus=corpus)


def dry_run(
    corpus: str, *, sources: Collection[type[Lookup]], terms: Sweep, vault: Vault, now: datetime
) -> dict[str, Any]:
    """Count the records that :func:`run` would check, and the requests for them; send and write nothing."""
    records, names = _askable(vault, corpus=corpus, sources=sources)
    known = [k for k in records if any(k.record_id in own for own in names)]
    queues = [due_records((k for k in known if k.record_id in own), terms=terms, now=now) for own in names]
    queue = [known for part in queues for known in part]
    batches = [(source.at_once - 1, len(part)) for source, part in zip(sources, queues, strict=True)]
    within = {
        name: Counter(name_of(k, bands=terms.bands, now=now) for k in group)
        for name, group in (("all", known), ("due", queue))
    }
    return {
        "records": len(known),
        "imported": len(records) - len(known),
        "due": len(queue),
        "requests": sum(min(terms.requests, 1 + -(-size // batch)) for batch, size in batches if size),
        "left": sum(max(0, size - (terms.requests - 1) * batch) for batch, size in batches),
        "bands": {name: {"records": n, "due": within["due"][name]} for name, n in sorted(within["all"].items())},
        "takedown": len(due(vault, corpus)),
    }


def run(
    corpus: str,
    *,
    params: Params,
    terms: Sweep,
    vault: Vault,
    now: datetime,
    sources: Sequence[Lookup],
    homes: Homes | None = None,
    believe: bool,
    say: Say = silent,
) -> dict[str, Any]:
    """Check the records whose re-check is due, quarantined ones first, until the budget of requests is spent.

    Each request's answers are in the vault before the next is sent; a killed run resumes where it stopped. ``homes``
    returns the subreddit of each record and is called when the first one is missing: posts of a private or banned
    subreddit do not count as missing (``closed``), nor do posts of an unknown subreddit while any subreddit of the
    corpus is private or banned. ``believe`` accepts any share of missing records, because a person has confirmed that
    the posts are gone. ``failed`` counts records of requests that failed twice, ``stopped`` is the budget that ended
    the run.
    """
    records, owned = _askable(vault, corpus=corpus, sources=[type(source) for source in sources])
    due_now, requests, stopped = 0, 0, None
    counts = Counter(dict.fromkeys(("asked", "seen", "returned", "missing", "deleted", "removed", CLOSED, "failed"), 0))
    for source, names in zip(sources, owned, strict=True):
        queue = due_records((k for k in records if k.record_id in names), terms=terms, now=now)
        desk = LivenessContext(
            source, corpus=corpus, subreddits=params.corpora[corpus].subreddits, terms=terms, believe=believe
        )
        sweeper = _Sweeper(corpus, desk=desk, vault=vault, terms=terms, now=now, homes=homes)
        stopped = sweeper.work(queue, names=names, counts=counts, say=say) or stopped
        due_now, requests = due_now + len(queue), requests + desk.requests
    askable = len({record_id for names in owned for record_id in names})
    with vault.database.reading() as connection:
        after = checks.known(connection, corpus=corpus)
    return {
        "records": askable,
        "imported": len(records) - askable,
        "due": due_now,
        **counts,
        "left": due_now - counts["asked"],
        "requests": requests,
        "stopped": stopped,
        "quarantined": sum(known.quarantined for known in after),
        "takedown": len(due(vault, corpus)),
    }


class _Sweeper:
    """One run: sends requests, checks the answers for plausibility, and stores them."""

    def __init__(
        self, corpus: str, *, desk: LivenessContext, vault: Vault, terms: Sweep, now: datetime, homes: Homes | None
    ) -> None:
        self._corpus, self._desk, self._vault, self._terms = corpus, desk, vault, terms
        self._now, self._homes = now, homes
        self._subreddits: Mapping[str, str] | None = None
        self._begun, self._tally = now, SweepTally()

    def work(self, queue: Sequence[Known], *, names: dict[str, str], counts: Counter[str], say: Say) -> str | None:
        """Check the queued records and update ``counts``; return the limit that ended the run, if any."""
        with self._vault.database.writing() as connection:
            self._begun, self._tally = checks.begin(connection, corpus=self._corpus, now=self._now)
        if queue:
            self._desk.open()
        batch = self._desk.batch
        planned = queue[: batch * self._terms.requests]
        fresh = self._tally.fresh + sum(not known.quarantined for known in planned)
        todo = deque((planned[at : at + batch], False) for at in range(0, len(planned), batch))
        failures = 0
        stopped = None
        while todo and not (stopped := self._desk.spent()):
            part, again = todo.popleft()
            try:
                answers = self._answers(part, names=names)
            except SourceUnavailable:
                failures += 1
                if failures == FAILURES:
                    raise
                if again:
                    counts["failed"] += len(part)
                else:
                    todo.append((part, True))
                continue
            failures = 0
            self._judge(self._tally + SweepTally.of(answers), of=fresh)
            self._keep(answers, counts=counts)
            say(f"{counts['asked']} of {len(planned)} records")
        self._judge(self._tally, of=self._tally.fresh)
        with self._vault.database.writing() as connection:
            checks.succeed(connection, corpus=self._corpus, now=self._now)
        return stopped or ("requests" if len(planned) < len(queue) else None)

    def _answers(self, batch: Sequence[Known], *, names: dict[str, str]) -> dict[Known, str]:
        try:
            outcomes = self._desk.ask([names[known.record_id] for known in batch])
        except SweepImplausible:
            self._take_back()
            raise
        answers = {known: outcomes[names[known.record_id]] for known in batch}
        for known, outcome in answers.items():
            if outcome == MISSING and self._desk.hides(self._home(known.record_id)):
                answers[known] = CLOSED
        return answers

    def _home(self, record_id: str) -> str | None:
        if self._subreddits is None:
            self._subreddits = self._homes() if self._homes else {}
        return self._subreddits.get(record_id)

    def _judge(self, tally: SweepTally, *, of: int) -> None:
        """Stop if implausibly many records are gone; ``of``: the number of records not quarantined before the run."""
        if self._desk.believe:
            return
        terms, gone = self._terms, tally.missing + tally.marked
        for count, share, key in ((tally.missing, terms.max_missing, "missing"), (gone, terms.max_gone, "gone")):
            if count > terms.few and count > share * of:
                self._take_back()
                detail = f"{count} of {of} records are {key}, more than sweep.max_{key} ({share:g})"
                raise SweepImplausible(corpus=self._corpus, detail=detail)

    def _take_back(self) -> None:
        with self._vault.database.writing() as connection:
            checks.take_back(connection, corpus=self._corpus, since=self._begun, now=self._now)

    def _keep(self, answers: dict[Known, str], *, counts: Counter[str]) -> None:
        with self._vault.database.writing() as connection:
            kept = checks.note(connection, answers, corpus=self._corpus, now=self._now)
        self._tally += SweepTally.of({known: answers[known] for known in answers if known in kept})
        counts.update(answers.values())
        counts["asked"] += len(answers)
        counts["returned"] += sum(answer == SEEN and known.quarantined for known, answer in answers.items())


def _askable(vault: Vault, *, corpus: str, sources: Iterable[type[Lookup]]) -> tuple[list[Known], list[dict[str, str]]]:
    """Return all records, and for each source the ids of those that it is asked about: each record at one source."""
    with vault.database.reading() as connection:
        records = checks.known(connection, corpus=corpus)
    names, owned = vault.fullnames([known.record_id for known in records]), list[dict[str, str]]()
    for source in sources:
        owned.append({i: own for i, name in names.items() if (own := source.own(name)) is not None})
        names = {record_id: name for record_id, name in names.items() if record_id not in owned[-1]}
    return records, owned
