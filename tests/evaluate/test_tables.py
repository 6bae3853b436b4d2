"""Fed the paper's counts, the tables print the paper's percentages; what the paper misprints is named here."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.core.taxonomy import load
from pipelines.metrics import label_tables
from pipelines.metrics.label_tables import Distribution, Layout

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers.json").read_text())
LABELS = tuple(KNOWN["table11"])
SCHEME = load("cradle")
LAYOUT = Layout.of(SCHEME, category=SCHEME.category())
SIZES = {
    "cons": (4181, {1: 3746, 2: 405, 3: 27, 4: 3}),
    "unan": (3058, {1: 2872, 2: 175, 3: 9, 4: 2}),
    "dev": (420, {1: 398, 2: 21, 3: 1}),
    "test": (600, {1: 539, 2: 53, 3: 7, 4: 1}),
}
PAPER = {
    name: Distribution(n, {label: KNOWN["table11"][label][name] for label in LABELS}, sizes)
    for name, (n, sizes) in SIZES.items()
}
GOLD = {"Dev": PAPER["dev"], "Test": PAPER["test"]}
TRAIN = {"Consensus": PAPER["cons"], "Unanimous": PAPER["unan"]}

# The paper rounds these figures twice (by way of one more decimal), ours are rounded once: (table, row, cell).
# SPEC 1.6 names Table 11's two; Tables 1 and 3 have the same fault: 134/443 = 30.248 %, 33/443 = 7.449 %.
MISPRINTS = {
    ("1", "No crisis", 0): ("134 (30.3%)", "134 (30.2%)"),
    ("1", "Sexual har.", 0): ("33 (7.5%)", "33 (7.4%)"),
    ("3", "No crisis", 0): ("134 (30.3%)", "134 (30.2%)"),
    ("11", "rape_past", 5): ("7.68", "7.67"),
    ("11", "domesticviolence_past", 5): ("4.52", "4.51"),
}


def check(number: str, sheet: label_tables.Sheet, printed: str) -> None:
    """Compare a sheet with the paper's, cell by cell, printed as lines of ``name | cell | cell``."""
    expected = []
    for line in printed.strip().splitlines():
        name, *cells = (cell.strip() for cell in line.split("|"))
        for (table, row, i), (paper, ours) in MISPRINTS.items():
            if (table, row) == (number, name):
                assert cells[i] == paper
                cells[i] = ours
        expected.append((name, *cells))
    assert list(sheet.rows) == expected


SIDES = {
    "Train": {"unanimous": 3058, "consensus": 1123, "none": 106},
    "Test": {"unanimous": 411, "consensus": 163, "none": 26},
}
# table -> our sheet, and what the paper prints
PRINTED = {
    "1": (
        label_tables.table_1(GOLD, layout=LAYOUT),
        """
        No crisis           | 134 (30.3%) | 186 (27.8%)
        Self-harm           | 79 (17.8%)  | 104 (15.5%)
        SI (passive)        | 59 (13.3%)  | 81 (12.1%)
        Rape                | 41 (9.3%)   | 73 (10.9%)
        SI (active)         | 44 (9.9%)   | 65 (9.7%)
        Sexual har.         | 33 (7.5%)   | 63 (9.4%)
        Domestic viol.      | 45 (10.2%)  | 58 (8.7%)
        Child abuse         | 8 (1.8%)    | 40 (6.0%)
        Total instances     | 420         | 600
        Total / Avg. labels | 443 (1.05)  | 670 (1.12)
        """,
    ),
    "2": (
        label_tables.table_2(GOLD),
        """
        1 | 398 | 94.76 | 539 | 89.83
        2 | 21  | 5.00  | 53  | 8.83
        3 | 1   | 0.24  | 7   | 1.17
        4 | 0   | 0.00  | 1   | 0.17
        """,
    ),
    "3": (
        label_tables.table_3(GOLD, layout=LAYOUT),
        """
        Ongoing   | 196 (44.2%) | 275 (41.0%)
        Past      | 113 (25.5%) | 209 (31.2%)
        No crisis | 134 (30.3%) | 186 (27.8%)
        """,
    ),
    "5": (
        label_tables.table_5(SIDES),
        """
        All three agree     | 3,058 (71.3%) | 411 (68.5%)
        Partial agree (2:1) | 1,123 (26.2%) | 163 (27.2%)
        All three disagree  | 106 (2.5%)    | 26 (4.3%)
        Total count         | 4,287         | 600
        """,
    ),
    "6": (
        label_tables.table_6(TRAIN, layout=LAYOUT),
        """
        No crisis           | 1,160 (24.95%) | 1,020 (31.32%)
        Self-harm           | 917 (19.72%)   | 615 (18.88%)
        SI (passive)        | 614 (13.21%)   | 417 (12.80%)
        Domestic viol.      | 500 (10.76%)   | 318 (9.76%)
        SI (active)         | 494 (10.63%)   | 306 (9.40%)
        Rape                | 407 (8.75%)    | 279 (8.57%)
        Sexual har.         | 375 (8.07%)    | 221 (6.79%)
        Child abuse         | 182 (3.91%)    | 81 (2.49%)
        Total instances     | 4,181          | 3,058
        Total / Avg. labels | 4,649 (1.11)   | 3,257 (1.07)
        """,
    ),
    "7": (
        label_tables.table_7(TRAIN, layout=LAYOUT),
        """
        1 label   | 3,746 | 89.60 | 2,872 | 93.92
        2 labels  | 405   | 9.69  | 175   | 5.72
        3 labels  | 27    | 0.65  | 9     | 0.29
        4 labels  | 3     | 0.07  | 2     | 0.07
        Ongoing   | 2,283 | 49.11 | 1,508 | 46.30
        Past      | 1,206 | 25.94 | 729   | 22.38
        No crisis | 1,160 | 24.95 | 1,020 | 31.32
        """,
    ),
}


@pytest.mark.parametrize("number", PRINTED)
def test_tables_print_what_the_paper_prints(number: str) -> None:
    check(number, *PRINTED[number])


def test_table_11() -> None:
    printed = "\n".join(
        " | ".join([label, *(f"{row[s]:,} | {row['pct'][s]:.2f}" for s in PAPER)])
        for label, row in KNOWN["table11"].items()
    )
    check("11", label_tables.table_11(PAPER, layout=LAYOUT), printed)


def test_a_category_without_types_or_times_has_a_row_a_label() -> None:
    scheme = load("figsim")
    category = scheme.category("figurative")
    layout = Layout.of(scheme, category=category)
    assert list(layout.types) == list(category.names)
    assert layout.times == {}
    counted = {"Train": Distribution.of([frozenset(category.names[:2]), frozenset()])}
    assert label_tables.table_1(counted, layout=layout).rows[0][1] == "1 (50.0%)"
    assert [row[:2] for row in label_tables.table_2(counted).rows] == [("0", "1"), ("2", "1")]


def test_table_12() -> None:
    valid, whole = (
        dict(zip(label_tables.SCORES, KNOWN["table4"][row], strict=True))
        for row in ("Valid samples only (n=586)", "All samples (n=600, blocked=14)")
    )
    sheet = label_tables.table_12({"n": 600, "n_valid": 586, "valid": valid, "all": whole}, name="Gemini-2.5-Pro")
    assert sheet.rows[0][1:] == ("0.7816", "0.8356", "0.8349", "0.7924", "0.8844", "0.9057")
    assert sheet.rows[1][1:] == ("0.7633", "0.8161", "0.8223", "0.7788", "0.8567", "0.8724")
    assert "14" in sheet.rows[1][0]


def test_counts_are_taken_from_label_sets() -> None:
    one, two = frozenset({"rape_past"}), frozenset({"rape_past", "selfharm_ongoing"})
    counted = Distribution.of([one, two, two])
    assert (counted.instances, counted.total, counted.sizes) == (3, 5, {1: 1, 2: 2})
    assert counted.labels == {"rape_past": 3, "selfharm_ongoing": 2}
    assert Distribution.read(json.loads(json.dumps(counted.plain()))) == counted


def test_an_empty_split_has_undefined_shares() -> None:
    empty = {"Dev": Distribution.of([])}
    assert label_tables.table_3(empty, layout=LAYOUT).rows[0] == ("Ongoing", f"0 ({label_tables.UNDEFINED}%)")


@pytest.mark.parametrize(
    ("part", "whole", "digits", "shown"),
    [(1, 8, 2, "12.50"), (1, 16, 1, "6.3"), (1, 1, 0, "100"), (0, 3, 2, "0.00"), (1, 800, 2, "0.13")],
)
def test_halves_round_up_and_only_once(part: int, whole: int, digits: int, shown: str) -> None:
    assert label_tables.percent(part, whole, digits=digits) == shown


def test_a_sheet_prints_for_a_terminal_and_for_a_page() -> None:
    sheet = label_tables.table_2(GOLD)
    console = Console(record=True, width=100)
    console.print(sheet.rich())
    assert "94.76" in console.export_text()
    assert "| 1 | 398 | 94.76 | 539 | 89.83 |" in sheet.markdown()
