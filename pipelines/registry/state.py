"""Where a model stands by its journal: who is champion, who was before, what was begun and not finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.registry.journal import Journal, Row

# Events after which the alias is where ``to_version`` says.
MOVES = ("promoted", "rolled_back", "withdrawn")


@dataclass(frozen=True)
class Standing:
    """What the rows of one model add up to.

    Args:
        name: the registered model.
        head: the number of its last row, 0 before the first.
        champion: the version that the alias must point to, ``None``: it must not be there.
        before: the champions to go back to, oldest first, without those withdrawn.
        intention: the row of a move that was begun and not ended.
        withdrawn: the versions that may not be champion again.
    """

    name: str
    head: int = 0
    champion: int | None = None
    before: tuple[int, ...] = ()
    intention: Row | None = None
    withdrawn: frozenset[int] = frozenset()

    def after(self, row: Row) -> Standing:
        """Return where the model stands after one more row."""
        champion, before, intention, withdrawn = self.champion, list(self.before), self.intention, self.withdrawn
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
                    # back to the latest time when it was champion
                    while before and before.pop() != champion:
                        pass
            case "withdrawn":
                intention, gone = None, _withdrawn(row)
                before = [version for version in before if version != gone]
                withdrawn |= {gone}
                champion = None if champion == gone else champion
        return Standing(self.name, row.number, champion, tuple(before), intention, withdrawn)


def _withdrawn(row: Row) -> int:
    """Return whom a withdrawal is about: its ``from_version``, for ``to_version`` is the champion afterwards."""
    return int(row.from_version or 0)


def of_rows(name: str, rows: Iterable[Row]) -> Standing:
    """Return where a model stands after its rows, oldest first."""
    standing = Standing(name)
    for row in rows:
        standing = standing.after(row)
    return standing


def standing(journal: Journal, name: str) -> Standing:
    """Return where a model stands now, from a journal whose chain holds.

    Raises:
        JournalBroken: it does not.
    """
    journal.verify(name)
    return of_rows(name, journal.rows(name))
