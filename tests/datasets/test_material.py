"""Memes and posts alike: each split opened and aligned, without what was taken down, and test without its labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.errors import SealBroken
from pipelines.datasets.example import LabelSet, targets
from pipelines.store import tables
from pipelines.store.table_files import Contract
from pipelines.store.tables import Item
from pipelines.store.vault.vault import Vault
from tests.refusals import refused
from tests.train import small_memes, small_posts


@dataclass(frozen=True)
class Corpus:
    """A small corpus: its sealed files, the column whose cells are exchanged, what is true, and what is private."""

    root: Path
    name: str
    files: str
    table: str
    column: str
    vault: Vault
    load: Callable[[], Any]
    truth: Mapping[Item, LabelSet]
    private: frozenset[str]


@pytest.fixture(params=["memes", "posts"])
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> Corpus:
    if request.param == "posts":
        posts = request.getfixturevalue("posts")
        truth = {(r, 0): post.labels for r, post in posts.posts.items()}
        words = frozenset(text for post in posts.posts.values() for text in (post.title, post.body[:20]))
        place = ("data/posts/*/records.parquet", "records", "body")
        return Corpus(posts.root, "posts", *place, posts.vault, posts.load, truth, words)
    vault = request.getfixturevalue("vault")
    memes = small_memes.write(tmp_path, vault=vault, sizes={"train": 18, "validation": 8, "test": 7})
    task = memes.task("severity")
    truth = {item: task.seen(meme.labels["severity"]) for item, meme in memes.memes.items()}
    words = frozenset({"PNG", *(meme.text for meme in memes.memes.values() if meme.text)})
    place = ("data/memes/*/images/*.parquet", "images", "bytes")
    return Corpus(tmp_path, "memes", *place, vault, lambda: memes.load("severity"), truth, words)


def test_two_loads_are_alike_and_quote_nothing(corpus: Corpus) -> None:
    material = corpus.load()
    assert material == corpus.load()
    shown = repr(material).replace(repr(material.task), "") + repr(material.train) + repr(material.validation)
    assert repr(material.train[0].item) in shown and "Example(" not in repr(material)
    assert "labels=" not in shown and not any(text in shown for text in corpus.private)


def test_the_labels_of_test_are_hidden_from_all_but_evaluation(corpus: Corpus) -> None:
    material = corpus.load()
    assert {e.labels for e in material.test} == {None}
    said = f"{len(material.test)} examples of test were refused: only train and validation may"
    with refused("LeakRefused", match=said):
        targets(material.test, task=material.task)
    with refused("LeakRefused", match="1 examples of test"):
        targets([*material.train, material.test[0]], task=material.task)
    assert material.truth("test") == {e.item: corpus.truth[e.item] for e in material.test}
    assert material.truth("train") == {e.item: e.labels for e in material.train}
    with pytest.raises(KeyError):
        material.truth("others")


def test_what_was_taken_down_is_left_out_and_counted(corpus: Corpus) -> None:
    before = corpus.load()
    gone = [before.train[0].item, before.train[4].item, before.test[1].item]
    corpus.vault.destroy([record_id for record_id, _ in gone], reason="request-1", now=small_posts.NOW)
    after = corpus.load()
    assert [e.item for e in after.train] == [e.item for e in before.train if e.item not in gone]
    assert after.taken_down == {"train": 2, "validation": 0, "test": 1}
    assert after.without == before.without
    assert not set(gone) & {*after.truth("train"), *after.truth("test")}


def test_content_that_should_be_there_is_missed(corpus: Corpus) -> None:
    next(corpus.root.glob(corpus.files)).unlink()
    with refused("SchemaMismatch", match="of the split are missing"):
        corpus.load()


def test_content_of_another_place_never_trains(corpus: Corpus) -> None:
    path = next(corpus.root.glob(corpus.files))
    table = tables.read(path, name=corpus.table)
    cells = table[corpus.column].take([1, 0, *range(2, table.num_rows)])
    swapped = table.set_column(table.schema.get_field_index(corpus.column), corpus.column, cells)
    tables.write(swapped, path, name=corpus.table)
    with pytest.raises(SealBroken):
        corpus.load()


@pytest.mark.parametrize("what", ["item", "group"])
def test_a_split_that_leaks_is_refused(corpus: Corpus, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # a file that nothing here wrote
    monkeypatch.setattr(Contract, "require", lambda *_, **__: None)
    path = corpus.root / "snapshot" / corpus.name / "split/splits.parquet"
    rows = tables.read(path, name="splits").to_pylist()
    train = next(row for row in rows if row["split"] == "train")
    if what == "item":
        rows.append(train | {"split": "test"})
    else:
        next(row for row in rows if row["split"] != "train")["group"] = train["group"]
    small_posts.write_table(path, rows, name="splits")
    with refused("SplitConflict", match="two splits"):
        corpus.load()
