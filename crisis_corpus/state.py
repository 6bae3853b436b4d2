"""Derive a model's state from its journal: the champion, earlier champions and an unfinished champion change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crisis_corpus.journal import JournalReader, JournalRow

# Events that put the alias on ``to_version``.
MOVES = ("promoted", "rolled_back", "withdrawn")
# Events that consumers see: the token changes, and webhooks are sent.
VISIBLE = (*MOVES, "stale")


@dataclass(frozen=True)
class Standing:
    """The state of one model (its champion and other versions), as its journal rows determine it.

    Args:
        champion: the version that MLflow's alias must point to, or ``None`` if the alias must not exist.
        before: the earlier champions that a rollback can restore, oldest first, without withdrawn versions.
        intention: the row ``intended`` of a champion change that is not finished, or ``None`` if there is none.
        stale: the versions that were trained on records taken down since, and when (ISO 8601) they are removed.
    """

    name: str
    head: int = 0
    champion: int | None = None
    before: tuple[int, ...] = ()
    intention: JournalRow | None = None
    withdrawn: frozenset[int] = frozenset()
    stale: Mapping[int, str] = field(default_factory=dict)

    def after(self, row: JournalRow) -> Standing:
        champion, before, intention, withdrawn = self.champion, list(self.before), self.intention, self.withdrawn
        stale = self.stale
        match row.event:
            case "intended":
                intention = row
            case "abandoned":
                intention = None
            case "promoted" | "rolled_back":
                intention, champion = None, row.to_version
                if row.event == "promoted" and self.champion is not None:
                    before.append(self.champion)
                elif row.event == "rolled_back":
                    # back to the last time at which it was champion
                    while before and before.pop() != champion:
                        pass
            case "withdrawn":
                # ``to_version`` is the champion afterwards
                intention, gone = None, int(row.from_version or 0)
                before = [version for version in before if version != gone]
                withdrawn |= {gone}
                champion = None if champion == gone else champion
            case "stale":
                # a later takedown does not move the deadline
                version = int(row.from_version or 0)
                until = str(row.metrics["until"])
                stale = {**stale, version: min(until, stale.get(version, until))}
        return Standing(self.name, row.number, champion, tuple(before), intention, withdrawn, stale)


def of_rows(name: str, rows: Iterable[JournalRow]) -> Standing:
    """Return the state of a model that follows from its journal rows, oldest first."""
    standing = Standing(name)
    for row in rows:
        standing = standing.after(row)
    return standing


def standing(journal: JournalReader, name: str) -> Standing:
    """Verify a model's journal and return the present state of the model."""
    journal.verify(name)
    return of_rows(name, journal.rows(name))
