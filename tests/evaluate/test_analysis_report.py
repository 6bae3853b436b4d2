"""The report's sections on the corpus say what ``analysis.json`` says, and hide what it hides."""

import json
import re
from typing import Any

import numpy as np
import pytest

from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load
from pipelines.evaluate.analysis import analysis, features
from pipelines.evaluate.analysis.analysis import AnalysedItems
from pipelines.evaluate.report import analysis_parts, charts, report
from pipelines.evaluate.report.charts import Mark, Row
from pipelines.evaluate.report.page import Notice, Page, PageSection, html
from pipelines.metrics.label_tables import Sheet
from tests.evaluate.printed import paper
from tests.small_corpus import ROOT

SEVERITIES = ("None", "Wish to be dead", "Suicide ideation", "Suicide planning")
SAMPLING = {
    "resamples": 200,
    "seed": 1,
    "confidence": 0.95,
    "intervals": {"figures": "BCa", "rates": "percentile", "pairs": "percentile"},
}
RATED = {"alpha": {"value": 0.78, "low": 0.7, "high": 0.84}, "kappa": {"value": 0.8}, "items": 900}
AGREEMENT = {"rounds": {"large": {}}, "overall": {"categories": {"severity": RATED}}}


def described(**changed: Any) -> dict[str, Any]:
    """Return real metrics of 240 invented memes: those of planning are brighter and say so; the last month has two.

    ``changed`` are parameters of section ``analysis``.
    """
    params = load_params(ROOT)
    params = params.model_copy(update={"analysis": params.analysis.model_copy(update=changed)})
    rng = np.random.default_rng(5)
    items = [(f"r{i:03}", 0) for i in range(240)]
    severity = {item: frozenset({SEVERITIES[i % 4]}) for i, item in enumerate(items)}
    metaphor = {item: frozenset({"Metaphor"}) if rng.random() < 0.5 else frozenset[str]() for item in items}
    planning = np.arange(240) % 4 == 3
    # our eight features, then the paper's six
    visual = np.concatenate([rng.uniform(0.2, 0.4, (240, width)) for width in (8, 6)], axis=1)
    visual[:, [0, 8]] += 0.2 * planning[:, None]
    found = AnalysedItems(
        items=tuple(items),
        units=tuple(f"u{i}" for i in range(240)),
        months=("2022-11",) * 238 + ("2022-12",) * 2,
        texts=tuple("my plan is ready" if one else "just a cat" for one in planning),
        visual=tuple(row.tolist() for row in visual),
    )
    made = analysis.describe(
        found,
        gold={"severity": severity, "figurative": metaphor},
        scheme=load("figsim"),
        params=params,
        lexicons=features.open_all({}),
    )
    whole = {**made, "content": "images", "taken_down": 1}
    return json.loads(json.dumps(whole, sort_keys=True))


@pytest.fixture(scope="module")
def metrics() -> dict[str, Any]:
    return described()


@pytest.fixture(scope="module")
def parts(metrics: dict[str, Any]) -> dict[str, PageSection]:
    return {
        part.key: part
        for part in analysis_parts.sections(metrics, agreement=AGREEMENT, scheme=load("figsim"), paper=paper("figsim"))
    }


def drawing(part: PageSection, start: str) -> Sheet:
    return next(
        block for block in part.blocks if isinstance(block, Sheet) and block.svg and block.title.startswith(start)
    )


def test_labels_are_in_the_order_of_the_scheme(parts: dict[str, PageSection]) -> None:
    assert parts["labels-of-items"].title == "Labels of the corpus (Figure 2)"
    severity = drawing(parts["labels-of-items"], "Suicide severity")
    assert [row[0] for row in severity.rows][:4] == list(SEVERITIES)
    assert [row[1] for row in severity.rows] == ["60"] * 4 + ["0", "0"]


def test_pairs_are_shares_of_a_row(parts: dict[str, PageSection], metrics: dict[str, Any]) -> None:
    [heat] = [block for block in parts["labels-together"].blocks if isinstance(block, Sheet) and block.values]
    assert heat.title.startswith("Figurative phenomenon by suicide severity")
    pair = metrics["pairs"][0]
    row = heat.rows[0]
    n = pair["counts"]["Metaphor"]["Suicide planning"]
    assert row[0] == "Metaphor"
    share = n / sum(pair["counts"]["Metaphor"].values())
    assert row[1 + SEVERITIES.index("Suicide planning")] == f"{100 * share:.0f} ({n})"


def test_a_small_month_and_what_gives_it_away_are_hidden(parts: dict[str, PageSection]) -> None:
    months = drawing(parts["items"], "Items with gold by month")
    assert months.rows == (("2022-11", "<5"), ("2022-12", "<5"))


def test_the_papers_tests_stand_beside_ours(metrics: dict[str, Any]) -> None:
    assert "paper" not in metrics
    found = described(mode="paper")
    assert found["factors"] == metrics["factors"], "ours stay what they are"
    own = found["paper"]["severity"]
    assert {name for name in own if name.startswith("visual.")} == {f"visual.{name}" for name in features.ORIGINAL}
    assert own["visual.brightness"]["significant"] and own["visual.brightness"]["n"] == 240
    whole = analysis_parts.sections(found, agreement=None, scheme=load("figsim"), paper=paper("figsim"))
    [part] = [part for part in whole if part.key == "features-paper"]
    tables = {block.title: block.rows for block in part.blocks if isinstance(block, Sheet)}
    row = next(row for row in tables["Each feature by itself, by suicide severity"] if row[0].endswith("Brightness"))
    assert row[3] == "<.001" and row[4].count("Suicide planning") == 3


def test_no_difference_is_significant_at_a_small_enough_alpha() -> None:
    found = described(alpha=1e-200, mode="paper")
    tests = [test for kind in ("factors", "paper") for factor in found[kind].values() for test in factor.values()]
    assert tests and not any(test.get("significant") for test in tests)


def test_tests_have_sample_sizes_and_the_raters_agreement(parts: dict[str, PageSection]) -> None:
    tables = {block.title: block for block in parts["features-visual"].blocks if hasattr(block, "columns")}
    severity = tables["Visual features by suicide severity: tests"]
    rows = {row[0]: dict(zip(severity.columns, row, strict=True)) for row in severity.rows}
    assert (rows["Brightness"]["n"], rows["Brightness"]["α of raters"]) == ("240", "0.78")
    assert rows["Brightness"]["p (adjusted)"] == "<.001"
    assert rows["Contrast"]["p (adjusted)"] != "<.001"
    assert tables["Visual features by presence of a figurative phenomenon: tests"].rows[0][2] == "–"
    pairs = tables["Visual features by suicide severity: different pairs of levels"]
    assert len(pairs.rows) == 3
    assert all("Suicide planning" in row[0] and row[0].startswith("Brightness") for row in pairs.rows)
    assert any("α 0.78 [0.70, 0.84], mean κ 0.80 over 900 items" in str(b) for b in parts["features-visual"].blocks)
    levels = drawing(parts["features-visual"], "Brightness by suicide severity")
    assert [row[0] for row in levels.rows] == list(SEVERITIES)


def test_a_missing_lexicon_is_a_message_and_nothing_else(parts: dict[str, PageSection]) -> None:
    for name in ("liwc", "nrc"):
        [block] = parts[f"features-{name}"].blocks
        assert isinstance(block, Notice)
        assert f"analysis.lexicons.{name}.path" in block.text
    assert "Planning" in str(parts["features-default"].blocks)


def test_without_the_stage_there_are_no_sections() -> None:
    assert analysis_parts.sections(None, agreement=None, scheme=load("figsim"), paper=paper("figsim")) == []


def test_the_methods_say_what_was_run(metrics: dict[str, Any]) -> None:
    evaluated = {
        "scheme": "figsim", "split": "test", "items": {"test": 60}, "tasks": {},
        "sampling": SAMPLING,
    }  # fmt: skip
    source = {"subreddits": "r/SuicideMeme", "first_month": "2018-04", "last_month": "2022-12"}
    told = " ".join(
        report.methods_paragraphs(
            evaluated, scheme=load("figsim"), analysis=metrics, agreement=AGREEMENT, source=source
        )
    )
    plan = load_params(ROOT).analysis
    assert "public submissions to r/SuicideMeme (those with gold: 2022-11 to 2022-12), without" in told, "not params'"
    assert "exist for 60 memes of test." in told
    assert "Visual features, lengths of texts and words of our own list were compared by suicide severity and" in told
    assert f"seed {plan.seed}; 240 units of 240 items" in told
    assert f"all {metrics['family']} tests" in told
    assert "suicide severity 0.78 (900)" in told
    assert "Models." not in told and "Moderation." not in told


def test_the_methods_name_models_by_what_was_fitted_and_moderation_by_what_was_asked(metrics: dict[str, Any]) -> None:
    def model(kind: str, base: str | None, source: str, *seeds: int) -> dict[str, Any]:
        return {"kind": kind, "base": base, "source": source, "seeds": list(seeds)}

    models = {
        "bert": model("text", "google-bert/bert-base-uncased", "fitted", 1, 2),
        "gpt": model("prompted", None, "asked", 1, 2, 3),
        "votes": model("votes", None, "asked", 0),
    }
    evaluated = {
        "scheme": "figsim", "split": "test", "items": {"train": 90, "validation": 20, "test": 60},
        "tasks": {"severity": {"models": models}, "related": {"models": {"bert": models["bert"]}}},
        "sampling": SAMPLING,
    }  # fmt: skip
    azure = {"model": "contentsafety 2024-09-01", "input": "both", "flag_from": 2, "outcomes": {"vote": 9, "failed": 1}}
    moderation = {"items": 10, "least": 5, "systems": {"azure": azure}}
    given = {"agreement": None, "analysis": None, "moderation": moderation, "synthetic": True}
    source = {"subreddits": "r/SuicideMeme", "first_month": "2018-04", "last_month": ""}
    told = " ".join(report.methods_paragraphs(evaluated, scheme=load("figsim"), source=source, **given))
    assert "simulated submissions to r/SuicideMeme from 2018-04 to the last collected month" in told
    assert "90 memes of train, 20 memes of validation and 60 memes of test" in told
    assert "bert (text, google-bert/bert-base-uncased, seeds 1, 2); gpt (prompted, 3 runs); votes (votes)." in told
    assert "azure (contentsafety 2024-09-01, text and picture, flagged from severity 2; 9 judged), each once" in told


def test_a_section_is_a_page_without_scripts_or_addresses(parts: dict[str, PageSection]) -> None:
    text = html(Page("t", (), tuple(parts.values())))
    assert "<script" not in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") + text.count("http-equiv")
    assert "r000" not in text


def test_plots_show_hidden_counts_and_significance_without_colour() -> None:
    bars = charts.bars([Row("a", (Mark(12, words="12"),)), Row("b", (Mark(None, words="<5"),))], title="t")
    assert bars.count("opacity") == 1
    assert "&lt;5" in bars
    months = charts.columns([("2022-12", 3), ("2023-01", None)], title="t")
    assert months.count("<use") == 1, "a hidden month has a dot"
    rows = [Row("x", (Mark(0.5, 0.1, 0.9, kind="filled"),)), Row("y", (Mark(0.2, kind="open"),))]
    dots = charts.dots(rows, title="t", zero=True)
    fills = re.findall(r"<use [^>]*fill: var\((--[a-z]+)\); stroke: var\(--blue\)", dots)
    assert sorted(fills) == ["--blue", "--paper"]
    assert charts.columns([], title="t").count("<svg") == 1
