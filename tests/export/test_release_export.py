"""An exported release has what was approved and nothing else, loads as a dataset, and is refused if it is outdated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.core.errors import BadParams
from pipelines.release import removal
from pipelines.release.export import release_folder
from pipelines.release.export.folder import NotExportable, RemovalsDue, read
from pipelines.release.release_store import PackageAltered
from pipelines.store import tables
from tests.refusals import refused
from tests.release.small_release import NOW, World, split_rows, table
from tests.small_corpus import write_table

REPO = "my-lab/small-posts"
# As a consumer's process without a network: nothing but the library and the folder.
CONSUMER = """
import json, sys
from datasets import load_dataset
data = load_dataset(sys.argv[1])
print(json.dumps({
    "rows": {split: rows.to_list() for split, rows in data.items()},
    "types": {split: {name: str(kind) for name, kind in rows.features.items()} for split, rows in data.items()},
}))
"""


def export(world: World, name: str, to: Path, **given: Any) -> dict[str, Any]:
    fixed: dict[str, Any] = {"repo": REPO, "settings": world.settings, "vault": world.vault, "now": NOW}
    return release_folder.run(name, to=to, **fixed | given)


def loaded(folder: Path, *, cache: Path) -> dict[str, Any]:
    env = {"PATH": os.environ["PATH"], "HF_HOME": str(cache), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CONSUMER, str(folder)],
        env=env, cwd=cache.parent, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def of_csv(row: dict[str, str], *, labels: list[str]) -> dict[str, Any]:
    typed: dict[str, Any] = dict(row)
    for name in labels:
        typed[name] = row[name].split("|") if row[name] else None
    return typed | ({"image": int(row["image"])} if "image" in row else {})


def unlabel(world: World, *, category: str) -> None:
    """Remove the gold of one category of some memes, as if a round had not asked for it."""
    path = world.root / "snapshot" / "memes" / "gold" / "gold.parquet"
    rows = tables.read(path, name="gold").to_pylist()
    some = sorted({row["record_id"] for row in rows})[:5]
    write_table(path, [r for r in rows if (r["category"], r["record_id"] in some) != (category, True)], name="gold")


def destroy_some(world: World) -> list[str]:
    """Take posts down, at least three of which are in a release of posts; return their fullnames."""
    gone = [f"t3_p{number:03d}" for number in (2, 8, 9, 12, 13, 18, 22)]
    world.vault.destroy([world.record(name) for name in gone], reason="test", now=NOW)
    return gone


def card(folder: Path) -> dict[str, Any]:
    head: dict[str, Any] = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
    return head


def test_posts_load_as_a_dataset_with_the_rows_that_were_approved(world: World, tmp_path: Path) -> None:
    package = world.approved("posts", "p1")
    told = export(world, "p1", tmp_path / "out")
    found = loaded(tmp_path / "out", cache=tmp_path / "cache")
    expected = {s: [of_csv(row, labels=["labels"]) for row in rows] for s, rows in split_rows(package).items()}
    assert found["rows"] == expected
    assert told["rows"] == {split: len(rows) for split, rows in expected.items()} and all(expected.values())
    assert found["types"]["train"]["labels"] == "List(Value('string'))"
    assert [c["data_files"] for c in card(tmp_path / "out")["configs"]] == [
        [{"split": split, "path": f"data/{split}.parquet"} for split in told["rows"]]
    ]


@pytest.mark.faults
def test_memes_load_with_the_label_none_and_with_categories_without_labels(world: World, tmp_path: Path) -> None:
    unlabel(world, category="figurative")
    package = world.approved("memes", "m1")
    told = export(world, "m1", tmp_path / "out")
    found = loaded(tmp_path / "out", cache=tmp_path / "cache")
    placed = {(row["id"], row["image"]): row["split"] for row in table(package / "splits.csv")}
    rows = [
        (placed[row["id"], row["image"]], of_csv(row, labels=["figurative", "related", "severity"]))
        for row in table(package / "annotations.csv")
    ]
    assert {split: [row for of, row in rows if of == split] for split in told["rows"]} == found["rows"]
    assert sum(told["rows"].values()) == len(rows)
    # a reader of CSV would take the label None for a missing value
    assert any(row["severity"] == ["None"] for _, row in rows)
    assert 5 <= sum(row["figurative"] is None for _, row in rows) < len(rows)


def test_the_package_is_in_it_unchanged_and_still_fetches(world: World, tmp_path: Path) -> None:
    package = world.approved("posts", "p1")
    export(world, "p1", tmp_path / "out")
    inside = tmp_path / "out" / "package"
    assert {p.name: p.read_bytes() for p in inside.iterdir()} == {p.name: p.read_bytes() for p in package.iterdir()}
    with world.reddit():
        status, _, wrong = world.fetched(inside, key=world.key("p1"), out=tmp_path / "items")
    assert status == 0, wrong


def test_it_repeats_with_equal_bytes_and_lists_every_file(world: World, tmp_path: Path) -> None:
    world.approved("posts", "p1")
    for name in ("one", "two"):
        told = export(world, "p1", tmp_path / name, now=NOW + timedelta(days=1))
    one, two = (
        {p.relative_to(tmp_path / name): p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("one", "two")
    )
    assert one == two and told["files"] == len(one)
    exported = read(tmp_path / "one")
    assert {Path(name) for name in exported.files} | {Path("export.json")} == set(one)
    assert {str(path) for path in one if path.parts[0] != "package"} == {
        "README.md", "LICENSE", "croissant.json", "export.json",
        "data/train.parquet", "data/dev.parquet", "data/test.parquet",
    }  # fmt: skip


def needles(world: World) -> set[bytes]:
    """Everything of the corpus that no file of an export may contain."""
    found: set[str] = set()
    for item in world.items.values():
        found |= {item["name"], item["author"], item["title"], item["selftext"], str(item["created_utc"])}
        found |= {item.get("url", ""), world.record(item["name"]), world.vault.author_id(item["author"])}
    for path in world.root.rglob("splits.parquet"):
        found |= set(pq.read_table(path)["group"].to_pylist())
    # whole words only: group-1 is part of group-10
    words = {text.encode() for text in found if len(text) > 6}
    return (
        words | {world.key(name).read_text().strip().encode() for name in ("p1", "m1")} | {b"A. Person", b"the board"}
    )


def test_no_content_author_group_record_id_or_key_is_in_any_file(world: World, tmp_path: Path) -> None:
    for corpus, name in (("posts", "p1"), ("memes", "m1")):
        world.approved(corpus, name)
        export(world, name, tmp_path / name)
    searched = needles(world)
    assert len(searched) > 400
    for path in sorted(p for name in ("p1", "m1") for p in (tmp_path / name).rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data += json.dumps(pq.read_table(path).to_pylist()).encode() + str(pq.read_schema(path).metadata).encode()
        assert not [needle for needle in searched if needle in data], path.name
        assert str(world.home).encode() not in data, path.name
    # the search finds what is there
    assert b"train" in (tmp_path / "p1" / "README.md").read_bytes()


def test_the_card_says_terms_gate_removals_and_fetching(world: World, tmp_path: Path) -> None:
    world.approved("posts", "p1")
    export(world, "p1", tmp_path / "out")
    head, text = card(tmp_path / "out"), (tmp_path / "out" / "README.md").read_text()
    assert (head["license"], head["license_name"], head["license_link"]) == ("other", "p1-terms", "LICENSE")
    assert head["pretty_name"] == "Small posts" and head["size_categories"] == ["n<1K"]
    assert "removal list" in head["extra_gated_prompt"] and "checkbox" in head["extra_gated_fields"].values()
    assert (tmp_path / "out" / "LICENSE").read_text() == "For research only.\n"
    for said in ("team@example.org", "Access is gated", "hydrate.py", "removal list number 0", "every 14 days", REPO):
        assert said in text, said


def test_deleted_posts_leave_it_when_their_removal_is_due(world: World, tmp_path: Path) -> None:
    world.approved("posts", "p1")
    fetched = {row["id"] for row in table(world.folder("p1") / "package/fetch.csv")}
    held = {world.of("p1", name) for name in destroy_some(world)} & fetched
    assert len(held) >= 3
    export(world, "p1", tmp_path / "waiting")  # as the package until its day
    later = NOW + timedelta(days=20)
    with pytest.raises(RemovalsDue, match="removal of"):
        export(world, "p1", tmp_path / "late", now=later)
    removal.refresh(settings=world.settings, vault=world.vault, now=later)
    export(world, "p1", tmp_path / "after", now=later)
    ids = {i for path in (tmp_path / "after" / "data").iterdir() for i in pq.read_table(path)["id"].to_pylist()}
    assert ids and not ids & held
    assert held <= set(json.loads((tmp_path / "after" / "package" / "removal.json").read_text())["ids"])
    assert '"version": "2.0.0"' in (tmp_path / "after" / "croissant.json").read_text()


@pytest.mark.parametrize("file", ["train.csv", "fetch.csv", "LICENSE.txt"])
def test_an_altered_package_is_refused(world: World, tmp_path: Path, file: str) -> None:
    path = world.approved("posts", "p1") / file
    path.write_text(path.read_text() + "x")
    with pytest.raises(PackageAltered, match=file):
        export(world, "p1", tmp_path / "out")


def test_rows_and_columns_that_the_register_does_not_know_are_refused(world: World, tmp_path: Path) -> None:
    """Even if the digests fit, as after a restore of another register."""
    world.approved("posts", "p1")
    ids = world.folder("p1") / "ids.txt"
    kept = ids.read_text()
    ids.write_text("\n".join(kept.split()[1:]))
    with pytest.raises(NotExportable, match="other rows or columns"):
        export(world, "p1", tmp_path / "out")
    ids.write_text(kept)
    state = json.loads((world.folder("p1") / "release.json").read_text())
    state["columns"] = ["labels", "agreement"]
    (world.folder("p1") / "release.json").write_text(json.dumps(state))
    with pytest.raises(NotExportable, match="other rows or columns"):
        export(world, "p1", tmp_path / "out")


@pytest.mark.parametrize("repo", ["small-posts", "a/b/c", "my lab/posts", "../posts", "my-lab/", ""])
def test_what_names_no_repository_is_refused(world: World, tmp_path: Path, repo: str) -> None:
    world.approved("posts", "p1")
    with pytest.raises(BadParams, match="OWNER/NAME"):
        export(world, "p1", tmp_path / "out", repo=repo)


def test_a_folder_with_something_in_it_is_not_replaced(world: World, tmp_path: Path) -> None:
    world.approved("posts", "p1")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(BadParams, match="new or empty"):
        export(world, "p1", tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


def test_a_changed_folder_is_noticed(world: World, tmp_path: Path) -> None:
    world.approved("posts", "p1")
    export(world, "p1", tmp_path / "out")
    read(tmp_path / "out")
    changes: list[Callable[[Path], object]] = [
        lambda folder: (folder / "README.md").write_text("other words"),
        lambda folder: (folder / "posts.csv").write_text("words\n"),
        lambda folder: (folder / "LICENSE").unlink(),
        lambda folder: (folder / "export.json").write_text("{}"),
    ]
    for number, change in enumerate(changes):
        change(folder := shutil.copytree(tmp_path / "out", tmp_path / str(number)))
        with refused("ExportChanged"):
            read(folder)
