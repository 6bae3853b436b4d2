"""Plot Krippendorff's alpha of each category per batch with its bootstrap interval, for the stage ``agreement``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.metrics.agreement_coefficients import READINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "agreement.png"
COLOUR, GREY = "#0072B2", "#8a8a8a"  # blue of Okabe and Ito's palette for colour-blind readers
INCHES = {"panel": 1.75, "batch": 0.55, "least": 7.5, "most": 30.0}


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
        lows = [_bound(found[key]["alpha"], key="low") for _, found in points for key in shown]
        panels[0].set_yticks([n / 5 for n in range(-5, 6)])
        panels[0].set_ylim(min([0.0, *(low for low in lows if not math.isnan(low))]) - 0.05, 1.05)
        if points:
            panels[-1].set_xticks(range(len(points)), [name for name, _ in points], rotation=45, ha="right")
            panels[-1].set_xlabel("round, batch (in the order of annotation)")
        else:
            panels[0].set_title("", loc="left")
            panels[0].text(
                0.5, 0.5, "no item has two answers yet", ha="center", color=GREY, transform=panels[0].transAxes
            )
        figure.supylabel("Krippendorff's α with bootstrap interval", fontsize=10)
        path.mkdir(parents=True, exist_ok=True)
        figure.savefig(path / FILE, dpi=110, metadata={"Software": None})


def _points(metrics: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    points = []
    rounds = metrics["rounds"]
    for name in sorted(rounds, key=lambda n: rounds[n]["order"]):
        batches = rounds[name]["batches"]
        for batch in sorted(batches, key=int):
            categories = batches[batch]["categories"]
            if any(found["items"] for found in categories.values()):
                points.append((f"{name}, {batch}" if len(batches) > 1 else name, categories))
    return points


def _panel(panel: Axes, *, points: Sequence[tuple[str, Mapping[str, Any]]], category: str) -> None:
    alphas = [found[category]["alpha"] for _, found in points]
    xs = [x for x, alpha in enumerate(alphas) if alpha["value"] is not None]
    lows, highs = ([_bound(alphas[x], key=key) for x in xs] for key in ("low", "high"))
    for end, word in READINGS:
        panel.axhline(end, color="#dddddd", linewidth=0.7, zorder=0)
        panel.text(1.005, end - 0.1, word, color=GREY, fontsize=7, va="center", transform=panel.get_yaxis_transform())
    panel.vlines(xs, lows, highs, color=COLOUR, linewidth=1.4, alpha=0.6)
    # an undefined value breaks the line
    values = [_bound(alpha, key="value") for alpha in alphas]
    panel.plot(range(len(values)), values, color=COLOUR, linewidth=1, marker="o", markersize=4.5)
    for x in sorted(set(range(len(alphas))) - set(xs)):
        panel.text(x, 0.02, "undefined", color=GREY, fontsize=6, rotation=90, ha="center", va="bottom")
    panel.set_title(category, loc="left", fontsize=10)
    panel.set_xlim(-0.5, max(len(points), 1) - 0.5)
    panel.set_xticks([])
    panel.spines[["top", "right"]].set_visible(False)


def _bound(figure: Mapping[str, Any], *, key: str) -> float:
    """Return a bound, or the value itself if no resample has a bound; NaN if it is undefined."""
    value = figure["value"] if figure[key] is None else figure[key]
    return math.nan if value is None else float(value)
