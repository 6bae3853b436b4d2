"""The posts that prompts show: of dev, a few, always the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipelines.core.config.params import Params, load
from pipelines.label import few_shot
from pipelines.store import tables
from tests import small_corpus
from tests.annotate.round_manifest import NOW, write_manifest
from tests.contexts import context_of
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
DEV = [f"dev{n}" for n in range(8)]
LABELS = {**{r: ["no_crisis"] for r in [*DEV, "test", "train"]}, "outside": ["rape_past"]}


@pytest.fixture
def params() -> Params:
    values = load(ROOT)
    return values.model_copy(
        update={"few_shot": values.few_shot.model_copy(update={"examples": {"posts": 2, "memes": 2}})}
    )


def run(root: Path, *, params: Params) -> tuple[Mapping[str, object], list[str]]:
    snapshot = root / "snapshot" / "posts"
    split = {(r, 0): "dev" if r in DEV else r for r in LABELS if r != "outside"}
    small_corpus.write_splits(root, split, corpus="posts")
    rows = small_corpus.gold_rows({(r, 0): {"labels": labels} for r, labels in LABELS.items()})
    small_corpus.write_table(snapshot / "gold" / "gold.parquet", rows, name="gold")
    metrics = few_shot.run(context_of("posts", params=params, root=root))
    return metrics, sorted(record_id for record_id, _ in tables.examples(snapshot))


def test_examples_are_of_dev_and_the_same_again(tmp_path: Path, params: Params) -> None:
    metrics, shown = run(tmp_path, params=params)
    assert len(shown) == 2 and set(shown) <= set(DEV)
    assert metrics == {"examples": 2, "gold": {"dev": 8, "test": 1, "train": 1}}
    assert run(tmp_path, params=params)[1] == shown


def test_examples_can_be_posts_on_which_annotators_disagreed(tmp_path: Path, params: Params) -> None:
    no, past = ["no_crisis"], ["rape_past"]
    answers = {"dev1": (no, past), "dev2": (no, no), "dev3": (no, None), "dev5": ([], past), "test": (no, past)}
    given = [
        {"record_id": r, "image": 0, "annotator": f"annotator-{n}", "category": "labels", "round": "round-1"}
        | {"guideline": "1" * 16, "batch": 0, "outcome": "skipped" if labels is None else "answered"}
        | {"labels": labels, "answered": NOW}
        for r, both in answers.items()
        for n, labels in enumerate(both, start=1)
    ]
    folder = write_manifest(tmp_path, "round-1", status="adjudicating")
    small_corpus.write_table(folder / "annotations.parquet", given, name="annotations")
    disputed = params.few_shot.model_copy(update={"among": "disagreement"})
    params = params.model_copy(update={"few_shot": disputed})
    metrics, shown = run(tmp_path, params=params)
    assert shown == ["dev1", "dev5"] and metrics["disputed"] == 2
    params = params.model_copy(update={"few_shot": disputed.model_copy(update={"examples": {"posts": 3}})})
    with refused("TooFewDisputed", match="disagreed on 2 items"):
        run(tmp_path, params=params)


def test_an_example_of_several_categories_has_gold_in_all_of_them(tmp_path: Path, params: Params) -> None:
    snapshot = tmp_path / "snapshot" / "memes"
    items = [("m0", 0), ("m0", 1), ("m1", 0), ("m2", 0)]
    small_corpus.write_splits(tmp_path, {i: "test" if i[0] == "m2" else "validation" for i in items}, corpus="memes")
    whole = {"figurative": ["Irony/sarcasm"], "severity": ["None"], "related": []}
    gold = dict.fromkeys(items, whole) | {("m1", 0): {"severity": ["None"]}}
    small_corpus.write_table(snapshot / "gold" / "gold.parquet", small_corpus.gold_rows(gold), name="gold")
    few_shot.run(context_of("memes", params=params, root=tmp_path))
    assert tables.examples(snapshot) == {("m0", 0), ("m0", 1)}
    none = params.model_copy(update={"few_shot": params.few_shot.model_copy(update={"examples": {}})})
    few_shot.run(context_of("memes", params=none, root=tmp_path))
    assert tables.examples(snapshot) == frozenset()
