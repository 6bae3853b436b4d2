"""A takedown of a used corpus: what is gone, what is untouched, what still works, and what can be said of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.cli import takedown as commands
from pipelines.collect import collect
from pipelines.collect.month import Window
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, CommitLost
from pipelines.store import seal, tables
from pipelines.store.blind import blind
from pipelines.store.vault.vault import Tombstone
from pipelines.takedown import receipts, rewrite, takedown
from pipelines.takedown.object_versions import Change, Objects, remember, replaced
from pipelines.takedown.redaction import Gone, Left
from pipelines.takedown.stores import Case, stores
from pipelines.takedown.stores.interim import Scratch
from pipelines.takedown.takedown import TakedownUnfinished
from pipelines.workspace import publish
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.objects import ObjectIncomplete
from tests import small_sandbox
from tests.privacy import used_corpus as used
from tests.privacy.place_search import counted
from tests.privacy.used_corpus import EACH, MONTHS, NOW, REPO, WHO, House, fullname, word
from tests.refusals import refused
from tests.stages import rerun


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with used.opened(used.copy(tmp_path / "home")) as house:
        yield house


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The same after a takedown, for tests that look and change nothing."""
    with used.opened(used.copy(tmp_path_factory.mktemp("after") / "home")) as house:
        house.take_down(house.posts())
        yield house


def table_of(path: str, *, name: str, clone: Workspace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.read(clone.path / path, name=name).to_pylist()
    return found


@contextmanager
def with_a_bad_queue(house: House) -> Iterator[None]:
    """Leave a line in an annotator's queue that is no task, so that the place cannot be cleared."""
    queue = house.settings.annotation_files / "memes" / "calibration" / "annotator-1" / "tasks.jsonl"
    whole = queue.read_bytes()
    queue.write_bytes(whole + b"no task\n")
    yield
    queue.write_bytes(whole)


@contextmanager
def with_a_held_folder(house: House) -> Iterator[None]:
    """Refuse to delete the folder of weights that were learnt from memes, as a file system may."""
    real = os.rmdir

    def rmdir(path: Any, **given: Any) -> None:
        if str(path) == str(house.settings.home / "train" / "memes"):
            raise PermissionError(path)
        real(path, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rmdir", rmdir)
        yield


def needles(house: House) -> list[bytes]:
    found = []
    for record_id, (corpus, number) in house.ids().items():
        found += [record_id.encode(), fullname(corpus, number).encode(), word(corpus, number).encode()]
        found += [used.picture(number)[:20]] if corpus == "memes" else []
    return found


def test_it_reaches_every_place_and_leaves_the_others_as_they_were(house: House) -> None:
    ids, settings = house.ids(), house.settings
    before, commits = used.live(settings), git("--git-dir", settings.repo, "rev-list", "corpus").split()
    touched = {f"{path.parent.name}{path.name}" for path in used.naming(settings, set(ids))}
    kept = _contents(house, without=set(ids))
    assert counted(settings, *needles(house))["annotation"], "the canary is nowhere to begin with"

    receipt = house.take_down(house.posts())

    assert house.left() == []
    left = counted(settings, *needles(house))
    # the tombstones are to stay; lines of an imported set stand in git's history
    stays = {"vault", "takedowns", "repository"}
    assert {name: n for name, n in left.items() if n and name not in stays} == {}
    assert house.vault.tombstoned(ids) == set(ids)
    tip = git("--git-dir", settings.repo, "ls-tree", "-r", "--name-only", "corpus").split()
    texts = [git("--git-dir", settings.repo, "show", f"corpus:{name}") for name in tip]
    assert not [name for name, text in zip(tip, texts, strict=True) if any(i in text for i in ids)]
    assert receipt.steps["repository"]["in_history"] == 1, "the receipt says that an old commit has lines of ids"

    after = used.live(settings)
    assert after.keys() == before.keys()
    assert {path for path in before if before[path] != after[path]} == {p for p in before if before[p] in touched}
    assert before["data/memes/2022-12/images/000.parquet"] == after["data/memes/2022-12/images/000.parquet"]
    assert _contents(house, without=set(ids)) == kept, "every other row, sealed bytes included, is what it was"
    assert git("--git-dir", settings.repo, "rev-list", "--count", "corpus") == str(len(commits) + 1), "one commit"


def _contents(house: House, *, without: set[str]) -> dict[str, list[Any]]:
    """The rows of everything that the tip names but those of these records; names of sets apart."""
    found: dict[str, list[Any]] = {}
    with workspace(house.settings) as clone, Objects.opened(clone) as objects:
        for path, digest in used.live(house.settings).items():
            with objects.file(digest) as file:
                if path.endswith(".parquet"):
                    rows = pq.read_table(file).to_pylist()
                    rows = [r for r in rows if without.isdisjoint({r["record_id"], r.get("other_id")})]
                    found[path] = [{k: v for k, v in r.items() if k not in ("cluster", "group")} for r in rows]
    return found


def test_only_what_writes_metrics_alone_runs_again_and_the_next_stage_builds_on_it(after: House) -> None:
    with workspace(after.settings) as clone:
        assert sorted(rerun(clone)) == ["quality@memes", "quality@posts"], "no row of a table is made again"
        counts = [json.loads((clone.path / f"metrics/{c}/quality.json").read_text())["items"] for c in WHO]
        assert counts == [2 * EACH - len(numbers) for numbers in WHO.values()]
        changed = git("status", "--porcelain", cwd=clone.path).split()
        assert changed == ["M", "dvc.lock", "M", "metrics/memes/quality.json", "M", "metrics/posts/quality.json"]
        now, before = clone.lock(), clone.lock(revision=clone.head)
        written = {name for name in before if now[name] != before[name]}
        assert written == {"quality@memes", "quality@posts"}, "dvc.lock is what DVC itself would write"
        ids = set(after.ids())
        splits = table_of("snapshot/memes/split/splits.parquet", name="splits", clone=clone)
        named = {row["group"]: row["record_id"] for row in reversed(splits)}
        assert all(group == f"{first}/0" for group, first in named.items()), "a set is named after its first member"
        assert len(named) == len({r["group"] for r in splits}) and ids.isdisjoint({g[:32] for g in named})
        posts = clone.path / "data" / "posts" / "2022-11" / "records.parquet"
        words = seal.open_column(tables.read(posts, name="records"), name="records", column="title", vault=after.vault)
        assert sorted(words) == sorted(
            f"A {word('posts', n)} in a window".encode() for n in range(EACH) if n not in (0, 5)
        )


def test_a_rewritten_table_is_what_a_stage_would_write_that_never_saw_the_records(after: House, tmp_path: Path) -> None:
    with workspace(after.settings) as clone:
        clone.checkout("data", "snapshot/posts")
        path = clone.path / "data" / "memes" / "2022-11" / "records.parquet"
        tables.write(tables.read(path, name="records"), tmp_path / "again.parquet", name="records")
        blind(tmp_path / "again.parquet", keys=lambda: after.vault)
        assert (tmp_path / "again.parquet").read_bytes() == path.read_bytes()
        votes = clone.path / "snapshot" / "posts" / "votes" / "one" / "votes.parquet"
        before = votes.read_bytes()
        subprocess.run([sys.executable, "-P", "stage.py", "votes", "posts", "one"], cwd=clone.path, check=True)
        blind(votes, keys=lambda: after.vault)
        assert votes.read_bytes() == before


def test_old_versions_come_back_without_the_records_or_say_that_they_do_not(after: House) -> None:
    old = git("--git-dir", after.settings.repo, "rev-list", "corpus").split()[1]
    # what was made in that version, not the stages that came later
    made = ["data/posts/2022-11/records.parquet", "snapshot/posts/dedupe", "snapshot/posts/split"]
    with workspace(after.settings, revision=old) as clone:
        with pytest.raises(ObjectIncomplete):
            clone.checkout(*made)
        with Objects.opened(clone) as objects:
            changed = rewrite.mend(clone.path, settings=after.settings, objects=objects)
        assert "dvc.lock" in changed
        clone.checkout(*made)
        month = table_of("data/posts/2022-11/records.parquet", name="records", clone=clone)
        assert len(month) == EACH - 2 and set(after.ids()).isdisjoint({row["record_id"] for row in month})


def test_the_same_again_changes_nothing_and_gives_the_same_receipt(house: House) -> None:
    first = house.take_down(house.posts())
    tip = house.tip()
    again = house.take_down(house.posts(), now=NOW + timedelta(days=1))
    assert again == first and len(receipts.receipts(house.settings)) == 1
    assert house.tip() == tip
    text = json.dumps([vars(receipt) for receipt in receipts.receipts(house.settings)])
    assert not any(i in text for i in house.ids()), "a receipt holds no id"
    assert receipts.told(house.settings, now=NOW) == {"open": 0, "done": 1, "oldest_open_hours": None}


ERASED = {
    "annotation": {"items": 2, "files": 1}, "answers": {"rows": 3}, "refresh": {"rows": 0}, "resume": {"files": 1},
    "train": {"fits": 1}, "scratch": {"clones": 0, "running": 0}, "lineage": {"copies": 1}, "releases": {"rows": 0},
    "answer bundles": {"records": 0},
    "models": {"no_registry": 1},
}  # fmt: skip


def test_the_receipt_counts(after: House) -> None:
    [receipt] = receipts.receipts(after.settings)
    steps = dict(receipt.steps)
    assert receipt.done == [store.name for store in stores()]
    assert steps.pop("vault") == {"fresh": 5, "known": 0} and receipt.records == 5
    files = {"data": 6, "annotations": 2, "snapshot": 10, "texts": 1, "of_memes": 9, "of_posts": 9}
    # the old commit has lines of ids
    more = {"absent": 0, "models": 0, "renamed": 8, "rows": 34, "in_history": 1}
    assert steps.pop("repository") == files | more and receipt.weights_due is None
    objects = steps.pop("objects")
    assert objects["cache"] == objects["remote"] == objects["objects"] > 0
    assert steps == ERASED
    kept = json.loads((after.settings.home / "takedowns" / "tombstones.json").read_bytes())["records"]
    assert kept == {i: [NOW.isoformat(), "request-7"] for i in after.ids()}


def test_a_dry_run_counts_the_same_and_writes_nothing(house: House) -> None:
    selection, before = house.posts(), _everything(house.settings.home)
    told = takedown.dry_run(selection, settings=house.settings, vault=house.vault, now=NOW)
    assert _everything(house.settings.home) == before
    receipt = house.take_down(selection)
    assert told["records"] == receipt.records and told["stores"].keys() == receipt.steps.keys()
    # what a rewrite alone can tell
    only = {"absent", "models", "renamed", "rows"}
    for name, counts in receipt.steps.items():
        same = {key: count for key, count in counts.items() if name != "repository" or key not in only}
        assert same.items() <= told["stores"][name].items(), name


def _everything(home: Path) -> dict[str, bytes]:
    skip = ("scratch", "locks")
    files = [p for p in home.rglob("*") if p.is_file() and p.relative_to(home).parts[0] not in skip]
    return {str(p.relative_to(home)): p.read_bytes() for p in files if not p.name.endswith(("-wal", "-shm", ".lock"))}


def test_a_restored_backup_opens_nothing_and_is_cleared_again(house: House, tmp_path: Path) -> None:
    saved = tmp_path / "backup"
    house.vault.close()
    shutil.copytree(house.settings.home, saved)
    with used.vault_of(house.settings) as vault:
        house.vault = vault
        house.take_down(house.posts())
        kept = json.loads((house.settings.home / "takedowns" / "tombstones.json").read_bytes())["records"]
    shutil.rmtree(house.settings.home)
    shutil.copytree(saved, house.settings.home)
    ids = set(house.ids())
    assert house.left(), "the backup has them all again"
    with used.opened(house.settings) as house:
        vault = house.vault
        vault.replay({i: Tombstone(NOW, reason) for i, (_, reason) in kept.items()})
        for path in used.naming(house.settings, ids):
            table = pq.read_table(path) if path.open("rb").read(4) == b"PAR1" else None
            if table is not None and "title" in table.column_names:
                opened = seal.open_column(table, name="records", column="title", vault=vault)
                gone = [o for o, r in zip(opened, table["record_id"].to_pylist(), strict=True) if r in ids]
                assert gone and set(gone) == {None}
        [receipt] = house.revisit()
        assert receipt.reason == "revisit" and house.left() == []
        assert house.revisit() == []


def test_another_publisher_in_between_is_not_put_back(house: House) -> None:
    raced: list[str] = []

    def race(step: str) -> None:
        if step == "repository replaced" and not raced:
            with workspace(house.settings) as clone:
                (clone.path / "metrics" / "memes" / "other.json").write_text("{}\n")
                raced.append(str(clone.commit("another", paths=["metrics"])))

    receipt = house.take_down(house.posts(), say=race)
    log = git("--git-dir", house.settings.repo, "rev-list", "corpus").split()
    assert log[0] == receipt.commit and log[1] == raced[0], "one commit, on top of the other's"
    assert house.left() == []


def test_what_a_task_pushes_that_was_at_work_goes_with_the_next_visit(house: House) -> None:
    with workspace(house.settings) as clone:
        clone.checkout("snapshot/posts/votes")
        late = (clone.path / "snapshot" / "posts" / "votes" / "one" / "votes.parquet").read_bytes()
    house.take_down(house.posts())
    with workspace(house.settings) as clone:
        path = clone.path / "data" / "posts" / "2023-01" / "late.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(late)
        clone.add([path])
        clone.commit("late", paths=["data"])
    assert house.left()
    assert house.revisit()
    assert house.left() == []


@pytest.mark.parametrize(("pushed", "looked"), [("before", "before"), ("before", "after"), ("after", "after")])
def test_a_month_that_was_read_before_and_is_published_after_restores_no_record(
    house: House, pushed: str, looked: str
) -> None:
    settings, path = house.settings, f"data/posts/2023-01/{pushed}.parquet"
    with workspace(settings) as clone:
        clone.checkout("data/posts")
        read = tables.read(clone.path / "data" / "posts" / MONTHS[0] / "records.parquet", name="records").slice(
            0, EACH - 1
        )

    def push() -> dict[str, str]:
        with workspace(settings) as clone:
            tables.write(read, clone.path / path, name="records")
            return clone.add([clone.path / path])

    early = push() if pushed == "before" else {}
    before = Gone(house.vault.tombstones())
    house.take_down(house.posts())
    given = {"corpus": "posts", "month": "2023-01", "pointers": early or push()}
    gone = before if looked == "before" else Gone(house.vault.tombstones())
    told = publish.publish_partition(settings, **given, leave_out=partial(rewrite.left_out, gone=gone))
    assert told["changed"] and told["left_out"] == (0 if early else 2), "what was pushed before went with the takedown"
    assert bool(house.revisit()) != bool(early)
    assert house.left() == []
    with workspace(settings) as clone:
        clone.checkout("data/posts/2023-01")
        left = table_of(path, name="records", clone=clone)
    assert [row["record_id"] for row in left] == [r for r in read["record_id"].to_pylist() if r not in house.ids()]


def test_a_takedown_between_the_look_and_the_commit_is_not_undone(house: House) -> None:
    path = "data/posts/2023-01/records.parquet"
    with workspace(house.settings) as clone:
        clone.checkout("data/posts")
        (clone.path / path).parent.mkdir()
        shutil.copy(clone.path / "data" / "posts" / MONTHS[0] / "records.parquet", clone.path / path)
        given = {"corpus": "posts", "month": "2023-01", "pointers": clone.add([clone.path / path])}

    def leave_out(_: Workspace, __: str) -> int:
        house.take_down(house.posts())
        return 0

    with pytest.raises((CommitLost, ObjectIncomplete)):
        publish.publish_partition(house.settings, **given, leave_out=leave_out)
    assert house.left() == []


def test_a_run_that_was_pinned_before_publishes_nothing(house: House) -> None:
    base = house.tip()
    house.take_down(house.posts())
    tip = house.tip()
    given = {"corpus": "memes", "targets": ["split@memes"], "base": base, "run": "a run", "tokens": []}
    told = publish.publish_snapshot(house.settings, remember=lambda root: None, **given)
    assert (told["superseded"], told["changed"], told["commit"]) == (True, False, tip)


def test_a_dag_that_missed_the_end_of_its_request_gets_the_receipt_again(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    receipt, requests = house.take_down(house.posts()), house.settings.home / "requests"
    monkeypatch.setenv("CORPUS_HOME", str(house.settings.home))
    commands.takedown(SimpleNamespace(invoked_subcommand=None), file=[requests / "request-7.txt"], reason="request-7")
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert (told["request"], told["ended"]) == (receipt.request, receipt.ended)
    assert (told["retrain"], told["measure"]) == ([], ["memes", "posts"]), "no model learnt from them"
    assert re.findall(r"Next: corpus run (\w+)", printed.err) == told["measure"]


def test_of_two_at_once_one_is_refused(house: House) -> None:
    selection = house.posts()
    with receipts.alone(house.settings), refused("TakedownRunning", match="Another"):
        house.take_down(selection)
    assert house.vault.tombstoned(selection.records) == set()


@pytest.mark.parametrize(
    ("fault", "named"),
    [(with_a_bad_queue, r"annotation \(BadAnswers:"), (with_a_held_folder, r"train \(FolderNotDeleted:")],
)
def test_a_place_that_cannot_be_cleared_keeps_it_open_and_not_the_others(house: House, fault: Any, named: str) -> None:
    with fault(house), pytest.raises(TakedownUnfinished, match=named):
        house.take_down(house.posts())
    assert house.left() == [], "objects went all the same"
    assert receipts.told(house.settings, now=NOW + timedelta(hours=30)) == {
        "open": 1, "done": 0, "oldest_open_hours": 30.0
    }  # fmt: skip
    receipt = house.take_down(house.posts())
    assert receipt.ended and receipt.pending == {}
    assert ERASED.items() <= receipt.steps.items(), "also what the first attempt has cleared"
    assert len(receipts.receipts(house.settings)) == 1


def test_no_byte_of_an_answer_stays(after: House) -> None:
    disk = b"".join(p.read_bytes() for p in after.settings.home.glob("answers.sqlite*"))
    assert not [i for i in after.ids() if i.encode() in disk]
    rows = sqlite3.connect(after.settings.home / "answers.sqlite").execute("SELECT COUNT(*) FROM answers").fetchone()
    assert rows == (2 * EACH - 2,)
    [(waiting,)] = sqlite3.connect(after.settings.home / "answers.sqlite").execute("SELECT records FROM batches")
    assert len(json.loads(waiting)) == 3


def test_a_partial_object_is_removed_when_no_process_writes_it(house: House) -> None:
    halves = [house.settings.cache / "files" / "md5" / "ab" / name for name in ("old.x.tmp", "new.x.tmp")]
    for path, hours in zip(halves, (48, 1), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"PAR1half")
        at = (NOW - timedelta(hours=hours)).timestamp()
        os.utime(path, (at, at))
    assert house.take_down(house.posts()).steps["objects"]["unfinished"] == 1
    assert [path.exists() for path in halves] == [False, True]


def test_what_cannot_be_read_is_named_and_stops_nothing_else_from_being_closed(house: House) -> None:
    selection = house.posts()
    [digest, *_] = sorted(path.parent.name + path.name for path in house.left())
    places = (house.settings.cache, Path(house.settings.remote))
    copies = [place / "files" / "md5" / digest[:2] / digest[2:] for place in places]
    whole = copies[0].read_bytes()
    for damaged in copies:
        damaged.chmod(0o600)
        damaged.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TakedownUnfinished, match=rf"\(ObjectUnreadable: .*{digest}"):
        house.take_down(selection)
    assert house.vault.keys(selection.records) == {} and receipts.told(house.settings, now=NOW)["open"] == 1
    copies[1].write_bytes(whole)
    assert house.take_down(selection).ended and house.left() == []


def test_no_source_restores_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = small_sandbox.folder()
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.setenv("CORPUS_DUMPS", str(root / "dumps"))
    settings, params = Settings.from_env(), load(REPO, profile="sandbox")
    given = {"window": Window.from_key("2022-12"), "params": params, "settings": settings, "now": NOW}
    with used.vault_of(settings) as vault:
        collect.run("memes", vault=vault, root=tmp_path / "first", **given)
        path = collect.work(tmp_path / "first", corpus="memes", month="2022-12") / "records.parquet"
        gone = Gone(sorted(tables.read(path, name="records")["record_id"].to_pylist())[:3])
        vault.destroy(gone.ids, reason="r", now=NOW)
        told = collect.run("memes", vault=vault, root=tmp_path / "again", **given)
        assert told["dropped"]["tombstoned"] == 3
        again = collect.work(tmp_path / "again", corpus="memes", month="2022-12")
        assert gone.within(path) == 3 and gone.within(again / "records.parquet") == 0


def test_a_clone_at_work_is_counted_and_left(house: House) -> None:
    scratch, case = Scratch(), Case(gone=Gone([]), settings=house.settings, vault=house.vault, now=NOW)
    with workspace(house.settings) as clone:
        assert scratch.count(case) == {"clones": 0, "running": 1}
        for clear in (lambda: scratch.erase(case), lambda: house.take_down(house.posts())):
            (house.settings.home / "scratch" / f"{socket.gethostname()}-{2**30}-killed").mkdir()
            assert scratch.count(case) == {"clones": 1, "running": 1}
            clear()
            assert scratch.count(case) == {"clones": 0, "running": 1}
        assert clone.path.exists()
    assert not list((house.settings.home / "scratch").iterdir())


def test_an_imported_set_knows_its_months_again_and_a_brought_file_loses_its_lines(after: House) -> None:
    with workspace(after.settings) as clone:
        said = json.loads((clone.path / "annotations" / "posts" / "set" / "import.json").read_text())["pointers"]
        for name, mark in said.items():
            pointer = (clone.path / f"{name}.dvc").read_bytes()
            assert mark == hashlib.sha256(pointer).hexdigest()[:16]
    lines = (after.settings.annotation_files / "theirs.jsonl").read_text().splitlines()
    assert len(lines) == EACH - 2 and all(json.loads(line) for line in lines)


def test_a_request_that_waits_does_not_hold_up_the_next(house: House) -> None:
    for who in ({"posts": (0,)}, {"posts": (5,)}):
        with with_a_bad_queue(house), pytest.raises(TakedownUnfinished):
            house.take_down(house.posts(who))
    assert house.left({"posts": (0, 5)}) == []
    ended = house.revisit()
    assert [receipt.ended is not None for receipt in ended] == [True, True]
    assert receipts.told(house.settings, now=NOW)["open"] == 0


def test_what_an_author_has_more_by_the_time_it_is_repeated_goes_too(house: House) -> None:
    asked = house.select(authors=["author-2"])
    some = replace(asked, records=frozenset(sorted(asked.records)[:3]))
    with with_a_bad_queue(house), pytest.raises(TakedownUnfinished):
        house.take_down(some)
    receipt = house.take_down(asked)
    assert receipt.ended and receipt.records == len(asked.records) and len(receipts.receipts(house.settings)) == 1
    assert receipt.commit == house.tip()
    assert (
        house.vault.tombstoned(asked.records) == asked.records and used.naming(house.settings, set(asked.records)) == []
    )


def test_a_reason_is_a_code(house: House) -> None:
    with pytest.raises(BadParams, match="no prose"):
        house.take_down(house.posts(), reason="because she asked")
    assert receipts.opened(house.settings) == []


def test_an_object_that_is_replaced_twice_leads_to_the_last(tmp_path: Path) -> None:
    settings = used.settings_of(tmp_path)
    for old, new in (("first", "second"), ("second", "third")):
        remember({old: Change(new, len(new), len(old), Left())}, settings=settings)
    assert replaced(settings) == {"first": ("third", 5), "second": ("third", 5)}


def test_the_sizes_that_dvc_knows_are_those_of_the_new_objects(after: House) -> None:
    with workspace(after.settings) as clone, Objects.opened(clone) as objects:
        lock = yaml.safe_load((clone.path / "dvc.lock").read_text())["stages"]
        folders = [out for stage in lock.values() for out in stage["outs"] if out.get("md5", "").endswith(".dir")]
        assert folders
        for out in folders:
            sizes = []
            for digest in objects.tree(out["md5"]).values():
                with objects.file(digest) as path:
                    sizes.append(path.stat().st_size)
                    assert objects.size(digest) == sizes[-1]
            assert (out["nfiles"], out["size"]) == (len(sizes), sum(sizes)), out["path"]
