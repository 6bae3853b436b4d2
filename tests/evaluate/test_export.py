"""Tables of a page as CSV that programs read, and as LaTeX."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from pipelines.metrics.label_tables import Sheet
from pipelines.report import export
from pipelines.report.page import Drawing, Folded, Heat, Page, PageSection

SHEET = Sheet(
    "Scores & 95 % intervals",
    ("Model_a", "Macro-F1", "n", "α"),
    (
        ("Group", "", "", ""),
        ("bert", "12.3 [11.0, 13.9]", "1,049", "–"),
        ("=vit", "–", "7", "−0.5"),
        ("<5", "8", "", ".04"),
    ),
)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_a_csv_has_numbers_in_columns_of_their_own() -> None:
    assert read(export.to_csv(SHEET)) == [
        ["Model_a", "Macro-F1", "Macro-F1 low", "Macro-F1 high", "n", "α"],
        ["Group", "", "", "", "", ""],
        ["bert", "12.3", "11.0", "13.9", "1049", ""],
        ["'=vit", "", "", "", "7", "-0.5"],
        ["<5", "8", "", "", "", ".04"],
    ]


def test_latex_sets_every_sign_of_a_table() -> None:
    text = export.to_latex(SHEET, label="01-scores")
    assert r"\caption{Scores \& 95 \% intervals}" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert r"\multicolumn{4}{l}{\textit{Group}} \\" in text
    assert r"\textless{}5 & 8 &  & .04 \\" in text
    assert r"Model\_a & Macro-F1 & n & $\alpha$ \\" in text
    assert text.count("{") == text.count("}")
    assert export.escaped("a\\b ~ 中") == r"a\textbackslash{}b \textasciitilde{} "


def test_a_row_that_begins_with_a_bracket_is_no_option() -> None:
    text = export.to_latex(Sheet("t", ("a", "b"), (("[1, 2]", "x"),)), label="t")
    assert "{}[1, 2] & x" in text


def test_every_table_and_plot_of_a_page_is_written_and_earlier_files_are_removed(tmp_path: Path) -> None:
    plot = Drawing("A plot", "<svg/>", SHEET)
    heat, folded = Heat(SHEET, ()), Folded(SHEET)
    page = Page("p", (SHEET, "words"), (PageSection("s", "S", (plot, heat, folded)),))
    (tmp_path / "99-old.csv").touch()
    names = export.write(page, tmp_path)
    assert names[:2] == ["01-scores-95-intervals", "02-a-plot"]
    assert len(names) == 4
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.{end}" for name in names for end in ("csv", "tex")}
    assert (tmp_path / "02-a-plot.csv").read_bytes() == export.to_csv(SHEET).encode()
