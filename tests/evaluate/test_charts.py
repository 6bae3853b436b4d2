"""The charts: what is drawn is as long as its number, what is not there is not drawn, and text stays text."""

import re
from xml.etree import ElementTree as ET

import pytest

from pipelines.evaluate.report import charts
from pipelines.evaluate.report.charts import BLUE, ORANGE, Mark, Row

SVG = "{http://www.w3.org/2000/svg}"


def bars(text: str, colour: str) -> list[float]:
    """Return the widths of the bars of a colour."""
    variable = charts.COLOURS[colour]
    paths = [
        p.get("d", "")
        for p in ET.fromstring(text).iter(f"{SVG}path")
        if p.get("style", "").startswith(f"fill: var({variable}); opacity")
    ]
    places = [[float(x) for x in re.findall(r"[ML] ([\d.]+)", path)] for path in paths]
    return [max(xs) - min(xs) for xs in places]


def words(text: str) -> list[str]:
    return [(t.text or "").strip() for t in ET.fromstring(text).iter(f"{SVG}text")]


def test_bars_are_in_proportion_and_labelled() -> None:
    rows = [
        Row("None", (Mark(8, words="8 over", kind=ORANGE), Mark(0, words="0 under"))),
        Row("Planning (32)", (Mark(2, words="2 over", kind=ORANGE), Mark(4, words="4 under"))),
    ]
    text = charts.bars(rows, title="Figure 4", keys=[(ORANGE, "over"), (BLUE, "under")])
    assert bars(text, ORANGE)[0] == pytest.approx(4 * bars(text, ORANGE)[1], rel=0.01)
    assert bars(text, BLUE) == [0, pytest.approx(2 * bars(text, ORANGE)[1], rel=0.01)]
    assert {"8 over", "0 under", "4 under", "None", "Planning (32)", "over", "under"} <= set(words(text))
    assert ET.fromstring(text).get("aria-label") == "Figure 4"


def test_a_score_has_its_bar_interval_and_the_papers_diamond_at_their_places() -> None:
    text = charts.bars([Row("A", (Mark(50, 25, 75, "50.0", paper=70),))], title="t", most=100)
    [width] = bars(text, BLUE)
    [line] = re.findall(r'd="M ([\d.]+) [\d.]+ \nL ([\d.]+) [\d.]+ \n" style="fill: none; stroke: var\(--ink\)', text)
    [diamond] = re.findall(r'x="([\d.]+)" y="[\d.]+" style="fill: var\(--orange\)', text)
    places = [(float(x) - charts.LEFT) / (2 * width) for x in (*line, diamond)]
    assert places == pytest.approx([0.25, 0.75, 0.7], abs=0.002)
    assert "50.0" in words(text)


def test_what_is_undefined_is_said_and_not_drawn_as_zero() -> None:
    text = charts.bars([Row("A", (Mark(None, words="no result of ours"),))], title="t", most=100)
    assert bars(text, BLUE) == [] and "no result of ours" in words(text)
    assert "--ink); stroke-width: 1.5" not in charts.bars([Row("A", (Mark(40),))], title="t"), "no interval"


def test_hostile_names_stay_text() -> None:
    name = "</text><script>alert(1)</script>\"&'$x_1$"
    text = charts.bars([Row(name, (Mark(1, words="1"),))], title=name)
    assert name in words(text)
    assert ET.fromstring(text).get("aria-label") == name
    assert not list(ET.fromstring(text).iter(f"{SVG}script"))


def test_charts_take_the_pages_colours_and_type_and_no_two_share_an_id() -> None:
    row = Row("A", (Mark(40, 30, 50, "40", paper=20),))
    texts = [charts.bars([row], title=title, keys=[(BLUE, "ours")]) for title in ("a", "b")]
    names = [re.findall(r' id="([^"]*)"', text) for text in texts]
    assert len({*names[0], *names[1]}) == len([*names[0], *names[1]])
    for text in texts:
        assert not re.search(r"#[0-9a-f]{6}\b[^\d\w]|font|<style|http(?!://www.w3.org/2000/svg)", text)


@pytest.mark.parametrize("most", [1, 5, 6, 10, 11, 49, 51, 208, 999, 1001])
def test_nothing_leaves_the_plot(most: int) -> None:
    text = charts.bars([Row("A", (Mark(most, words=f"{most:,}"),))], title="t")
    assert 0 < bars(text, BLUE)[0] <= charts.WIDTH - charts.LEFT
    ticks = [float(word.replace(",", "")) for word in words(text) if re.fullmatch(r"[\d,.]+", word)]
    assert max(ticks) >= most and len(ticks) <= 9
