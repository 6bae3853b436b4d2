import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.registry.journal import Journal
from pipelines.store import tables
from pipelines.store.seal import open_column
from pipelines.store.vault import database
from pipelines.store.vault.vault import Vault
from pipelines.takedown import sweep, takedown
from pipelines.takedown.receipts import read_tombstones, receipts
from pipelines.takedown.stores import stores
from pipelines.workspace.clone import workspace
from tests.airflow.conftest import MONTHS
from tests.privacy.place_search import counted

pytestmark = pytest.mark.airflow
CORPORA = ("memes", "posts")
REQUEST = "canary"
EACH = 4
# What a tombstone is for: without the id the record would come back.
REMEMBER = {"vault", "takedowns"}
# Reddit itself, as far as the sandbox goes.
OUTSIDE = {"sources"}
CONTENT = {"records": ("title", "body"), "images": ("bytes", "text")}


@dataclass(frozen=True)
class Canary:
    """Who is taken down, and everything by which one would know them.

    Args:
        fullnames: by record id.
        kinds: how many were chosen as what.
        ids: record ids and fullnames.
        content: what they said and showed, and the sealed bytes of it.
        others: the rows of everybody else, by file.
        backup: cache, remote, repository and vault as they were before.
        receipt: what the takedown answered.
    """

    fullnames: dict[str, str]
    kinds: dict[str, int]
    ids: tuple[bytes, ...]
    content: tuple[bytes, ...]
    others: dict[str, list[dict[str, Any]]] = field(repr=False)
    backup: Path
    receipt: dict[str, Any]


def shards(root: Path) -> Iterator[tuple[str, Path]]:
    for corpus in CORPORA:
        for path in sorted((root / "data" / corpus).glob("*/*.parquet")):
            if path.stem == "records":
                yield "records", path
        yield from (("images", path) for path in sorted((root / "data" / corpus).glob("*/images/*.parquet")))


def rows_of_others(root: Path, *, without: set[str]) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for name, path in shards(root):
        rows = tables.read(path, name=name).to_pylist()
        found[str(path.relative_to(root))] = [row for row in rows if row["record_id"] not in without]
    return found


def chosen(root: Path) -> dict[str, set[str]]:
    """Return records of each kind: galleries, reposts and other memes; reposts and other posts."""
    found: dict[str, set[str]] = {}
    pictures: dict[str, int] = {}
    for name, path in shards(root):
        if name == "images":
            for row in pq.read_table(path, columns=["record_id"])["record_id"].to_pylist():
                pictures[row] = pictures.get(row, 0) + 1
    found["galleries"] = set(sorted(r for r, n in pictures.items() if n > 1)[:EACH])
    for corpus in CORPORA:
        pairs = tables.read(root / "snapshot" / corpus / "dedupe" / "pairs.parquet", name="pairs").to_pylist()
        # both of a pair, so that no remaining record shares their content
        both = [r for pair in pairs for r in (pair["record_id"], pair["other_id"]) if r not in found["galleries"]]
        found[f"reposts of {corpus}"] = set(list(dict.fromkeys(both))[:EACH])
        split = tables.read(root / "snapshot" / corpus / "split" / "splits.parquet", name="splits").to_pylist()
        known = set().union(*found.values())
        single = sorted({row["record_id"] for row in split if row["split"] == "train"} - known)
        found[corpus] = set(single[:EACH])
    return found


def needles_of(root: Path, *, ids: set[str], vault: Vault) -> set[bytes]:
    theirs: set[bytes] = set()
    others: set[bytes] = set()
    for name, path in shards(root):
        table = tables.read(path, name=name)
        for column in CONTENT[name]:
            opened = open_column(table, name=name, column=column, vault=vault)
            for record_id, plain, sealed in zip(
                table["record_id"].to_pylist(), opened, table[column].to_pylist(), strict=True
            ):
                values = {v for v in (plain, sealed) if v and len(v) >= 24}
                (theirs if record_id in ids else others).update(values)
    return {value[:200] for value in theirs - others}


@pytest.fixture(scope="session")
def canary(
    world: Any, backfilled: str, labelled: str, decided: Any, tmp_path_factory: pytest.TempPathFactory
) -> Canary:
    """Twenty records were taken down by the Dag; both corpora had been collected, labelled, scored (and annotated)."""
    world.settle()
    with (
        workspace(world.settings) as clone,
        Vault.open(world.settings.vault_url, secret=world.settings.secret()) as vault,
    ):
        clone.checkout("data", *(f"snapshot/{corpus}/{part}" for corpus in CORPORA for part in ("dedupe", "split")))
        who = chosen(clone.path)
        ids = set().union(*who.values())
        fullnames = vault.fullnames(ids)
        content = needles_of(clone.path, ids=ids, vault=vault)
        others = rows_of_others(clone.path, without=ids)
    assert len(fullnames) == 5 * EACH
    backup = tmp_path_factory.mktemp("backup")
    for name in ("cache", "remote", "corpus.git"):
        shutil.copytree(world.settings.home / name, backup / name)
    for path in world.settings.home.glob("vault.sqlite*"):
        shutil.copy(path, backup)
    requests = world.settings.home / "requests"
    requests.mkdir(mode=0o700)
    (requests / f"{REQUEST}.txt").write_text("".join(f"{name}\n" for name in fullnames.values()))
    world.airflow.unpause("takedown")
    run_id = world.airflow.trigger("takedown", conf={"request": REQUEST})
    world.airflow.finish("takedown", run_id, answers={})
    [receipt] = [one for one in receipts(world.settings) if one.reason == REQUEST]
    named = tuple(text.encode() for pair in fullnames.items() for text in pair)
    kinds = {kind: len(some) for kind, some in who.items()}
    return Canary(fullnames, kinds, named, tuple(content), others, backup, vars(receipt))


def test_there_was_something_to_find(canary: Canary) -> None:
    assert canary.kinds == dict.fromkeys(("galleries", "reposts of memes", "memes", "reposts of posts", "posts"), EACH)
    assert len(canary.content) > 2 * len(canary.fullnames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(canary.backup))
        before = counted(Settings.from_env(), *canary.ids, *canary.content)
    assert before["objects"] > 100, "a canary that was never there proves nothing"


def test_no_place_yields_a_word_a_picture_or_an_id(world: Any, canary: Canary) -> None:
    words = counted(world.settings, *canary.content)
    assert {name: n for name, n in words.items() if n and name not in OUTSIDE} == {}
    ids = counted(world.settings, *canary.ids)
    assert {name: n for name, n in ids.items() if n and name not in OUTSIDE | REMEMBER} == {}
    fullnames = [name.encode() for name in canary.fullnames.values()]
    remembered = counted(world.settings, *fullnames)
    assert not any(remembered[name] for name in REMEMBER), "a tombstone does not know Reddit's name"


def test_the_places_are_all_there_are(world: Any, canary: Canary) -> None:
    files = [path for path in world.settings.home.rglob("*") if path.is_file()]
    places = [place for store in stores() for place in store.paths(world.settings)]
    unknown = {path.relative_to(world.settings.home).parts[0] for path in files} - {
        place.relative_to(world.settings.home).parts[0] for place in places if place.is_relative_to(world.settings.home)
    }
    assert unknown == set()
    assert len(files) > 100


def test_everybody_else_is_byte_for_byte_who_they_were(world: Any, canary: Canary) -> None:
    with workspace(world.settings) as clone:
        clone.checkout("data")
        assert rows_of_others(clone.path, without=set(canary.fullnames)) == canary.others
        assert sum(map(len, canary.others.values())) > 300


def test_the_request_is_gone_and_one_receipt_says_what_was_done(world: Any, canary: Canary) -> None:
    assert list((world.settings.home / "requests").iterdir()) == []
    assert (canary.receipt["records"], canary.receipt["steps"]["vault"]["fresh"]) == (5 * EACH, 5 * EACH)
    assert canary.receipt["ended"]
    told = json.dumps(canary.receipt).encode()
    assert not [needle for needle in canary.ids if needle in told]


def test_models_that_learnt_from_them_are_known_and_over_the_share_withdrawn(world: Any, canary: Canary) -> None:
    assert canary.receipt["steps"]["models"]["crisis-posts/1"] >= EACH
    with Journal.of(world.settings) as journal:
        assert journal.verify("crisis-posts")
        last = [row for row in journal.rows("crisis-posts") if row.event == "withdrawn"]
    assert {row.from_version for row in last} == {1, 2}
    client = world.deployment.environment["MLFLOW_TRACKING_URI"]
    from mlflow import MlflowClient

    assert "champion" not in MlflowClient(client, client).get_registered_model("crisis-posts").aliases


def test_a_restored_backup_yields_nothing_once_the_tombstones_are_replayed(world: Any, canary: Canary) -> None:
    tombstones = read_tombstones(world.settings.home / "takedowns" / "tombstones.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(canary.backup))
        settings = Settings.from_env()
        terms = load(world.root, profile="sandbox").takedown
        with Vault.open(settings.vault_url, secret=world.settings.secret()) as vault:
            assert vault.replay(tombstones) == len(canary.fullnames)
            takedown.Deletion(settings=settings, vault=vault, terms=terms, now=datetime.now(UTC)).revisit()
        left = counted(settings, *canary.ids, *canary.content)
    assert {name: n for name, n in left.items() if n and name not in REMEMBER} == {}


@pytest.mark.faults
def test_a_backfill_brings_none_of_them_back_and_no_split_moves(world: Any, canary: Canary) -> None:
    world.pause("posts_dataset")  # what it wakes asks the whole ensemble again; the memes' tell as much
    before = splits(world)
    ran = {corpus: len(world.airflow.runs(f"{corpus}_collect")) for corpus in CORPORA}
    for corpus in CORPORA:
        world.backfill(corpus, "--reprocess-behavior", "completed", months=MONTHS[1:])
    world.wait(
        lambda: all(len(world.airflow.runs(f"{corpus}_collect")) > n for corpus, n in ran.items()), what="the backfills"
    )
    world.settle()
    with workspace(world.settings) as clone:
        clone.checkout("data")
        there = pa.chunked_array([pq.read_table(p, columns=["record_id"])["record_id"] for _, p in shards(clone.path)])
        told = json.loads(world.run("pipelines", "status", "--json"))["corpora"]
        again = sum(told[corpus]["collect"]["dropped"].get("tombstoned", 0) for corpus in CORPORA)
    assert not set(there.to_pylist()) & set(canary.fullnames)
    assert again >= EACH
    assert world.subjects("memes")[0] == "snapshot(memes): quality@memes"
    after = splits(world)
    assert {item: after.get(item) for item in before} == before


def splits(world: Any) -> dict[tuple[str, int], str]:
    with workspace(world.settings) as clone:
        clone.checkout("snapshot/memes/split")
        rows = tables.read(clone.path / "snapshot" / "memes" / "split" / "splits.parquet", name="splits").to_pylist()
    return {(row["record_id"], row["image"]): row["split"] for row in rows}


def test_the_daily_sweep_checks_every_remaining_record(world: Any, canary: Canary) -> None:
    with Vault.open(world.settings.vault_url, secret=world.settings.secret()) as vault:
        before = vault.counts()
    world.run_now("deletion_sweep")
    with Vault.open(world.settings.vault_url, secret=world.settings.secret()) as vault:
        with vault.database.reading() as connection:
            asked = connection.scalars(sa.select(database.checks.c.record_id)).all()
        assert vault.counts() == before, "the collectors had left out posts that Reddit shows as deleted"
        assert not any(sweep.due(vault, corpus) for corpus in CORPORA)
    assert len(asked) == before["records"]
    assert not set(asked) & set(canary.fullnames)
