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
      "family": int, "factors": {factor: {feature: Test}}   # a feature is "<block>.<name>"; Test: group_comparison
    }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.core.config.params import Params
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import Scheme, load
from pipelines.core.taxonomy.guideline import offered
from pipelines.datasets.items import opened_posts
from pipelines.datasets.post import BOILERPLATE
from pipelines.evaluate.analysis import label_counts
from pipelines.evaluate.analysis.features import FEATURES, TITLES, Opened, VisualFeatures, open_all, text_features
from pipelines.evaluate.analysis.group_comparison import Floats, Json, Plan, compare
from pipelines.store import tables
from pipelines.store.metrics_file import rounded, write_metrics
from pipelines.store.seal import open_columns
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


STAGE = Stage(
    reads=("data", "gold", "split"),
    params=("analysis", CONTENT, SCHEME),
    writes=(),
)


def run(ctx: Context) -> Json:
    """Write ``metrics/<corpus>/analysis.json`` (shape: module docstring).

    Returns:
        ``items``, ``units``, ``family`` (number of tests), ``significant`` (of them) and, by lexicon without features,
        its ``messages``.
    """
    corpus, params, vault, root = ctx.corpus, ctx.params, ctx.vault, ctx.root
    gold, units = read_gold(corpus, root=root)
    wanted = sorted(set().union(*gold.values()))
    texts = params.corpora[corpus].content == "texts"
    content = (_posts if texts else _memes)(corpus, items=wanted, vault=vault, root=root)
    kept, months = tuple(sorted(content)), _months(corpus, root=root)
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
    analysed: AnalysedItems,
    *,
    gold: Mapping[str, label_counts.Gold],
    scheme: Scheme,
    params: Params,
    lexicons: Sequence[Opened],
) -> Json:
    """Return the content of ``analysis.json`` but for ``content`` and ``taken_down``."""
    settings = params.analysis
    there = set(analysed.items)
    known = {key: {i: labels for i, labels in each.items() if i in there} for key, each in gold.items()}
    plan = Plan(settings.alpha, settings.confidence, settings.least, settings.seed)
    blocks = text_features(analysed.texts, lexicons=lexicons)
    if analysed.visual is not None:
        table = np.array(analysed.visual, float).reshape(-1, len(FEATURES))
        blocks = {VISUAL: {name: table[:, i] for i, name in enumerate(FEATURES)}, **blocks}
    features: dict[str, Floats] = {f"{b}.{name}": v for b, each in blocks.items() for name, v in each.items()}
    keys = [key for key in settings.factors if known.get(key) and key in scheme.categories]
    categories = [scheme.categories[key] for key in keys or [key for key in scheme.categories if known.get(key)]]
    factors = {
        c.key: label_counts.factor(c, items=analysed.items, gold=known[c.key], scheme=scheme) for c in categories
    }
    words = blocks["text"]["words"]
    missing = {"text": words == 0}
    if VISUAL in blocks:
        missing["picture"] = np.isnan(blocks[VISUAL]["brightness"])
    units = dict(zip(analysed.items, analysed.units, strict=True))
    return {
        "scheme": scheme.name,
        "items": len(analysed.items),
        "units": len(set(analysed.units)),
        "without": {
            key: label_counts.masked(rows, units=analysed.units, least=settings.least) for key, rows in missing.items()
        },
        "labels": {
            key: label_counts.category_counts(category, gold=known[key], scheme=scheme)
            for key, category in scheme.categories.items()
            if known.get(key)
        },
        "pairs": [
            label_counts.pair_counts(
                scheme.categories[a], scheme.categories[b], gold=known, units=units, least=settings.least
            )
            for a, b in settings.heatmaps
            if known.get(a) and known.get(b) and {a, b} <= set(scheme.categories)
        ],
        "months": label_counts.by_month(analysed.months, units=analysed.units, least=settings.least),
        "lengths": label_counts.by_length([int(n) for n in words], units=analysed.units, least=settings.least),
        "lexicons": [_told(opened) for opened in lexicons],
        "plan": vars(plan),
        "order": {
            "categories": list(scheme.categories),
            "factors": list(factors),
            "labels": {key: [label.name for label in offered(c)] for key, c in scheme.categories.items()},
            "types": {key: list(label_counts.types_of(c, scheme=scheme)) for key, c in scheme.categories.items()},
            "levels": {key: list(factor.levels) for key, factor in factors.items()},
            "lengths": label_counts.CLASSES,
        },
        "blocks": {block: list(each) for block, each in blocks.items()},
        **compare(features, factors=factors, units=analysed.units, plan=plan),
    }


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


def _memes(corpus: str, *, items: Sequence[Item], vault: Vault, root: Path) -> dict[Item, tuple[str, Sequence[float]]]:
    """Return the text and the visual features of each picture, whose bytes are not kept."""
    wanted = set(items)
    visual = VisualFeatures()
    features: dict[Item, tuple[str, Sequence[float]]] = {}
    for path in sorted((root / "data" / corpus).glob("*/images/*.parquet")):
        there = tables.items_of(tables.read(path, name="images", columns=["record_id", "image"]))
        keep = [item in wanted for item in there]
        if not any(keep):
            continue
        table = tables.read(path, name="images", columns=["record_id", "image", "text_area", "text", "bytes"])
        table = table.filter(pa.array(keep, pa.bool_()))
        areas = table["text_area"].to_pylist()
        texts, pictures = open_columns(table, name="images", columns=["text", "bytes"], vault=vault)
        for item, text, data, area in zip(tables.items_of(table), texts, pictures, areas, strict=True):
            if data is not None:
                features[item] = (text or b"").decode(), visual.of(data, text_area=area)
    return features


def _posts(corpus: str, *, items: Sequence[Item], vault: Vault, root: Path) -> dict[Item, tuple[str, Sequence[float]]]:
    """Return title and body of each post, without the boilerplate of the collectors' form (SPEC 22)."""
    ids = {record_id for record_id, _ in items}
    texts = {
        record_id: "\n".join(BOILERPLATE.sub("", part).strip() for part in (title, body))
        for record_id, title, body in opened_posts(corpus, ids=ids, vault=vault, root=root)
    }
    return {item: (texts[item[0]], ()) for item in items if item[0] in texts}


def _months(corpus: str, *, root: Path) -> dict[str, str]:
    """Return the month of creation of each record, empty if it is not known, as of an imported one."""
    paths = sorted((root / "data" / corpus).glob("*/records.parquet"))
    table = tables.concat(paths, name="records", columns=["record_id", "created"])
    created = table["created"].to_pylist()
    return {
        record: f"{at:%Y-%m}" if at else "" for record, at in zip(table["record_id"].to_pylist(), created, strict=True)
    }
