"""How a champion changes and how that is undone: the decisions; :mod:`pipelines.registry.transitions` has the steps.

Each function may be repeated: what was begun is finished, what was done is not done twice. What is half done is
finished by repeating it or undone by :func:`abandon`, and by nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipelines.errors import ConfigError, RegistryError
from pipelines.promotion import gate
from pipelines.promotion.gate import ChampionAlready, Verdict, dismiss
from pipelines.registry import transitions
from pipelines.registry.candidate import Context, enter, scratch
from pipelines.registry.journal import Row, said
from pipelines.registry.state import MOVES, Standing, standing
from pipelines.registry.transitions import Deed, Move, Say, Step


class NotPromoted(RegistryError):
    """The gate, or a look at the files, speaks against a version."""

    message = "Version {version} of '{name}' may not be champion: {detail}."
    remedy = "Nothing was changed. `corpus registry {name}` shows the figures."
    exit_code = 77


class NothingToUndo(ConfigError):
    """There is no earlier champion, or nothing that was begun."""

    message = "There is nothing to undo for '{name}': {detail}."
    remedy = "`corpus registry {name}` shows the journal."


@dataclass(frozen=True)
class Moved:
    """What came of it: the champion now, and the row that says so; ``already``: nothing was left to do."""

    name: str
    champion: int | None
    row: Row | None
    already: bool = False
    verdict: Verdict | None = None


def promote(
    name: str, version: int, *, who: str, why: str, context: Context, dry_run: bool = False, say: Say | None = None
) -> Moved:
    """Make a version champion if it passes the gate.

    Args:
        name: the registered model.
        version: the candidate.
        who: decides; not empty.
        why: their reason; not empty.
        context: see there.
        dry_run: judge, and write nothing at all.
        say: told after each step; a test kills the process there.

    Raises:
        BadParams: who or why is empty.
        NotPromoted: the gate speaks against it; the reasons are on record.
        PromotionAhead: another move is open, or has just changed the champion that the gate compared with.
        UnknownModel: no model has this name.
        UnknownVersion: the model has no such version.
        JournalBroken: the journal was altered.
    """
    said(who, where="who")
    said(why, where="why")
    if dry_run:
        verdict = gate.judge(name, version, context=context)
        return Moved(name, verdict.champion, None, verdict=verdict)
    _, begun = _begun(name, context=context, deed="promoted", version=version)
    if begun is not None:
        return _finish(begun, context=context, say=say)
    try:
        verdict = gate.run(name, version, context=context, who=who)
    except ChampionAlready:
        # repeated after all was done but, perhaps, the last steps
        return _settled(name, context=context)
    (say or _nobody)("gated")
    if not verdict.passed:
        raise NotPromoted(name=name, version=version, detail="; ".join(verdict.reasons))
    champion, decided = verdict.champion, {"basis": verdict.basis, "figures": verdict.figures}
    move = Move(name, "promoted", champion, champion, version, who, why, decided, verdict.files)
    return _move(move, context=context, say=say)


def rollback(
    name: str, *, who: str, why: str, context: Context, leaving: int | None = None, say: Say | None = None
) -> Moved:
    """Make the champion before the present one champion again, if its files are what was registered.

    Records of it that were taken down since are counted in the row and do not hinder: over a threshold such a version
    is withdrawn, and then it is no champion to go back to.

    Args:
        name: the registered model.
        who: decides; not empty.
        why: their reason; not empty.
        context: see there.
        leaving: the champion to be left; with it, repeating a rollback that was done goes no further back.
        say: told after each step.

    Raises:
        BadParams: who or why is empty.
        NothingToUndo: there is no champion before.
        NotPromoted: its files are not what was registered.
        PromotionAhead: another move is open.
        JournalBroken: the journal was altered.
    """
    said(who, where="who")
    said(why, where="why")
    now, begun = _begun(name, context=context, deed="rolled_back", version=None)
    if begun is not None:
        return _finish(begun, context=context, say=say)
    if leaving is not None and now.champion != leaving:
        last = transitions.last_move(context.journal, name)
        if last is not None and (last.event, last.from_version) == ("rolled_back", leaving):
            return _settled(name, context=context)
        raise NothingToUndo(name=name, detail=f"version {leaving} is not champion")
    if not now.before:
        raise NothingToUndo(name=name, detail="no version was champion before")
    target = now.before[-1]
    gone, files = _fit(name, target, context=context)
    move = Move(name, "rolled_back", now.champion, now.champion, target, who, why, {"taken_down": gone}, files)
    return _move(move, context=context, say=say)


def withdraw(name: str, version: int, *, who: str, why: str, context: Context, say: Say | None = None) -> Moved:
    """Take a version back for good: it loses its aliases, and is no champion to go back to; its files stay.

    Repeating it changes nothing. If it was champion, there is none afterwards, and ``rollback`` names the one before.

    Raises:
        BadParams: who or why is empty.
        UnknownVersion: there is no such version.
        PromotionAhead: another move is open; if it is towards this version, abandon it first.
        JournalBroken: the journal was altered.
    """
    said(who, where="who")
    said(why, where="why")
    now, begun = _begun(name, context=context, deed="withdrawn", version=version)
    if begun is not None:
        return _finish(begun, context=context, say=say)
    if version in now.withdrawn:
        return _settled(name, context=context)
    files = context.registry.version(name, version).digest or None
    left = None if now.champion == version else now.champion
    move = Move(name, "withdrawn", now.champion, version, left, who, why, {}, files)
    return _move(move, context=context, say=say)


def reject(name: str, version: int, *, who: str, why: str, context: Context) -> Row:
    """Put on record that a person said no to a version that had passed the gate; it is challenger no more.

    Raises:
        BadParams: who or why is empty.
        UnknownVersion: there is no such version.
    """
    now = standing(context.journal, name)
    found = context.registry.version(name, version)
    last = context.journal.last(name)
    same = (last.event, last.to_version, last.who, last.why) if last is not None else None
    if last is None or same != ("refused", version, who.strip(), why.strip()):
        last = context.journal.append(
            name,
            event="refused",
            who=who,
            why=why,
            from_version=now.champion,
            to_version=version,
            files=found.digest or None,
        )
    dismiss(name, version, registry=context.registry)
    return last


def abandon(name: str, *, who: str, why: str, context: Context) -> Moved:
    """Give up a move that was begun and not finished: the alias goes back to where it was.

    Raises:
        BadParams: who or why is empty.
        NothingToUndo: nothing is open.
        JournalMoved: it was finished at this moment.
        JournalBroken: the journal was altered.
    """
    now = standing(context.journal, name)
    if now.intention is None:
        closing = [row for row in context.journal.rows(name) if row.event in (*MOVES, "abandoned")]
        if not closing or closing[-1].event != "abandoned":
            raise NothingToUndo(name=name, detail="no move is open")
        # repeated after the row was written and, perhaps, not the alias
        return replace(_settled(name, context=context), row=closing[-1])
    row = context.journal.append(
        name,
        event="abandoned",
        who=who,
        why=why,
        from_version=now.intention.to_version,
        to_version=now.champion,
        after=now.head,
    )
    _settled(name, context=context)
    return Moved(name, now.champion, row)


def _nobody(step: Step) -> None:
    """Tell nobody."""


def _begun(name: str, *, context: Context, deed: Deed, version: int | None) -> tuple[Standing, Row | None]:
    """Return where the model stands, and the intention of this very move if it was begun before.

    Raises:
        PromotionAhead: another move is open.
    """
    now = standing(context.journal, name)
    if now.intention is None:
        return now, None
    about = now.intention.from_version if deed == "withdrawn" else now.intention.to_version
    if now.intention.metrics.get("leads_to") != deed or version not in (None, about):
        raise transitions.ahead(now.intention)
    return now, now.intention


def _move(move: Move, *, context: Context, say: Say | None) -> Moved:
    intention = transitions.intend(move, journal=context.journal)
    (say or _nobody)("intended")
    return _finish(intention, context=context, say=say)


def _finish(intention: Row, *, context: Context, say: Say | None) -> Moved:
    row = transitions.finish(intention, registry=context.registry, journal=context.journal, say=say or _nobody)
    return Moved(intention.name, row.to_version, row)


def _fit(name: str, version: int, *, context: Context) -> tuple[int, str]:
    """Return how many records of a version were taken down, and the digest of its files, if these are whole."""
    with scratch(context.settings) as folder:
        entry = enter(context.registry.version(name, version), context=context, folder=folder)
        wrong = [f"{check}: {reason}" for check, reasons in entry.faults.items() for reason in reasons]
    if wrong or entry.pack is None:
        raise NotPromoted(name=name, version=version, detail="; ".join(wrong) or "files: it has no pack")
    return entry.taken_down(context.vault), entry.found


def _settled(name: str, *, context: Context) -> Moved:
    champion = transitions.settle(name, registry=context.registry, journal=context.journal)
    return Moved(name, champion, transitions.last_move(context.journal, name), already=True)
