"""Predict dev and test with a fine-tuned model, and never the records that it was trained on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.models.fitting import asking, card
from pipelines.models.kind import Serving
from pipelines.store import tables
from tests.refusals import refused
from tests.train import small_posts as small
from tests.train import small_tuned
from tests.train.small_posts import SmallPosts
from tests.train.small_tuned import folder, predicted, row_of, rows_of, spent, tuned

pytestmark = pytest.mark.usefixtures("embedded_once")
LABELS = small.TASK.labels


@pytest.fixture(scope="module")
def original(embedded_once: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallPosts]:
    """A corpus with a tuned model of every kind, kNN with a labeller and without."""
    place = tmp_path_factory.mktemp("tuned")
    made = small.made()
    with pytest.MonkeyPatch.context() as patch, small.copied(made, to=place / "own") as own:
        told = small_tuned.settings(place / "home", patch=patch)
        for model in small_tuned.MODELS:
            tuned(own, told, model=model)
        yield own


@pytest.mark.parametrize("model", ["encoder", "knn", "sft"])
def test_every_record_of_dev_and_test_gets_a_row(posts: SmallPosts, settings: Settings, model: str) -> None:
    metrics = predicted(posts, settings, model=model)
    rows = rows_of(posts, model=model)
    asked = [example.item[0] for example in posts.load(None).asked]
    assert set(rows) == set(asked) and len(rows) == 23
    assert {r: row["split"] for r, row in rows.items()} == {r: posts.posts[r].split for r in rows}
    for row in rows.values():
        assert row["outcome"] == "vote" and set(row["labels"]) <= set(LABELS) and row["labels"]
        assert len(row["scores"]) == len(LABELS) and all(0 <= p <= 1 for p in row["scores"])
    assert metrics["records"] == {"dev": 11, "test": 12}
    assert metrics["outcomes"] == {"dev": {"vote": 11}, "test": {"vote": 12}}
    told = spent(posts, model=model)
    assert told == metrics["spent"] and told["records"] == 23 and told["seconds"] > 0 and told["cost"] == 0
    assert told["input_tokens"] > 23 * 20 and (told["output_tokens"] >= 23) == (model == "sft")
    assert json.loads((posts.root / f"metrics/posts/predict-{row_of(model)}.json").read_text()) == metrics


def test_an_answer_belongs_to_its_own_record(posts: SmallPosts, settings: Settings) -> None:
    predicted(posts, settings, model="encoder")
    rows = rows_of(posts, model="encoder")
    serving = Serving(task=small.TASK, scheme=load_scheme("cradle"), folder=settings.home)
    opened = small_tuned.MODELS["encoder"].open(folder(posts, model="encoder"), serving)
    for example in posts.load(None).asked[::5]:
        (alone,) = opened.predict([example])
        row = rows[example.item[0]]
        assert row["scores"] == pytest.approx(alone.scores, abs=1e-5) and row["labels"] == sorted(alone.labels)
        assert alone.input_tokens > 5


def test_a_blend_follows_its_labeller(posts: SmallPosts, settings: Settings) -> None:
    predicted(posts, settings, model="knn-gpt")
    before = {r: row["labels"] for r, row in rows_of(posts, model="knn-gpt").items()}
    right = sum(labels == sorted(posts.posts[r].labels) for r, labels in before.items())
    assert right > 18, "gpt tells the truth in this corpus, and has all the weight"
    path = posts.snapshot / "votes/gpt/votes.parquet"
    rows = [row | {"labels": ["rape_past"]} for row in tables.read(path, name="votes").to_pylist()]
    small.write_table(path, rows, name="votes")
    predicted(posts, settings, model="knn-gpt")
    assert {r: row["labels"] for r, row in rows_of(posts, model="knn-gpt").items()} != before
    path.unlink()
    with refused("NotVoted"):
        predicted(posts, settings, model="knn-gpt")


def test_a_refusal_of_a_labeller_is_not_an_answer(posts: SmallPosts) -> None:
    rows = asking.votes("posts", labeller="claude", task=small.TASK, root=posts.root)
    refused = {item for item, row in rows.items() if row["outcome"] == "refused"}
    assert refused and asking.valid(rows).keys() == rows.keys() - refused


def move(posts: SmallPosts, *, record: str, split: str) -> None:
    """Put a record, and those of its group, into another split."""
    path = posts.snapshot / "split/splits.parquet"
    rows = tables.read(path, name="splits").to_pylist()
    group = next(row["group"] for row in rows if row["record_id"] == record)
    small.write_table(path, [row | {"split": split} if row["group"] == group else row for row in rows], name="splits")
    small.write_gold(posts, {r: post.labels for r, post in posts.posts.items()})


@pytest.mark.parametrize(("seen", "now", "leaks"), [("train", "test", True), ("train", "dev", True),
                                                      ("dev", "test", True), ("test", "dev", False)])  # fmt: skip
def test_a_model_is_not_judged_on_what_it_was_made_of(
    posts: SmallPosts, settings: Settings, seen: str, now: str, leaks: bool
) -> None:
    lineage = card.lineage(folder(posts, model="knn"))
    records = [r for r, split in lineage.items() if split == seen] or posts.of(seen)
    move(posts, record=records[0], split=now)
    if not leaks:
        predicted(posts, settings, model="knn")
        return
    with refused("SeenInTraining", match="'knn-consensus' is to be evaluated on"):
        predicted(posts, settings, model="knn")
    assert not (posts.snapshot / "predictions").exists()


def test_who_was_taken_down_since_is_counted_and_not_asked_about(posts: SmallPosts, settings: Settings) -> None:
    learnt = [r for r, split in card.lineage(folder(posts, model="knn")).items() if split == "train"][:2]
    gone = [*learnt, posts.of("test")[0]]
    posts.vault.destroy(gone, reason="request-1", now=small.NOW)
    metrics = predicted(posts, settings, model="knn")
    assert metrics["taken_down_since"] == 2 and metrics["taken_down"] == {"dev": 0, "test": 1}
    assert not set(gone) & rows_of(posts, model="knn").keys()


def test_a_folder_that_holds_no_such_model_says_so(posts: SmallPosts, settings: Settings) -> None:
    place = folder(posts, model="knn")
    stored = json.loads((place / "model.json").read_text())
    with refused("NoModel", match=r"model\.json is missing"):
        predicted(posts, settings, model="knn", subset="unanimous")
    (place / "records.parquet").unlink()
    for changed, code, said in [
        ({"labels": stored["labels"][::-1]}, "ModelOutdated", "labels of task 'labels', which are not the"),
        ({"spec": {"kind": "oracle"}}, "NoModel", r"model\.json has an unknown kind of model"),
        ({"seed": "x"}, "NoModel", r"1 entries of model\.json are missing or unknown"),
        ({}, "NoModel", r"records\.parquet is missing"),
    ]:
        (place / "model.json").write_text(json.dumps(stored | changed))
        with refused(code, match=said):
            predicted(posts, settings, model="knn")
