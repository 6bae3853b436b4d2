"""Write the report of a committed version of a corpus, or the comparison of two versions, to a folder of the user's.

Only committed metrics and parameters are read, and for a comparison the ids of the test items, so nothing is decrypted
and no text can reach the page. The code is that of this installation, whichever code wrote the metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from pipelines.core.config.params import leaves, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CorpusError, DataError
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as load_scheme
from pipelines.evaluate.inputs import TEST, EvaluationGold
from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report import charts, report
from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report.charts import Mark, Row
from pipelines.evaluate.report.page import Block, Notice, Page, points, text
from pipelines.evaluate.report.parts import best_of, figures_of, fixed, interval, sections_of
from pipelines.evaluate.report.tables import FIGURES
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.workspace.clone import BRANCH, Workspace, workspace
from pipelines.workspace.git import git

Item = tuple[str, int]
TestItems = Mapping[str, Mapping[Item, frozenset[str]]]
"""Category -> test item -> its gold labels."""
SHOWN = ("macro_f1", "weighted_f1", "exact", "micro_f1", "jaccard", "kappa")
# Sections of params.yaml that data, models or scores depend on; others hold approvals, addresses and schedules.
SECTIONS = (
    "dedupe", "ensembles", "evaluate", "few_shot", "gold", "labellers", "models", "predict", "sample", "silver",
    "split", "texts", "train", "votes",
)  # fmt: skip
LONGEST = 60


@dataclass(frozen=True)
class ReportedCommit:
    """What the comparison reads of one commit.

    ``date`` (ISO 8601), ``title`` of the report, label ``scheme``, ``synthetic`` (of the sandbox), ``metrics``
    (``evaluate.json``), ``params`` (of ``params.yaml``), and the ``test`` items, ``None`` if their tables are no longer
    stored.
    """

    commit: str
    date: str
    title: str
    scheme: Scheme
    synthetic: bool
    metrics: Json
    params: Mapping[str, Any]
    test: TestItems | None


NO_TASK: Json = {"n": None, "best": None, "models": {}, "labels": [], "support": {}}
CHANGE = ("A [95 %]", "B [95 %]", "B − A [95 %]")


def compared(a: ReportedCommit, b: ReportedCommit, *, corpus: str) -> Page:
    """Return the page that compares two versions of a corpus's benchmark, A (earlier) and B."""
    known = [version.metrics["tasks"] for version in (a, b)]
    keys, noun, title_of = [*b.scheme.in_order({**known[0], **known[1]})], b.scheme.items, b.scheme.title_of
    tasks = {title_of(key): [task.get(key, NO_TASK) for task in known] for key in keys}
    commits = (f"{name} is commit {version.commit[:12]} of {version.date}" for name, version in (("A", a), ("B", b)))
    head: list[Block] = [f"Corpus {corpus}. {', '.join(commits)}."]
    if a.synthetic or b.synthetic:
        head.append(Notice(text("comparison_sandbox", noun=noun)))
    overlaps = None
    if a.test is not None and b.test is not None:
        overlaps = {title_of(key): overlap(a.test.get(key, {}), b.test.get(key, {})) for key in keys}
    head += [_same(overlaps, noun=noun), _glance(tasks)]
    sections = sections_of(
        *((f"task-{key}", title_of(key), _task(title_of(key), *tasks[title_of(key)])) for key in keys),
        ("test-items", f"Test {noun}", _items(a, b, tasks=tasks, overlaps=overlaps or {})),
        ("parameters", "Parameters that differ", _parameters(a, b, corpus=corpus)),
        ("reading", "How to read this page", [points("comparison", noun=noun)]),
    )
    return Page(f"{b.title}: two commits", tuple(head), tuple(sections))


def difference(a: Json | None, b: Json | None) -> Json | None:
    """Return B minus A of two scores with intervals: ``value``, ``low`` and ``high``; ``None`` if one is undefined.

    The interval combines those of the two scores as if their items were independent (MOVER; Zou and Donner 2008,
    equation 3): no commit has the other's resamples. Its ends are ``None`` if a score has no interval.
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


def _same(overlaps: Mapping[str, Mapping[str, int]] | None, *, noun: str) -> Block:
    if overlaps is None:
        return Notice(text("comparison_unknown", noun=noun))
    changed = {key: n for key, n in overlaps.items() if n["a"] or n["b"] or n["other"]}
    words = {
        key: f"{n['both']:,} in both, {n['a']:,} only in A, {n['b']:,} only in B, {n['other']:,} with other gold labels"
        for key, n in changed.items()
    }
    if not words:
        return text("comparison_same", noun=noun)
    same = len(set(words.values())) == 1 and len(words) == len(overlaps)
    changes = "; ".join(f"{title.lower()}: {differ}" for title, differ in words.items())
    told = next(iter(words.values())) if same else changes
    return Notice(text("comparison_different", noun=noun, tasks=told))


def _glance(tasks: Mapping[str, Sequence[Json]]) -> Sheet:
    rows = []
    for title, sides in tasks.items():
        cells = [figures_of(best_of(task)).get("macro_f1") for task in sides]
        bests = (cell for task, score in zip(sides, cells, strict=True) for cell in (task["best"], interval(score)))
        rows.append((title, *(cell or UNDEFINED for cell in bests), interval(difference(*cells))))
    columns = ("Task", "Best model at A", "Its macro-F1", "Best model at B", "Its macro-F1", "B − A")
    return Sheet("Best model of each task by macro-F1, with 95 % intervals", columns, tuple(rows))


def _task(title: str, a: Json, b: Json) -> Iterator[Block]:
    names = sorted({*a["models"], *b["models"]})
    cells = {name: [figures_of(task["models"].get(name)) for task in (a, b)] for name in names}
    rows = tuple((name, *_cells(sides, score="macro_f1")) for name, sides in cells.items())
    yield Sheet(f"{title}: macro-F1", ("Model", *CHANGE), rows)
    if names:
        yield _drawing(title, cells)
    further: list[tuple[str, ...]] = []
    for name, sides in cells.items():
        shown = [score for score in SHOWN if any(score in figures for figures in sides)]
        further += [(name, "", "", ""), *((FIGURES[score], *_cells(sides, score=score)) for score in shown)]
    yield Sheet(f"{title}: all scores", ("Score", *CHANGE), tuple(further), "folded")
    if both := [name for name, sides in cells.items() if all(sides)]:
        yield _labels(title, a, b, names=both)


def _drawing(title: str, cells: Mapping[str, Sequence[Json]]) -> Sheet:
    """Draw the macro-F1 of every model at A (open) and B (filled)."""
    dots, rows = [], []
    for name, both in cells.items():
        for side, kind, figures in zip("AB", ("open", "filled"), both, strict=True):
            cell = figures.get("macro_f1")
            if cell and cell["mean"] is not None:
                value, low, high = (None if x is None else 100 * x for x in (cell["mean"], cell["low"], cell["high"]))
                dots.append(Row(f"{name}, {side}", (Mark(value, low, high, charts.short(value or 0.0), kind),)))
                rows.append((f"{name}, {side}", *(fixed(x, 1) for x in (value, low, high))))
    caption = f"{title}: macro-F1 at A and B"
    svg = charts.dots(dots, title=caption, zero=True, words=("B", "A"))
    return Sheet(caption, ("Model", "Macro-F1", "Low", "High"), tuple(rows), svg=svg)


def _cells(sides: Sequence[Json], *, score: str) -> tuple[str, str, str]:
    a, b = (figures.get(score) for figures in sides)
    return interval(a), interval(b), interval(difference(a, b))


def _labels(title: str, a: Json, b: Json, *, names: Sequence[str]) -> Sheet:
    """Return the differences of F1 by label for the models that both commits have."""
    rows = []
    for label in dict.fromkeys((*a["labels"], *b["labels"])):
        cells = []
        for name in names:
            sides = [task["models"][name]["valid"]["labels"].get(label, {}).get("f1") for task in (a, b)]
            cells.append(interval(difference(*sides)))
        rows.append((label, *(f"{task['support'].get(label, 0):,}" for task in (a, b)), *cells))
    columns = ("Label", "Gold at A", "Gold at B", *(f"{name}, B − A" for name in names))
    return Sheet(f"{title}: F1 by label, differences with 95 % intervals", columns, tuple(rows), "folded")


def _items(
    a: ReportedCommit,
    b: ReportedCommit,
    *,
    tasks: Mapping[str, Sequence[Json]],
    overlaps: Mapping[str, Mapping[str, int]],
) -> Iterator[Block]:
    splits = sorted({*a.metrics["items"], *b.metrics["items"]})
    rows = [(f"Gold of {split}", *(f"{v.metrics['items'].get(split, 0):,}" for v in (a, b))) for split in splits]
    for title, sides in tasks.items():
        scored = (UNDEFINED if task["n"] is None else f"{task['n']:,}" for task in sides)
        rows.append((f"Scored, {title.lower()}", *scored))
    yield Sheet("Numbers of items", ("Items", "A", "B"), tuple(rows))
    columns = ("Task", "In both", "Only in A", "Only in B", "In both, other gold labels")
    cells = [(title, *(f"{n[name]:,}" for name in ("both", "a", "b", "other"))) for title, n in overlaps.items()]
    yield Sheet("Test items with gold", columns, tuple(cells))


def _parameters(a: ReportedCommit, b: ReportedCommit, *, corpus: str) -> Iterator[Block]:
    before, after = (
        {".".join(map(str, key)): value for key, value in leaves({k: v.params[k] for k in SECTIONS if k in v.params})}
        for v in (a, b)
    )
    # a section is by corpus, or one of its values is
    others = b.params["corpora"].keys() - {corpus}
    rows = [
        (name, _value(before, name), _value(after, name))
        for name in sorted({*before, *after})
        if before.get(name, ...) != after.get(name, ...) and others.isdisjoint(name.split(".")[1:3])
    ]
    if rows:
        yield Sheet("Parameters of data, models and scores", ("Parameter", "A", "B"), tuple(rows))
    else:
        yield "The parameters of data, models and scores are the same."


def _value(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return UNDEFINED
    text = values[name] if isinstance(values[name], str) else json.dumps(values[name])
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


FORMATS = {"html": ("html", report_page.html), "md": ("md", report_page.markdown), "latex": ("tex", report_page.latex)}
MOST_KNOWN = 3


def write(
    corpus: str,
    *,
    settings: Settings,
    to: Path,
    form: str = "html",
    commit: str | None = None,
    against: str | None = None,
) -> dict[str, Any]:
    """Write ``report.*``, or ``comparison.*`` with ``against``, and the folder ``tables`` into the folder ``to``.

    Args:
        to: a new or empty folder.
        against: an earlier commit (or any other) that is compared with it.
    """
    with workspace(settings, revision=commit) as clone, _readable(corpus, clone):
        result = {"commit": clone.head}
        if against is None:
            name, page = "report", _report(corpus, clone)
        else:
            newer = _version(corpus, clone)
    if against is not None:
        with workspace(settings, revision=against) as clone, _readable(corpus, clone):
            result["against"] = clone.head
            name, page = "comparison", compared(_version(corpus, clone), newer, corpus=corpus)
    ending, render = FORMATS[form]
    to.mkdir(parents=True, exist_ok=True)
    path = to / f"{name}.{ending}"
    path.write_bytes(render(page).encode())
    return result | {"file": str(path), "tables": len(report_page.write_tables(page, to / report.TABLES))}


@contextmanager
def _readable(corpus: str, clone: Workspace) -> Iterator[None]:
    """Translate the failures of reading the metrics of a commit."""
    short = clone.head[:12]
    if not (clone.path / "metrics" / corpus / "evaluate.json").is_file():
        raise DataError("NotPublished", commit=short, corpus=corpus, known=_known(corpus, clone))
    try:
        yield
    except CorpusError:
        raise
    except (KeyError, TypeError, AttributeError) as error:
        detail = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else "a field has another form"
        raise DataError("MetricsOutdated", corpus=corpus, commit=short, detail=detail) from error


def _known(corpus: str, clone: Workspace) -> str:
    path = f"metrics/{corpus}/evaluate.json"
    form = ("--format=%h of %cs", "--diff-filter=AM")
    listed = git("log", f"-{MOST_KNOWN}", *form, f"origin/{BRANCH}", "--", path, cwd=clone.path)
    if not listed:
        return f"No commit has any: first run the Dag that ends with evaluate@{corpus}."
    return f"Name a commit that has them with --commit, such as {', '.join(listed.splitlines())}."


def _report(corpus: str, clone: Workspace) -> Page:
    metrics = report.measured(corpus, root=clone.path)
    return report.page_of(corpus, metrics=metrics, params=load(clone.path), root=clone.path)


def _version(corpus: str, clone: Workspace) -> ReportedCommit:
    params = load(clone.path)
    return ReportedCommit(
        commit=clone.head,
        date=git("show", "--no-patch", "--format=%cs", clone.head, cwd=clone.path),
        title=report.title_of(corpus, params=params, root=clone.path),
        scheme=load_scheme(params.corpora[corpus].scheme, root=clone.path),
        synthetic=params.sandbox is not None,
        metrics=report.measured(corpus, root=clone.path),
        params=params.model_dump(mode="json"),
        test=_test(corpus, clone),
    )


def _test(corpus: str, clone: Workspace) -> TestItems | None:
    """Return the gold of the test items by category, or ``None`` if their tables are no longer stored."""
    folder = f"snapshot/{corpus}"
    try:
        clone.checkout(*(f"{folder}/{name}" for name in ("split", "gold", "few_shot")))
        gold = EvaluationGold.read(clone.path / folder)
    except (CorpusError, OSError):
        return None
    return {
        key: {item: labels for item, labels in gold.of(key, split=TEST).items() if item not in gold.examples}
        for key in gold.labels
    }
