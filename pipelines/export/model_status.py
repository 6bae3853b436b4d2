"""Derive from the journal whether a model version may be exported, and the gate's verdict and champion on its card."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

from crisis_corpus.journal import JournalRow, canonical
from crisis_corpus.state import MOVES, Standing, standing
from crisis_corpus.versions import Version
from pipelines.export.folder import ExportOrigin, NotExportable
from pipelines.promotion.comparison import JUDGED, last_verdict
from pipelines.registry.candidate import registration
from pipelines.registry.journal import Journal

WITHDRAWN = "it is withdrawn, and its weights may not be handed out"
STALE = "records on which it was trained were taken down, and its weights are deleted on {until}"
UNREGISTERED = "the journal has no registration of it, so that its files cannot be verified"
TRAIN_AGAIN = "Train the model again, register it, and export the new version: `corpus registry {name}` lists all."


@dataclass(frozen=True)
class ModelStatus:
    """The status of a model version, as its card states it: dates and numbers, no person.

    Args:
        champion: whether it is the champion.
        since: the day on which it became champion last, if it is.
        passed: the gate's last verdict on it; ``None`` if the gate did not judge it.
        judged: the day of that verdict.
        against: the champion that it was compared with, if any.
        failed: the names of the checks that it failed.
    """

    champion: bool
    since: str | None
    passed: bool | None
    judged: str | None
    against: int | None
    failed: tuple[str, ...]


def current(name: str, version: int, *, repo: str, journal: Journal) -> tuple[ExportOrigin, ModelStatus]:
    """Return the origin that an export of a model version has now, and the version's status."""
    now, what = standing(journal, name), f"Version {version} of '{name}'"
    detail = UNREGISTERED if (row := registration(journal, Version(name, version, "", ""))) is None else ""
    if until := now.stale.get(version):
        detail = STALE.format(until=until[:10])
    if version in now.withdrawn:
        detail = WITHDRAWN
    if row is None or detail:
        raise NotExportable(what=what, detail=detail, do=TRAIN_AGAIN.format(name=name))
    found = _status(now, version=version, journal=journal)
    state = canonical({"files": row.files, "status": asdict(found)})
    basis = hashlib.sha256(state.encode()).hexdigest()
    return ExportOrigin(kind="model", name=name, version=version, repo=repo, basis=basis), found


def _status(now: Standing, *, version: int, journal: Journal) -> ModelStatus:
    verdict = last_verdict(journal, name=now.name, version=version)
    champion = now.champion == version
    moves = [row for row in journal.rows(now.name) if row.event in MOVES and row.to_version == version]
    return ModelStatus(
        champion=champion,
        since=moves[-1].at[:10] if champion and moves else None,
        passed=None if verdict is None else verdict.event == JUDGED[0],
        judged=None if verdict is None else verdict.at[:10],
        against=None if verdict is None else verdict.from_version,
        failed=() if verdict is None else _failed(verdict),
    )


def _failed(verdict: JournalRow) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(reason).partition(":")[0] for reason in verdict.metrics["reasons"]))
