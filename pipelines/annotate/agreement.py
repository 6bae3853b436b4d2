"""Compute inter-annotator agreement by category, batch and round, with intervals.

Every statistic covers the items that two or more people answered; a skipped item is not an answer. The figures of a
round show whether its agreement suffices to continue. Krippendorff's alpha comes first: it pools all answers, also of
annotators who rotate, whereas Cohen's kappa is a mean over pairs of annotators. Intervals are percentiles of a
bootstrap over groups of near-duplicates. The pooled figures (``overall``) cover the rounds whose manifest
sets ``agreement`` (FigSIM 3.3: the doubly annotated items of the large-scale round, without the pilot and calibration
rounds; CRADLE's Table 10: rounds 1 to 3). The figures of rounds with one annotator per item are undefined.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pipelines.annotate.manifest import RoundManifest, opened, rows
from pipelines.annotate.response_validation import SKIPPED
from pipelines.core.config.label import Agreement
from pipelines.core.taxonomy import Category, Scheme, load
from pipelines.core.taxonomy.guideline import offered
from pipelines.metrics import agreement_coefficients as c
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import SCHEME, Context, Stage
from pipelines.store.tables import Item

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Json: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, str, int]
"""An item (record, image) in a round, because an item counts for its own round only."""
DIGITS = 6  # finer than 1,000 resamples can resolve, coarser than floating-point error
# Landis and Koch's words describe agreement beyond chance.
READ = ("kappa", "weighted_kappa", "ac1", "alpha")
INTERVAL = {"method": "percentile bootstrap", "unit": "near-duplicate group"}
FILE = "agreement.png"
COLOUR, GREY = "#0072B2", "#8a8a8a"  # blue of Okabe and Ito's palette for colour-blind readers
INCHES = {"panel": 1.75, "batch": 0.55, "least": 7.5, "most": 30.0}


@dataclass
class OverlapAnswers:
    """All answers in one category; each item is identified by round, record id and image number.

    ``chosen[place][annotator]`` is the label set that the annotator chose for the item. ``skipped`` are the items that
    an annotator skipped, ``outside`` those with an answer outside the current scheme.
    """

    chosen: dict[Place, dict[str, frozenset[str]]] = field(default_factory=lambda: defaultdict(dict))
    skipped: set[Place] = field(default_factory=set)
    outside: set[Place] = field(default_factory=set)

    def doubles(self) -> list[Place]:
        """Return the sorted places (round, record id, image) that two or more annotators answered."""
        return sorted(place for place, by in self.chosen.items() if len(by) > 1)

    def left_out(self) -> dict[str, int]:
        """Count the items with fewer than two answers by reason (``outside_scheme``, ``skipped``, ``single``)."""
        less = (self.chosen.keys() | self.skipped | self.outside) - set(self.doubles())
        outside, skipped = less & self.outside, (less & self.skipped) - self.outside
        left = len(less) - len(outside) - len(skipped)
        return {"outside_scheme": len(outside), "skipped": len(skipped), "single": left}


def gather(rows: Iterable[Mapping[str, Any]], *, scheme: Scheme) -> dict[str, OverlapAnswers]:
    """Group rows of the table ``annotations`` by category; leave out label sets that the current scheme forbids."""
    grouped = {key: OverlapAnswers() for key in scheme.categories}
    for row in rows:
        answers = grouped.get(row["category"])
        if answers is None:
            continue
        place = (row["round"], row["record_id"], row["image"])
        labels = row["labels"]
        if isinstance(labels, list):
            category = scheme.categories[row["category"]]
            chosen = frozenset(labels) - _nothing(category)
            known = chosen <= set(measured(category)) and (category.kind == "multi" or len(chosen) == 1)
            if known:
                answers.chosen[place][row["annotator"]] = chosen
            else:
                answers.outside.add(place)
        elif row["outcome"] == SKIPPED:
            answers.skipped.add(place)
    return grouped


def measured(category: Category) -> tuple[str, ...]:
    """Return the labels for which agreement is computed: those shown to annotators, without the name of the empty set.

    FigSIM leaves "None" of its multi-label categories out (3.3); CRADLE's ``no_crisis`` is a label (Table 10).
    """
    return tuple(label.name for label in offered(category) if label.name not in _nothing(category))


def _nothing(category: Category) -> set[str]:
    empty = category.kind == "multi" and category.none is not None and category.none not in category.names
    return {str(category.none)} if empty else set()


STAGE = Stage(
    reads=("annotations", "dedupe"),
    params=("agreement", SCHEME),
)


def run(ctx: Context) -> Json:
    """Write ``metrics/<corpus>/agreement.json`` and ``snapshot/<corpus>/agreement/agreement.png``."""
    corpus, params, root = ctx.corpus, ctx.params, ctx.root
    scheme = load(params.corpora[corpus].scheme, root=root)
    rounds: list[tuple[RoundManifest, list[Json]]] = []
    for manifest in opened(root, corpus):
        if (annotations := rows(root, manifest, "annotations")) is not None:
            rounds.append((manifest, annotations))
    schemes = {m.round: load(m.scheme, root=root) for m, _ in rounds if m.scheme != scheme.name}
    clusters = root / "snapshot" / corpus / "dedupe" / "clusters.parquet"
    groups = {}
    if clusters.exists():  # else the stage `dedupe` has not run
        table = tables.read(clusters, name="clusters", columns=["record_id", "image", "cluster"])
        groups = dict(zip(tables.items_of(table), table["cluster"].to_pylist(), strict=True))
    metrics = measure(rounds, scheme=scheme, settings=params.agreement, groups=groups, schemes=schemes)
    draw_figure(metrics, categories=list(scheme.categories), path=root / "snapshot" / corpus / "agreement")
    write_metrics(metrics, root / "metrics" / corpus / "agreement.json")
    return summary(metrics)


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
    scope = Measurement(settings, groups or {}).scope
    described: Json = {}
    pooled: list[Mapping[str, Any]] = []
    published: list[str] = []
    for manifest, table in rounds:
        rows, own = list(table), (schemes or {}).get(manifest.round, scheme)
        batches = {b: [row for row in rows if row["batch"] == b] for b in sorted({row["batch"] for row in rows})}
        described[manifest.round] = {
            **scope(rows, scheme=own),
            "order": len(described),
            "opened": manifest.opened.date().isoformat(),
            "phase": manifest.phase,
            "agreement": manifest.agreement,
            "batches": {str(b): scope(part, scheme=own, labels=False) for b, part in batches.items()},
        }
        if own is not scheme:
            described[manifest.round]["scheme"] = own.name
        elif manifest.agreement:
            published.append(manifest.round)
            pooled += rows
    if not described:
        return {"rounds": {}}
    overall = {**scope(pooled, scheme=scheme), "rounds": published}
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


@dataclass(frozen=True)
class Measurement:
    """The figures of answers by the parameters of the stage and the groups of near-duplicates."""

    settings: Agreement
    groups: Mapping[Item, str]

    def scope(self, rows: Iterable[Mapping[str, Any]], *, scheme: Scheme, labels: bool = True) -> Json:
        """Return the figures of each category, and whether every defined kappa suffices."""
        answers = gather(rows, scheme=scheme)
        categories = {
            key: self.figures(answers[key], category=category, labels=labels)
            for key, category in scheme.categories.items()
        }
        kappas = [f["kappa"]["value"] for f in categories.values()]
        defined = [float(c.printed(value)) for value in kappas if isinstance(value, float)]
        enough = all(value >= self.settings.enough for value in defined) if defined else None
        return {"categories": categories, "sufficient": enough}

    def figures(self, answers: OverlapAnswers, *, category: Category, labels: bool = True) -> Json:
        """Compute all agreement figures of one category of a scheme from the annotators' ``answers``."""
        places = answers.doubles()
        names = measured(category)
        raters = sorted({annotator for place in places for annotator in answers.chosen[place]})
        sets = np.full((len(places), len(raters), len(names)), c.MISSING, dtype=np.int64)
        for i, place in enumerate(places):
            for annotator, chosen in answers.chosen[place].items():
                sets[i, raters.index(annotator)] = [name in chosen for name in names]
        digest = hashlib.sha256(f"{self.settings.seed}/{category.key}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        clusters = [self.groups.get((record, image), record) for _, record, image in places]
        drawn, of_item = np.unique(np.array(clusters, dtype=np.str_), return_inverse=True)
        # whole groups are drawn, because near-duplicates get similar answers
        weights = c.draws(len(drawn), resamples=self.settings.resamples, rng=rng)[:, of_item]
        multi = category.kind == "multi"
        by_label: dict[str, c.Floats] = {}
        if labels or multi:
            by_label = {name: c.by_label(sets, statistic=name, weights=weights) for name in ("kappa", "ac1")}
        if multi:
            values = _multi(sets, by_label=by_label, weights=weights)
        else:
            values = _single(sets, category=category, weights=weights)
        plain: Json = {name: self._plain(array, name=name) for name, array in values.items()}
        plain |= {"items": len(places), "groups": len(drawn), "annotators": len(raters), "left_out": answers.left_out()}
        plain["distance"] = "masi" if multi else "ordinal" if category.ordinal else "nominal"
        if multi:
            # labels that no annotator used are not part of the mean
            plain["labels_used"] = {name: int((~np.isnan(array[0])).sum()) for name, array in by_label.items()}
            plain["labels_offered"] = len(names)
        if labels:
            plain["labels"] = {
                label: {
                    "items": int((sets[:, :, i] == 1).any(axis=1).sum()),
                    **{name: self._plain(array[:, i], name=name) for name, array in by_label.items()},
                }
                for i, label in enumerate(names)
            }
        return plain

    def _plain(self, values: c.Floats, *, name: str) -> Json:
        estimate = c.estimate(values, confidence=self.settings.confidence)
        ends = {name: getattr(estimate, name) for name in ("value", "low", "high")}
        plain: Json = {name: None if end is None else round(end, DIGITS) + 0.0 for name, end in ends.items()}
        if name in READ and estimate.value is not None:
            plain["word"] = c.landis_koch(estimate.value)
        if estimate.value is not None and estimate.defined < 1:
            plain["defined"] = round(estimate.defined, 3)
        return plain


def _single(sets: c.Codes, *, category: Category, weights: c.Floats) -> dict[str, c.Floats]:
    """Return the figures of a category whose answers are exactly one label each."""
    size = sets.shape[2]
    codes = np.where((sets == c.MISSING).any(axis=2), c.MISSING, sets.argmax(axis=2))
    statistics = {"observed": c.observed, "kappa": c.kappa, "ac1": c.ac1}
    values = {name: statistic(codes, classes=size, weights=weights) for name, statistic in statistics.items()}
    if not category.ordinal:
        return {**values, "alpha": c.alpha(codes, distance=c.nominal(size), weights=weights)}
    # the task's classes define the order: FigSIM's attempt and death are one degree (SPEC 1.1)
    merge = category.task_merge
    merged = [*measured(category)]
    if merge:
        merged = [next(iter(category.merge(frozenset({name}), merge=merge))) for name in merged]
    degrees = list(dict.fromkeys(merged))
    ranks = np.array([degrees.index(name) for name in merged])
    ordered = np.where(codes == c.MISSING, c.MISSING, ranks[codes])
    values["weighted_kappa"] = c.kappa(ordered, classes=len(degrees), weights=weights, quadratic=True)
    values["alpha"] = c.ordinal_alpha(ordered, classes=len(degrees), weights=weights)
    return values


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


def draw_figure(metrics: Mapping[str, Any], *, categories: Sequence[str], path: Path) -> None:
    """Write ``agreement.png`` to the folder ``path``: a panel per category, over the doubly annotated batches (x axis).

    A batch with an undefined alpha has a tick on the axis and no point. The same metrics give the same bytes.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = _points(metrics)
    shown = categories if points else categories[:1]
    width = min(INCHES["most"], max(INCHES["least"], 2 + INCHES["batch"] * len(points)))
    # the library's defaults, not those of a user's matplotlibrc
    with mpl.rc_context(mpl.rcParamsDefault):
        figure = Figure(figsize=(width, 1.2 + INCHES["panel"] * len(shown)), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for panel, category in zip(panels, shown, strict=True):
            _panel(panel, points=points, category=category)
        # the panels share an axis that reaches the lowest interval; set ticks first, because they would widen it
        lows = [low for key in shown for low in _alphas(points, category=key)[1]]
        panels[0].set_yticks([n / 5 for n in range(-5, 6)])
        panels[0].set_ylim(float(np.nanmin([0.0, *lows])) - 0.05, 1.05)
        if points:
            panels[-1].set_xticks(range(len(points)), [name for name, _ in points], rotation=45, ha="right")
            panels[-1].set_xlabel("round, batch (in the order of annotation)")
        else:
            panels[0].set_title("", loc="left")
            middle = {"ha": "center", "transform": panels[0].transAxes}
            panels[0].text(0.5, 0.5, "no item has two answers yet", color=GREY, **middle)
        figure.supylabel("Krippendorff's α with bootstrap interval", fontsize=10)
        path.mkdir(parents=True, exist_ok=True)
        figure.savefig(path / FILE, dpi=110, metadata={"Software": None})


def _points(metrics: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the batches in which some item has two answers, each as its name and its categories."""
    points = []
    rounds = metrics["rounds"]
    for name in sorted(rounds, key=lambda n: rounds[n]["order"]):
        batches = rounds[name]["batches"]
        for batch in sorted(batches, key=int):
            categories = batches[batch]["categories"]
            if any(figures["items"] for figures in categories.values()):
                points.append((f"{name}, {batch}" if len(batches) > 1 else name, categories))
    return points


def _panel(panel: Axes, *, points: Sequence[tuple[str, Mapping[str, Any]]], category: str) -> None:
    values, lows, highs = _alphas(points, category=category)
    xs = np.flatnonzero(~np.isnan(values))
    for end, word in c.READINGS:
        panel.axhline(end, color="#dddddd", linewidth=0.7, zorder=0)
        panel.text(1.005, end - 0.1, word, color=GREY, fontsize=7, va="center", transform=panel.get_yaxis_transform())
    panel.vlines(xs, lows[xs], highs[xs], color=COLOUR, linewidth=1.4, alpha=0.6)
    # an undefined value breaks the line
    panel.plot(range(len(values)), values, color=COLOUR, linewidth=1, marker="o", markersize=4.5)
    for x in np.flatnonzero(np.isnan(values)):
        panel.text(x, 0.02, "undefined", color=GREY, fontsize=6, rotation=90, ha="center", va="bottom")
    panel.set_title(category, loc="left", fontsize=10)
    panel.set_xlim(-0.5, max(len(points), 1) - 0.5)
    panel.set_xticks([])
    panel.spines[["top", "right"]].set_visible(False)


def _alphas(points: Sequence[tuple[str, Mapping[str, Any]]], *, category: str) -> c.Floats:
    """Return value, low and high (3, batches) of each batch's alpha, NaN where it is undefined."""
    alphas = [batch[category]["alpha"] for _, batch in points]
    rows = [[alpha["value" if alpha[end] is None else end] for alpha in alphas] for end in ("value", "low", "high")]
    return np.array(rows, dtype=np.float64).reshape(3, len(alphas))
