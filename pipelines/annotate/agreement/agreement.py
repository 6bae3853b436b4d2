"""Compute inter-annotator agreement by category, batch and round, with intervals (the stage ``agreement``).

Every statistic covers the items that two or more people answered; a skipped item is not an answer. The figures of a
round show whether its agreement suffices to continue. Krippendorff's alpha comes first: it pools all answers, also of
annotators who rotate, whereas Cohen's kappa is a mean over pairs of annotators. Intervals are percentiles of a
bootstrap over groups of near-duplicates. The pooled figures (``overall``) cover the rounds whose manifest
sets ``agreement`` (FigSIM 3.3: the doubly annotated items of the large-scale round, without the pilot and calibration
rounds; CRADLE's Table 10: rounds 1 to 3). The figures of rounds with one annotator per item are undefined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pipelines.annotate.agreement.alpha_plot import draw_figure
from pipelines.annotate.agreement.overlap import OverlapAnswers, gather, measured
from pipelines.annotate.forms.manifest import RoundManifest, folder, opened
from pipelines.config.annotate import Agreement
from pipelines.config.params import Params
from pipelines.metrics import agreement_coefficients as c
from pipelines.storage import tables
from pipelines.storage.metrics_file import write_metrics
from pipelines.storage.tables import Item
from pipelines.taxonomy import Category, Scheme, load

Json: TypeAlias = dict[str, Any]
COLUMNS = ["record_id", "image", "annotator", "category", "round", "batch", "outcome", "labels"]
DIGITS = 6  # finer than 1,000 resamples can resolve, coarser than floating-point error
# Landis and Koch's words describe agreement beyond chance.
READ = ("kappa", "weighted_kappa", "ac1", "alpha")
INTERVAL = {"method": "percentile bootstrap", "unit": "near-duplicate group"}


def run(corpus: str, *, params: Params, root: Path = Path()) -> Json:
    """Write ``metrics/<corpus>/agreement.json`` and ``snapshot/<corpus>/agreement/agreement.png``.

    Returns:
        For each round and for ``overall``: ``items`` (number of items), ``alpha`` and ``kappa`` by category, and
        ``sufficient``: whether every defined kappa, rounded to two decimals, reaches ``agreement.enough`` (``None`` if
        no kappa is defined).
    """
    scheme = load(params.corpora[corpus].scheme, root=root)
    found: list[tuple[RoundManifest, list[Json]]] = []
    for manifest in opened(root, corpus):
        path = folder(root, corpus, manifest.round) / "annotations.parquet"
        if path.exists():
            found.append((manifest, tables.read(path, name="annotations", columns=COLUMNS).to_pylist()))
    schemes = {m.round: load(m.scheme, root=root) for m, _ in found if m.scheme != scheme.name}
    metrics = measure(found, scheme=scheme, settings=params.agreement, groups=groups_of(root, corpus), schemes=schemes)
    draw_figure(metrics, categories=list(scheme.categories), path=root / "snapshot" / corpus / "agreement")
    write_metrics(metrics, root / "metrics" / corpus / "agreement.json")
    return summary(metrics)


def groups_of(root: Path, corpus: str) -> dict[Item, str]:
    """Return the near-duplicate cluster of each clustered item from the stage ``dedupe``; empty if it has not run."""
    path = root / "snapshot" / corpus / "dedupe" / "clusters.parquet"
    if not path.exists():
        return {}
    found = tables.read(path, name="clusters", columns=["record_id", "image", "cluster"])
    return dict(zip(tables.items_of(found), found["cluster"].to_pylist(), strict=True))


def measure(
    rounds: Iterable[tuple[RoundManifest, Iterable[Mapping[str, Any]]]],
    *,
    scheme: Scheme,
    settings: Agreement,
    groups: Mapping[Item, str] | None = None,
    schemes: Mapping[str, Scheme] | None = None,
) -> Json:
    """Compute the agreement figures of rounds, each given as its manifest and its rows of the table ``annotations``.

    ``groups`` maps items to groups of near-duplicates; the images of a record that it lacks are one group. ``schemes``
    are the label schemes of rounds that were held under another one than ``scheme``; such a round is measured in its
    own labels and left out of ``overall``.

    The result has ``rounds`` (figures by round, in the given order) and ``overall`` (the pooled figures). Every figure
    is ``{value, low, high}``; all three are ``None`` if the figure is undefined. Chance-corrected figures also have
    ``word``, the term of Landis and Koch's scale. A figure that is undefined in some resamples also has ``defined``,
    the share of resamples in which it has a value.
    """
    known = groups or {}
    described: Json = {}
    pooled: list[Mapping[str, Any]] = []
    published: list[str] = []
    for manifest, given in rounds:
        rows = list(given)
        batches = sorted({row["batch"] for row in rows})
        parts = {b: [row for row in rows if row["batch"] == b] for b in batches}
        own = (schemes or {}).get(manifest.round, scheme)
        scope = _scope(rows, scheme=own, settings=settings, groups=known)
        described[manifest.round] = {
            **scope,
            "order": len(described),
            "opened": manifest.opened.date().isoformat(),
            "phase": manifest.phase,
            "agreement": manifest.agreement,
            "batches": {
                str(b): _scope(part, scheme=own, settings=settings, groups=known, labels=False)
                for b, part in parts.items()
            },
        }
        if own is not scheme:
            described[manifest.round]["scheme"] = own.name
        elif manifest.agreement:
            published.append(manifest.round)
            pooled += rows
    if not described:
        return {"rounds": {}}
    overall = {**_scope(pooled, scheme=scheme, settings=settings, groups=known), "rounds": published}
    interval = {**INTERVAL, "confidence": settings.confidence, "resamples": settings.resamples}
    stated = {"scheme": scheme.name, "enough": settings.enough, "interval": interval}
    return {**stated, "rounds": described, "overall": overall}


def summary(metrics: Mapping[str, Any]) -> Json:
    """Summarise the figures of :func:`measure`, for each round and ``overall``."""

    def short(scope: Mapping[str, Any]) -> Json:
        categories = scope["categories"]
        return {
            "items": max((f["items"] for f in categories.values()), default=0),
            **{name: {key: f[name]["value"] for key, f in categories.items()} for name in ("alpha", "kappa")},
            "sufficient": scope["sufficient"],
        }

    rounds = {name: short(scope) for name, scope in metrics["rounds"].items()}
    return {"rounds": rounds, **({"overall": short(metrics["overall"])} if rounds else {})}


def _scope(
    rows: Iterable[Mapping[str, Any]],
    *,
    scheme: Scheme,
    settings: Agreement,
    groups: Mapping[Item, str],
    labels: bool = True,
) -> Json:
    answers = gather(rows, scheme=scheme)
    categories = {
        key: figures(answers[key], category=category, settings=settings, groups=groups, labels=labels)
        for key, category in scheme.categories.items()
    }
    kappas = [f["kappa"]["value"] for f in categories.values()]
    defined = [float(c.printed(value)) for value in kappas if isinstance(value, float)]
    enough = all(value >= settings.enough for value in defined) if defined else None
    return {"categories": categories, "sufficient": enough}


def figures(
    answers: OverlapAnswers,
    *,
    category: Category,
    settings: Agreement,
    groups: Mapping[Item, str],
    labels: bool = True,
) -> Json:
    """Compute all agreement figures of one category of a scheme from the annotators' ``answers``.

    ``groups`` maps items to groups of near-duplicates, ``labels`` adds the figures of each label, and ``settings.seed``
    and the category's key seed the bootstrap.
    """
    places = answers.doubles()
    names = measured(category)
    raters = sorted({annotator for place in places for annotator in answers.given[place]})
    sets = np.full((len(places), len(raters), len(names)), c.MISSING, dtype=np.int64)
    for i, place in enumerate(places):
        for annotator, chosen in answers.given[place].items():
            sets[i, raters.index(annotator)] = [name in chosen for name in names]
    digest = hashlib.sha256(f"{settings.seed}/{category.key}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    clusters = [groups.get((record, image), record) for _, record, image in places]
    drawn, of_item = np.unique(np.array(clusters, dtype=np.str_), return_inverse=True)
    # whole groups are drawn, because near-duplicates get similar answers
    weights = c.draws(len(drawn), resamples=settings.resamples, rng=rng)[:, of_item]
    by_label: dict[str, c.Floats] = {}
    if labels or category.kind == "multi":
        by_label = {name: c.by_label(sets, statistic=name, weights=weights) for name in ("kappa", "ac1")}
    if category.kind == "multi":
        values = _multi(sets, by_label=by_label, weights=weights)
    else:
        values = _single(sets, category=category, weights=weights)
    plain: Json = {name: _plain(array, name=name, settings=settings) for name, array in values.items()}
    plain |= {"items": len(places), "groups": len(drawn), "annotators": len(raters), "left_out": answers.left_out()}
    plain["distance"] = "masi" if category.kind == "multi" else "ordinal" if category.ordinal else "nominal"
    if category.kind == "multi":
        # labels that no annotator used are not part of the mean
        plain["labels_used"] = {name: int((~np.isnan(array[0])).sum()) for name, array in by_label.items()}
        plain["labels_offered"] = len(names)
    if labels:
        plain["labels"] = {
            label: {
                "items": int((sets[:, :, i] == 1).any(axis=1).sum()),
                **{name: _plain(array[:, i], name=name, settings=settings) for name, array in by_label.items()},
            }
            for i, label in enumerate(names)
        }
    return plain


def _single(sets: c.Codes, *, category: Category, weights: c.Floats) -> dict[str, c.Floats]:
    size = sets.shape[2]
    codes = np.where((sets == c.MISSING).any(axis=2), c.MISSING, sets.argmax(axis=2))
    found = {
        "observed": c.observed(codes, classes=size, weights=weights),
        "kappa": c.kappa(codes, classes=size, weights=weights),
        "ac1": c.ac1(codes, classes=size, weights=weights),
    }
    if not category.ordinal:
        return {**found, "alpha": c.alpha(codes, distance=c.nominal(size), weights=weights)}
    # the task's classes define the order: FigSIM's attempt and death are one degree (SPEC 1.1)
    merged = [_class(category, label=name) for name in measured(category)]
    degrees = list(dict.fromkeys(merged))
    ranks = np.array([degrees.index(name) for name in merged])
    ordered = np.where(codes == c.MISSING, c.MISSING, ranks[codes])
    found["weighted_kappa"] = c.kappa(ordered, classes=len(degrees), weights=weights, quadratic=True)
    found["alpha"] = c.ordinal_alpha(ordered, classes=len(degrees), weights=weights)
    return found


def _class(category: Category, *, label: str) -> str:
    merge = category.task_merge
    return next(iter(category.merge(frozenset({label}), merge=merge))) if merge else label


def _multi(sets: c.Codes, *, by_label: Mapping[str, c.Floats], weights: c.Floats) -> dict[str, c.Floats]:
    """Return the figures of a category whose answers are sets; kappa and AC1 are means (FigSIM 3.3, CRADLE T10)."""
    codes, known = c.distinct(sets)
    return {
        "observed": c.observed(codes, classes=len(known), weights=weights),
        "jaccard": c.jaccard(sets, weights=weights),
        "kappa": c.defined_mean(by_label["kappa"]),
        "ac1": c.defined_mean(by_label["ac1"]),
        "alpha": c.alpha(codes, distance=c.masi(known), weights=weights),
    }


def _plain(values: c.Floats, *, name: str, settings: Agreement) -> Json:
    found = c.estimate(values, confidence=settings.confidence)
    plain: Json = {
        key: None if value is None else round(value, DIGITS) + 0.0
        for key, value in (("value", found.value), ("low", found.low), ("high", found.high))
    }
    if name in READ and found.value is not None:
        plain["word"] = c.landis_koch(found.value)
    if found.value is not None and found.defined < 1:
        plain["defined"] = round(found.defined, 3)
    return plain
