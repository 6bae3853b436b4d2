"""Each split's examples: opened, aligned, without what was taken down, and test without its labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.core.errors import BadParams
from pipelines.datasets.example import NoGold, only, targets
from pipelines.datasets.items import SplitItems
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests.refusals import refused
from tests.train import small_memes as small
from tests.train.small_memes import SmallMemes


@pytest.fixture
def memes(tmp_path: Path, vault: Vault) -> SmallMemes:
    return small.write(tmp_path, vault=vault, sizes={"train": 18, "validation": 8, "test": 7})


def splits_of(memes: SmallMemes) -> tuple[Path, list[dict[str, object]]]:
    path = memes.root / "snapshot/memes/split/splits.parquet"
    return path, tables.read(path, name="splits").to_pylist()


def test_every_example_has_its_own_content(memes: SmallMemes) -> None:
    material = memes.load("severity")
    for split, size in {"train": 18, "validation": 8, "test": 7}.items():
        examples = getattr(material, split)
        assert [e.item for e in examples] == sorted(i for i, m in memes.memes.items() if m.split == split)
        assert len(examples) == size
        for example in examples:
            meme = memes.memes[example.item]
            assert (example.split, example.text, example.image) == (split, meme.text or "", meme.image)
    assert not any(material.without.values()) and not any(material.taken_down.values())
    assert any(e.text == "" for e in material.train)


def test_items_of_every_split_are_opened_with_gold_by_category(memes: SmallMemes, vault: Vault) -> None:
    lacking, gone = sorted(memes.memes)[:2]
    labels = {item: dict(meme.labels) for item, meme in memes.memes.items()}
    del labels[lacking]["related"]
    small.write_gold(memes.root, labels)
    vault.destroy([gone[0]], reason="request", now=small.NOW)
    splits = SplitItems.read("memes", params=memes.params, vault=vault, root=memes.root)
    assert list(splits.posts) == sorted(memes.memes.keys() - {gone})
    assert splits.gold["related"].keys() == memes.memes.keys() - {lacking}
    assert [item for shard in splits.shards(size=10) for item in shard] == list(splits.posts)
    for item, post in splits.posts.items():
        meme = memes.memes[item]
        assert (splits.split[item], post.title, post.body, post.images) == (
            meme.split, "", meme.text or "", (meme.image,),
        )  # fmt: skip
        assert splits.gold["figurative"][item] == meme.labels["figurative"]
    splits_of(memes)[0].unlink()
    with pytest.raises(NoGold):
        SplitItems.read("memes", params=memes.params, vault=vault, root=memes.root)


def test_items_are_not_opened_where_the_splits_are_wrong(memes: SmallMemes) -> None:
    ratios = memes.params.split["memes"].model_copy(update={"ratios": {"train": 1, "dev": 1}, "sizes": None})
    other = memes.params.model_copy(update={"split": {"memes": ratios}})
    with pytest.raises(BadParams, match="ratios"):
        replace(memes, params=other).load()


def test_silver_of_images_is_by_item_and_category(memes: SmallMemes) -> None:
    train = sorted(item for item, meme in memes.memes.items() if meme.split == "train")
    agreements = [("unanimous", 1.0), ("consensus", 0.5), ("none", 0.1)] * 6
    rows = [
        {"record_id": r, "image": n, "category": key, "ensemble": "cradle", "agreement": agreed, "posterior": posterior,
         "labels": sorted(memes.memes[r, n].labels[key]), "how": "majority"}
        for key in ("severity", "figurative")
        for (r, n), (agreed, posterior) in zip(train, agreements, strict=True)
    ]  # fmt: skip
    rows.append(rows[0] | {"image": 1, "labels": ["Suicide death"]})
    small.write_table(memes.root / "snapshot/memes/silver/cradle/silver.parquet", rows, name="silver")
    material = memes.load("severity", subset="consensus")
    assert [e.item for e in material.train] == [item for n, item in enumerate(train) if n % 3 < 2]
    assert [e.labels for e in material.train] == [
        material.task.seen(memes.memes[e.item].labels["severity"]) for e in material.train
    ]
    assert {e.weight for e in material.train} == {1.0}
    assert len(memes.load("figurative", subset="unanimous").train) == 6
    weighted = memes.load("severity", subset="consensus", weighted=True).train
    assert {e.weight for e in weighted} == {1 / 0.75, 0.5 / 0.75}


def test_labels_are_what_models_see_of_gold_and_an_empty_set_is_an_answer(memes: SmallMemes) -> None:
    severity = memes.load("severity")
    merged = {"Suicide attempts", "Suicide death"}
    for example in severity.train:
        (given,) = memes.memes[example.item].labels["severity"]
        assert example.labels == {"Suicide attempt/death" if given in merged else given}
    related = memes.load("related")
    assert any("Third-person description" in memes.memes[e.item].labels["related"] for e in related.train)
    for example in related.train:
        assert example.labels == memes.memes[example.item].labels["related"] - {"Third-person description"}
    assert any(example.labels == frozenset() for example in related.train)


def test_what_is_declared_for_a_split_sees_no_other(memes: SmallMemes) -> None:
    material = memes.load()
    both = [*material.train, *material.validation]
    assert only(material.train, splits={"train"}) is material.train
    assert only(both, splits=("train", "validation")) is both
    assert only([], splits={"train"}) == []
    for leaked in (material.validation[3], material.test[2]):
        with refused("LeakRefused", match=f"1 examples of {leaked.split} were refused: only train may"):
            only([*material.train, leaked], splits={"train"})


def test_targets_stand_in_the_order_of_examples(memes: SmallMemes) -> None:
    material = memes.load("figurative")
    turned = list(material.train[::-1])
    found = targets(turned, task=material.task)
    assert found.shape == (18, 3) and found.dtype == np.float32
    for row, example in zip(found, turned, strict=True):
        assert {label for label, one in zip(material.task.labels, row, strict=True) if one} == example.labels
    assert targets([], task=material.task).shape == (0, 3)


def test_two_labels_of_a_single_label_task_are_refused(memes: SmallMemes) -> None:
    material = memes.load("severity")
    wrong = replace(material.train[0], labels=frozenset({"None", "Wish to be dead"}))
    with pytest.raises(BadParams):
        targets([wrong], task=material.task)


def test_what_has_no_gold_of_the_task_is_left_out_and_counted(memes: SmallMemes) -> None:
    lacking = next(item for item, meme in memes.memes.items() if meme.split == "validation")
    labels = {item: dict(meme.labels) for item, meme in memes.memes.items()}
    del labels[lacking]["related"]
    small.write_gold(memes.root, labels)
    assert memes.load("related").without == {"train": 0, "validation": 1, "test": 0}
    assert lacking not in {e.item for e in memes.load("related").validation}
    assert lacking in {e.item for e in memes.load("figurative").validation}


def test_pictures_outside_the_split_are_of_no_concern(memes: SmallMemes, vault: Vault) -> None:
    path, rows = splits_of(memes)
    left = next(row for row in rows if row["split"] == "train")
    small.write_table(path, [row for row in rows if row is not left], name="splits")
    material = memes.load()
    assert len(material.train) == 17 and left["record_id"] not in {e.item[0] for e in material.train}


def test_without_a_split_and_gold_there_is_nothing_to_train_on(memes: SmallMemes) -> None:
    (memes.root / "snapshot/memes/gold/gold.parquet").unlink()
    with pytest.raises(NoGold, match="memes"):
        memes.load()
