"""Describe the items with gold, and test how their features differ between labels.

The result is ``metrics/<corpus>/analysis.json``, which the report shows. It holds counts, means and tests, but no text,
no id and no small count. Features are computed from decrypted content in memory and are not kept. Its shape::

    {
      "scheme": str, "content": "images" | "texts",
      "items": int, "units": int, "taken_down": int,  # with gold; authors or near-duplicate groups; left out
      "without": {"picture" | "text": int | null},    # items whose features of this kind are undefined
      "labels": {category: {"kind", "items", "labels": {label: int}, "sizes": {str(labels): int}, "mean",
                            "types": {type: int}}},   # types: only where labels have one (CRADLE Figure 1)
      "pairs": [{"rows": category, "columns": category,     # FigSIM Figure 6
                 "counts": {row: {column: int | null}}, "shares": {the same, of the row}}],
      "months": {month: int | null},
      "lengths": {"n", "mean", "quartiles": [3], "classes": {class: int | null}},
      "lexicons": [{"name", "title", "sha256", "categories": int, "skipped": int, "message"}],
      "plan": {"alpha", "confidence", "least", "seed"},
      "blocks": {block: [feature]},                   # visual, text, default, liwc, nrc
      "order": {"categories" | "factors": [category], "labels" | "types": {category: [name]},    # of display
                "levels": {factor: [level]}, "lengths": [class]},
      "family": int, "factors": {factor: {feature: Test}},  # a feature is "<block>.<name>"; Test: group_comparison
      "paper": {factor: {feature: Test}}              # in mode paper: FigSIM's own tests, by_feature
    }

FigSIM's Figures 2 and 6, CRADLE's Figure 1 and Tables 1 and 2. Label totals are printed in full, as in all reports;
counts of pairs, months and lengths are hidden where they are small (:mod:`pipelines.evaluate.analysis.small_counts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.core.config.params import Params
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import Category, Scheme, load
from pipelines.core.taxonomy.guideline import offered
from pipelines.datasets.items import months_of, open_images, opened_posts
from pipelines.datasets.post import BOILERPLATE
from pipelines.evaluate.analysis.features import (
    FEATURES,
    ORIGINAL,
    TITLES,
    Opened,
    VisualFeatures,
    open_all,
    text_features,
)
from pipelines.evaluate.analysis.group_comparison import Factor, Floats, Json, Plan, by_feature, compare
from pipelines.evaluate.analysis.small_counts import Counts, of_units, shown, shown_table
from pipelines.metrics.label_tables import Distribution, Layout
from pipelines.store import tables
from pipelines.store.metrics_file import rounded, write_metrics
from pipelines.store.stage import CONTENT, SCHEME, Context, Stage
from pipelines.store.tables import Item
from pipelines.store.vault.vault import Vault

VISUAL = "visual"


@dataclass(frozen=True)
class AnalysedItems:
    """The items with gold that were not taken down, in order: independent unit, month, text, and visual features."""

    items: tuple[Item, ...]
    units: tuple[str, ...]
    months: tuple[str, ...]
    texts: tuple[str, ...]
    visual: tuple[Sequence[float], ...] | None


STAGE = Stage(reads=("data", "gold", "split"), params=("analysis", CONTENT, SCHEME), writes=())


def run(ctx: Context) -> Json:
    """Write ``metrics/<corpus>/analysis.json``; return counts, and the messages of lexicons without features."""
    corpus, params, vault, root = ctx.corpus, ctx.params, ctx.vault, ctx.root
    gold, units = read_gold(corpus, root=root)
    wanted = sorted(set().union(*gold.values()))
    texts = params.corpora[corpus].content == "texts"
    read = _texts if texts else partial(_pictures, original=params.analysis.mode == "paper")
    content = read(corpus, items=wanted, vault=vault, root=root)
    kept, months = tuple(sorted(content)), months_of(corpus, root=root)
    items_read = AnalysedItems(
        items=kept,
        units=tuple(units[item] for item in kept),
        months=tuple(months[item[0]] for item in kept),
        texts=tuple(content[item][0] for item in kept),
        visual=None if texts else tuple(content[item][1] for item in kept),
    )
    scheme = load(params.corpora[corpus].scheme, root=root)
    settings = params.analysis
    files = {"liwc": settings.lexicons.liwc, "nrc": settings.lexicons.nrc}
    metrics = describe(items_read, gold=gold, scheme=scheme, params=params, lexicons=open_all(files))
    metrics |= {"content": params.corpora[corpus].content, "taken_down": len(wanted) - len(items_read.items)}
    write_metrics(rounded(metrics), root / "metrics" / corpus / "analysis.json")
    tests = [test for features in metrics["factors"].values() for test in features.values()]
    return {
        "items": metrics["items"],
        "units": metrics["units"],
        "family": metrics["family"],
        "significant": sum(test.get("significant", False) for test in tests),
        "messages": {each["name"]: each["message"] for each in metrics["lexicons"] if each["message"]},
    }


def read_gold(corpus: str, *, root: Path) -> tuple[dict[str, dict[Item, frozenset[str]]], dict[Item, str]]:
    """Return the gold labels (category -> item -> labels) of the items of the split, and the unit of each item."""
    folder = root / "snapshot" / corpus
    if not all((folder / path).is_file() for path in ("split/splits.parquet", "gold/gold.parquet")):
        raise ConfigError("NothingToAnalyse", corpus=corpus)
    units = {item: group for item, (_, group) in tables.splits(folder).items()}
    return tables.gold(folder, within=units), units


def describe(
    analysed: AnalysedItems, *, gold: Mapping[str, Gold], scheme: Scheme, params: Params, lexicons: Sequence[Opened]
) -> Json:
    """Return the content of ``analysis.json`` but for ``content`` and ``taken_down``."""
    settings = params.analysis
    there = set(analysed.items)
    known = {key: {i: labels for i, labels in each.items() if i in there} for key, each in gold.items()}
    plan = Plan(settings.alpha, settings.confidence, settings.least, settings.seed)
    blocks = text_features(analysed.texts, lexicons=lexicons)
    if analysed.visual is not None:
        table = np.array([row[: len(FEATURES)] for row in analysed.visual], float).reshape(-1, len(FEATURES))
        blocks = {VISUAL: {name: table[:, i] for i, name in enumerate(FEATURES)}, **blocks}
    features: dict[str, Floats] = {f"{b}.{name}": v for b, each in blocks.items() for name, v in each.items()}
    keys = [key for key in settings.factors if known.get(key) and key in scheme.categories]
    categories = [scheme.categories[key] for key in keys or [key for key in scheme.categories if known.get(key)]]
    factors = {c.key: factor(c, items=analysed.items, gold=known[c.key], scheme=scheme) for c in categories}
    words = blocks["text"]["words"]
    missing = {"text": words == 0}
    if VISUAL in blocks:
        missing["picture"] = np.isnan(blocks[VISUAL]["brightness"])
    units = dict(zip(analysed.items, analysed.units, strict=True))
    return {
        "scheme": scheme.name,
        "items": len(analysed.items),
        "units": len(set(analysed.units)),
        "without": {key: masked(rows, units=analysed.units, least=settings.least) for key, rows in missing.items()},
        "labels": {
            key: category_counts(category, gold=known[key], scheme=scheme)
            for key, category in scheme.categories.items()
            if known.get(key)
        },
        "pairs": [
            pair_counts(scheme.categories[a], scheme.categories[b], gold=known, units=units, least=settings.least)
            for a, b in settings.heatmaps
            if known.get(a) and known.get(b) and {a, b} <= set(scheme.categories)
        ],
        "months": by_month(analysed.months, units=analysed.units, least=settings.least),
        "lengths": by_length([int(n) for n in words], units=analysed.units, least=settings.least),
        "lexicons": [_told(opened) for opened in lexicons],
        "plan": vars(plan),
        "order": {
            "categories": list(scheme.categories),
            "factors": list(factors),
            "labels": {key: [label.name for label in offered(c)] for key, c in scheme.categories.items()},
            "types": {key: list(types_of(c, scheme=scheme)) for key, c in scheme.categories.items()},
            "levels": {key: list(factor.levels) for key, factor in factors.items()},
            "lengths": CLASSES,
        },
        "blocks": {block: list(each) for block, each in blocks.items()},
        **compare(features, factors=factors, units=analysed.units, plan=plan),
        **(_as_the_paper(analysed, features, factors=factors, plan=plan) if settings.mode == "paper" else {}),
    }


def _as_the_paper(
    analysed: AnalysedItems, features: Mapping[str, Floats], *, factors: Mapping[str, Factor], plan: Plan
) -> Json:
    """Return FigSIM's tests of its own features: those of pictures in their own size, and those of texts."""
    own = {name: values for name, values in features.items() if not name.startswith(f"{VISUAL}.")}
    if analysed.visual is not None:
        table = np.array([row[len(FEATURES) :] for row in analysed.visual], float).reshape(-1, len(ORIGINAL))
        own = {f"{VISUAL}.{name}": table[:, i] for i, name in enumerate(ORIGINAL)} | own
    return {"paper": by_feature(own, factors=factors, plan=plan)}


def _told(opened: Opened) -> Json:
    lexicon = opened.lexicon
    return {
        "name": opened.name,
        "title": TITLES[opened.name],
        "sha256": opened.sha256,
        "categories": len(lexicon.categories) if lexicon else 0,
        "skipped": lexicon.skipped if lexicon else 0,
        "message": opened.message,
    }


def _pictures(
    corpus: str, *, items: Sequence[Item], vault: Vault, root: Path, original: bool
) -> dict[Item, tuple[str, Sequence[float]]]:
    """Return the text and the visual features of each picture, with ``original`` the paper's too; no bytes are kept."""
    data = root / "data" / corpus
    table = tables.concat(
        sorted(data.glob("*/images/*.parquet")), name="images", columns=["record_id", "image", "text_area"]
    )
    areas = dict(zip(tables.items_of(table), table["text_area"].to_pylist(), strict=True))
    visual = VisualFeatures()
    return {
        item: (text, visual.of(picture, text_area=areas[item]) + (visual.original(picture) if original else []))
        for item, (text, picture) in open_images(data, items={*items}, vault=vault)
        if picture is not None
    }


def _texts(corpus: str, *, items: Sequence[Item], vault: Vault, root: Path) -> dict[Item, tuple[str, Sequence[float]]]:
    """Return title and body of each post, without the boilerplate of the collectors' form (SPEC 22)."""
    ids = {record_id for record_id, _ in items}
    texts = {
        record_id: "\n".join(BOILERPLATE.sub("", part).strip() for part in (title, body))
        for record_id, title, body in opened_posts(corpus, ids=ids, vault=vault, root=root)
    }
    return {item: (texts[item[0]], ()) for item in items if item[0] in texts}


Gold = Mapping[Item, frozenset[str]]
# Ours: upper ends of the classes of lengths in words
LENGTHS = (0, 4, 9, 19, 49, 99, 199, 499, 999)
CLASSES = ["0", *(f"{low + 1:,}–{high:,}" for low, high in pairwise(LENGTHS)), f"{LENGTHS[-1] + 1:,} and more"]


def category_counts(category: Category, *, gold: Gold, scheme: Scheme) -> Json:
    """Return the counts of one category over the items with gold: its part of ``labels`` in ``analysis.json``."""
    counts = Distribution.of(named(labels, category) for labels in gold.values())
    sizes = Counter(len(labels - {category.none}) for labels in gold.values())
    figures: Json = {
        "kind": category.kind,
        "items": counts.instances,
        "labels": {label.name: counts.labels.get(label.name, 0) for label in offered(category)},
        "sizes": {str(size): sizes[size] for size in sorted(sizes)},
        "mean": sum(size * n for size, n in sizes.items()) / len(gold) if gold else None,
    }
    types = types_of(category, scheme=scheme)
    if any(len(labels) > 1 for labels in types.values()):
        figures["types"] = {name: sum(counts.labels.get(x, 0) for x in labels) for name, labels in types.items()}
    return figures


def types_of(category: Category, *, scheme: Scheme) -> Mapping[str, tuple[str, ...]]:
    """Return the labels of each type of a category; a label without a type is one of its own."""
    return Layout.of(scheme, category=category).types


def named(labels: frozenset[str], category: Category) -> frozenset[str]:
    """Return the labels, or the category's None for an empty set."""
    return labels if labels or category.none is None else frozenset({category.none})


def pair_counts(
    rows: Category, columns: Category, *, gold: Mapping[str, Gold], units: Mapping[Item, str], least: int
) -> Json:
    """Return the items with each pair of labels of two categories, or of one (FigSIM Figure 6).

    The diagonal of one category counts the items that have this label alone. A pair with items of fewer than ``least``
    authors or groups of near-duplicates is hidden.
    """
    names = [[label.name for label in offered(category)] for category in (rows, columns)]
    units_of: dict[tuple[str, str], list[str]] = {}
    same = rows.key == columns.key
    for item, labels in gold.get(rows.key, {}).items():
        here = sorted(named(labels, rows))
        there = here if same else sorted(named(gold.get(columns.key, {}).get(item, frozenset()), columns))
        if same or item in gold.get(columns.key, {}):
            for row_label in here:
                for column_label in there:
                    if not same or row_label != column_label or len(here) == 1:
                        units_of.setdefault((row_label, column_label), []).append(units[item])
    counts, judged = (
        np.array([[count(units_of.get((row, column), [])) for column in names[1]] for row in names[0]], np.int64)
        for count in (len, partial(of_units, least=least))
    )
    visible = shown_table(judged, rows=names[0], columns=names[1], least=least)
    table: dict[str, Counts] = {}
    shares = {}
    for row, numbers in zip(names[0], counts.tolist(), strict=True):
        cells = zip(names[1], numbers, strict=True)
        table[row] = {column: None if visible[row][column] is None else n for column, n in cells}
        total = sum(numbers)
        shares[row] = {c: n / total if n is not None and total else None for c, n in table[row].items()}
    return {"rows": rows.key, "columns": columns.key, "counts": table, "shares": shares}


def by_month(months: Sequence[str], *, units: Sequence[str], least: int) -> Counts:
    """Return the items by month; a month with fewer than ``least`` authors or groups of near-duplicates is hidden."""
    return _by({month: [] for month in sorted({*months} - {""})}, months, units=units, least=least)


def by_length(words: Sequence[int], *, units: Sequence[str], least: int) -> Json:
    """Return figures of the number of words per item, and the items by classes of length, hidden as months are."""
    if not words:
        return {"n": 0, "classes": {}}
    names = [CLASSES[place] for place in np.searchsorted(LENGTHS, words)]
    low, middle, high = (float(q) for q in np.percentile(words, [25, 50, 75]))
    figures = {"n": len(words), "mean": float(np.mean(words)), "quartiles": [low, middle, high]}
    return {**figures, "classes": _by({name: [] for name in CLASSES}, names, units=units, least=least)}


def masked(rows: NDArray[np.bool_], *, units: Sequence[str], least: int) -> int | None:
    """Return how many items are among ``rows``, ``None`` if the number of them, or of the others, is hidden."""
    counts = _by({"in": [], "out": []}, np.where(rows, "in", "out").tolist(), units=units, least=least)
    return counts["in"]


def _by(empty: dict[str, list[str]], names: Sequence[str], *, units: Sequence[str], least: int) -> Counts:
    """Return the items by name, ``None`` where so few units have any that the count is hidden."""
    for name, unit in zip(names, units, strict=True):
        if name in empty:
            empty[name].append(unit)
    masked = shown({name: of_units(members, least=least) for name, members in empty.items()}, least=least)
    return {name: None if masked[name] is None else len(members) for name, members in empty.items()}


def factor(category: Category, *, items: Sequence[Item], gold: Gold, scheme: Scheme) -> Factor:
    """Return what items are compared by in one category: every item has at most one level.

    A category of single labels has its labels. One of several labels whose empty set is valid is compared by whether an
    item has any. Of another, such as CRADLE's, the levels are types, and an item with labels of several has none.
    """
    label_sets = [gold.get(item) for item in items]
    if category.kind == "single":
        names = tuple(label.name for label in offered(category))
        return Factor(names, [next(iter(labels)) if labels and len(labels) == 1 else None for labels in label_sets])
    if category.none not in category.names:
        names = (f"{category.key}: none", f"{category.key}: any")
        return Factor(
            names, [None if labels is None else names[bool(labels - {category.none})] for labels in label_sets]
        )
    types = types_of(category, scheme=scheme)
    kind = {label: name for name, labels in types.items() for label in labels}
    sets = [{kind[label] for label in labels or () if label in kind} for labels in label_sets]
    return Factor(tuple(types), [next(iter(each)) if len(each) == 1 else None for each in sets])
