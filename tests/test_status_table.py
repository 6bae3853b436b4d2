"""The table of `corpus status`: aligned, short numbers, both corpora in columns of their own."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from pipelines.status import table, text_of

SCORE = {"mean": 0.61234567, "low": 0.5, "high": 0.7}
STATUS: dict[str, Any] = {
    "commit": "0123456789abcdef",
    "collect": {"submissions": 1300, "dropped": {"deleted": 2, "gone": 3}},
    "split": {"sizes": {"train": 6, "test": 2}, "mean_deviation": 0.20000001},
    "benchmark": {"severity": {"majority": 0.13456789, "tiny": SCORE}},
    "corpora": {"posts": {"collect": {"submissions": 480}, "benchmark": {"labels": {"majority": 0.2, "knn": SCORE}}}},
    "votes": {"cost": 1.5},
    "vault": {"records": 7},
    "registry": {"meme-severity": {"champion": 1, "event": "promoted"}},
}


def shown(**more: Any) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=120).print(table(STATUS, **more))
    return out.getvalue().splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│┃").split("│" if "│" in line else "┃")]


def test_both_corpora_have_a_column_and_a_number_has_one_row() -> None:
    rows = [cells(line) for line in shown() if "│" in line or "┃" in line]
    assert rows[0] == ["part", "number", "memes", "posts"]
    assert ["collect", "submissions", "1,300", "480"] in rows
    assert ["", "dropped", "5", ""] in rows
    assert ["split", "sizes: train", "6", ""] in rows
    assert ["", "severity: tiny", "61.2 [50.0, 70.0]", ""] in rows
    assert ["votes", "cost", "", "1.500"] in rows
    assert ["registry", "meme-severity: champion", "1", ""] in rows


def test_rows_are_aligned_and_no_float_is_long() -> None:
    lines = shown(more=[("decisions", "meme-severity promoted", "none → 1: better")])
    assert len({len(line) for line in lines[1:]}) == 1
    assert not any(re.search(r"\d\.\d{4}", line) for line in lines)
    assert any("none → 1: better" in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (True, "True"), ("closed", "closed"), (12345, "12,345"), (0.99263, "0.993"),
     ({"mean": None, "low": None, "high": None}, "–")],
)  # fmt: skip
def test_a_value_is_short(value: object, text: str) -> None:
    assert text_of(value) == text
