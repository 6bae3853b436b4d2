"""Promote, roll back, withdraw and reject model versions; :mod:`pipelines.registry.transitions` sets the alias.

A change of the champion is open from the journal row that announces it until the row that completes it. Each function
is idempotent: repeating it finishes its open change, and does nothing if that change is complete. An open change can
only be finished by repeating the call or undone by :func:`abandon`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from crisis_corpus.journal import MOVES, JournalRow, Standing, standing
from pipelines.core.errors import ConfigError, RegistryError
from pipelines.core.process import silent
from pipelines.registry import transitions
from pipelines.registry.candidate import Context, enter, scratch
from pipelines.registry.journal import require_two, signed
from pipelines.registry.transitions import Deed, Move, Say

if TYPE_CHECKING:
    from pipelines.registry.promotion.gate import GateVerdict


class NotPromoted(RegistryError):
    """A model version failed the gate (the checks before a promotion) or the check of its files."""


@dataclass(frozen=True)
class Moved:
    """The result of a decision about a model's champion.

    Args:
        row: the journal row that records the change; ``None`` in a dry run.
        already: whether the row existed before the call.
    """

    name: str
    champion: int | None
    row: JournalRow | None
    already: bool = False
    verdict: GateVerdict | None = None


def promote(
    name: str,
    version: int,
    *,
    who: str,
    why: str,
    context: Context,
    asked_by: str | None = None,
    dry_run: bool = False,
    compare: bool = True,
    say: Say = silent,
) -> Moved:
    """Make a model version the champion if it passes the gate (:mod:`pipelines.registry.promotion.gate`).

    Args:
        asked_by: the person who asked for the decision; by default the one who ran the gate. With
            ``promote.four_eyes`` it must be another than ``who``.
        dry_run: return the verdict without writing anything, and without a comparison that was not made before.
        compare: whether the version must be better than the champion; see :func:`gate.run`.
    """
    # a takedown withdraws versions without the gate and its metrics
    from pipelines.registry.promotion import gate

    signed(who, why)
    if dry_run:
        verdict = gate.judge(name, version, context=context, look=False)
        return Moved(name, verdict.champion, None, verdict=verdict)
    if context.terms.four_eyes:
        judged = [row for row in context.journal.rows(name) if (row.event, row.to_version) == ("gated", version)]
        gated_by = judged[-1].who if judged else None
        require_two(who, asked_by=gated_by if asked_by is None else asked_by)
    now, begun = _begun(name, context=context, deed="promoted", version=version)
    if begun is not None:
        return _finish(begun, context=context, say=say)
    try:
        verdict = gate.run(name, version, context=context, who=who, compare=compare)
    except gate.ChampionAlready:
        # repeated after the move was recorded; the last steps may be missing
        return _settled(name, context=context)
    say("gated")
    if not verdict.passed:
        raise NotPromoted(name=name, version=version, detail="; ".join(verdict.reasons))
    champion = verdict.champion if compare else now.champion
    decided = {"basis": verdict.basis, "figures": verdict.figures}
    move = Move(name, "promoted", champion, champion, version, who, why, decided, verdict.files)
    return _move(move, context=context, say=say)


def rollback(
    name: str, *, who: str, why: str, context: Context, leaving: int | None = None, say: Say = silent
) -> Moved:
    """Make the previous champion of a model champion again, after checking that its files are unchanged.

    The journal row has the number of training records of that version that were taken down since; they do not prevent
    the rollback. A takedown withdraws a version if their share is too large, and rollback skips withdrawn versions.

    Args:
        leaving: the champion to roll back from; if given, repeating a finished rollback does not restore a still
            earlier version.
    """
    signed(who, why)
    now, begun = _begun(name, context=context, deed="rolled_back", version=None)
    if begun is not None:
        return _finish(begun, context=context, say=say)
    if leaving is not None and now.champion != leaving:
        last = transitions.last_move(context.journal, name)
        if last is not None and (last.event, last.from_version) == ("rolled_back", leaving):
            return _settled(name, context=context)
        raise ConfigError("NothingToUndo", name=name, detail=f"version {leaving} is not champion")
    if not now.before:
        raise ConfigError("NothingToUndo", name=name, detail="no earlier version was champion")
    target = now.before[-1]
    gone, files = _fit(name, target, context=context)
    move = Move(name, "rolled_back", now.champion, now.champion, target, who, why, {"taken_down": gone}, files)
    return _move(move, context=context, say=say)


def withdraw(name: str, version: int, *, who: str, why: str, context: Context, say: Say = silent) -> Moved:
    """Withdraw a model version permanently: remove its aliases and exclude it from rollbacks; its files are kept.

    Repeating it changes nothing. If the version was champion, the model has no champion until ``rollback`` restores the
    previous one.
    """
    signed(who, why)
    now, begun = _begun(name, context=context, deed="withdrawn", version=version)
    if begun is not None:
        return _finish(begun, context=context, say=say)
    if version in now.withdrawn:
        return _settled(name, context=context)
    files = context.registry.version(name, version).digest or None
    left = None if now.champion == version else now.champion
    move = Move(name, "withdrawn", now.champion, version, left, who, why, {}, files)
    return _move(move, context=context, say=say)


def reject(name: str, version: int, *, who: str, why: str, context: Context) -> JournalRow:
    """Record that a person rejected a model version that had passed the gate, and remove its alias ``challenger``."""
    now = standing(context.journal, name)
    rejected = context.registry.version(name, version)
    last = context.journal.last(name)
    same = (last.event, last.to_version, last.who, last.why) if last is not None else None
    if last is None or same != ("refused", version, who.strip(), why.strip()):
        row: dict[str, Any] = {"from_version": now.champion, "to_version": version, "files": rejected.digest or None}
        last = context.journal.append(name, event="refused", who=who, why=why, **row)
    transitions.dismiss(name, version, registry=context.registry)
    return last


def abandon(name: str, *, who: str, why: str, context: Context) -> Moved:
    """Abandon a model's unfinished change of champion, and set the alias back to the champion in the journal."""
    now = standing(context.journal, name)
    if now.intention is None:
        closing = [row for row in context.journal.rows(name) if row.event in (*MOVES, "abandoned")]
        if not closing or closing[-1].event != "abandoned":
            raise ConfigError("NothingToUndo", name=name, detail="no change of the champion is in progress")
        # repeated after the row was written; the alias may not be restored yet
        return replace(_settled(name, context=context), row=closing[-1])
    versions: dict[str, Any] = {"from_version": now.intention.to_version, "to_version": now.champion}
    row = context.journal.append(name, event="abandoned", who=who, why=why, **versions, after=now.head)
    _settled(name, context=context)
    return Moved(name, now.champion, row)


def _begun(name: str, *, context: Context, deed: Deed, version: int | None) -> tuple[Standing, JournalRow | None]:
    """Return the model's state, and the intention of this move if it was begun before."""
    now = standing(context.journal, name)
    if now.intention is None:
        return now, None
    about = now.intention.from_version if deed == "withdrawn" else now.intention.to_version
    if now.intention.metrics.get("leads_to") != deed or version not in (None, about):
        raise transitions.ahead(now.intention)
    return now, now.intention


def _move(move: Move, *, context: Context, say: Say) -> Moved:
    intention = transitions.intend(move, journal=context.journal)
    say("intended")
    return _finish(intention, context=context, say=say)


def _finish(intention: JournalRow, *, context: Context, say: Say) -> Moved:
    row = transitions.finish(intention, registry=context.registry, journal=context.journal, say=say)
    transitions.anchor(intention.name, journal=context.journal, settings=context.settings)
    return Moved(intention.name, row.to_version, row)


def _fit(name: str, version: int, *, context: Context) -> tuple[int, str]:
    """Check a version's files; return how many of its records were taken down, and the digest of its files."""
    with scratch(context.settings) as folder:
        entry = enter(context.registry.version(name, version), context=context, folder=folder)
        wrong = [f"{check}: {reason}" for check, reasons in entry.faults.items() for reason in reasons]
    if wrong or entry.pack is None:
        detail = "; ".join(wrong) or "files: the description of the model is missing"
        raise NotPromoted(name=name, version=version, detail=detail)
    return entry.taken_down(context.vault), entry.found


def _settled(name: str, *, context: Context) -> Moved:
    champion = transitions.settle(name, registry=context.registry, journal=context.journal)
    transitions.anchor(name, journal=context.journal, settings=context.settings)
    return Moved(name, champion, transitions.last_move(context.journal, name), already=True)
