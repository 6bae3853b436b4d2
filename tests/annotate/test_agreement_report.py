"""What people are shown of agreement: the papers' figures, what our code makes of them, and our own beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.scheme import normal
from pipelines.evaluate.report import agreement_tables as report
from pipelines.evaluate.report.agreement_tables import paper_tables
from pipelines.metrics.agreement_coefficients import landis_koch
from pipelines.metrics.label_tables import Sheet
from tests.evaluate.printed import paper
from tests.evaluate.printed import rows as rows_of

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers.json").read_text())["cradle_table10"]


def sheet(title: str, **more: Any) -> Sheet:
    return next(s for s in paper_tables(**more) if s.title.startswith(title))


def ours_of(found: Sheet, name: str) -> tuple[str, ...]:
    return next((cells[2:] for cells in found.rows if cells[:2] == (name, "ours")), ())


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
    found = sheet("FigSIM Table 1")
    assert {name: cells[0] for name, cells in rows_of(found, whose="paper").items()} == {
        "Suicide severity": "0.65", "Modality": "0.88", "Context": "0.58",
        "Figurative phenomenon": "0.56", "Suicide-related content": "0.63",
    }  # fmt: skip
    again = {name: cells[0] for name, cells in rows_of(found, whose="recomputed").items()}
    assert again == {"Figurative phenomenon": "0.567 ≈", "Suicide-related content": "0.634"}


def test_the_papers_own_readings_are_ours() -> None:
    rows = [cells for number in (1, 6, 7) for cells in paper("figsim").tables[f"table_{number}"].rows.values()]
    assert len(rows) == 13
    assert all(landis_koch(kappa) == reading for kappa, reading in rows)


def test_table_10_is_recomputed_to_the_last_digit() -> None:
    means = sheet("CRADLE Table 10: means")
    assert rows_of(means, whose="paper") == {
        "round-1": ("0.7140", "0.8641", "0.7625"),
        "round-2": ("0.6705", "0.8913", "0.7417"),
        "round-3": ("0.6305", "0.9600", "0.7583"),
    }
    for title in ("means", "round-1", "round-2", "round-3"):
        found = sheet(f"CRADLE Table 10: {title}")
        theirs = {cells[0]: cells[2:] for cells in found.rows if cells[1] == "paper"}
        assert {cells[0]: cells[2:] for cells in found.rows if cells[1] == "recomputed"} == theirs


def test_table_10_is_the_known_answers_and_every_label_of_the_papers_is_one_of_the_schemes() -> None:
    schemes = {"round_1": "cradle_round_1", "round_2": "cradle_round_2", "round_3": "cradle"}
    for name, scheme in schemes.items():
        table, category = paper("cradle").tables[f"table_10_{name}"], load(scheme).category()
        known = {category.spellings[normal(label)]: row for label, row in KNOWN[name]["rows"].items()}
        assert set(table.rows) == set(category.names)
        assert table.rows == {label: (row["kappa"], row["ac1"]) for label, row in known.items()}
        assert table.given == {label: row["table"] for label, row in known.items()}
    figsim = load("figsim")
    for number, key in ((6, "figurative"), (7, "related")):
        assert set(paper("figsim").tables[f"table_{number}"].rows) <= {x.name for x in figsim.category(key).labels}


def test_our_figures_stand_beside_the_papers_with_interval_items_and_reading() -> None:
    ours, interval = metrics("figsim"), "0.70 [0.65, 0.75]"
    assert ours_of(sheet("FigSIM Table 1", ours=ours), "Modality") == (interval, "substantial", "900")
    assert ours_of(sheet("FigSIM Table 1", ours=ours), "Figurative phenomenon") == (interval, "substantial", "900")
    assert ours_of(sheet("FigSIM Table 5", ours=ours), "Modality") == (interval, interval, "900")
    assert ours_of(sheet("FigSIM Table 6", ours=ours), "Metaphor") == (interval, "substantial", "7")
    undefined = sheet("FigSIM Table 1", ours=metrics("figsim", kappa=None))
    assert ours_of(undefined, "Modality") == ("–", "–", "900")


def test_cradles_rounds_stand_beside_the_rounds_of_the_same_name() -> None:
    ours = metrics("cradle", names=("round-1", "round-3"))
    third = sheet("CRADLE Table 10: round-3", scheme="cradle", ours=ours)
    interval = "0.70 [0.65, 0.75]"
    assert ours_of(third, "suicideideation_active_past") == (interval, interval, "7", "substantial")
    # round 1 had other labels: only the mean can be compared, and round 2 is not there
    assert ours_of(sheet("CRADLE Table 10: round-1", scheme="cradle", ours=ours), "rape") == ()
    means = sheet("CRADLE Table 10: means", scheme="cradle", ours=ours)
    assert ours_of(means, "round-1")[0] == interval and ours_of(means, "round-2") == ()


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
    assert any(title.startswith("FigSIM Table 1") for title in papers)
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
