"""Render declared tables: what a paper prints, what follows from its own numbers, and our results.

Tables are declared in ``papers/<name>.yaml`` and, for every corpus, in ``tables.yaml``. ``columns`` has paths into our
results (``results.py``). A step in braces is a variable: ``{row}`` makes rows, any other columns, one
that begins with an underscore nothing. In a paper's table the second cell says whose the figures of a row are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import yaml
from pydantic import Field, model_validator

from pipelines.core.config.base import Section
from pipelines.evaluate.model_scores import Json
from pipelines.metrics.agreement_coefficients import printed as half_up
from pipelines.metrics.label_tables import UNDEFINED, Sheet

PAPER, AGAIN, OURS = "paper", "recomputed", "ours"
OTHERS = "*"
FIGURES = {
    "exact": "Exact match",
    "macro_f1": "Macro-F1",
    "micro_f1": "Micro-F1",
    "weighted_f1": "Weighted F1",
    "jaccard": "Jaccard",
    "macro_recall": "Macro-recall",
    "micro_recall": "Micro-recall",
    "kappa": "Quadratic-weighted kappa",
}
WORDS = FIGURES | {
    "valid": "Over answers:",
    "all": "Over all:",
    "of_wrong": "Of the wrong:",
    "of_all": "Of all:",
    "f1": "F1",
    "precision": "Prec",
    "recall": "Rec",
}
RuleName = Literal["counts", "means", "changes", "shares", "two_by_two", "label_means", "severity", "refusals"]
Cell = int | float | str | tuple[int | float | None, int | float | None] | None


class Form(Section):
    """How cells are printed: times ``scale``, with ``digits``, and those of an ``interval`` (``None``: no interval).

    ``own``: the digits of our figures, if others. ``spread``: standard deviations over runs are printed. ``pair``: how
    a paper's pairs are. ``words``: texts of settings.
    """

    scale: int = 100
    digits: int = 1
    own: int | None = None
    interval: int | None = 1
    spread: bool = False
    half_up: bool = False
    pair: str = "{0}±{1}"
    words: dict[str, str] = Field(default_factory=dict)

    def number(self, value: float | None, *, digits: int | None = None) -> str:
        """Return a number that is scaled already."""
        if value is None:
            return UNDEFINED
        places = self.digits if digits is None else digits
        return str(half_up(value, digits=places)) if self.half_up else f"{value:.{places}f}"

    def printed(self, cell: Cell) -> str:
        match cell:
            case (first, None):
                return self.printed(first)
            case (first, second):
                texts = map(self.printed, cell)
                share = 100 * (first or 0) / second if second else 0
                return self.pair.format(*texts, change=second, share=share)
            case str():
                return cell or UNDEFINED
            case int():
                return f"{cell:,}"
        return self.number(cell)

    def ours(self, value: Any) -> str:
        """Return one of our results: a rate, score, count or setting with all it has."""
        match value:
            case {"count": count, "of": of, "rate": rate}:
                ends = "" if value["low"] == value["high"] else self._ends(value, digits=1, scale=100)
                text = UNDEFINED if rate is None else f"{count:,}/{of:,} ({100 * rate:.1f}%){ends}"
            case {"mean": mean} | {"value": mean}:
                text = UNDEFINED if mean is None else self._score(mean, value)
            case Mapping():
                text = f"{value.get('vote', 0):,}/{sum(value.values()):,}"
            case float():
                text = self.number(self.scale * value)
            case _:
                text = self.words.get(value) or self.printed(value)
        return text

    def _score(self, mean: float, cell: Json) -> str:
        change, std = cell.get("change"), cell.get("std") if self.spread else None
        after = "" if change is None else f" ({self.scale * change:+.{self.digits}f})"
        spread = "" if std is None else f"±{self.number(self.scale * std)}"
        ends = self._ends(cell, digits=self.interval, scale=self.scale)
        return f"{self.number(self.scale * mean, digits=self.own)}{after}{spread}{ends}"

    def _ends(self, cell: Json, *, digits: int | None, scale: int) -> str:
        ends = [scale * end for end in (cell.get("low"), cell.get("high")) if end is not None]
        shown = ", ".join(self.number(end, digits=digits) for end in ends)
        return f" [{shown}]" if digits is not None and len(ends) > 1 else ""


class Rule(Protocol):
    """What recomputes rows of a paper's table: ``keys`` of those that it does not print, and each row's cells."""

    @property
    def keys(self) -> tuple[str, ...]: ...

    def __call__(self, key: str, /) -> Iterable[tuple[str, Sequence[str]]]: ...


class Table(Section):
    """A declared table.

    Args:
        like: the table of ``tables.yaml`` whose keys it takes where it has none, and in whose place it is shown.
        per: the variable whose values have a table each, unless ``each`` has its values.
        first: the head of the first column.
        columns: title -> path into our results; an empty title is made of the values of variables.
        beside: more of them, which the paper does not print.
        each: the values of variables; of others there are those that our results have.
        about: the path of what is said of a row of ours.
        names: the names of its rows, if others than the paper's.
        spoken: rows are shown without underscores.
        forms: title of columns -> their form, if not the table's ``form``.
        rows: key -> what the paper prints in the columns.
        groups: heading -> keys of the rows below it.
        ours: key -> what we have in its row, if our results do not tell; ``others``: our further rows are shown.
        recomputed: the rule by which rows follow from other numbers of the paper (``recomputed.py``).
        given: what the rule needs besides, by row.
    """

    like: str = ""
    title: str
    folded: bool = False
    per: str | None = None
    first: str = "Model"
    columns: dict[str, str]
    beside: dict[str, str] = Field(default_factory=dict)
    each: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    about: str = ""
    names: dict[str, str] = Field(default_factory=dict)
    spoken: bool = False
    form: Form = Form()
    forms: dict[str, Form] = Field(default_factory=dict)
    rows: dict[str, tuple[Cell, ...]] = Field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    ours: dict[str, str] = Field(default_factory=dict)
    others: bool = True
    recomputed: RuleName | None = None
    given: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse more cells than columns, and groups of other rows."""
        columns = len(list(declared(self)))
        if wrong := [key for key, cells in self.rows.items() if len(cells) > columns]:
            raise ValueError(
                f"rows {', '.join(wrong)} have more cells than the {columns} columns of `columns` and `each`"
            )
        if self.groups and (lacking := {key for keys in self.groups.values() for key in keys} ^ self.rows.keys()):
            raise ValueError(f"{', '.join(sorted(lacking))} must be in rows and in one of groups")
        return self

    def printed(self) -> Iterator[tuple[str, dict[str, str], Cell]]:
        """Yield row, values of variables, and cell of all that the paper prints."""
        columns = [binding for binding, _, _ in declared(self)]
        for key, cells in self.rows.items():
            for binding, cell in zip(columns, cells, strict=False):
                yield key, binding, cell


@cache
def general() -> dict[str, Json]:
    """Return the tables of every corpus, as declared."""
    content: dict[str, Json] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return content


def expand(value: Any, path: str, each: Mapping[str, Sequence[str]]) -> Iterator[tuple[dict[str, str], Any]]:
    """Yield what a path leads to with the values of its variables, in the order of ``each`` or of our results."""
    step, _, rest = path.partition(".")
    if not step:
        yield {}, value
    elif isinstance(value, Mapping):
        name = step[1:-1] if step.startswith("{") else ""
        listed = each.get(name, (OTHERS,)) if name else (step,)
        others = [key for key in value if key not in listed] if OTHERS in listed else []
        for key in (*listed, *others):
            if value.get(key) is not None:
                for binding, found in expand(value[key], rest, each):
                    yield ({name: key, **binding} if name else binding), found


def variables(path: str, each: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the variables of a path that make columns, in the order of ``each``."""
    names = [step[1:-1] for step in path.split(".") if step.startswith("{") and step[1] != "_" and step != "{row}"]
    return sorted(names, key=lambda name: [*each, name].index(name))


def declared(table: Table) -> Iterator[tuple[dict[str, str], str, str]]:
    """Yield the variables' values, the title and the path of the columns that are declared with all their values."""
    for title, path in table.columns.items():
        names = variables(path, table.each)
        listed = ([value for value in table.each.get(name, ()) if value != OTHERS] for name in names)
        yield from ((dict(zip(names, values, strict=True)), title, path) for values in product(*listed))


def render(table: Table, data: Json, *, words: Mapping[str, str], rule: Rule | None = None) -> Iterator[Sheet]:
    """Yield a table, or one for each value of the variable ``per``; none without rows.

    Args:
        words: titles of tasks and names of a paper's rows, by key.
        rule: what yields the recomputed rows of a key.
    """
    path, per = next(iter(table.columns.values())), table.per
    split = per is not None and f"{{{per}}}" in path and per not in table.each
    values = list(dict.fromkeys(binding[str(per)] for binding, _ in expand(data, path, table.each))) if split else [""]
    several = max(len(values), len(data.get("tasks", ()))) > 1
    for value in values:
        fixed = table.model_copy(update={"each": {**table.each, str(per): (value,)}}) if split else table
        sheet = _sheet(fixed, data, words=words, rule=rule)
        if sheet.rows:
            title = f"{words.get(value, value)}: {table.title}" if value and several else table.title
            yield Sheet(title, sheet.columns, sheet.rows, "folded" if table.folded else "plain")


def _ours(table: Table, data: Json) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield row, column and text of our results."""
    for title, path in {**table.columns, **table.beside}.items():
        form, names = table.forms.get(title, table.form), variables(path, table.each)
        for binding, value in expand(data, path, table.each):
            yield binding.get("row", table.first), (title, *(binding[name] for name in names)), form.ours(value)


def _sheet(table: Table, data: Json, *, words: Mapping[str, str], rule: Rule | None) -> Sheet:
    theirs, each = bool(table.rows or rule), table.each
    printed = [(title, *binding.values()) for binding, title, _ in declared(table) if theirs]
    cells: dict[str, dict[tuple[str, ...], str]] = {}
    for key, column, text in _ours(table, data):
        cells.setdefault(key, {}).setdefault(column, text)
    columns = dict.fromkeys((*printed, *(column for _, column, _ in _ours(table, data))))
    about: dict[str, list[str]] = {}
    for binding, value in expand(data, table.about, each) if table.about else ():
        about.setdefault(binding["row"], []).append(value)

    def row(key: str, whose: str, texts: Mapping[tuple[str, ...], str]) -> tuple[str, ...]:
        name = words.get(key, key.replace("_", " ") if table.spoken else key)
        return (name, *([whose] if theirs or about else []), *(texts.get(column, UNDEFINED) for column in columns))

    def own(key: str, texts: Mapping[tuple[str, ...], str]) -> tuple[str, ...]:
        whose = f"{OURS}: {key}" if key in about and key in words else OURS if theirs else ""
        return row(key, "; ".join(dict.fromkeys(filter(None, (whose, *about.get(key, ()))))), texts)

    width = 1 + (theirs or bool(about)) + len(columns)
    rows = list[tuple[str, ...]]()
    for heading, keys in (table.groups or {"": (*table.rows, *(rule.keys if rule else ()))}).items():
        rows += [(heading, *[""] * (width - 1))] if heading else []
        for key in keys:
            if key in table.rows:
                rows.append(row(key, PAPER, dict(zip(printed, map(table.form.printed, table.rows[key]), strict=False))))
            for note, made in rule(key) if rule else ():
                rows.append(row(key, AGAIN + note, dict(zip(printed, made, strict=False))))
            mine = {printed[0]: table.ours[key]} if key in table.ours else cells.pop(key, None)
            rows += [own(key, mine)] if mine else []
    if table.others:
        rows += [(OURS.capitalize(), *[""] * (width - 1))] if table.groups and cells else []
        rows += [own(key, texts) for key, texts in cells.items()]
    heads = (_title(column, words=words, each=each) for column in columns)
    return Sheet("", (table.first, *([""] if theirs or about else []), *heads), tuple(rows))


def _title(column: tuple[str, ...], *, words: Mapping[str, str], each: Mapping[str, Sequence[str]]) -> str:
    """Return the title of a column: its own and the values of its variables, without those that all columns share."""
    title, *values = column
    shared = {values[0] for values in each.values() if len(values) == 1}
    varied = [value for value in values if value not in shared] or ([] if title else values[-1:])
    named = [WORDS.get(value, words.get(value, value)) for value in varied]
    return title.format(*named) if "{" in title else " ".join([title, *named]).strip(" :")
