"""A round as a clone of the corpus repository holds it: its manifest in git, its tables behind pointers of DVC."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends.backend import Item
from pipelines.annotate.manifest import Manifest
from pipelines.annotate.response_validation import Row, item_of
from pipelines.config.params import Params, load
from pipelines.config.settings import Settings
from pipelines.errors import CommitLost, ConfigError, UnknownRound
from pipelines.storage import tables
from pipelines.storage.seal import open_column, write_rows
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace

T = TypeVar("T")

# Ours: how often work begins anew because another publisher moved the branch first.
ATTEMPTS = 5
LOCK = "rounds.lock"


class NotMade(ConfigError):
    """A round needs the result of a stage that never ran."""

    message = "The corpus has no result of {stage}."
    remedy = "Run its Dag, or `dvc repro {stage}` in a clone (`corpus clone`), publish it, and repeat this."


@dataclass(frozen=True)
class Stored:
    """What the tip of the corpus branch knows of a round, content opened; rows of deleted records are left out.

    ``assigned``, ``annotations`` and ``decisions`` are plain rows of the tables assignments, annotations and
    adjudications. ``gone`` are the assigned records that were taken down since.
    """

    clone: Workspace
    params: Params
    manifest: Manifest
    assigned: list[Row]
    annotations: list[Row]
    decisions: list[Row]
    gone: frozenset[str]

    @property
    def folder(self) -> Path:
        """Where the round is kept in the clone."""
        return manifests.folder(self.clone.path, self.manifest.corpus, self.manifest.round)

    def of(self, annotator: str) -> dict[Item, int]:
        """Return what a person was assigned and the positions, in the order in which they are asked."""
        mine = {item_of(row): int(str(row["position"])) for row in self.assigned if row["annotator"] == annotator}
        return dict(sorted(mine.items(), key=lambda pair: pair[1]))


def on_tip(settings: Settings, work: Callable[[Workspace], T]) -> T:
    """Do ``work`` in a clone of the branch's tip, anew where another publisher was faster.

    Works of one home wait for each other: what one read of the queues holds until it has changed them.

    Raises:
        CommitLost: ATTEMPTS times in a row.
    """
    with _alone(settings):
        for _ in range(ATTEMPTS - 1):
            try:
                with workspace(settings) as clone:
                    return work(clone)
            except CommitLost:
                continue
        with workspace(settings) as clone:
            return work(clone)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Hold the lock of all rounds; the kernel gives it back when the process ends."""
    settings.home.mkdir(parents=True, exist_ok=True)
    with (settings.home / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read(clone: Workspace, *, corpus: str, name: str, vault: Vault) -> Stored:
    """Read a round that was opened.

    Raises:
        UnknownRound: it never was.
    """
    path = manifests.folder(clone.path, corpus, name) / manifests.FILE
    if not path.exists():
        known = ", ".join(m.round for m in manifests.opened(clone.path, corpus)) or "none so far"
        raise UnknownRound(corpus=corpus, name=name, known=known)
    clone.checkout(path.parent.relative_to(clone.path).as_posix())
    assigned = rows(path.parent, name="assignments", vault=vault)
    gone = frozenset(vault.tombstoned({str(row["record_id"]) for row in assigned}))
    found = {t: rows(path.parent, name=t, vault=vault) for t in ("annotations", "adjudications")}
    return Stored(
        clone=clone,
        params=load(clone.path),
        manifest=manifests.read(path),
        assigned=_live(assigned, gone=gone),
        annotations=_live(found["annotations"], gone=gone),
        decisions=_live(found["adjudications"], gone=gone),
        gone=gone,
    )


def rows(folder: Path, *, name: str, vault: Vault) -> list[Row]:
    """Return a table's rows with their content opened as text; none where there is no such table."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        return []
    table = tables.read(path, name=name)
    found: list[dict[str, object]] = table.to_pylist()
    for column in tables.sealed_columns(tables.SCHEMAS[name]):
        for row, value in zip(found, open_column(table, name=name, column=column, vault=vault), strict=True):
            row[column] = None if value is None else value.decode()
    return list(found)


def write(folder: Path, content: Sequence[Row], *, name: str, vault: Vault) -> list[Path]:
    """Write a round's table; return its path where it changed, and nothing where it holds the same bytes.

    The old file goes first: it may be a link into the cache that all clones share.
    """
    path = folder / f"{name}.parquet"
    if not content and not path.exists():
        return []
    made = folder / f".{name}.parquet"
    write_rows(content, made, name=name, vault=vault)
    if path.exists() and path.read_bytes() == made.read_bytes():
        made.unlink()
        return []
    made.replace(path)
    return [path]


def fetch_stages(clone: Workspace, *stages: str) -> None:
    """Check out the results of stages as they were published.

    Raises:
        NotMade: naming the first that was not.
    """
    published = clone.lock()
    for stage in stages:
        if stage not in published:
            raise NotMade(stage=stage)
    clone.checkout(*(out["path"] for stage in stages for out in published[stage]["outs"]))


def fetch_content(clone: Workspace, *, corpus: str, params: Params) -> None:
    """Check out what holds the sealed content that annotators are shown."""
    name = "images" if params.corpora[corpus].content == "images" else "posts.parquet"
    clone.checkout_months(corpus, name)


def _live(content: Sequence[Row], *, gone: frozenset[str]) -> list[Row]:
    return [row for row in content if row["record_id"] not in gone]
