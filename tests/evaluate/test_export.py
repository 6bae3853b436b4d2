"""Tables of a page as CSV that programs read, and as LaTeX."""

import csv
import io
from dataclasses import replace
from pathlib import Path

from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report.page import Notice, Page, PageSection, Points
from pipelines.metrics.label_tables import Sheet

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
    assert read(report_page.to_csv(SHEET)) == [
        ["Model_a", "Macro-F1", "Macro-F1 low", "Macro-F1 high", "n", "α"],
        ["Group", "", "", "", "", ""],
        ["bert", "12.3", "11.0", "13.9", "1049", ""],
        ["'=vit", "", "", "", "7", "-0.5"],
        ["<5", "8", "", "", "", ".04"],
    ]


def test_latex_sets_every_sign_of_a_table() -> None:
    text = report_page.to_latex(SHEET, label="01-scores")
    assert r"\caption{Scores \& 95 \% intervals}" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert r"\multicolumn{4}{l}{\textit{Group}} \\" in text
    assert r"\textless{}5 & 8 &  & .04 \\" in text
    assert r"Model\_a & Macro-F1 & n & $\alpha$ \\" in text
    assert text.count("{") == text.count("}")
    assert report_page.escaped("a\\b ~ 中") == r"a\textbackslash{}b \textasciitilde{} "


def test_every_table_and_plot_of_a_page_is_written_and_earlier_files_are_removed(tmp_path: Path) -> None:
    plot = replace(SHEET, title="A plot", svg="<svg/>")
    heat, folded = SHEET, SHEET.folded()
    page = Page("p", (SHEET, "words"), (PageSection("s", "S", (plot, heat, folded)),))
    (tmp_path / "99-old.csv").touch()
    names = report_page.write_tables(page, tmp_path)
    assert names[:2] == ["01-scores-95-intervals", "02-a-plot"]
    assert len(names) == 4
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.{end}" for name in names for end in ("csv", "tex")}
    assert (tmp_path / "02-a-plot.csv").read_bytes() == report_page.to_csv(SHEET).encode()


def test_a_column_of_sentences_has_lines_that_break() -> None:
    sheet = Sheet("t", ("Where", "n"), (("a sentence that is longer than any label of the schemes", "1"),))
    text = report_page.to_latex(sheet, label="t")
    assert r"\begin{tabular}{>{\raggedright\arraybackslash}p{18em}r}" in text
    assert "% \\usepackage{array,booktabs}" in text


def test_the_document_has_every_block_of_a_page() -> None:
    plot = replace(SHEET, title="A plot & more", svg="<svg/>")
    blocks = ("words", Points(("one", "[ ] is an interval")), Notice("beware"), SHEET, plot, SHEET.folded(), SHEET)
    text = report_page.latex(Page("p_1", blocks, (PageSection("s", "Section α", ("more words",)),)))
    assert r"\title{p\_1}" in text and r"\section{Section $\alpha$}" in text
    assert text.count(r"\begin{tabular}") == 4 and r"A plot \& more" in text
    assert r"\item {}[ ] is an interval" in text and r"\textbf{Note.} beware" in text
    assert text.count("{") == text.count("}")


def test_a_long_table_is_continued_with_its_head() -> None:
    rows = tuple((f"[row {i}]", str(i)) for i in range(120))
    text = report_page.latex(Page("p", (Sheet("Long", ("a", "b"), rows),), ()))
    assert (text.count(r"\begin{tabular}"), text.count("Long (continued)"), text.count("a & b")) == (3, 2, 3)
    assert all(f"{{}}[row {i}] & {i} " in text for i in range(120)), "a bracket at the beginning is no option"
