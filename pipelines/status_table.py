"""Format the numbers of ``corpus status`` as one table: a row per number, a column per corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.table import Table

# The corpus whose parts are at the top level of the object.
FIRST = "memes"
LABELLED = "posts"
PARTS = ("collect", "coverage", "ocr", "truth", "dedupe", "split", "annotation", "benchmark", "drift")
CELL = {"mean", "low", "high"}
# Shown in points of 100, as in both papers.
POINTS = "benchmark"
# The table shows only the sum of drop reasons; `--json` lists each.
SUMMED = {("collect", "dropped")}


def table(status: Mapping[str, Any], *, more: Iterable[tuple[str, str, str]] = ()) -> Table:
    """Format the numbers of :func:`pipelines.status.gather` as a table; ``more`` adds rows (part, number, value)."""
    made = Table(title=f"corpus at {status['commit'][:12]}", title_justify="left")
    corpora = {FIRST: {key: status[key] for key in PARTS if key in status}} | dict(status.get("corpora") or {})
    if "votes" in status:
        corpora[LABELLED] = dict(corpora.get(LABELLED, {})) | {"votes": status["votes"]}
    cells: dict[str, dict[str, dict[str, str]]] = {}
    for corpus, parts in corpora.items():
        for part, value in parts.items():
            for number, text in _rows(part, value):
                cells.setdefault(part, {}).setdefault(number, {})[corpus] = text
    made.add_column("part")
    made.add_column("number")
    for corpus in corpora:
        made.add_column(corpus, justify="right", overflow="fold")
    for part, rows in cells.items():
        for place, (number, found) in enumerate(rows.items()):
            made.add_row("" if place else part, number, *(found.get(corpus, "") for corpus in corpora))
        made.add_section()
    whole = {key: value for key, value in status.items() if key not in (*PARTS, "votes", "corpora", "commit")}
    _add(made, [(part, *row) for part, value in whole.items() for row in _rows(part, value)], columns=len(corpora))
    _add(made, more, columns=len(corpora))
    return made


def _add(made: Table, rows: Iterable[tuple[str, str, str]], *, columns: int) -> None:
    last = ""
    for part, number, text in rows:
        if part != last and last:
            made.add_section()
        made.add_row("" if part == last else part, number, text, *[""] * (columns - 1))
        last = part
    if last:
        made.add_section()


def _rows(part: str, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, Mapping):
        yield "", text_of(value)
        return
    for key, inner in value.items():
        if (part, key) in SUMMED:
            yield key, text_of(sum(inner.values()))
        elif isinstance(inner, Mapping) and not inner.keys() >= CELL:
            for name, text in _rows(part, inner):
                yield f"{key}: {name}" if name else key, text
        else:
            yield key, text_of(inner, scale=100 if part == POINTS else 1)


def text_of(value: Any, *, scale: int = 1) -> str:
    """Format a number for a cell: counts with separators, rates with three decimals, scores with intervals."""
    if isinstance(value, Mapping):
        mean, low, high = (text_of(value[key], scale=scale) for key in ("mean", "low", "high"))
        return mean if "–" in (low, high) else f"{mean} [{low}, {high}]"
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{scale * value:.1f}" if scale > 1 else f"{value:.3f}"
