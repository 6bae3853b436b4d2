"""A corpus of an earlier version, whose content was bound to record and column only, is rewritten in every version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from pipelines.config.settings import Settings
from pipelines.errors import CommitLost, SealBroken
from pipelines.storage import seal, tables
from pipelines.takedown import pointers, reseal
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.pointers import Pointers
from pipelines.takedown.redacted_tables import Left, write
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git
from tests.privacy import used_corpus as used
from tests.stages import rerun

MONTH = "data/posts/2022-11/posts.parquet"


def as_before(table: pa.Table, *, name: str, vault: Vault) -> pa.Table:
    keys = vault.keys(table["record_id"].to_pylist())
    for column in tables.sealed_columns(tables.SCHEMAS[name]):
        opened = seal.open_column(table, name=name, column=column, vault=vault)
        values = [
            data
            and seal.seal(
                keys[row["record_id"]],
                record_id=row["record_id"],
                column=f"{column}#{row['image']}" if "image" in row else column,
                data=data,
            )
            for row, data in zip(table.select(tables.bound_columns(name)).to_pylist(), opened, strict=True)
        ]
        at = table.column_names.index(column)
        table = table.set_column(at, table.schema.field(at), pa.array(values, pa.large_binary()))
    return table


@pytest.fixture
def old(tmp_path: Path) -> Iterator[tuple[Settings, Vault]]:
    """A used corpus as an earlier version left it: the vault without a word on seals, all tables in the old format."""
    settings = used.copy(tmp_path / "home")
    with used.vault_of(settings) as vault:
        with workspace(settings) as clone, Objects.opened(clone) as objects:
            changes = {}
            for digest in objects.digests():
                with objects.file(digest) as path:
                    name = None if digest.endswith(".dir") else reseal._named(path)
                if name:

                    def how(path: Path, to: Path, name: str = name) -> Left:
                        write(as_before(pq.read_table(path), name=name, vault=vault), to)
                        return Left()

                    changes[digest] = objects.rewritten(digest, how)
            moved = {was: (now.digest, now.size, now.before) for was, now in changes.items()}
            clone.commit("as before", paths=Pointers(clone.path, objects=objects).move(moved))
            objects.remove([was for was, now in changes.items() if now.digest != was])
        with vault.database.writing() as connection:
            connection.execute(sa.text("DELETE FROM marks WHERE name = 'seal'"))
        yield settings, vault


def titles(settings: Settings, *, vault: Vault, revision: str | None = None) -> list[bytes | None]:
    with workspace(settings, revision=revision) as clone, Objects.opened(clone) as objects:
        if revision:
            pointers.mend(clone.path, settings=settings, objects=objects)
        clone.checkout(MONTH)
        return seal.open_column(
            tables.read(clone.path / MONTH, name="posts"), name="posts", column="title", vault=vault
        )


def test_nothing_is_lost_no_stage_reruns_and_the_old_format_is_refused(old: tuple[Settings, Vault]) -> None:
    settings, vault = old
    before, tip = titles(settings, vault=vault), git("--git-dir", settings.repo, "rev-parse", "corpus").strip()
    with workspace(settings) as clone:
        clone.checkout(MONTH)
        former = tables.read(clone.path / MONTH, name="posts")
    assert before and None not in before

    told = reseal.run(settings=settings, vault=vault)

    assert told["resealed"] == told["tables"] > 0
    assert titles(settings, vault=vault) == before
    assert titles(settings, vault=vault, revision=tip) == before, "an old version is read through its new objects"
    with workspace(settings) as clone:
        assert rerun(clone) == []
    with pytest.raises(SealBroken):
        seal.open_column(former, name="posts", column="title", vault=vault)
    now = git("--git-dir", settings.repo, "rev-parse", "corpus")
    assert reseal.run(settings=settings, vault=vault) == told | {"resealed": 0}
    assert git("--git-dir", settings.repo, "rev-parse", "corpus") == now


def test_an_altered_value_stops_it_before_anything_is_committed(old: tuple[Settings, Vault]) -> None:
    settings, vault = old
    tip = git("--git-dir", settings.repo, "rev-parse", "corpus")
    with workspace(settings) as clone, Objects.opened(clone) as objects:
        clone.checkout(MONTH)
        table = tables.read(clone.path / MONTH, name="posts")
        at = table.column_names.index("title")
        swapped = table.set_column(at, table.schema.field(at), table["title"].take([1, 0, *range(2, len(table))]))
        tables.write(swapped, clone.path / "swapped.parquet", name="posts")
        objects.put(clone.path / "swapped.parquet")
    with pytest.raises(SealBroken):
        reseal.run(settings=settings, vault=vault)
    assert git("--git-dir", settings.repo, "rev-parse", "corpus") == tip
    assert vault.opens_old_seals()


def test_a_run_that_lost_its_commit_is_repeated(old: tuple[Settings, Vault], monkeypatch: pytest.MonkeyPatch) -> None:
    settings, vault = old
    before, kept, lost = titles(settings, vault=vault), Workspace.commit, []

    def lose(clone: object, *args: object, **options: object) -> str | None:
        if not lost:
            lost.append(True)
            raise CommitLost(expected="0")
        return kept(clone, *args, **options)

    monkeypatch.setattr(Workspace, "commit", lose)
    reseal.run(settings=settings, vault=vault)
    assert lost and titles(settings, vault=vault) == before
