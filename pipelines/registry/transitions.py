"""How the alias moves: an intention on record, the alias, its reading back, the deed on record.

The journal takes each number once, so of two intentions at once one comes second and its author is told who is ahead.
Killed after any step, the move is finished by repeating it. A process that was frozen meanwhile and wakes up finds its
intention closed, and puts the alias where the journal says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.errors import RegistryError
from pipelines.registry.journal import Journal, JournalMoved, Row
from pipelines.registry.state import MOVES, standing
from pipelines.registry.versions import CHALLENGER, CHAMPION, Registry

Step = Literal["gated", "intended", "moved", "recorded", "settled"]
Say = Callable[[Step], None]
Deed = Literal["promoted", "rolled_back", "withdrawn"]
# Tag of a version: the digest of the row by which it last became champion, by which a journal that was cut is noticed.
RECORDED = "journal"


class PromotionAhead(RegistryError):
    """Somebody else moves, or has just moved, this model's champion."""

    message = "{who} is ahead: row {number} of the journal of '{name}' ({event}, version {version}, {at})."
    remedy = (
        "Nothing was changed. If that is still open, it is finished by repeating it, or undone by"
        " `corpus promote {name} --abandon`; then decide again."
    )
    exit_code = 75


@dataclass(frozen=True)
class Move:
    """A move that was decided.

    Args:
        name: the registered model.
        deed: what it is called when it is done.
        champion: on whom it was decided.
        from_version: who goes: the champion, or the version that is withdrawn.
        to_version: the champion afterwards.
        who: decided.
        why: their reason.
        metrics: what it was decided on.
        files: the digest of the version's files.
    """

    name: str
    deed: Deed
    champion: int | None
    from_version: int | None
    to_version: int | None
    who: str
    why: str
    metrics: dict[str, Any]
    files: str | None


def intend(move: Move, *, journal: Journal) -> Row:
    """Write the intention, if the champion still is the one on whom it was decided, and nothing else is open.

    Raises:
        PromotionAhead: the champion is another one now, or another move is open.
    """
    while True:
        now = standing(journal, move.name)
        if now.intention is not None:
            raise ahead(now.intention)
        last = last_move(journal, move.name)
        if now.champion != move.champion and last is not None:
            raise ahead(last)
        try:
            return journal.append(
                move.name,
                event="intended",
                who=move.who,
                why=move.why,
                from_version=move.from_version,
                to_version=move.to_version,
                metrics={**move.metrics, "leads_to": move.deed},
                files=move.files,
                after=now.head,
            )
        except JournalMoved:
            # a registration or a verdict came between, or another move: look again
            continue


def finish(intention: Row, *, registry: Registry, journal: Journal, say: Say) -> Row:
    """Move the alias as intended, and return the row that says so.

    Raises:
        PromotionAhead: somebody gave the move up meanwhile; the alias is where the journal says.
    """
    name = intention.name
    registry.point(name, CHAMPION, intention.to_version)
    say("moved")
    row = _record(intention, journal=journal)
    say("recorded")
    settle(name, registry=registry, journal=journal)
    say("settled")
    if row.event == "abandoned":
        raise ahead(row)
    return row


def settle(name: str, *, registry: Registry, journal: Journal) -> int | None:
    """Put the alias where the journal says and return that version; an open move is left to whoever began it.

    Raises:
        JournalBroken: the journal was altered.
        AliasAstray: somebody moves the alias at the same time.
    """
    now = standing(journal, name)
    if now.intention is None:
        registry.point(name, CHAMPION, now.champion)
        if registry.alias(name, CHALLENGER) in {now.champion, *now.withdrawn} - {None}:
            registry.point(name, CHALLENGER, None)
        last = last_move(journal, name)
        if now.champion is not None and last is not None:
            registry.tag(registry.version(name, now.champion), {RECORDED: last.digest})
    return now.champion


def ahead(row: Row) -> PromotionAhead:
    """Return what to tell whoever comes second to this row."""
    version = row.from_version if row.to_version is None else row.to_version
    return PromotionAhead(
        name=row.name, who=row.who, number=row.number, event=row.event, version=version, at=row.at[:19] + "Z"
    )


def last_move(journal: Journal, name: str) -> Row | None:
    """Return the row by which the champion last changed."""
    return next((row for row in reversed(journal.rows(name)) if row.event in MOVES), None)


def _record(intention: Row, *, journal: Journal) -> Row:
    """Write the row that closes an intention, or return the one by which somebody else did."""
    while True:
        rows = journal.rows(intention.name)
        later = [row for row in rows if row.number > intention.number]
        if closing := [row for row in later if row.event in (*MOVES, "abandoned")]:
            return closing[0]
        try:
            return journal.append(
                intention.name,
                event=intention.metrics["leads_to"],
                who=intention.who,
                why=intention.why,
                from_version=intention.from_version,
                to_version=intention.to_version,
                metrics=intention.metrics,
                files=intention.files,
                after=rows[-1].number,
            )
        except JournalMoved:
            continue
