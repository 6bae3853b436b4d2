"""Every stored format is written with its version, and its reader refuses a newer version and none."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crisis_corpus.formats
import crisis_corpus.journal
from crisis_corpus import hydrate, integrity
from crisis_corpus.formats import UnknownFormat
from pipelines.annotate import manifest
from pipelines.annotate.imports import commit
from pipelines.collect.refresh_store import RefreshStore
from pipelines.core import formats, rows
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.operate.backup.pool import BackupManifest, Pool
from pipelines.registry.journal import Journal
from pipelines.registry.packaging.described import Described
from pipelines.release import access, answer_bundles
from pipelines.release.release_store import ReleaseEntry
from pipelines.store import tables
from pipelines.store.answers import AnswerStore
from pipelines.store.table_files import SEALED
from pipelines.store.vault.keyring import Signer
from pipelines.store.vault.vault import Tombstone, Vault
from pipelines.takedown import object_versions, receipts
from pipelines.takedown.redaction import Left
from pipelines.workspace.objects import file_digest
from pipelines.workspace.results import StageResult

ROOT = Path(__file__).resolve().parents[1]
SECRET = b"5" * 64
NOW = datetime(2026, 1, 2, tzinfo=UTC)
STATED = re.compile(r'^( *"?format"?: ?)1\b(,?)', re.MULTILINE)
Reader = Callable[[], object]
Case = Callable[[Path, Settings], tuple[Path, Reader]]
CASES: dict[str, list[Case]] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Register what writes a file of a format and returns its path with what reads it."""

    def add(function: Case) -> Case:
        CASES.setdefault(name, []).append(function)
        return function

    return add


@case("corpus")
def _rows(folder: Path, _: Settings) -> tuple[Path, Reader]:
    (folder / rows.FILE).write_text(rows.text(load(ROOT), root=ROOT))
    return folder / rows.FILE, lambda: rows.read(folder)


@case("corpus")
def _layout(folder: Path, settings: Settings) -> tuple[Path, Reader]:
    return _rows(folder, settings)[0], lambda: formats.require_corpus(folder)


@case("stages")
def _stages(folder: Path, _: Settings) -> tuple[Path, Reader]:
    (folder / "stages.yaml").write_text((ROOT / "pipelines" / "stages.yaml").read_text())

    def read() -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows, "__file__", str(folder / "core" / "rows.py"))
            return rows._known.__wrapped__()

    return folder / "stages.yaml", read


@case("round")
def _round(folder: Path, _: Settings) -> tuple[Path, Reader]:
    values = {
        "corpus": "posts",
        "round": "pilot",
        "protocol": "p",
        "phase": "pilot",
        "scheme": "s",
        "scheme_digest": "0" * 16,
        "guideline_version": 1,
        "guideline": "0" * 16,
        "seed": 1,
        "size": 1,
        "overlap": 2,
        "batch_size": 1,
        "annotators": ("a", "b"),
        "adjudicator": "c",
        "backend": "files",
        "daily_cap": 1,
        "gold": True,
        "agreement": False,
        "splits": None,
        "draw": "sample",
        "against": (),
        "base": "0" * 7,
        "status": "open",
        "opened": NOW,
    }
    manifest.write(manifest.RoundManifest.model_validate(values), path := folder / manifest.FILE)
    return path, lambda: manifest.read(path)


@case("import")
def _import(folder: Path, _: Settings) -> tuple[Path, Reader]:
    def files() -> Any:
        return commit._DatasetFiles(SimpleNamespace(path=folder), corpus="posts", dataset="own")

    files().report({"texts": 1})
    return folder / "annotations/posts/own/import.json", files


@case("receipt")
def _receipt(_: Path, settings: Settings) -> tuple[Path, Reader]:
    request = receipts.TakedownRequest("r-1", "r", "request", "ada", NOW.isoformat(), {}, records=0)
    request.save(settings)
    return settings.home / "takedowns" / "r-1.open.json", lambda: receipts.opened(settings)


@case("tombstones")
def _tombstones(folder: Path, _: Settings) -> tuple[Path, Reader]:
    stub: Any = SimpleNamespace(tombstones=lambda: {"0" * 32: Tombstone(NOW, "request")})
    (path := folder / "tombstones.json").write_text(receipts.tombstone_text(stub))
    return path, lambda: receipts.read_tombstones(path)


@case("objects")
def _objects(_: Path, settings: Settings) -> tuple[Path, Reader]:
    object_versions.remember({"0" * 32: object_versions.Change("1" * 32, 1, 2, Left())}, settings=settings)
    return settings.home / object_versions.MAP, lambda: object_versions.replaced(settings)


@case("backup")
def _backup(folder: Path, _: Settings) -> tuple[Path, Reader]:
    pool = Pool(folder, secret=SECRET)
    name = pool.write(BackupManifest(NOW.isoformat(), "0" * 40))
    return folder / f"{name}.json", lambda: pool.read(name)


@case("release")
def _release(_: Path, settings: Settings) -> tuple[Path, Reader]:
    entry = ReleaseEntry.of(settings, "one")
    entry.put({"release": "one"})
    return entry.folder / "release.json", entry.state


@case("release")
def _access(_: Path, settings: Settings) -> tuple[Path, Reader]:
    entry = ReleaseEntry.of(settings, "one")
    entry.put({"release": "one"})
    access._write(entry, [])
    return entry.folder / access.FILE, lambda: access._read(settings, "one")


@case("release_package")
def _removal(_: Path, settings: Settings) -> tuple[Path, Reader]:
    entry = ReleaseEntry.of(settings, "one")
    entry.folder.mkdir(parents=True)
    (path := entry.folder / "removal.json").write_text(entry.removal_text([], number=0))
    return path, entry.removal


@case("answer_bundle")
def _bundle(folder: Path, settings: Settings) -> tuple[Path, Reader]:
    path, signer = folder / "bundle.json", Signer(SECRET, purpose="answers").public.hex()
    about: dict[str, Any] = {"corpus": "x", "labeller": "x", "requests": {}, "entries": (), "removed": ()}
    answer_bundles.Bundle(bundle="0" * 16, **about).put(path, secret=SECRET)
    path.write_text(path.read_text().replace("{", "{\n", 1))
    key = answer_bundles.BundleKey(bundle="0" * 16, key="0" * 64, signer=signer)
    return path, lambda: key.read(path)


@case("answer_bundle")
def _bundle_state(_: Path, settings: Settings) -> tuple[Path, Reader]:
    kept = answer_bundles.BundleFolder.of(settings, "0" * 16)
    kept.put(answer_bundles.BundleState(file="x", records={}))
    return kept.folder / answer_bundles.STATE, kept.state


@case("model_package")
def _described(folder: Path, _: Settings) -> tuple[Path, Reader]:
    texts = (
        "name",
        "corpus",
        "kind",
        "task",
        "model",
        "subset",
        "shown",
        "base",
        "item",
        "items",
        "scheme",
        "scheme_digest",
        "data_commit",
        "split_digest",
    )
    values = dict.fromkeys(texts, "x") | dict.fromkeys(("labels", "inputs", "scrub"), ()) | {"seed": 1, "batch": 1}
    learnt = {"train": {"records": 1, "digest": "0"}, "weights": {"run": None, "files": {}}}
    Described.model_validate(values | learnt | {"definitions": {}, "spec": {}}).write(folder)
    return folder / integrity.MODEL, lambda: Described.read(folder)


@case("model_package")
def _package(folder: Path, settings: Settings) -> tuple[Path, Reader]:
    path, _ = _described(folder, settings)
    return path, lambda: integrity.read_manifest(path)


@case("stage_result")
def _result(folder: Path, _: Settings) -> tuple[Path, Reader]:
    (path := folder / "result").write_bytes(StageResult("split@posts", {"cmd": "x"}, {}).encode().replace(b",", b",\n"))
    path.write_text(path.read_text().replace("{", "{\n", 1))
    return path, lambda: StageResult.decode(path.read_bytes())


DATABASES: dict[str, list[Callable[[str], object]]] = {
    "vault": [lambda url: Vault.open(url, secret=SECRET)],
    "answers": [AnswerStore.open],
    "refresh": [RefreshStore.open],
    "journal": [Journal.open, lambda url: crisis_corpus.journal.opened(url).__enter__()],
}
# Each has a test of its own below.
OTHERS = {"table", "sealed", "object_index"}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    return Settings.from_env()


def test_every_format_is_at_its_first_version_and_has_a_test() -> None:
    assert {*CASES, *DATABASES, *OTHERS} == {*formats.formats()}
    assert {kept["version"] for kept in formats.formats().values()} == {1}
    shared = {"journal": crisis_corpus.formats.JOURNAL, "model_package": crisis_corpus.formats.MODEL_PACKAGE}
    assert shared | {"release_package": hydrate.FORMAT} == {
        name: formats.version(name) for name in (*shared, "release_package")
    }
    for kept in formats.formats().values():
        for name in (kept["written"], *kept["read"].split(", ")):
            for module in name.split(", "):
                place = module if "/" in module or module.startswith("crisis") else f"pipelines.{module}"
                assert (ROOT / place).exists() or (ROOT / f"{place.replace('.', '/')}.py").exists(), module


@pytest.mark.parametrize("written", [pytest.param(c, id=c.__name__) for cases in CASES.values() for c in cases])
def test_a_file_of_a_newer_or_unknown_format_is_refused(written: Case, tmp_path: Path, settings: Settings) -> None:
    path, read = written(tmp_path, settings)
    read()
    text = path.read_text()
    assert len(STATED.findall(text)) == 1
    for other in (r"\g<1>2\2", r"\g<1>0\2", r'\g<1>"1"\2'):
        path.write_text(STATED.sub(other, text))
        with pytest.raises(UnknownFormat, match="reads versions up to 1"):
            read()


def test_a_consumer_refuses_a_newer_release() -> None:
    key = b"k" * 32
    facts = hydrate.authenticated(key, "manifest", {"release": "one"})
    assert hydrate.verified(key, "manifest", json.dumps(facts).encode())["format"] == 1
    newer = hydrate.authenticated(key, "manifest", facts | {"format": 2})
    with pytest.raises(hydrate.Stop, match="another format"):
        hydrate.verified(key, "manifest", json.dumps(newer).encode())


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_of_a_newer_or_unknown_format_is_refused(name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / name}"
    for read in DATABASES[name]:
        read(url)
    for change in (f"UPDATE {name}_format SET version = 2", f"DROP TABLE {name}_format"):
        with closing(sqlite3.connect(tmp_path / name)) as connection, connection:
            connection.execute(change)
        for read in DATABASES[name]:
            with pytest.raises(UnknownFormat, match=f"'{name}'"):
                read(url)


def test_a_table_of_a_newer_or_unknown_format_is_refused(tmp_path: Path) -> None:
    path, name = tmp_path / "texts.parquet", "texts"
    row = {"record_id": "0" * 32, "words": 1, "language": "en", "signature": b"x"}
    tables.write(pa.Table.from_pylist([row], schema=tables.SCHEMAS[name]), path, name=name)
    table = pq.read_table(path)
    assert tables.read(path, name=name).schema.metadata[b"format"] == b"1"
    assert table.schema.field("signature").metadata[b"sealed"] == SEALED[b"sealed"] == b"1"
    sealed = table.schema.get_field_index("signature")
    newer = table.schema.set(sealed, table.schema.field(sealed).with_metadata({b"sealed": b"2"}))
    others = {
        "table": [table.schema.with_metadata({b"format": b"2"}), table.schema.remove_metadata()],
        "sealed": [newer],
    }
    for form, schema in ((form, schema) for form, schemas in others.items() for schema in schemas):
        pq.write_table(table.cast(schema), path)
        for read in (tables.read, lambda *args, **given: next(tables.batches(*args, **given))):
            with pytest.raises(UnknownFormat, match=f"'{form}'"):
                read(path, name=name)


def test_an_entry_of_the_index_of_another_format_makes_the_object_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "object").write_text("1" * 32)
    digest = file_digest(tmp_path / "object")
    index = object_versions.RecordIndex(tmp_path / "index", secret=SECRET)
    (tmp_path / "index").mkdir()
    index.add(digest, tmp_path / "object")
    wanted = index.digests_of(["1" * 32])
    assert index.names(digest, wanted) is True
    monkeypatch.setitem(formats.formats()["object_index"], "version", 2)
    assert index.names(digest, wanted) is None
