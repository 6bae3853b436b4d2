"""The paper's counts give the paper's Table 2; intervals and tests equal those of scipy where it has them."""

import math
from itertools import chain
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pipelines.core.config.label import Moderation
from pipelines.core.taxonomy import load
from pipelines.evaluate.moderation.channels import AuditedItem, AuditedItems, drawn
from pipelines.evaluate.moderation.moderation import Audit, adjusted, mean, rate, trend
from pipelines.evaluate.moderation.moderator import Verdict, combined
from pipelines.evaluate.report import analysis_parts, page
from pipelines.evaluate.report.page import Page
from pipelines.evaluate.report.papers import Paper
from pipelines.llm.outcome import Outcome
from pipelines.metrics.bootstrap import wilson
from tests.evaluate.printed import paper as paper_of

PARAMS = Moderation(systems={}, items=None, resamples=200, seed=1)
LEAST = 5
BESIDE = load("figsim").compared_by("figurative")
LEVELS = ["None", "Wish to be dead", "Suicide ideation", "Suicide planning", "Suicide attempts", "Suicide death"]
TOTALS = [161, 189, 339, 163, 167, 30]
# FigSIM T2 as whole numbers: the only ones that round to the printed rates. Azure judged fewer memes (SPEC 14), and so
# did Llama of the attempts: no count of 167 gives .428, 71 of 166 do.
JUDGED = {"azure": [158, 188, 339, 159, 165, 30], "guard": [161, 189, 339, 163, 166, 30], "openai": TOTALS}
COUNTS = {
    "azure": ([48, 51, 210, 89, 109, 19], [69, 70, 230, 105, 123, 23]),
    "guard": ([49, 59, 131, 83, 71, 10], [49, 59, 131, 83, 71, 10]),
    "openai": ([23, 46, 161, 81, 96, 15], [29, 64, 170, 85, 109, 20]),
}
# 3.2 in the standing table of discrepancies comes from the rates, as if Llama had judged all 167
Z = {"azure": 8.21, "guard": 3.26, "openai": 9.08}


def items(levels: list[str], *, figurative: list[bool] | None = None) -> AuditedItems:
    """Return items with these severities, each a group of its own."""
    ids = [(f"{i:05}", 0) for i in range(len(levels))]
    labels = {"severity": {item: frozenset({level}) for item, level in zip(ids, levels, strict=True)}}
    if figurative is not None:
        kinds = [frozenset({"Metaphor"} if on else {"None"}) for on in figurative]
        labels["figurative"] = dict(zip(ids, kinds, strict=True))
    found = {item: AuditedItem(item[0], title="", body="") for item in ids}
    return AuditedItems(load("figsim"), found, labels, {item: item[0] for item in ids}, 0)


def paper() -> tuple[AuditedItems, dict[str, list[Verdict]]]:
    """Return 1,049 memes and the verdicts of three systems with the paper's counts."""
    told: dict[str, list[Verdict]] = {}
    for system, (self_harm, overall) in COUNTS.items():
        told[system] = []
        for total, n, harm, every in zip(TOTALS, JUDGED[system], self_harm, overall, strict=True):
            told[system] += [Verdict(Outcome.VOTE, self_harm=i < harm, overall=i < every) for i in range(n)]
            told[system] += [Verdict(Outcome.REFUSED, "no")] * (total - n)
    return items(list(chain.from_iterable([name] * n for name, n in zip(LEVELS, TOTALS, strict=True)))), told


def metrics() -> dict[str, object]:
    found, told = paper()
    audit = Audit(found, params=PARAMS, least=LEAST)
    shared = {"model": "m", "input": "both", "scale": None, "requests": 1049, "cost": 0.0}
    systems = {name: {"kind": name, **shared, **audit.system(verdicts)} for name, verdicts in told.items()}
    counts = {"by": "severity", "beside": BESIDE, "levels": audit.levels, "items": 1049, "groups": 1049}
    return {**counts, "systems": systems, "pairs": audit.pairs(told)}


def test_the_papers_counts_print_table_2_as_printed() -> None:
    told, table = metrics(), paper_of("figsim").tables["table_2"]
    assert list(table.rows) == LEVELS == told["levels"]
    for flag, title in analysis_parts.FLAGS.items():
        sheet = analysis_parts.rates(told, flag=flag, title=title, paper=paper_of("figsim"))
        for system in COUNTS:
            ours, theirs = sheet.columns.index(f"{system} [95 %]"), sheet.columns.index(f"{system}, paper")
            values = paper_of("figsim").cells("flags", system=system, flag=flag)
            for row, (level, _, value), n in zip(sheet.rows[:6], values, JUDGED[system], strict=True):
                assert row[ours].split()[0] == row[theirs] == f"{value:.3f}" and row[0] == level
                assert row[ours + 1].endswith(f"/{n}")
    html = page.html(Page("t", (), tuple(analysis_parts.moderation_sections(told, paper=paper_of("figsim")))))
    assert "0.619" in html and "71/166" in html
    assert analysis_parts.moderation_sections({"items": 0, "systems": {}, "pairs": []}, paper=paper_of("figsim")) == []


def test_the_trend_of_the_papers_counts_is_that_of_the_standing_table_and_refused_items_are_in_no_rate() -> None:
    found, told = paper()
    audit = Audit(found, params=PARAMS, least=LEAST)
    figures = {system: audit.system(verdicts) for system, verdicts in told.items()}
    for system, z in Z.items():
        assert figures[system]["trend"]["self_harm"]["z"] == pytest.approx(z, abs=0.006)
        assert figures[system]["trend"]["self_harm"]["p"] < 0.002
    azure = figures["azure"]
    assert azure["outcomes"] == {"refused": 10, "vote": 1039}
    assert azure["unanswered"]["Suicide planning"] == {"refused": None}, "hidden, as every count of fewer than five"
    assert azure["flags"]["self_harm"]["all"]["n"] == 1039


def test_mean_scores_print_by_level_and_figurative_language() -> None:
    values = {("Suicide ideation", True): [2, 2, 3], ("Suicide ideation", False): [4, 5], ("None", True): [0, 1]}
    rows = [(level, on, score) for (level, on), scores in values.items() for score in scores]
    found = items([level for level, _, _ in rows], figurative=[on for _, on, _ in rows])
    verdicts = [Verdict(Outcome.VOTE, self_harm=s >= 2, overall=s >= 2, score=float(s)) for _, _, s in rows]
    told = {"scale": "0 to 9", **Audit(found, params=PARAMS, least=1).system(verdicts)}  # of no system that is here
    drawing = analysis_parts.scores("azure", told, levels=LEVELS, beside=BESIDE)
    [ideation] = [row for row in drawing.rows if row[0] == "Suicide ideation"]
    assert [cell.split()[0] for cell in ideation[1:]] == ["2.33", "3", "4.50", "2"]
    assert "2.33 present" in drawing.svg and "4.50 absent" in drawing.svg
    assert drawing.title.endswith("by level and presence of a figurative phenomenon")
    # only ideation has both kinds: 7/3 - 9/2
    assert told["difference"]["value"] == pytest.approx(7 / 3 - 4.5, abs=1e-6)
    assert told["difference"]["strata"] == 1


def told(sizes: dict[tuple[str, bool], int], *, groups: int | None = None) -> dict[str, Any]:
    """Return the figures of items by severity and figurative language, each or each ``groups`` of one group."""
    pairs = [pair for pair, n in sizes.items() for _ in range(n)]
    found = items([level for level, _ in pairs], figurative=[on for _, on in pairs])
    if groups:
        joined = {item: f"g{i % groups}" for i, item in enumerate(found.items)}
        found = AuditedItems(found.scheme, found.items, found.labels, joined, 0)
    verdicts = [Verdict(Outcome.VOTE, self_harm=i % 2 == 0, overall=True, score=1.0) for i in range(len(pairs))]
    return {"scale": "0 to 7", **Audit(found, params=PARAMS, least=LEAST).system(verdicts)}


def test_cells_of_few_items_are_hidden_as_in_the_analysis() -> None:
    sizes = {("None", True): 20, ("None", False): 20, ("Suicide ideation", True): 9, ("Suicide ideation", False): 3}
    found = told(sizes | {("Suicide death", True): 2})
    flags, scores = found["flags"]["self_harm"], found["scores"]
    assert set(flags["Suicide death"].values()) == {None}
    assert set(flags["Suicide ideation"].values()) == {None}, "or the total would give away the other one"
    assert (flags["None"]["n"], flags["all"]["n"], flags["Suicide planning"]["n"]) == (40, 54, 0)
    assert scores["Suicide ideation"]["all"]["n"] is None is scores["Suicide ideation"]["present"]["mean"]
    assert scores["all"]["present"]["n"] == 31
    drawing = analysis_parts.scores("azure", found, levels=LEVELS, beside=BESIDE)
    cells = {row[0]: row[1:] for row in drawing.rows}
    assert cells["Suicide death"] == ("–", "hidden") * 2 and "hidden, present" in drawing.svg
    metrics = {"by": "severity", "levels": LEVELS, "systems": {"azure": {"kind": "azure", **found}}}
    sheet = analysis_parts.rates(metrics, flag="self_harm", title="t", paper=Paper())
    assert {row[0]: row[2] for row in sheet.rows}["Suicide death"] == "hidden"


def test_the_difference_of_few_literal_items_is_hidden() -> None:
    """Their mean would follow from it and the mean of the figurative ones."""
    sizes = {("None", True): 20, ("None", False): 3, ("Suicide ideation", True): 20}
    found = told(sizes)
    assert set(found["difference"].values()) == {None}
    [words] = analysis_parts._difference("azure", found, beside=BESIDE)
    assert "is hidden, because one kind is of few authors" in words
    enough = told(sizes | {("Suicide ideation", False): 6})["difference"]
    assert (enough["n"], enough["strata"], enough["value"]) == (49, 2, 0)
    apart = told({("None", True): 20, ("Suicide ideation", False): 20})
    assert apart["difference"]["value"] is None, "no level has both"
    many = told({("None", True): 40, ("None", False): 40}, groups=4)
    assert many["difference"]["n"] is None, "80 items of four authors"


def test_many_items_of_few_authors_are_a_small_cell_and_a_hidden_kind_of_a_shown_level_hides_the_other_kind() -> None:
    sizes = {("None", True): 20, ("Suicide ideation", True): 20}
    assert told(sizes)["flags"]["overall"]["None"]["n"] == 20
    assert told(sizes, groups=4)["flags"]["overall"]["all"]["n"] is None
    sizes = {("None", True): 20, ("None", False): 3, ("Suicide ideation", True): 20, ("Suicide ideation", False): 20}
    scores = told(sizes)["scores"]
    assert scores["None"]["all"]["n"] == 23
    assert scores["None"]["absent"]["n"] is scores["None"]["present"]["n"] is None
    assert scores["Suicide ideation"]["absent"]["n"] is None, "the column's total would give it away"


@pytest.mark.parametrize(("flagged", "n"), [(0, 30), (10, 30), (30, 30), (210, 339)])
def test_the_interval_of_ungrouped_items_is_scipys(flagged: int, n: int) -> None:
    flags = np.arange(n) < flagged
    found = rate(flags, groups=[str(i) for i in range(n)])
    exact = stats.binomtest(flagged, n).proportion_ci(method="wilson")
    assert (found["low"], found["high"]) == pytest.approx((exact.low, exact.high), abs=1e-5)


def test_items_of_one_group_count_as_one() -> None:
    """Copies of an item add no knowledge: the interval is that of the groups."""
    flags, groups = np.repeat(np.arange(40) < 16, 5), [str(i) for i in np.repeat(np.arange(40), 5)]
    found, once = rate(flags, groups=groups), rate(flags[::5], groups=groups[::5])
    assert found["n"] == 200
    assert (found["low"], found["high"]) == pytest.approx((once["low"], once["high"]), abs=5e-3)
    assert rate(np.ones(10, bool), groups=["a"] * 5 + ["b"] * 5)["low"] == pytest.approx(wilson(1.0, n=2)[0], abs=1e-6)


def test_a_rate_covers_its_share_in_at_least_94_percent_of_draws() -> None:
    rng, hits = np.random.default_rng(5), 0
    for _ in range(400):
        flags = np.repeat(rng.random(40) < 0.3, 3)
        found = rate(flags, groups=[str(i) for i in np.repeat(np.arange(40), 3)])
        hits += found["low"] <= 0.3 <= found["high"]
    assert hits >= 0.93 * 400


def test_means_and_differences_have_intervals_over_groups() -> None:
    rng = np.random.default_rng(3)
    values, groups = rng.normal(3, 1, 200), [str(i // 2) for i in range(200)]
    found = mean(values, groups=groups, resamples=1000, seed=1)
    by_group = values.reshape(100, 2).mean(axis=1)
    half = 1.96 * by_group.std(ddof=1) / math.sqrt(100)
    assert (found["low"], found["high"]) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)
    assert mean(values[:2], groups=["a", "a"], resamples=10, seed=1)["low"] is None
    strata, treated = np.repeat([0, 1], 100), rng.random(200) < 0.5
    shifted = values + 5 * strata - 0.8 * treated
    single = [str(i) for i in range(200)]
    apart = adjusted(shifted, treated=treated, strata=strata, groups=single, resamples=500, seed=1)
    assert apart["low"] < -0.8 < apart["high"] and apart["strata"] == 2
    level = np.array([0, 1, 2])
    assert trend(np.ones(3, bool), level=level) == {"z": None, "p": None}
    assert trend(np.array([True, False, True]), level=np.zeros(3, int)) == {"z": None, "p": None}


def test_pairs_use_the_items_that_both_judged() -> None:
    found = items(["None"] * 6)

    def said(words: str) -> list[Verdict]:
        kinds = {on: Verdict(Outcome.VOTE, self_harm=on == "+", overall=on == "+") for on in "+-"}
        return [kinds.get(word, Verdict(Outcome.FAILED, "x")) for word in words]

    [self_harm, overall] = Audit(found, params=PARAMS, least=LEAST).pairs({"a": said("+++-?+"), "b": said("--+-+?")})
    assert (self_harm["n"], self_harm["a_only"], self_harm["b_only"]) == (4, 2, 0)
    assert self_harm["difference"]["value"] == 0.5
    assert self_harm["p"]["mcnemar"] == 0.5
    assert overall["holm"]["mcnemar"] == 1.0


def test_a_part_without_a_verdict_leaves_the_item_without_one() -> None:
    yes = Verdict(Outcome.VOTE, self_harm=True, overall=True, score=4.0, categories=("SelfHarm",))
    no = Verdict(Outcome.VOTE, self_harm=False, overall=True, score=1.0, categories=("Violence",))
    both = combined([yes, no])
    assert (both.self_harm, both.overall, both.score) == (True, True, 4.0)
    assert both.categories == ("SelfHarm", "Violence")
    refused = combined([yes, Verdict(Outcome.REFUSED, "rejected")])
    assert (refused.outcome, refused.partial, refused.overall) == (Outcome.REFUSED, True, None)
    assert combined([]).outcome is Outcome.ABSTAINED


def test_a_larger_snapshot_keeps_the_items_that_were_drawn() -> None:
    some = [(f"{i}", 0) for i in range(50)]
    first = set(drawn(some, most=10, seed=1))
    later = set(drawn([*some, *((f"{i}", 0) for i in range(50, 60))], most=12, seed=1))
    assert len(first) == 10
    assert len(first & later) >= 8
