"""The plots: what is drawn is as long as its number, what is not there is not drawn, and text stays text."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from pipelines.report import figures
from pipelines.report.figures import Miss, Score

SVG = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)


def bars(text: str, kind: str) -> list[float]:
    """Return the widths of a kind of bars below the key."""
    found = [r for r in parsed(text).iter(f"{SVG}rect") if r.get("class") == kind and float(r.get("y", "0")) > 20]
    return [float(r.get("width", "nan")) for r in found]


def words(text: str) -> list[str]:
    return [t.text or "" for t in parsed(text).iter(f"{SVG}text")]


def test_bars_of_misses_are_in_proportion_and_labelled() -> None:
    text = figures.misses([Miss("None", 8, 0), Miss("Planning", 2, 4, total=32)], title="Figure 4")
    assert bars(text, "over")[0] == pytest.approx(4 * bars(text, "over")[1])
    assert bars(text, "under") == [0, pytest.approx(2 * bars(text, "over")[1])]
    assert {"8 over", "0 under", "4 under", "None", "Planning (32)"} <= set(words(text))
    assert parsed(text).get("aria-label") == "Figure 4"


def test_counts_that_are_means_keep_a_decimal_and_ticks_reach_the_most() -> None:
    text = figures.misses([Miss("None", 1234.5, 1)], title="t")
    assert "1,234.5 over" in words(text)
    ticks = [float(w.replace(",", "")) for w in words(text) if re.fullmatch(r"[\d,]+", w)]
    assert max(ticks) >= 1234.5
    assert len(ticks) <= 6


def test_score_draws_bar_whisker_and_the_papers_diamond_at_their_places() -> None:
    text = figures.scores([Score("A", 0.5, 0.25, 0.75, 0.7)], title="t")
    assert bars(text, "ours") == [pytest.approx(figures.PLOT / 2)]
    whisker, diamond = (
        [p for p in parsed(text).iter(f"{SVG}path") if p.get("class") == kind][-1].get("d", "")
        for kind in ("whisker", "paper")
    )
    start, end = (float(x) for x in re.findall(r"^M([\d.]+) [\d.]+H([\d.]+)", whisker)[0])
    assert (start - figures.LEFT) / figures.PLOT == pytest.approx(0.25, abs=0.001)
    assert (end - figures.LEFT) / figures.PLOT == pytest.approx(0.75, abs=0.001)
    assert float(re.findall(r"^M([\d.]+)", diamond)[0]) + 6 == pytest.approx(figures.LEFT + 0.7 * figures.PLOT, abs=0.1)
    assert "50.0" in words(text)


def test_what_is_undefined_is_said_and_not_drawn_as_zero() -> None:
    text = figures.scores([Score("A", None)], title="t")
    assert bars(text, "ours") == []
    assert "no result of ours" in words(text)
    assert "the paper's" not in words(text)


def test_an_interval_without_ends_has_no_whisker() -> None:
    assert "whisker" not in figures.scores([Score("A", 0.4)], title="t")


def test_hostile_names_stay_text() -> None:
    name = "</text><script>alert(1)</script>\"&'"
    for text in (figures.misses([Miss(name, 1, 1)], title=name), figures.scores([Score(name, 0.1)], title=name)):
        assert name in words(text)
        assert parsed(text).get("aria-label") == name
        assert not list(parsed(text).iter(f"{SVG}script"))


def test_empty_plots_are_still_whole_and_bytes_repeat() -> None:
    assert parsed(figures.misses([], title="t")).get("viewBox")
    rows = [Score("A", 1 / 3, 0.1, 2 / 3, 0.4)]
    assert figures.scores(rows, title="t") == figures.scores(list(rows), title="t")


@pytest.mark.parametrize("most", [1, 5, 6, 10, 11, 49, 51, 208, 999, 1001])
def test_nothing_leaves_the_plot(most: int) -> None:
    text = figures.misses([Miss("A", most, 0)], title="t")
    assert 0 < bars(text, "over")[0] <= figures.PLOT
