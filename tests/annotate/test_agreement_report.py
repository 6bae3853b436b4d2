"""What people are shown of agreement: the papers' figures, what our code makes of them, and our own beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.scheme import normal
from pipelines.metrics.agreement_coefficients import landis_koch
from pipelines.metrics.label_tables import Sheet
from pipelines.report import agreement_tables as report
from pipelines.report.agreement_tables import paper_tables, published

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers.json").read_text())["cradle_table10"]


def sheet(title: str, **more: Any) -> Sheet:
    return next(s for s in paper_tables(**more) if s.title.startswith(title))


def row(found: Sheet, name: str) -> tuple[str, ...]:
    return next(cells for cells in found.rows if cells[0] == name)


def figure(value: float | None) -> dict[str, Any]:
    if value is None:
        return {"value": None, "low": None, "high": None}
    return {"value": value, "low": value - 0.05, "high": value + 0.05, "word": "substantial"}


def category(*labels: str, kappa: float | None) -> dict[str, Any]:
    statistics = {name: figure(kappa) for name in ("observed", "kappa", "ac1", "alpha", "jaccard")}
    own = {label: {"items": 7, "kappa": figure(kappa), "ac1": figure(kappa)} for label in labels}
    return {"items": 900, **statistics, "labels": own}


def metrics(scheme: str, *, kappa: float | None = 0.7, names: tuple[str, ...] = ("large-scale",)) -> dict[str, Any]:
    keys = {key: [x.name for x in found.labels] for key, found in load(scheme).categories.items()}
    scope = {"categories": {key: category(*labels, kappa=kappa) for key, labels in keys.items()}, "sufficient": True}
    rounds = {name: {**scope, "order": i, "batches": {"0": scope, "1": scope}} for i, name in enumerate(names)}
    return {"scheme": scheme, "rounds": rounds, "overall": {**scope, "rounds": list(rounds)}}


def test_the_means_of_label_wise_kappas_are_recomputed_for_multi_label_categories_only() -> None:
    assert row(sheet("FigSIM Table 6"), "Mean")[1:3] == ("0.56", "0.567 ≈")
    assert row(sheet("FigSIM Table 7"), "Mean")[1:3] == ("0.63", "0.634")
    found = {cells[0]: cells[2:4] for cells in sheet("FigSIM Table 1").rows}
    assert found == {
        "Suicide Severity Scale": ("0.65", "–"),
        "Modality": ("0.88", "–"),
        "Context": ("0.58", "–"),
        "Figurative Phenomenon": ("0.56", "0.567 ≈"),
        "Suicide-Related Content": ("0.63", "0.634"),
    }


def test_the_papers_own_readings_are_ours() -> None:
    paper = published()["figsim"]
    rows = [*paper["table_1"].values(), *paper["table_6"]["labels"].values(), *paper["table_7"]["labels"].values()]
    assert len(rows) == 13
    assert all(landis_koch(row["kappa"]) == row["reading"] for row in rows)


@pytest.mark.parametrize(
    ("name", "kappa", "ac1", "jaccard"),
    [
        ("round-1", "0.7140", "0.8641", "0.7625"),
        ("round-2", "0.6705", "0.8913", "0.7417"),
        ("round-3", "0.6305", "0.9600", "0.7583"),
    ],
)
def test_table_10_is_recomputed_to_the_last_digit(name: str, kappa: str, ac1: str, jaccard: str) -> None:
    found = sheet(f"CRADLE Table 10: {name}")
    assert row(found, "Mean")[1:] == (kappa, kappa, ac1, ac1)
    assert row(found, "Jaccard")[1:3] == (jaccard, jaccard)
    assert not any("≠" in cell or "≈" in cell for cells in found.rows for cell in cells)


def test_table_10_is_the_known_answers_and_every_label_of_the_papers_is_one_of_the_schemes() -> None:
    table_10 = published()["cradle"]["table_10"]
    known = {name: found["rows"] for name, found in KNOWN.items()}
    assert {name.replace("-", "_"): found["labels"] for name, found in table_10.items()} == known
    figsim, cradle = load("figsim"), load("cradle").category()
    for number in (6, 7):
        table = published()["figsim"][f"table_{number}"]
        assert set(table["labels"]) <= {x.name for x in figsim.category(table["category"]).labels}
    labels = {cradle.spellings[normal(label)] for label in table_10["round-3"]["labels"]}
    assert labels == set(cradle.names)


def test_our_figures_stand_beside_the_papers_with_interval_items_and_reading() -> None:
    ours = metrics("figsim")
    assert row(sheet("FigSIM Table 1", ours=ours), "Modality")[-3:] == ("0.70 [0.65, 0.75]", "900", "substantial")
    assert row(sheet("FigSIM Table 5", ours=ours), "Modality")[-2:] == ("0.70 [0.65, 0.75]", "900")
    assert row(sheet("FigSIM Table 6", ours=ours), "Metaphor")[-3:] == ("0.70 [0.65, 0.75]", "7", "substantial")
    assert row(sheet("FigSIM Table 6", ours=ours), "Mean")[-3:] == ("0.70 [0.65, 0.75]", "900", "substantial")
    undefined = sheet("FigSIM Table 1", ours=metrics("figsim", kappa=None))
    assert row(undefined, "Modality")[-3:] == ("–", "900", "–")


def test_cradles_rounds_stand_beside_the_rounds_of_the_same_name() -> None:
    ours = metrics("cradle", names=("round-1", "round-3"))
    third = sheet("CRADLE Table 10: round-3", scheme="cradle", ours=ours)
    interval = "0.70 [0.65, 0.75]"
    assert row(third, "suicideideation(active)_past")[-4:] == (interval, interval, "7", "substantial")
    # round 1 had other labels: only the mean can be compared, and round 2 is not there
    first = sheet("CRADLE Table 10: round-1", scheme="cradle", ours=ours)
    assert row(first, "rape")[-4:] == ("–",) * 4
    assert row(first, "Mean")[-4] == interval
    assert row(sheet("CRADLE Table 10: round-2", scheme="cradle", ours=ours), "Mean")[-4:] == ("–",) * 4


@pytest.mark.parametrize("scheme", ["figsim", "cradle"])
def test_every_table_has_as_many_cells_as_columns(scheme: str) -> None:
    for ours in (None, {"rounds": {}}, metrics(scheme, names=("round-1", "round-2"))):
        tables = [*paper_tables(scheme, ours=ours), *(report.own_tables(ours) if ours else [])]
        assert all(len(cells) == len(found.columns) for found in tables for cells in found.rows)


def test_a_corpus_has_the_tables_of_its_own_paper_only(tmp_path: Path) -> None:
    def titles(scheme: str, ours: dict[str, Any]) -> list[str]:
        return [found.title for found in [*paper_tables(scheme, ours=ours), *report.own_tables(ours)]]

    own = " ".join(titles("figsim", metrics("figsim")))
    assert "FigSIM Table 7" in own and "Ours over time" in own and "CRADLE" not in own
    unannotated = titles("cradle", report.gather(tmp_path, "posts"))
    assert any(title.startswith("CRADLE Table 10: round-3") for title in unannotated)
    assert not any("Ours" in title for title in unannotated)
    papers = [sheet.title for sheet in paper_tables()]
    assert papers[0].startswith("FigSIM Table 1")
    assert any(title.startswith("CRADLE Table 10: round-1") for title in papers)


@pytest.mark.parametrize("more", [{}, {"items": 0}])
def test_who_decides_whether_a_round_goes_on_sees_kappas_intervals_and_readings(tmp_path: Path, more: Any) -> None:
    found = metrics("figsim", names=("calibration",))
    for figures in found["rounds"]["calibration"]["categories"].values():
        figures |= {"left_out": {"outside_scheme": 0, "single": 1, "skipped": 2}, **more}
    path = tmp_path / "metrics" / "memes" / "agreement.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**found, "enough": 0.41}))
    text = report.summary(tmp_path, "memes", name="calibration")
    assert ("nothing to compare" in text) == bool(more)
    for corpus, name in (("memes", "pilot-1"), ("posts", "round-1")):
        assert "nothing to compare" in report.summary(tmp_path, corpus, name=name)
    if not more:
        assert text.count("0.70 [0.65, 0.75]") >= 5
        assert "| severity | 900 |" in text and "substantial" in text
        assert "Every defined κ is 0.41 or more." in text and "up to 3 items" in text
