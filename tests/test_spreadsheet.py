"""No text that goes into a table for people is a formula, and what they send back is what was written."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core import spreadsheet
from tests.small_corpus import ROOT

# Tables that programs read, or of labels, ids and figures alone; a table with free text uses `spreadsheet.cell`.
WITHOUT_TEXT = {
    "pipelines/annotate/backends/files.py",  # what is left of a team's own file
    "pipelines/annotate/imports/commit.py",
    "pipelines/evaluate/report/page.py",
    "pipelines/release/release_tables.py",
}


@pytest.mark.parametrize("text", ["=1+1", " =1", "a;=1", 'a"@x', "a\n-1", "＝1", "+1", "a|=1", "'=1"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_no_cell_begins_like_a_formula(text: str, delimiter: str) -> None:
    for row in csv.reader(io.StringIO(spreadsheet.cell(text), newline=""), delimiter=delimiter, quoting=csv.QUOTE_NONE):
        assert not [cell for cell in row if cell.strip().strip('"').strip()[:1] in set("=+-@＝＋－＠") - {""}]


@given(st.text(st.sampled_from("=+-@ a;,|\n\t.")))
def test_what_comes_back_is_what_was_written(text: str) -> None:
    assert spreadsheet.text(spreadsheet.cell(text)) == text


def test_every_writer_of_tables_of_text_escapes_it() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "pipelines").rglob("*.py")}
    writers = {name for name, text in texts.items() if re.search(r"csv\.(?:Dict)?[wW]riter\(|Workbook\(\)", text)}
    assert {name for name in writers if "spreadsheet.cell" not in texts[name]} == WITHOUT_TEXT
