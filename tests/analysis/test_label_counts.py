"""Labels are counted as in the papers: FigSIM's means of labels, CRADLE's types, rows of a heatmap that sum to 1."""

from __future__ import annotations

from random import Random

import pytest

from crisis_corpus_sandbox.reddit import label_quotas
from pipelines.core.taxonomy import load
from pipelines.evaluate.analysis import analysis

FIGSIM, CRADLE = load("figsim"), load("cradle")
Gold = dict[tuple[str, int], frozenset[str]]


def alone(gold: Gold) -> dict[tuple[str, int], str]:
    """Return a unit of its own for each item."""
    return {item: item[0] for item in gold}


@pytest.fixture(scope="module")
def memes() -> dict[str, Gold]:
    """Labels of as many memes as FigSIM's, with the totals of its Table 8."""
    gold: dict[str, Gold] = {key: {} for key in FIGSIM.categories}
    for i, labels in enumerate(label_quotas.figsim(label_quotas.MEMES, rng=Random(1))):
        for key, found in labels.names().items():
            gold[key][f"r{i}", 0] = frozenset([found] if isinstance(found, str) else found)  # type: ignore[call-overload]
    return gold


@pytest.mark.parametrize(("key", "mean", "none"), [("figurative", "1.06", 146), ("related", "0.69", 401)])
def test_labels_per_meme_are_those_that_figsim_prints(memes: dict[str, Gold], key: str, mean: str, none: int) -> None:
    counts = analysis.category_counts(FIGSIM.categories[key], gold=memes[key], scheme=FIGSIM)
    assert f"{counts['mean']:.2f}" == mean
    assert counts["labels"]["None"] == counts["sizes"]["0"] == none
    assert sum(counts["sizes"].values()) == counts["items"] == label_quotas.MEMES


def test_a_row_of_a_heatmap_sums_to_1(memes: dict[str, Gold]) -> None:
    a, b = FIGSIM.categories["severity"], FIGSIM.categories["figurative"]
    found = analysis.pair_counts(a, b, gold=memes, units=alone(memes["severity"]), least=1)
    assert all(sum(cells.values()) == pytest.approx(1) for cells in found["shares"].values())
    ironic = sum("Irony/sarcasm" in labels for labels in memes["figurative"].values())
    assert sum(cells["Irony/sarcasm"] for cells in found["counts"].values()) == ironic


def test_labels_of_one_post_are_paired_and_the_diagonal_counts_those_alone() -> None:
    category = CRADLE.category()
    sets = [{"selfharm_ongoing"}, {"selfharm_ongoing", "rape_past"}, {"no_crisis"}]
    gold = {"labels": {(f"r{i}", 0): frozenset(labels) for i, labels in enumerate(sets)}}
    found = analysis.pair_counts(category, category, gold=gold, units=alone(gold["labels"]), least=1)["counts"]
    assert found["selfharm_ongoing"]["selfharm_ongoing"] == 1
    assert found["selfharm_ongoing"]["rape_past"] == found["rape_past"]["selfharm_ongoing"] == 1
    assert found["rape_past"]["rape_past"] == 0
    assert sum(sum(cells.values()) for cells in found.values()) == 4


def test_types_of_posts_and_the_posts_of_one_type() -> None:
    category = CRADLE.category()
    sets = [{"selfharm_ongoing"}, {"selfharm_ongoing", "rape_past"}, {"no_crisis"}, {"rape_ongoing"}]
    items = [(f"r{i}", 0) for i in range(len(sets))]
    gold = {item: frozenset(labels) for item, labels in zip(items, sets, strict=True)}
    counts = analysis.category_counts(category, gold=gold, scheme=CRADLE)
    assert {name: n for name, n in counts["types"].items() if n} == {"No crisis": 1, "Self-harm": 2, "Rape": 2}
    factor = analysis.factor(category, items=items, gold=gold, scheme=CRADLE)
    assert factor.of == ["Self-harm", None, "No crisis", "Rape"]
    assert set(factor.of) - {None} <= set(factor.levels)


def test_memes_with_and_without_figurative_language_are_levels() -> None:
    items = [("a", 0), ("b", 0), ("c", 0)]
    gold = {items[0]: frozenset({"Metaphor"}), items[1]: frozenset[str]()}
    factor = analysis.factor(FIGSIM.categories["figurative"], items=items, gold=gold, scheme=FIGSIM)
    assert factor.of == ["figurative: any", "figurative: none", None]


def test_lengths_are_in_classes() -> None:
    found = analysis.by_length([0, 4, 5, 9, 1000, 5000], units=list("abcdef"), least=1)
    assert {name: n for name, n in found["classes"].items() if n} == {"0": 1, "1–4": 1, "5–9": 2, "1,000 and more": 2}
    assert analysis.by_length([], units=[], least=5) == {"n": 0, "classes": {}}
