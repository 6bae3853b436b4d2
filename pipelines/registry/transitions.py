"""Change the MLflow alias of a model's champion: record the intention in the journal, set it, record the change.

The journal accepts each row number once, so of two simultaneous intentions one fails with PromotionAhead. A change that
was killed after any step is finished by repeating the call. A process that resumes after a pause may find that its
change was completed or abandoned; then the process sets the alias to the journal's champion.

The journal is anchored in signed git tags, which reveal a journal that was cut or replaced. After a change of a model's
champion, the tag ``journal/<name>/<row>`` in the corpus repository gets the digest of the row that records the change.
A journal must contain the row of the newest signed tag of each model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from crisis_corpus.journal import MOVES, JournalRow, standing
from crisis_corpus.model_opening import STANDING, WITHDRAWN
from crisis_corpus.versions import CHAMPION, RECORDED, UnknownVersion
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError, NoSecret, RegistryError
from pipelines.registry.journal import Journal, JournalMoved
from pipelines.registry.versions import CHALLENGER, Registry
from pipelines.store.vault.keyring import Signer
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import branches, git, read_signed_tag, write_signed_tag

Step = Literal["gated", "intended", "moved", "recorded", "settled"]
Say = Callable[[Step], None]
Deed = Literal["promoted", "rolled_back", "withdrawn"]


@dataclass(frozen=True)
class Move:
    """A change of a model's champion that is decided but not finished.

    Args:
        deed: the event of the journal row that completes the change.
        from_version: the version number of the champion that is replaced, or of the version that is withdrawn.
        files: the digest of the files of the promoted or withdrawn version.
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


def intend(move: Move, *, journal: Journal) -> JournalRow:
    """Record in the journal, before the alias is changed, that a model's champion will change; return the row."""
    while True:
        now = standing(journal, move.name)
        if now.intention is not None:
            raise ahead(now.intention)
        last = last_move(journal, move.name)
        if now.champion != move.champion and last is not None:
            raise ahead(last)
        metrics = {**move.metrics, "leads_to": move.deed}
        # if another row was written meanwhile, perhaps of another move: check again
        with suppress(JournalMoved):
            return journal.append(move.name, event="intended", metrics=metrics, after=now.head, **_decision(move))


def finish(intention: JournalRow, *, registry: Registry, journal: Journal, say: Say) -> JournalRow:
    """Set the champion alias as an intention row states, and return the journal row that records the change."""
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
    """Set a model's alias to the champion in the journal, unless a change is unfinished; return the champion.

    Withdrawn and stale versions get a tag, which tells plain MLflow.
    """
    now = standing(journal, name)
    outside = {number: f"stale until {until[:10]}" for number, until in now.stale.items()}
    for number, state in (outside | dict.fromkeys(now.withdrawn, WITHDRAWN)).items():
        # a version may have been removed since
        with suppress(UnknownVersion):
            if (version := registry.version(name, number)).tags.get(STANDING) != state:
                registry.tag(version, {STANDING: state})
    if now.intention is None:
        registry.point(name, CHAMPION, now.champion)
        if registry.alias(name, CHALLENGER) in {now.champion, *now.withdrawn} - {None}:
            registry.point(name, CHALLENGER, None)
        last = last_move(journal, name)
        if now.champion is not None and last is not None:
            registry.tag(registry.version(name, now.champion), {RECORDED: last.digest})
    return now.champion


def dismiss(name: str, version: int, *, registry: Registry) -> None:
    """Remove the alias ``challenger`` of a model if it points to this version."""
    if registry.alias(name, CHALLENGER) == version:
        registry.point(name, CHALLENGER, None)


def ahead(row: JournalRow) -> RegistryError:
    """Return the error for a change of champion that came later than the change in this journal row."""
    version = row.from_version if row.to_version is None else row.to_version
    fields = {"name": row.name, "who": row.who, "number": row.number, "event": row.event}
    return RegistryError("PromotionAhead", **fields, version=version, at=row.at[:19] + "Z")


def last_move(journal: Journal, name: str) -> JournalRow | None:
    """Return the last journal row that promoted, rolled back to or withdrew a version of a model, or ``None``."""
    return next((row for row in reversed(journal.rows(name)) if row.event in MOVES), None)


def _decision(decided: Move | JournalRow) -> dict[str, Any]:
    return {name: getattr(decided, name) for name in ("who", "why", "from_version", "to_version", "files")}


def _record(intention: JournalRow, *, journal: Journal) -> JournalRow:
    """Write the row that closes an intention, or return the row of another process that closed it."""
    while True:
        rows = journal.rows(intention.name)
        later = [row for row in rows if row.number > intention.number]
        if closing := [row for row in later if row.event in (*MOVES, "abandoned")]:
            return closing[0]
        values = {"event": intention.metrics["leads_to"], "metrics": intention.metrics, "after": rows[-1].number}
        with suppress(JournalMoved):
            return journal.append(intention.name, **values, **_decision(intention))


log = logging.getLogger(__name__)
TAGS = "journal/"


def anchor(name: str, *, journal: Journal, settings: Settings) -> None:
    """Write the signed tag of a model's last champion change; a failure is only logged, as the journal has it."""
    row = last_move(journal, name)
    try:
        if row is None or BRANCH not in (branches(settings.repo) or {}):
            return
        tag, signer = f"{TAGS}{name}/{row.number}", _signer(settings)
        with history(settings, depth=1) as git_dir:
            if read_signed_tag(tag, signer=signer, cwd=git_dir) != row.digest:
                made = write_signed_tag(tag, commit=BRANCH, message=row.digest, signer=signer, cwd=git_dir)
                git("push", "--quiet", settings.repo, f"+{made}:refs/tags/{tag}", cwd=git_dir)
    except CorpusError as error:
        log.warning("The last change of the champion of %s has no tag in the corpus repository: %s", name, error)


def anchored(settings: Settings, *, cwd: Path) -> dict[str, str]:
    """Return by model the journal row digest in the newest signed tag; ``cwd`` is a clone with all tags."""
    signer, digests = _signer(settings), dict[str, str]()
    # newest first; a tag that another key signed, or none, is skipped
    listed = git("for-each-ref", "--sort=-version:refname", "--format=%(refname)", f"refs/tags/{TAGS}", cwd=cwd)
    for tag in (ref.removeprefix("refs/tags/") for ref in listed.split()):
        name = tag.removeprefix(TAGS).rpartition("/")[0]
        if name not in digests and (digest := read_signed_tag(tag, signer=signer, cwd=cwd)):
            digests[name] = digest
    return digests


def published_anchors(settings: Settings) -> dict[str, str]:
    """Return :func:`anchored` of the corpus repository's tags; empty without repository or project secret."""
    try:
        if BRANCH not in (branches(settings.repo) or {}):
            return {}
        with history(settings) as git_dir:
            return anchored(settings, cwd=git_dir)
    except NoSecret:
        return {}


def check_anchors(journal: Journal, *, settings: Settings, cwd: Path) -> None:
    """Check that the journal is unaltered and has the rows whose digests are in signed tags (``cwd``: a clone)."""
    journal.verify(known=anchored(settings, cwd=cwd))


def _signer(settings: Settings) -> Signer:
    return Signer(settings.secret(), purpose="journal-tag")
