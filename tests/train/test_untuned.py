"""Models scored without fine-tuning: votes, an ensemble's silver, a causal model, predictions from elsewhere."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.core.config.settings import Settings
from pipelines.models.kinds.ensemble import Ensemble
from pipelines.models.kinds.local import Local
from pipelines.models.kinds.saved import Saved
from pipelines.models.kinds.votes import StoredVotes
from pipelines.store import tables
from tests.refusals import refused
from tests.train import small_posts as small
from tests.train.small_posts import SmallPosts
from tests.train.small_untuned import ASKED, LABELS, asked, rows_of, run, spent


def test_votes_are_predictions_with_what_they_cost(posts: SmallPosts, settings: Settings) -> None:
    metrics = run(posts, settings, spec=StoredVotes(kind="votes", votes="claude"))
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
    run(posts, settings, spec=StoredVotes(kind="votes", votes="gpt"))
    assert all(row["scores"] == pytest.approx(scores) for row in rows_of(posts).values())


def test_who_has_no_vote_is_missing_and_not_wrong(posts: SmallPosts, settings: Settings) -> None:
    path = posts.snapshot / "votes/gpt/votes.parquet"
    gone = posts.of("test")[0]
    left = [row for row in tables.read(path, name="votes").to_pylist() if row["record_id"] != gone]
    small.write_table(path, left, name="votes")
    metrics = run(posts, settings, spec=StoredVotes(kind="votes", votes="gpt"))
    assert gone not in rows_of(posts) and metrics["outcomes"]["test"] == {"missing": 1, "vote": 11}
    assert spent(posts)["records"] == ASKED - 1
    with refused("NotVoted", match="votes@posts-words"):
        run(posts, settings, spec=StoredVotes(kind="votes", votes="words"))


def test_an_ensemble_costs_what_its_members_cost(posts: SmallPosts, settings: Settings) -> None:
    undecided = posts.of("test")[3]
    agreed = dict.fromkeys(posts.posts, "consensus") | {undecided: "none"}
    small.write_silver(posts, agreed)
    run(posts, settings, spec=Ensemble(kind="ensemble", silver="cradle"))
    rows = rows_of(posts)
    assert (rows[undecided]["outcome"], rows[undecided]["labels"]) == ("abstained", [])
    assert {row["outcome"] for r, row in rows.items() if r != undecided} == {"vote"}
    assert all(row["labels"] == sorted(posts.posts[r].labels) for r, row in rows.items() if r != undecided)
    assert math.isclose(spent(posts)["cost"], 0.003 * ASKED) and spent(posts)["input_tokens"] == 300 * ASKED


def test_an_ensemble_that_has_not_voted_says_so(posts: SmallPosts, settings: Settings) -> None:
    with refused("NoSilver"):
        run(posts, settings, spec=Ensemble(kind="ensemble", silver="offline"))


def test_what_was_taken_down_is_not_predicted(posts: SmallPosts, settings: Settings) -> None:
    gone = posts.of("test")[2]
    posts.vault.destroy([gone], reason="request-1", now=small.NOW)
    metrics = run(posts, settings, spec=StoredVotes(kind="votes", votes="gpt"))
    assert gone not in rows_of(posts) and len(rows_of(posts)) == ASKED - 1
    assert metrics["taken_down"] == {"dev": 0, "test": 1} and spent(posts)["records"] == ASKED - 1


def test_a_causal_model_is_asked_without_tuning(posts: SmallPosts, settings: Settings) -> None:
    spec = Local(kind="local", base="tiny:qwen3", batch=8, max_length=1536, prompt="training")
    metrics = run(posts, settings, spec=spec)
    rows, told = rows_of(posts), spent(posts)
    assert {row["outcome"] for row in rows.values()} == {"vote"} and len(rows) == ASKED
    assert all(row["labels"] and len(row["scores"]) == len(LABELS) for row in rows.values())
    assert told["input_tokens"] > 10 * ASKED and told["output_tokens"] >= ASKED and told["seconds"] > 0
    assert metrics["outcomes"] == {"dev": {"vote": 11}, "test": {"vote": 12}}
    run(posts, settings, spec=spec)
    assert rows_of(posts) == rows, "nothing is drawn by chance"


@pytest.mark.parametrize("model", ["tiny-causal", "knn", "bert"])
def test_what_is_fitted_is_not_asked_without_a_fit(posts: SmallPosts, settings: Settings, model: str) -> None:
    with refused("NotUntuned", match=model):
        run(posts, settings, name=model)


def save(settings: Settings, lines: list[dict[str, Any]], *, name: str) -> Saved:
    path = settings.annotation_files / name
    settings.annotation_files.mkdir(parents=True, exist_ok=True)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(lines), path)
    elif name.endswith(".csv"):
        pd.DataFrame(lines).to_csv(path, index=False)
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Saved(kind="saved", path=name)


def truth(posts: SmallPosts, *, join: bool = False) -> list[dict[str, Any]]:
    found = [{"record_id": r, "labels": sorted(post.labels)} for r, post in posts.posts.items()]
    return [line | {"labels": "|".join(line["labels"])} for line in found] if join else found


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_every_format_says_the_same(posts: SmallPosts, settings: Settings, name: str) -> None:
    scores = [0.25] * len(LABELS)
    told: Any = "|".join(map(str, scores)) if name.endswith("csv") else scores
    lines = [line | {"scores": told} for line in truth(posts, join=name.endswith("csv"))]
    lines.append({"record_id": "f" * 32, "labels": lines[0]["labels"], "scores": told})
    metrics = run(posts, settings, spec=save(settings, lines, name=name))
    rows = rows_of(posts)
    assert len(rows) == ASKED
    assert all(row["labels"] == sorted(posts.posts[r].labels) for r, row in rows.items())
    assert all(row["outcome"] == "vote" and row["scores"] == scores for row in rows.values())
    assert (metrics["unknown"], metrics["elsewhere"], metrics["malformed"]) == (1, len(posts.posts) - ASKED, 0)
    assert len(metrics["digest"]) == 64
    assert not (posts.snapshot / "predictions/labels-it/spent.json").exists(), "their cost is unknown"


def test_a_blank_is_no_answer_and_never_no_crisis(posts: SmallPosts, settings: Settings) -> None:
    blank, refused, empty, none = posts.of("test")[:4]
    told = {blank: "", refused: "refused", empty: "vote"}
    lines = [
        line | {"outcome": told.get(r, ""), "labels": "" if r in told else line["labels"]}
        for line in truth(posts, join=True)
        if (r := line["record_id"]) != none
    ]
    metrics = run(posts, settings, spec=save(settings, lines, name="a.csv"))
    rows = rows_of(posts)
    assert (rows[blank]["outcome"], rows[blank]["labels"]) == ("abstained", [])
    assert (rows[refused]["outcome"], rows[refused]["labels"]) == ("refused", [])
    assert (rows[empty]["outcome"], rows[empty]["labels"]) == ("vote", ["no_crisis"])
    assert metrics["repaired"] == {"empty": 1} and metrics["outcomes"]["test"]["missing"] == 1


def test_the_rules_mend_what_they_can_and_count_the_rest(posts: SmallPosts, settings: Settings) -> None:
    alias, company, strange = posts.of("test")[:3]
    given = {
        posts.of("train")[0]: ["no_crisis", "rape_past"],  # of no concern here
        alias: ["suicideideation(active)_ongoing"],
        company: ["no_crisis", "rape_past"],
        strange: ["rape_past", "sadness"],
    }
    lines = [line | {"labels": given.get(line["record_id"], line["labels"])} for line in truth(posts)]
    metrics = run(posts, settings, spec=save(settings, lines, name="a.jsonl"))
    rows = rows_of(posts)
    assert rows[alias]["labels"] == ["suicideideation_active_ongoing"]
    assert rows[company]["labels"] == ["rape_past"]
    assert (rows[strange]["outcome"], rows[strange]["labels"]) == ("malformed", [])
    assert metrics["repaired"] == {"alias": 1, "exclusive": 1} and metrics["malformed"] == 1


def first(**wrong: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Return a change of the first line of a file."""
    return lambda lines: [lines[0] | wrong, *lines[1:]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines + lines[:1], "line 49 is invalid: its record_id is on an earlier line too"),
        (first(scores=[0.5]), "line 1 is invalid: its scores are not 15 probabilities"),
        (first(scores=[2.0] * 15), "its scores are not 15 probabilities"),
        (first(labels={"rape_past": 1}), "its labels are not a list of strings"),
        (first(labels=[1]), "its labels are not a list of strings"),
        (first(outcome="maybe"), "its outcome is not one of"),
        (lambda lines: [{"labels": []}, *lines[1:]], "line 1 is invalid: it has no record_id"),
        (lambda lines: [{"id": line["record_id"], "labels": []} for line in lines], "no column record_id"),
    ],
)
def test_a_file_that_could_be_misread_is_refused(posts: SmallPosts, settings: Settings, change: Any, said: str) -> None:
    with refused("BadSaved", match=said) as caught:
        run(posts, settings, spec=save(settings, change(truth(posts)), name="a.jsonl"))
    assert posts.of("test")[0] not in str(caught.value) and "rape" not in str(caught.value)
    assert not (posts.snapshot / "predictions").exists()


def test_only_a_file_below_the_folder_is_read(posts: SmallPosts, settings: Settings) -> None:
    save(settings, truth(posts), name="../outside.jsonl")
    for path, said in (("../outside.jsonl", "is not below"), ("nowhere.csv", "no such file"), ("", "no such file")):
        with refused("BadSaved", match=said):
            run(posts, settings, spec=Saved(kind="saved", path=path))
    (settings.annotation_files / "a.xlsx").write_text("record_id,labels\n")
    with refused("BadSaved", match="its content is not that of a .xlsx file"):
        run(posts, settings, spec=Saved(kind="saved", path="a.xlsx"))
