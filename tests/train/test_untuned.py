"""Models scored without fine-tuning: a labeller's votes, an ensemble's silver, a prompted causal model."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from pipelines.core.config.models import EnsembleModel, LocalModel, VotesModel
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.predict import baselines
from pipelines.store import tables
from tests.refusals import refused
from tests.train import small_posts as small
from tests.train.small_posts import SmallPosts
from tests.train.small_untuned import ASKED, LABELS, asked, rows_of, run, spent


def test_votes_are_predictions_with_what_they_cost(posts: SmallPosts, settings: Settings) -> None:
    metrics = run(posts, settings, spec=VotesModel(kind="votes", labeller="claude"))
    rows = rows_of(posts)
    assert set(rows) == set(asked(posts)) and len(rows) == ASKED
    refused = {r for r, row in rows.items() if row["outcome"] == "refused"}
    assert refused and all(rows[r]["labels"] == [] for r in refused)
    for record_id in rows.keys() - refused:
        assert rows[record_id]["labels"] == sorted(posts.posts[record_id].labels)
    assert {r: row["split"] for r, row in rows.items()} == {r: posts.posts[r].split for r in rows}
    told = spent(posts)
    assert told["seconds"] is None and told["records"] == ASKED
    assert (told["input_tokens"], told["output_tokens"]) == (100 * ASKED, 10 * ASKED)
    assert math.isclose(told["cost"], 0.001 * ASKED)
    assert metrics["kind"] == "votes" and metrics["records"] == {"dev": 11, "test": 12}
    outcomes = Counter(row["outcome"] for row in rows.values())
    assert sum((Counter(found) for found in metrics["outcomes"].values()), Counter()) == outcomes


def test_scores_of_votes_come_along(posts: SmallPosts, settings: Settings) -> None:
    path = posts.snapshot / "votes/gpt/votes.parquet"
    scores = [n / len(LABELS) for n in range(len(LABELS))]
    rows = [row | {"scores": scores} for row in tables.read(path, name="votes").to_pylist()]
    small.write_table(path, rows, name="votes")
    run(posts, settings, spec=VotesModel(kind="votes", labeller="gpt"))
    assert all(row["scores"] == pytest.approx(scores) for row in rows_of(posts).values())


def test_who_has_no_vote_is_missing_and_not_wrong(posts: SmallPosts, settings: Settings) -> None:
    path = posts.snapshot / "votes/gpt/votes.parquet"
    gone = posts.of("test")[0]
    left = [row for row in tables.read(path, name="votes").to_pylist() if row["record_id"] != gone]
    small.write_table(path, left, name="votes")
    metrics = run(posts, settings, spec=VotesModel(kind="votes", labeller="gpt"))
    assert gone not in rows_of(posts) and metrics["outcomes"]["test"] == {"missing": 1, "vote": 11}
    assert spent(posts)["records"] == ASKED - 1
    with refused("NotVoted", match="votes@posts-words"):
        run(posts, settings, spec=VotesModel(kind="votes", labeller="words"))


def test_an_ensemble_costs_what_its_members_cost(posts: SmallPosts, settings: Settings) -> None:
    undecided = posts.of("test")[3]
    agreed = dict.fromkeys(posts.posts, "consensus") | {undecided: "none"}
    small.write_silver(posts, agreed)
    run(posts, settings, spec=EnsembleModel(kind="ensemble", ensemble="cradle"))
    rows = rows_of(posts)
    assert (rows[undecided]["outcome"], rows[undecided]["labels"]) == ("abstained", [])
    assert {row["outcome"] for r, row in rows.items() if r != undecided} == {"vote"}
    assert all(row["labels"] == sorted(posts.posts[r].labels) for r, row in rows.items() if r != undecided)
    assert math.isclose(spent(posts)["cost"], 0.003 * ASKED) and spent(posts)["input_tokens"] == 300 * ASKED


def test_an_ensemble_that_has_not_voted_says_so(posts: SmallPosts, settings: Settings) -> None:
    with refused("NoSilver"):
        run(posts, settings, spec=EnsembleModel(kind="ensemble", ensemble="offline"))
    with pytest.raises(BadParams, match=r"models\.it\.ensemble"):
        run(posts, settings, spec=EnsembleModel(kind="ensemble", ensemble="nobody"))


def test_what_was_taken_down_is_not_predicted(posts: SmallPosts, settings: Settings) -> None:
    gone = posts.of("test")[2]
    posts.vault.destroy([gone], reason="request-1", now=small.NOW)
    metrics = run(posts, settings, spec=VotesModel(kind="votes", labeller="gpt"))
    assert gone not in rows_of(posts) and len(rows_of(posts)) == ASKED - 1
    assert metrics["taken_down"] == {"dev": 0, "test": 1} and spent(posts)["records"] == ASKED - 1


def test_a_causal_model_is_asked_without_tuning(posts: SmallPosts, settings: Settings) -> None:
    spec = LocalModel(kind="local", base="tiny:qwen3", batch=8, max_length=1536, prompt="training")
    metrics = run(posts, settings, spec=spec)
    rows, told = rows_of(posts), spent(posts)
    assert {row["outcome"] for row in rows.values()} == {"vote"} and len(rows) == ASKED
    assert all(row["labels"] and len(row["scores"]) == len(LABELS) for row in rows.values())
    assert told["input_tokens"] > 10 * ASKED and told["output_tokens"] >= ASKED and told["seconds"] > 0
    assert metrics["outcomes"] == {"dev": {"vote": 11}, "test": {"vote": 12}}
    before = rows
    run(posts, settings, spec=spec)
    assert rows_of(posts) == before, "nothing is drawn by chance"


@pytest.mark.parametrize("model", ["tiny-causal", "knn", "bert", "nobody"])
def test_what_is_tuned_or_unknown_is_refused(posts: SmallPosts, settings: Settings, model: str) -> None:
    with refused("NotUntuned", match=model):
        baselines.run("posts", model=model, params=posts.params, settings=settings, vault=posts.vault, root=posts.root)
