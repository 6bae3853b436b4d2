"""Build the page that compares a corpus's benchmark at two commits, A and B: models, tasks, scores and differences.

Scores are read from both ``evaluate.json``. The interval of a difference combines those of the two scores as if their
items were independent (MOVER; Zou and Donner 2008, equation 3): no commit has the other's resamples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from pipelines.core.taxonomy.task import TASKS
from pipelines.evaluate.model_scores import Json
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.report import charts, parts
from pipelines.report.charts import Mark, Row
from pipelines.report.page import Block, Drawing, Folded, Notice, Page, Points
from pipelines.report.parts import interval, noun_of, title_of
from pipelines.report.sections import section

Item = tuple[str, int]
TestItems = Mapping[str, Mapping[Item, frozenset[str]]]
"""Category -> test item -> its gold labels."""
SHOWN = ("macro_f1", "weighted_f1", "exact", "micro_f1", "jaccard", "kappa")
# Sections of params.yaml that data, models or scores depend on; others hold approvals, addresses and schedules.
SECTIONS = (
    "baselines", "dedupe", "ensembles", "evaluate", "few_shot", "finetune", "gold", "labellers", "models",
    "predict_finetuned", "prompted", "repeats", "sample", "silver", "split", "texts", "train", "votes",
)  # fmt: skip
LONGEST = 60
SANDBOX = "A commit has the sandbox's synthetic {noun} and tiny models."
SAME = "The test {noun} and their gold labels are the same at both commits, so scores are comparable item by item."
UNKNOWN = (
    "The lists of test {noun} of a commit are no longer stored, so it is not known whether both tests are the same. Do "
    "not read differences as effects of the models."
)
DIFFERENT = (
    "The test {noun} of the two commits differ ({tasks}), so scores are not comparable item by item: a difference may "
    "be due to the {noun}, not to the models."
)
READING = (
    "A and B are commits of the corpus repository. B − A is the score at B minus the score at A: positive if B is "
    "higher. Scores are times 100.",
    "[ ] is a 95 % interval; of a score it is a bootstrap interval over groups of near-duplicates and over runs. That "
    "of a difference combines the two as if the scores were of independent {noun}. If both are of the same {noun}, "
    "similar models err on the same ones, and the interval is rather too wide.",
    "There is no test across commits and no correction for the number of differences: single intervals that leave out "
    "0 are expected by chance.",
    "Models are matched by their names in params.yaml. Parameters that differ are listed below; with other parameters, "
    "one name may stand for two models.",
    "Unanswered {noun} are left out of a model's scores.",
    "– marks a value that is undefined, or a model that a commit does not have.",
)


@dataclass(frozen=True)
class ReportedCommit:
    """What the comparison reads of one commit.

    ``date`` (ISO 8601), ``title`` of the report, ``synthetic`` (of the sandbox), ``metrics`` (``evaluate.json``),
    ``params`` (of ``params.yaml``), and the ``test`` items, ``None`` if their tables are no longer stored.
    """

    commit: str
    date: str
    title: str
    synthetic: bool
    metrics: Json
    params: Mapping[str, Any]
    test: TestItems | None

    @property
    def short(self) -> str:
        """The abbreviated commit."""
        return self.commit[:12]


def build(a: ReportedCommit, b: ReportedCommit, *, corpus: str) -> Page:
    """Return the page that compares two versions of a corpus's benchmark, A (earlier) and B."""
    tasks = {name: parts.in_order(version.metrics)["tasks"] for name, version in (("A", a), ("B", b))}
    keys = sorted({*tasks["A"], *tasks["B"]}, key=lambda key: (TASKS.index(key) if key in TASKS else len(TASKS), key))
    noun = noun_of(b.metrics)
    head: list[Block] = [f"Corpus {corpus}. A is commit {a.short} of {a.date}, B is commit {b.short} of {b.date}."]
    if a.synthetic or b.synthetic:
        head.append(Notice(SANDBOX.format(noun=noun)))
    head += [_same(a, b, keys=keys, noun=noun), _glance(tasks, keys=keys)]
    sections = [
        *(section(f"task-{key}", title_of(key), _task(key, tasks["A"].get(key), tasks["B"].get(key))) for key in keys),
        section("test-items", f"Test {noun}", _items(a, b, tasks=tasks, keys=keys)),
        section("parameters", "Parameters that differ", _parameters(a, b, corpus=corpus)),
        section("reading", "How to read this page", [Points(tuple(line.format(noun=noun) for line in READING))]),
    ]
    return Page(f"{b.title}: two commits", tuple(head), tuple(part for part in sections if part.blocks))


def difference(a: Json | None, b: Json | None) -> Json | None:
    """Return B minus A of two scores with intervals: ``value``, ``low`` and ``high``; ``None`` if one is undefined.

    The ends are ``None`` if a score has no interval.
    """
    if a is None or b is None or a["mean"] is None or b["mean"] is None:
        return None
    value = b["mean"] - a["mean"]
    if None in (a["low"], a["high"], b["low"], b["high"]):
        return {"value": value, "low": None, "high": None}
    low = value - sqrt((b["mean"] - b["low"]) ** 2 + (a["high"] - a["mean"]) ** 2)
    high = value + sqrt((b["high"] - b["mean"]) ** 2 + (a["mean"] - a["low"]) ** 2)
    return {"value": value, "low": low, "high": high}


def overlap(a: Mapping[Item, frozenset[str]], b: Mapping[Item, frozenset[str]]) -> dict[str, int]:
    """Return the numbers of test items in ``both``, only in ``a`` or ``b``, and in both with ``other`` gold labels."""
    both = a.keys() & b.keys()
    other = sum(a[item] != b[item] for item in both)
    return {"both": len(both), "a": len(a) - len(both), "b": len(b) - len(both), "other": other}


def _overlaps(a: ReportedCommit, b: ReportedCommit, *, keys: Sequence[str]) -> dict[str, dict[str, int]] | None:
    if a.test is None or b.test is None:
        return None
    return {key: overlap(a.test.get(key, {}), b.test.get(key, {})) for key in keys}


def _same(a: ReportedCommit, b: ReportedCommit, *, keys: Sequence[str], noun: str) -> Block:
    overlaps = _overlaps(a, b, keys=keys)
    if overlaps is None:
        return Notice(UNKNOWN.format(noun=noun))
    words = {key: _differ(n) for key, n in overlaps.items()}
    if not any(words.values()):
        return SAME.format(noun=noun)
    changes = [f"{title_of(key).lower()}: {differ}" for key, differ in words.items() if differ]
    same = len(set(words.values())) == 1
    return Notice(DIFFERENT.format(noun=noun, tasks=next(iter(words.values())) if same else "; ".join(changes)))


def _differ(n: Mapping[str, int]) -> str:
    sentence = (
        f"{n['both']:,} in both, {n['a']:,} only in A, {n['b']:,} only in B, {n['other']:,} with other gold labels"
    )
    return sentence if n["a"] or n["b"] or n["other"] else ""


def _glance(tasks: Mapping[str, Json], *, keys: Sequence[str]) -> Sheet:
    rows = []
    for key in keys:
        best = [
            (task["best"], _scores(task, task["best"])) if (task := tasks[name].get(key)) else None for name in tasks
        ]
        cells = [each[1].get("macro_f1") if each else None for each in best]
        named = [each[0] or UNDEFINED if each else UNDEFINED for each in best]
        apart = interval(difference(cells[0], cells[1]))
        rows.append((title_of(key), named[0], interval(cells[0]), named[1], interval(cells[1]), apart))
    columns = ("Task", "Best model at A", "Its macro-F1", "Best model at B", "Its macro-F1", "B − A")
    return Sheet("Best model of each task by macro-F1, with 95 % intervals", columns, tuple(rows))


def _scores(task: Json | None, name: str | None) -> Json:
    model = task["models"].get(name) if task else None
    figures: Json = model["valid"]["figures"] if model and model["valid"] else {}
    return figures


def _task(key: str, a: Json | None, b: Json | None) -> Iterator[Block]:
    names = sorted({*(a or {"models": {}})["models"], *(b or {"models": {}})["models"]})
    if not names:
        return
    cells = {name: (_scores(a, name), _scores(b, name)) for name in names}
    columns = ("Model", "A [95 %]", "B [95 %]", "B − A [95 %]")
    rows = tuple(
        (name, *_cells(before.get("macro_f1"), after.get("macro_f1"))) for name, (before, after) in cells.items()
    )
    yield Sheet(f"{title_of(key)}: macro-F1", columns, rows)
    yield _drawing(key, cells)
    yield Folded(_further(key, cells))
    both = [name for name in names if cells[name][0] and cells[name][1]]
    if both and a and b:
        yield Folded(_labels(key, a, b, names=both))


def _drawing(key: str, cells: Mapping[str, tuple[Json, Json]]) -> Drawing:
    drawn = []
    for name, (before, after) in cells.items():
        for side, figures in (("A", before), ("B", after)):
            cell = figures.get("macro_f1")
            if cell and cell["mean"] is not None:
                low, high = (None if end is None else 100 * end for end in (cell["low"], cell["high"]))
                value, kind = 100 * cell["mean"], "filled" if side == "B" else "open"
                drawn.append(Row(f"{name}, {side}", (Mark(value, low, high, charts.short(value), kind),)))
    caption = f"{title_of(key)}: macro-F1 at A and B"
    numbers = tuple(
        (row.label, *(UNDEFINED if x is None else f"{x:.1f}" for x in (mark.value, mark.low, mark.high)))
        for row in drawn
        for mark in row.marks
    )
    svg = charts.dots(drawn, title=caption, zero=True, words=("B", "A"))
    return Drawing(caption, svg, Sheet(caption, ("Model", "Macro-F1", "Low", "High"), numbers))


def _cells(a: Json | None, b: Json | None) -> tuple[str, str, str]:
    return interval(a), interval(b), interval(difference(a, b))


def _further(key: str, cells: Mapping[str, tuple[Json, Json]]) -> Sheet:
    rows = []
    for name, (before, after) in cells.items():
        rows.append((name, "", "", ""))
        rows += [
            (parts.FIGURES[score], *_cells(before.get(score), after.get(score)))
            for score in SHOWN
            if score in before or score in after
        ]
    return Sheet(f"{title_of(key)}: all scores", ("Score", "A [95 %]", "B [95 %]", "B − A [95 %]"), tuple(rows))


def _labels(key: str, a: Json, b: Json, *, names: Sequence[str]) -> Sheet:
    rows = []
    for label in [*a["labels"], *(label for label in b["labels"] if label not in a["labels"])]:
        cells = []
        for name in names:
            sides = [task["models"][name]["valid"]["labels"].get(label, {}).get("f1") for task in (a, b)]
            cells.append(interval(difference(*sides)))
        counts = (f"{task['support'].get(label, 0):,}" for task in (a, b))
        rows.append((label, *counts, *cells))
    columns = ("Label", "Gold at A", "Gold at B", *(f"{name}, B − A" for name in names))
    return Sheet(f"{title_of(key)}: F1 by label, differences with 95 % intervals", columns, tuple(rows))


def _items(a: ReportedCommit, b: ReportedCommit, *, tasks: Mapping[str, Json], keys: Sequence[str]) -> Iterator[Block]:
    splits = sorted({*a.metrics["items"], *b.metrics["items"]})
    rows = [(f"Gold of {split}", *(f"{v.metrics['items'].get(split, 0):,}" for v in (a, b))) for split in splits]
    rows += [(f"Scored, {title_of(key).lower()}", *(_number(tasks[name].get(key)) for name in "AB")) for key in keys]
    yield Sheet("Numbers of items", ("Items", "A", "B"), tuple(rows))
    if overlaps := _overlaps(a, b, keys=keys):
        cells = [
            (title_of(key), *(f"{n[name]:,}" for name in ("both", "a", "b", "other"))) for key, n in overlaps.items()
        ]
        columns = ("Task", "In both", "Only in A", "Only in B", "In both, other gold labels")
        yield Sheet("Test items with gold", columns, tuple(cells))


def _number(task: Json | None) -> str:
    return UNDEFINED if task is None else f"{task['n']:,}"


def _parameters(a: ReportedCommit, b: ReportedCommit, *, corpus: str) -> Iterator[Block]:
    before, after = (dict(_flat({key: v.params[key] for key in SECTIONS if key in v.params})) for v in (a, b))
    rows = [
        (name, _value(before, name), _value(after, name))
        for name in sorted({*before, *after})
        if before.get(name, ...) != after.get(name, ...) and _own(name, corpus=corpus, params=b.params)
    ]
    if rows:
        yield Sheet("Parameters of data, models and scores", ("Parameter", "A", "B"), tuple(rows))
    else:
        yield "The parameters of data, models and scores are the same."


def _own(name: str, *, corpus: str, params: Mapping[str, Any]) -> bool:
    part = name.split(".")[1] if "." in name else ""
    return part == corpus or part not in params["corpora"]


def _flat(value: Mapping[str, Any], *, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _flat(inner, prefix=f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def _value(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return UNDEFINED
    text = values[name] if isinstance(values[name], str) else json.dumps(values[name])
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
