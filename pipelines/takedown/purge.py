"""Count and delete what storage places other than the corpus's commits hold of deleted records.

A place's count is the number of items (rows, files) that name a deleted record; where this is unknown, of all items.

A takedown clears the caches in its own ``CORPUS_HOME``. Hosts with homes of their own clear theirs before their next
task: the vault has the number of the last takedown, and each home the number of the last one that it has followed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa

from pipelines.annotate.backends.backend import Backend, Queue
from pipelines.annotate.forms import manifest as manifests
from pipelines.annotate.rounds import queues, store
from pipelines.collect.refresh_store import RefreshStore
from pipelines.core.config.settings import Settings
from pipelines.store import answers
from pipelines.store.vault import locks, vault_metadata
from pipelines.store.vault.engine import Engine, chunks, database_file
from pipelines.store.vault.vault import Vault
from pipelines.takedown.object_versions import DIGEST, remove_folder, write_whole
from pipelines.takedown.redaction import Gone, is_table
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.objects import TREE
from pipelines.workspace.scratch import in_use


@dataclass(frozen=True)
class Site:
    """The deleted records and where to search; ``corpora`` are the corpora in whose files a deleted record was."""

    gone: Gone
    settings: Settings
    vault: Vault
    corpora: Collection[str]


@dataclass(frozen=True)
class Place:
    """A storage place of deleted records, with idempotent functions that count and remove them there."""

    name: str
    count: Callable[[Site], int]
    clear: Callable[[Site], None]


def _annotation(site: Site) -> int:
    asked = _rounds(site.settings, lambda queue, backend: sum(i[0] in site.gone.ids for i in backend.present(queue)))
    return asked + len(_brought(site))


def _clear_annotation(site: Site) -> None:
    for path in _brought(site):
        made = path.with_name(f".{path.name}.new")
        if is_table(path):
            site.gone.without(path, made)
        else:
            made.write_bytes(site.gone.out_of(path.read_bytes(), name=path.name))
        made.replace(path)
    _rounds(site.settings, lambda queue, backend: queues.remove_records([queue], backend=backend, gone=site.gone.ids))


def _brought(site: Site) -> list[Path]:
    folder = site.settings.annotation_files
    of_queues = {path.parent for path in folder.rglob("form.json")}
    return [p for p in _files(folder) if of_queues.isdisjoint(p.parents) and site.gone.within(p)]


def _rounds(settings: Settings, each: Callable[[Queue, Backend], int]) -> int:
    """Return the sum over every queue of every round that is open or has the backend ``files``.

    A round is emptied when it closes. If closing was interrupted, the folders of ``files`` still hold items; they can
    be read without a running server.
    """

    def work(clone: Workspace) -> int:
        names = {path.parents[1].name for path in clone.path.glob(f"annotations/*/*/{manifests.FILE}")}
        every = [
            m
            for corpus in sorted(names)
            for m in manifests.opened(clone.path, corpus)
            if m.status != "closed" or m.backend == "files"
        ]
        total = 0
        for kind in sorted({m.backend for m in every}):
            going = [m for m in every if m.backend == kind]
            backend = queues.open_backend(going[0], settings=settings, pseudonyms=queues.people(going))
            total += sum(each(queue, backend) for m in going for queue in queues.of_round(m))
        return total

    return store.on_tip(settings, work, folders=["annotations"])


def _answers(site: Site) -> int:
    with _answer_book(site.settings) as engine:
        if engine is None:
            return 0
        with engine.reading() as connection:
            rows = sum(
                connection.scalar(sa.select(sa.func.count()).where(answers.answers.c.record_id.in_(ids))) or 0
                for ids in chunks(site.gone.ids)
            )
            jobs = connection.scalars(sa.select(answers.batches.c.records)).all()
        return rows + sum(record in site.gone.ids for job in jobs for record in json.loads(job).values())


def _clear_answers(site: Site) -> None:
    """Delete answers about the records, remove the records from pending batches, and rewrite the database file.

    A provider's later answer about a record that was removed from its batch is discarded unread.
    """
    with _answer_book(site.settings) as engine:
        if engine is None:
            return
        with engine.writing() as connection:
            for ids in chunks(site.gone.ids):
                connection.execute(sa.delete(answers.answers).where(answers.answers.c.record_id.in_(ids)))
            for row in connection.execute(sa.select(answers.batches)).all():
                kept = {key: record for key, record in json.loads(row.records).items() if record not in site.gone.ids}
                where = answers.batches.c.id == row.id
                connection.execute(sa.update(answers.batches).where(where).values(records=json.dumps(kept)))
        engine.rewrite(answers.answers.name, answers.batches.name)


@contextmanager
def _answer_book(settings: Settings) -> Iterator[Engine | None]:
    """Open the database of answers; ``None`` if it or its tables do not exist."""
    file = database_file(settings.answers_url)
    if file and not file.exists():
        yield None
        return
    engine = Engine(
        settings.answers_url,
        where="CORPUS_ANSWERS_URL",
        lock=answers.WRITER_LOCK,
        unavailable=answers.AnswersUnavailable,
        pragmas=("secure_delete = ON", "temp_store = MEMORY"),
    )
    try:
        with engine.translated():
            made = sa.inspect(engine.sql).has_table(answers.answers.name)
        yield engine if made else None
    finally:
        engine.close()


def _refresh(site: Site) -> int:
    with RefreshStore.existing(site.settings.refresh_url) as store:
        return store.count(site.gone.ids) if store else 0


def _clear_refresh(site: Site) -> None:
    with RefreshStore.existing(site.settings.refresh_url) as store:
        if store:
            store.remove(site.gone.ids)


def _resume(site: Site) -> int:
    return len(_inside(site.settings.home / "resume"))


def _clear_resume(site: Site) -> None:
    # pages are sealed under a key of the project, so their posts are unknown; a retry fetches them again
    for path in _inside(site.settings.home / "resume"):
        path.unlink(missing_ok=True)


def _train(site: Site) -> int:
    return sum(len(_inside(site.settings.home / "train" / corpus)) for corpus in site.corpora)


def _clear_train(site: Site) -> None:
    # weights may remember records; a model trained on an earlier commit cannot be published after a takedown anyway
    for corpus in sorted(site.corpora):
        remove_folder(site.settings.home / "train" / corpus)


def _scratch(site: Site) -> int:
    return sum(not in_use(folder) for folder in _inside(site.settings.home / "scratch"))


def _clear_scratch(site: Site) -> None:
    for folder in _inside(site.settings.home / "scratch"):
        if not in_use(folder):
            remove_folder(folder)


def running(settings: Settings) -> int:
    """Count the temporary clones of the corpus whose process still runs, on any host.

    Such a clone may contain deleted records, and is removed after its process has ended. If the process pushes deleted
    records, the next takedown or daily sweep finds them, because both search every object again.
    """
    return sum(in_use(folder) for folder in _inside(settings.home / "scratch"))


def _lineage(site: Site) -> int:
    return len(_copies(site))


def _clear_lineage(site: Site) -> None:
    for copy in _copies(site):
        if copy.is_dir():
            remove_folder(copy)
            continue
        half = copy.with_name(f".{copy.name}")
        try:
            # the predictions of other records stay, or all would be predicted again
            site.gone.without(copy, half)
            half.replace(copy)
        except (FileNotFoundError, pa.ArrowException):
            # replaced by the stage meanwhile, or left half-written by a killed process
            copy.unlink(missing_ok=True)


def _copies(site: Site) -> list[Path]:
    home = site.settings.home
    copies = [*_inside(home / "registry"), *_inside(home / "models"), *_files(home / "scored")]
    return [copy for copy in copies if any(_names(site, file) for file in (_files(copy) if copy.is_dir() else [copy]))]


def _names(site: Site, file: Path) -> bool:
    try:
        return bool(site.gone.within(file))
    except pa.ArrowException:
        # half-written: what it names is unknown
        return True


def _releases(site: Site) -> int:
    from pipelines.release import removal

    return sum(removal.holding(site.gone.ids, settings=site.settings, vault=site.vault).values())


def _clear_releases(site: Site) -> None:
    from pipelines.release import removal

    # published on fixed days by `run-pending`, not at the time of a takedown, which would reveal what was removed
    removal.refresh(settings=site.settings, vault=site.vault, now=None)


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


PLACES = (
    Place("annotation", _annotation, _clear_annotation),
    Place("answers", _answers, _clear_answers),
    Place("refresh", _refresh, _clear_refresh),
    Place("resume", _resume, _clear_resume),
    Place("train", _train, _clear_train),
    Place("scratch", _scratch, _clear_scratch),
    Place("lineage", _lineage, _clear_lineage),
    Place("releases", _releases, _clear_releases),
)


MARK = "takedowns"
# The places of `purge` that each host has for itself.
HOST_PLACES = frozenset({"resume", "train", "scratch", "lineage"})


def announce(*, settings: Settings, vault: Vault) -> None:
    """Let all other hosts clear their caches; call this when a takedown has cleared those of this host."""
    with vault.database.writing() as connection:
        number = int(vault_metadata.get(connection, name=MARK) or b"0") + 1
        vault_metadata.put(connection, name=MARK, value=str(number).encode())
    write_whole(_file(settings), str(number))


def follow(*, settings: Settings, vault: Vault) -> int:
    """Clear the caches of this host if a takedown has ended on another one; return the number of removed objects."""
    with vault.database.reading() as connection:
        number = int(vault_metadata.get(connection, name=MARK) or b"0")
    if number == _followed(settings):
        return 0
    # processes of this host only: the home is not shared
    with locks.of_host(settings, "caches"):
        if number == _followed(settings):
            return 0
        gone = Gone(vault.tombstones())
        with workspace(settings) as clone:
            cache = clone.objects.cache
            digests = [digest for digest in cache.all() if DIGEST.fullmatch(digest) and not digest.endswith(TREE)]
            named = [digest for digest in digests if gone.within(Path(cache.oid_to_path(digest)))]
            for digest in named:
                cache.delete(digest)
        folder = settings.home / "train"
        corpora = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        site = Site(gone, settings, vault, corpora)
        for place in PLACES:
            if place.name in HOST_PLACES:
                place.clear(site)
        write_whole(_file(settings), str(number))
    return len(named)


def _file(settings: Settings) -> Path:
    return settings.home / "followed"


def _followed(settings: Settings) -> int:
    try:
        return int(_file(settings).read_text())
    except (OSError, ValueError):
        return 0
