"""A release has labels and splits in the papers' forms, under names of its own, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from crisis_corpus import hydrate
from pipelines.core.config.operate import Release, Shape
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import load
from pipelines.release import anonymity, package, release_tables
from pipelines.release.release_store import Content, locked, manifest_of, own_key
from pipelines.release.release_tables import ReleasedPost
from pipelines.store import tables
from pipelines.store.vault import locks
from pipelines.workspace.clone import workspace
from tests import small_corpus
from tests.refusals import refused
from tests.release.small_release import AGREED, IMPORTED, NOW, SECRET, TERMS, World, split_rows, table
from tests.stages import reproduce

IDS = ("id", "address", "text", "picture")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def labelled(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.csv") if path.name not in anonymity.KEYED}


def changed(corpus: str, **changes: Any) -> Release:
    shape = TERMS.corpora[corpus].model_copy(update=changes)
    return TERMS.model_copy(update={"corpora": {**TERMS.corpora, corpus: shape}})


def test_a_release_of_annotations_and_splits(world: World) -> None:
    told = world.release("memes", "m1")
    folder = Path(told["package"])
    rows, splits = table(folder / "annotations.csv"), table(folder / "splits.csv")
    assert list(rows[0]) == ["id", "image", "figurative", "related", "severity", "month", "subreddit"]
    assert list(splits[0]) == ["id", "image", "split"]
    names = {r: world.vault.record_id(r, domain="release/m1") for r, _ in world.split("memes")}
    expected = {(names[r], str(image)): split for (r, image), split in world.split("memes").items()}
    assert {(r["id"], r["image"]): r["split"] for r in splits} == expected
    assert [(r["id"], r["image"]) for r in rows] == sorted(expected, key=lambda key: (key[0], int(key[1])))
    assert {r["figurative"] for r in rows} == {"Metaphor|Irony/sarcasm", "None"}
    assert {r["related"] for r in rows} == {"Harmful factors", "Protective factors|Harmful factors"}
    assert told["items"] == len(rows) == 56
    assert told["records"] == 40
    secret = [world.folder("m1") / name for name in ("ids.txt", "m1.key")]
    assert [path.stat().st_mode & 0o777 for path in secret] == [0o600] * 2
    assert all(row["month"] and row["subreddit"] for row in rows)
    assert manifest_of(folder, "m1") and manifest_of(folder, "m2") is None
    assert "t3_secret" not in repr(ReleasedPost("t3_secret", None, None))  # type: ignore[arg-type]
    assert repr(Content("words", ("address",))) == "Content()"


def test_a_key_of_a_release_is_made_once_and_refused_once_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "m1.key"
    assert own_key(path) == own_key(path) and len(own_key(path)) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text()[:-2])
    with pytest.raises(BadParams, match="is not a release key"):
        own_key(path)


def test_releases_have_one_writer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    settings = Settings.from_env()
    with locked(settings), locks.alone(settings, "releases", wait=False) as held:
        assert not held
    with locks.alone(settings, "releases", wait=False) as held:
        assert held


def test_a_release_with_a_file_for_each_split_states_the_agreement(world: World) -> None:
    told = world.release("posts", "p1")
    folder = Path(told["package"])
    rows = split_rows(folder)
    assert list(rows["train"][0]) == ["id", "labels", "agreement", "month", "subreddit"]
    assert {r["agreement"] for r in rows["dev"] + rows["test"]} == {"gold"}
    train = sorted(number for number in range(72) if number % 5 in (0, 1, 3) and AGREED[number % 4] != "none")
    there = {world.of("p1", f"t3_p{n:03d}"): AGREED[n % 4] for n in train if n != IMPORTED}
    kept = {r["id"]: r["agreement"] for r in rows["train"]}
    assert kept == {i: agreed for i, agreed in there.items() if i in kept}
    assert len(there) - len(kept) <= told["left_out"]["suppressed"]
    assert {r["labels"] for r in rows["test"]} <= {
        "no_crisis",
        "selfharm_past|domesticviolence_ongoing",
        "domesticviolence_ongoing|selfharm_past",
        "selfharm_ongoing",
    }


def test_each_image_of_a_gallery_has_its_own_labels_of_models(tmp_path: Path) -> None:
    params = load_params(small_corpus.ROOT)
    votes = {"category": "labels", "ensemble": "cradle", "agreement": "unanimous", "how": "majority"}
    images = [{"record_id": "r", "image": image} for image in (0, 1)]
    for name, rows in {
        "split/splits": [row | {"group": "g", "split": "train"} for row in images],
        "gold/gold": [],
        f"silver/{params.ensemble('posts')}/silver": [
            images[0] | votes | {"labels": ["no_crisis"]},
            images[1] | votes | {"labels": ["rape_past"]},
        ],
    }.items():
        path = tmp_path / "snapshot" / "posts" / f"{name}.parquet"
        small_corpus.write_table(path, rows, name=path.stem)
    shape = Shape(form="splits", title="t", columns=("labels", "agreement"))
    options: dict[str, Any] = {"shape": shape, "params": params, "root": tmp_path}
    items, omitted = release_tables.labelled("posts", categories=load("cradle").categories, **options)
    assert omitted == 0
    assert {image: item.labels["labels"] for (_, image), item in items.items()} == {
        0: ("no_crisis",),
        1: ("rape_past",),
    }


def test_what_is_left_out_is_counted(world: World) -> None:
    before = world.release("posts", "p1")
    assert before["left_out"]["no_address"] == 1
    assert before["left_out"]["taken_down"] == 0
    taken = ["t3_p002", "t3_p009"]
    world.vault.destroy([world.record(name) for name in taken], reason="test", now=NOW)
    after = world.release("posts", "p1")
    assert after["left_out"]["taken_down"] == 2
    ids = {row["id"] for rows in split_rows(Path(after["package"])).values() for row in rows}
    assert not ids & {world.of("p1", name) for name in taken}
    train_without = sum(AGREED[n % 4] == "none" for n in range(72) if n % 5 in (0, 1, 3))
    assert after["left_out"]["without_labels"] == train_without


def test_same_commit_and_key_give_the_same_bytes(world: World) -> None:
    for corpus in ("memes", "posts"):
        first = world.release(corpus, f"{corpus}-1")
        bytes_then = contents(Path(first["package"]))
        again = world.release(corpus, f"{corpus}-1", now=NOW.replace(year=2024), to=world.home / "elsewhere")
        assert contents(world.home / "elsewhere") == bytes_then
        assert again["manifest"] == first["manifest"]
        assert not Path(first["package"]).exists()  # the draft before is gone
        shutil.rmtree(world.home / "elsewhere")


@pytest.mark.parametrize("corpus", ["memes", "posts"])
def test_two_releases_share_no_value_of_an_id(world: World, corpus: str) -> None:
    folders = [Path(world.release(corpus, name)["package"]) for name in ("one", "two")]
    values = []
    for folder in folders:
        rows = [row for path in folder.glob("*.csv") for row in table(path)]
        values.append({row[c] for row in rows for c in IDS if row.get(c)})
        assert len(values[-1]) > 100
    assert not values[0] & values[1]
    # all other values in both are from small sets, none of which identifies an item
    open_columns = {c for f in folders for p in f.glob("*.csv") for c in (table(p) or [{}])[0]} - set(IDS)
    assert open_columns <= {"image", "split", "labels", "agreement", *TERMS.corpora["memes"].columns}


@pytest.mark.parametrize("corpus", ["memes", "posts"])
def test_no_file_has_a_name_an_author_a_group_or_a_word(world: World, corpus: str) -> None:
    told = world.release(corpus, "one")
    prefix = corpus[0]
    items = {name: item for name, item in world.items.items() if name.startswith(f"t3_{prefix}")}
    forbidden = set(items) | {item["author"] for item in items.values()}
    forbidden |= {world.record(name) for name in items} | {world.vault.author_id(i["author"]) for i in items.values()}
    forbidden |= {"group-1", "group-20", "Harbour", "river", "boats"}
    register = [p for p in world.folder("one").rglob("*") if p.is_file()]
    assert {p.name for p in register} >= {"release.json", "ids.txt", "removal.json", "one.key", "fetch.csv"}
    for path in register:
        if path.name == "hydrate.py":
            continue
        found = [text for text in forbidden if text.encode() in path.read_bytes()]
        assert not found, path.name
    key = Path(told["key"])
    assert key.stat().st_mode & 0o777 == 0o600
    assert not any(key.read_bytes().strip() in p.read_bytes() for p in Path(told["package"]).iterdir())


def test_only_columns_that_are_named_can_get_in(world: World) -> None:
    for wrong in ("author_id", "group", "title", "record_id", "created", "sha256"):
        with pytest.raises(BadParams, match="may not be released"):
            world.release("memes", "m1", terms=changed("memes", columns=("severity", wrong)))
    with refused("NothingReleasable", match=r"corpus params set release\.corpora\.memes '\{form: splits"):
        world.release("memes", "m1", terms=TERMS.model_copy(update={"corpora": {}}))
    assert not world.folder("m1").exists()
    folder = Path(world.release("memes", "m1", terms=changed("memes", columns=("severity",)))["package"])
    assert list(table(folder / "annotations.csv")[0]) == ["id", "image", "severity"]
    with pytest.raises(ValidationError, match="at least one label category"):
        Shape(form="splits", title="t", columns=("agreement", "month"))


@pytest.mark.parametrize(("corpus", "form"), [("memes", "splits"), ("posts", "annotations")])
def test_each_corpus_is_released_in_both_forms(world: World, corpus: str, form: str) -> None:
    usual = world.release(corpus, "one")
    told = labelled(Path(usual["package"]))
    other = world.release(corpus, "one", terms=changed(corpus, form=form))
    assert {**other, "manifest": ""} == {**usual, "manifest": ""}
    assert anonymity.values(labelled(Path(other["package"]))) == anonymity.values(told), "joined in either form"
    folder, key = Path(other["package"]), own_key(Path(other["key"]))
    columns = ["id", *(["image"] if corpus == "memes" else []), *TERMS.corpora[corpus].columns]
    files = ["annotations.csv"] if form == "annotations" else [f"{split}.csv" for split in other["splits"]]
    rows = [row for file in files for row in table(folder / file)]
    assert len(rows) == other["items"] and {tuple(row) for row in rows} == {tuple(columns)}
    read = hydrate.Package.read(folder, key=key, removal=None, draft=True).rows
    assert Counter(row.split for row in read) == other["splits"]


def test_labels_of_models_are_released_only_with_the_agreement(world: World) -> None:
    told = world.release("posts", "p1", terms=changed("posts", columns=("labels", "month")))
    assert told["splits"].keys() == {"dev", "test"}


def test_make_lists_releases_with_other_columns(world: World) -> None:
    assert world.release("memes", "m1")["other_columns"] == []
    less = changed("memes", columns=("severity", "subreddit"))
    assert world.release("memes", "m2", terms=less)["other_columns"] == []  # m1 is a draft
    world.approve("m1")
    assert world.release("memes", "m2", terms=less)["other_columns"] == ["m1"]
    assert world.release("memes", "m3")["other_columns"] == []
    assert world.release("posts", "p1")["other_columns"] == []


def test_metadata_is_shared_by_k_authors(world: World) -> None:
    for k in (2, 3, 6):
        told = world.release("posts", "p1", terms=TERMS.model_copy(update={"k": k}))
        rows = [row for rows in split_rows(Path(told["package"])).values() for row in rows]
        posts = tables.concat(
            sorted((world.root / "data" / "posts").glob("*/records.parquet")), name="records"
        ).to_pylist()
        author = {world.vault.record_id(p["record_id"], domain="release/p1"): p["author_id"] for p in posts}
        classes: dict[tuple[str, str], set[str]] = {}
        for row in rows:
            classes.setdefault((row["month"], row["subreddit"]), set()).add(author[row["id"]])
        assert min(map(len, classes.values())) >= k
        assert told["smallest"] >= k
        assert told["items"] == len(rows)
        assert sum(told["levels"].values()) == len(rows)


def test_the_datasheet_counts_what_is_there(world: World) -> None:
    folder = Path(world.release("memes", "m1")["package"])
    sheet = (folder / "DATASHEET.md").read_text()
    assert "# Small memes" in sheet
    assert "56 items of 40 posts" in sheet
    assert re.search(r"\| validation \| \d+ \|", sheet)
    assert (folder / "LICENSE.txt").read_text() == "For research only.\n"


def test_nothing_else_is_overwritten(world: World) -> None:
    other = world.home / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("one")
    with pytest.raises(BadParams, match="already"):
        world.release("memes", "m1", to=other)
    assert (other / "chapter.txt").read_text() == "one"
    for name in ("../m1", "M1", "", "a/b", ".lock"):
        with pytest.raises(BadParams, match="name"):
            world.release("memes", name)
    world.approved("memes", "m1")
    with refused("ReleaseApproved"):
        world.release("memes", "m1")


def test_a_corpus_without_a_shape_labels_or_company_is_refused(world: World) -> None:
    with refused("NothingReleasable"):
        world.release("memes", "m1", terms=TERMS.model_copy(update={"corpora": {}}))
    with refused("NothingToRelease", match="56 suppressed"):
        world.release("memes", "m1", terms=TERMS.model_copy(update={"k": 41}))
    without = world.settings.model_copy(update={"contact": ""})
    with pytest.raises(BadParams, match="CORPUS_CONTACT"):
        world.release("memes", "m1", settings=without, terms=TERMS.model_copy(update={"contact": None}))


def test_a_release_is_made_of_a_clone_of_the_corpus(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_SECRET", SECRET.hex())
    code, settings = tmp_path / "code", world.settings.model_copy(update=places(world.home))
    outs = ["snapshot/posts/split", "snapshot/posts/gold"]
    stage = {"cmd": "cp -r made/split made/gold snapshot/posts", "deps": ["made"], "outs": outs}
    stages = small_corpus.staged(yaml.safe_dump({"stages": {"split": {"foreach": {"posts": ""}, "do": stage}}}))
    files = small_corpus.ANNOTATED | small_corpus.SHELL | {"dvc.yaml": stages}
    small_corpus.begin(settings, code=small_corpus.code_of(code, files))
    with workspace(settings) as clone:
        for folder, to in {"data": "data", "snapshot/posts": "made"}.items():
            shutil.copytree(world.root / folder, clone.path / to, dirs_exist_ok=True)
        reproduce(clone, "split@posts")
        clone.add(sorted((clone.path / "data" / "posts").glob("*/records.parquet")))
        commit = clone.commit("data")
    with workspace(settings) as clone:
        clone.checkout(*package.inputs("posts", params=world.params))
        clone.checkout_months("posts", "records.parquet")
        told = world.release("posts", "p1", root=clone.path, settings=settings)
    assert told["splits"].keys() == {"dev", "test"}  # this one has no votes
    assert json.loads((Path(told["package"]) / "manifest.json").read_text())["data_commit"] == commit


def places(home: Path) -> dict[str, Any]:
    """Return where a corpus repository with its cache and remote is below ``home``."""
    (home / "remote").mkdir()
    return {"repo": f"{home}/corpus.git", "remote": f"{home}/remote", "cache": home / "cache"}


def test_votes_of_annotators_are_released_as_counts_that_enough_authors_share(world: World) -> None:
    items = sorted(world.split("memes"))
    sets = [["None"], ["Suicide ideation"], ["Wish to be dead"]]
    rows = [
        {
            "record_id": r,
            "image": n,
            "category": "severity",
            "annotator": f"annotator-{who}",
            "round": "one",
            "outcome": "answered",
            "labels": sets[(i + who) % 2 if i else 2 * who],
            "answered": NOW,
            "note": None,
        }
        for i, (r, n) in enumerate(items)
        for who in range(1 if i % 7 == 3 else 2)
    ]
    small_corpus.write_table(world.root / "annotations/memes/one/annotations.parquet", rows, name="annotations")
    terms = changed("memes", columns=("severity", "votes"))
    folder = Path(world.release("memes", "m1", terms=terms)["package"])
    said = {(row["id"], row["image"]): row for row in table(folder / "annotations.csv")}
    # the script: by item how many answered what, and the authors who share it beside the label
    counted: dict[tuple[str, int], Counter[str]] = {item: Counter() for item in items}
    for row in rows:
        counted[row["record_id"], row["image"]].update(row["labels"])
    names = {item: (world.vault.record_id(item[0], domain="release/m1"), str(item[1])) for item in items}
    cells = {item: (said[names[item]]["severity"], tuple(sorted(counted[item].items()))) for item in items}
    author = {world.record(name): post["author"] for name, post in world.items.items()}
    for item in items:
        people = {
            author[other[0]] for other in items if cells[other] == cells[item] and sum(counted[other].values()) > 1
        }
        votes = said[names[item]]["votes"]
        if counted[item].total() < 2 or len(people) < terms.k:
            assert not votes
        else:
            assert json.loads(votes) == {"severity": dict(counted[item])}
    assert {bool(row["votes"]) for row in said.values()} == {True, False}
    assert said[names[items[0]]]["votes"] == "", "no other item has the same votes"
    assert not any(b"annotator-" in content for content in contents(folder).values())
