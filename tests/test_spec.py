"""docs/spec.md has an entry for every number of SPEC and DESIGN that a tracked file cites."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/spec.md"
# This file cites invented numbers.
APART = (PAGE, "tests/test_spec.py")
ENTRY = re.compile(r"^- \*\*((?:SPEC|DESIGN) [0-9.]+(?:, trap \d+)?)\*\*: \S", re.MULTILINE)
# A citation may continue on the next line of a comment; a number is no percentage and no part of a pattern.
GAP = r"\s+(?:#\s*)?"
NUMBER = r"\d+(?:\.\d+)?(?![\d\\%]|\.\d)"
# "SPEC 2.3", "SPEC 11 and 24", "SPEC 1.2, items 8 to 10", "SPEC 2.4, trap 2", "DESIGN.md section 4"
CITED = re.compile(
    rf"\b(SPEC|DESIGN)(?:\.md)?(?:{GAP}section)?{GAP}({NUMBER})"
    rf"(?:,{GAP}(item|trap)s?{GAP}({NUMBER}))?((?:,{GAP}{NUMBER}|{GAP}(?:and|to){GAP}{NUMBER})*)"
)


def cited(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the entry of each citation in a text."""
    for match in CITED.finditer(text):
        page, section, kind, first, rest = match.groups()
        numbers = [first or section]
        for to, number in re.findall(rf"(to\b)?[^\dt]*({NUMBER})", rest):
            numbers += [str(n) for n in range(int(numbers[-1]) + 1, int(number))] if to and number.isdigit() else []
            numbers.append(number)
        prefix = f"{page} {section}, trap " if kind == "trap" else f"{page} "
        for entry in ([f"{page} {section}"] if kind else []) + [prefix + number for number in numbers]:
            yield text.count("\n", 0, match.start()) + 1, entry


def test_every_cited_number_has_an_entry() -> None:
    entries = set(ENTRY.findall((ROOT / PAGE).read_text()))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    missing = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if not path.is_file() or name in APART:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        missing += [f"{name}:{line}: {entry}" for line, entry in cited(text) if entry not in entries]
    assert not missing, f"add `- **number**: text` to {PAGE}, or correct the citation:\n" + "\n".join(missing)


def test_an_entry_exists_once() -> None:
    entries = ENTRY.findall((ROOT / PAGE).read_text())
    assert entries
    assert sorted(set(entries)) == sorted(entries)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("(SPEC 2.3).", ["SPEC 2.3"]),
        ("SPEC 11 and 24; SPEC 2.5's", ["SPEC 11", "SPEC 24", "SPEC 2.5"]),
        ("SPEC 1.2, items 8 to 10", ["SPEC 1.2", "SPEC 8", "SPEC 9", "SPEC 10"]),
        ("SPEC 2.4, trap 7)", ["SPEC 2.4", "SPEC 2.4, trap 7"]),
        ("SPEC 2.3, 2.4: five", ["SPEC 2.3", "SPEC 2.4"]),
        ("SPEC 23, (d) and (e)", ["SPEC 23"]),
        ("# as SPEC.md section\n    # 2.1 and DESIGN.md 11", ["SPEC 2.1", "DESIGN 11"]),
        (r're.fullmatch(r"SPEC 1\.[1-6]")', []),
    ],
)
def test_citations_are_recognized(text: str, entries: list[str]) -> None:
    assert [entry for _, entry in cited(text)] == entries


def test_a_citation_has_a_line() -> None:
    assert list(cited("one\ntwo, SPEC\n99")) == [(2, "SPEC 99")]
