"""Read and write an annotation round in a clone of the corpus repository: its manifest in git, its tables in DVC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends import BACKENDS, AnnotatorAnswer, Backend, Item, Queue
from pipelines.annotate.manifest import RoundManifest
from pipelines.core.config.base import fitted
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import AnnotationError, CommitLost, ConfigError
from pipelines.store import tables
from pipelines.store.seal import open_column, write_rows
from pipelines.store.tables import Row, item_of
from pipelines.store.vault.locks import alone
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace

T = TypeVar("T")

# Ours: attempts when another publisher moves the branch first.
ATTEMPTS = 5


@dataclass(frozen=True)
class RoundSite:
    """What every command on a round needs; ``backend`` replaces the one that the round's manifest names."""

    settings: Settings
    vault: Vault
    now: datetime
    backend: Backend | None = None


@dataclass(frozen=True)
class StoredRound:
    """An annotation round in the newest commit of the corpus branch, decrypted and without taken-down records.

    ``assigned``, ``annotations`` and ``decisions`` are unencrypted rows of the tables ``assignments``, ``annotations``
    and ``adjudications``. ``gone`` are the assigned records that were taken down after the assignment.
    """

    clone: Workspace
    params: Params
    manifest: RoundManifest
    assigned: list[Row]
    annotations: list[Row]
    decisions: list[Row]
    gone: frozenset[str]

    @property
    def folder(self) -> Path:
        """The round's folder in the clone."""
        return manifests.folder(self.clone.path, self.manifest.corpus, self.manifest.round)

    def of(self, annotator: str) -> dict[Item, int]:
        """Return the items assigned to an annotator with their positions, in the order of the positions."""
        mine = {item_of(row): int(str(row["position"])) for row in self.assigned if row["annotator"] == annotator}
        return dict(sorted(mine.items(), key=lambda pair: pair[1]))


def on_tip(settings: Settings, work: Callable[[Workspace], T], *, folders: Sequence[str] | None = None) -> T:
    """Run ``work`` in a clone of the corpus branch's newest commit and return its result.

    Raises:
        CommitLost: another publisher pushed first in :data:`ATTEMPTS` attempts.
    """
    with alone(settings, "rounds"):
        for _ in range(ATTEMPTS - 1):
            with suppress(CommitLost), workspace(settings, folders=folders) as clone:
                return work(clone)
        with workspace(settings, folders=folders) as clone:
            return work(clone)


def read(clone: Workspace, *, corpus: str, name: str, vault: Vault) -> StoredRound:
    """Read an opened annotation round from a clone of the corpus repository."""
    path = manifests.folder(clone.path, corpus, name) / manifests.FILE
    if not path.exists():
        known = ", ".join(m.round for m in manifests.opened(clone.path, corpus)) or "none opened so far"
        raise AnnotationError("UnknownRound", corpus=corpus, name=name, known=known)
    clone.checkout(path.parent.relative_to(clone.path).as_posix())
    assigned = rows(path.parent, name="assignments", vault=vault)
    gone = frozenset(vault.tombstoned({str(row["record_id"]) for row in assigned}))
    assigned, annotations, decisions = (
        [row for row in content if row["record_id"] not in gone]
        for content in (assigned, *(rows(path.parent, name=t, vault=vault) for t in ("annotations", "adjudications")))
    )
    return StoredRound(clone, load(clone.path), manifests.read(path), assigned, annotations, decisions, gone)


def rows(folder: Path, *, name: str, vault: Vault) -> list[Row]:
    """Return the rows of a table in a round's folder, decrypted; empty if the table does not exist."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        return []
    table = tables.read(path, name=name)
    decrypted: list[dict[str, object]] = table.to_pylist()
    for column in tables.sealed_columns(tables.SCHEMAS[name]):
        for row, value in zip(decrypted, open_column(table, name=name, column=column, vault=vault), strict=True):
            row[column] = None if value is None else value.decode()
    return list(decrypted)


def write(folder: Path, content: Sequence[Row], *, name: str, vault: Vault) -> list[Path]:
    """Write a table to a round's folder; return its path in a list, or an empty list if the bytes are unchanged.

    The file is replaced, never written in place, because it may be a link into the cache that all clones share.
    """
    path = folder / f"{name}.parquet"
    if not content and not path.exists():
        return []
    new = folder / f".{name}.parquet"
    write_rows(content, new, name=name, vault=vault)
    if path.exists() and path.read_bytes() == new.read_bytes():
        new.unlink()
        return []
    new.replace(path)
    return [path]


def fetch_stages(clone: Workspace, *stages: str) -> None:
    """Check out the published results of these stages of ``dvc.yaml`` in a clone."""
    published = clone.lock()
    for stage in stages:
        if stage not in published:
            raise ConfigError("NotMade", stage=stage)
    clone.checkout(*(out["path"] for stage in stages for out in published[stage]["outs"]))


ADJUDICATION = "adjudication"


def annotator_queues(manifest: RoundManifest) -> list[Queue]:
    """Return the queues of an annotation round's annotators, one for each."""
    return [Queue(f"{manifest.corpus}/{manifest.round}", annotator) for annotator in manifest.annotators]


def adjudicator_queue(manifest: RoundManifest) -> Queue:
    """Return the queue of an annotation round's adjudicator."""
    return Queue(f"{manifest.corpus}/{manifest.round}/{ADJUDICATION}", manifest.adjudicator)


def queues_of(manifest: RoundManifest) -> list[Queue]:
    """Return the queues of an annotation round's annotators and of its adjudicator."""
    return [*annotator_queues(manifest), adjudicator_queue(manifest)]


def people(manifests: Iterable[RoundManifest]) -> list[str]:
    """Return the pseudonyms of all annotators and adjudicators of these annotation rounds, sorted."""
    return sorted({queue.annotator for manifest in manifests for queue in queues_of(manifest)})


def open_backend(
    manifest: RoundManifest, *, params: Params | None, settings: Settings, pseudonyms: Collection[str]
) -> Backend:
    """Connect to the annotation backend that a round's manifest names, with access for these pseudonyms."""
    name, given = manifest.backend, params.round.backends if params else {}
    backend = BACKENDS.get(name, params.distributions if params else {})
    fit = fitted(backend.Parameters, given.get(name, {}), key=f"round.backends.{name}")
    return backend.open(settings, params=fit, pseudonyms=pseudonyms)


def used_today(manifests: Iterable[RoundManifest], *, backend: Backend, now: datetime) -> Counter[str]:
    """Count how many items of their daily cap the annotators have used, over all queues of the given rounds."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    used: Counter[str] = Counter()
    for manifest in manifests:
        for queue in queues_of(manifest):
            if held := backend.present(queue):
                done = {answer.item for answer in backend.answers(queue) if answer.answered < midnight}
                used[queue.annotator] += sum(at >= midnight or item not in done for item, at in held.items())
    return used


def remove_records(queues: Iterable[Queue], *, backend: Backend, gone: Collection[str]) -> int:
    """Remove all items of the records in ``gone`` from annotators' queues; return the number of removed items."""
    removed = 0
    for queue in queues:
        doomed = [item for item in backend.present(queue) if item[0] in gone]
        if doomed:
            backend.remove(queue, items=doomed)
        removed += len(doomed)
    return removed


def withdraw_unanswered(queues: Iterable[Queue], *, backend: Backend) -> None:
    """Remove all items that were neither answered nor skipped from annotators' queues."""
    for queue in queues:
        held = backend.present(queue)
        if left := held.keys() - {answer.item for answer in backend.answers(queue)} if held else set():
            backend.remove(queue, items=sorted(left))


def queued_answers(
    queues: Iterable[Queue], *, backend: Backend, gone: Collection[str]
) -> dict[str, list[AnnotatorAnswer]]:
    """Return the answers in the queues by annotator, without answers to the taken-down records in ``gone``."""
    return {queue.annotator: [a for a in backend.answers(queue) if a.item[0] not in gone] for queue in queues}
