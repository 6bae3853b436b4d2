"""Build the report section on moderation systems: flags and scores by level, paired tests, and unanswered items.

All values come from ``metrics/<corpus>/moderation.json`` (see ``evaluate/moderation/moderation.py``). Rates have three
decimals, as the paper prints them; a rate counts the judged items only, and a refusal is never "not flagged".
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report import charts
from pipelines.evaluate.report.charts import BLUE, ORANGE, Mark, Row
from pipelines.evaluate.report.page import Block, PageSection, points
from pipelines.evaluate.report.papers import Paper
from pipelines.evaluate.report.parts import fixed, interval, p_value, section
from pipelines.metrics.label_tables import UNDEFINED, Sheet

FLAGS = {"self_harm": "Suicide/self-harm", "overall": "Any harm"}
EVERY = "all"
HIDDEN = "hidden"
KINDS = ("present", "absent")
OUTCOMES = ("vote", "refused", "malformed", "failed", "abstained")


def sections(metrics: Json | None, *, paper: Paper) -> list[PageSection]:
    """Return the section on moderation, or nothing if no system was asked."""
    if not metrics or not metrics["systems"]:
        return []
    return [
        section("moderation", paper.titled("moderation", "What moderation systems flag"), _blocks(metrics, paper=paper))
    ]


def _blocks(metrics: Json, *, paper: Paper) -> Iterator[Block]:
    groups = f"{metrics['groups']:,} authors or groups of near-duplicates"
    yield f"{metrics['items']:,} items with gold, of {groups}, were sent."
    for flag, title in FLAGS.items():
        yield rates(metrics, flag=flag, title=title, paper=paper)
    yield from _trends(metrics)
    for name, system in metrics["systems"].items():
        if system["scores"]:
            yield scores(name, system, levels=metrics["levels"], beside=metrics["beside"])
            yield from _difference(name, system, beside=metrics["beside"])
    yield pairs(metrics)
    yield unanswered(metrics)
    yield points("moderation")


def rates(metrics: Json, *, flag: str, title: str, paper: Paper) -> Sheet:
    """Return flag rates by level: for each system the paper's, ours, and flagged of judged items."""
    levels = (*metrics["levels"], EVERY)
    columns, cells = [metrics["by"].capitalize()], [[*metrics["levels"], "All"]]
    for name, system in metrics["systems"].items():
        published = {level: rate for level, _, rate in paper.cells("flags", system=system["kind"], flag=flag)}
        if published:
            columns.append(f"{name}, paper")
            cells.append([fixed(published.get(level), 3) for level in levels])
        ours = [system["flags"][flag][level] for level in levels]
        columns += [f"{name} [95 %]", f"{name}, flagged"]
        cells.append([interval(each, scale=1, digits=3) for each in ours])
        cells.append([HIDDEN if each["n"] is None else f"{each['flagged']:,}/{each['n']:,}" for each in ours])
    return Sheet(f"{title}: flag rates by {metrics['by']}", tuple(columns), tuple(zip(*cells, strict=True)))


def _trends(metrics: Json) -> Iterator[str]:
    trends = []
    for name, system in metrics["systems"].items():
        trend = system.get("trend", {}).get("self_harm", {"z": None})
        n = system["flags"]["self_harm"][EVERY]["n"]
        if trend["z"] is not None:
            judged = "" if n is None else f" of {n:,} judged items"
            p = p_value(trend["p"])
            trends.append(f"{name}, z = {trend['z']:.1f}{judged}, p {'' if p.startswith('<') else '= '}{p}")
    if trends:
        yield (
            f"Trend of the flags for self-harm over severity (Cochran-Armitage, groups ignored, not adjusted for the "
            f"number of systems): {'; '.join(trends)}."
        )


def scores(name: str, system: Json, *, levels: list[str], beside: str) -> Sheet:
    """Draw the mean self-harm score by level, and by the presence of what ``beside`` names."""
    by_level = system["scores"]
    kinds = KINDS if any(by_level[EVERY][kind]["n"] != 0 for kind in KINDS) else (EVERY,)
    caption = f"{name}: mean self-harm score ({system['scale']}) by level"
    caption += f" and {_lower(beside)}" if len(kinds) > 1 else ""
    colours = dict(zip(kinds, (BLUE, ORANGE), strict=False))
    bars, rows = [], []
    for level in (*levels, EVERY):
        title, cells, marks = "All" if level == EVERY else level, [], []
        for kind, colour in colours.items():
            cell = by_level[level][kind]
            missing = f"{HIDDEN if cell['n'] is None else 'no item'}, {kind}"
            words = missing if cell["mean"] is None else f"{cell['mean']:.2f} {kind}"
            marks.append(Mark(cell["mean"], cell["low"], cell["high"], words, kind=colour))
            cells += [interval(cell, scale=1, digits=2), HIDDEN if cell["n"] is None else f"{cell['n']:,}"]
        bars.append(Row(title, tuple(marks)))
        rows.append((title, *cells))
    heads = [head for kind in kinds for head in (f"{kind.capitalize()} [95 %]", f"{kind.capitalize()}, n")]
    keys = [(colour, kind) for kind, colour in colours.items()]
    svg = charts.bars(bars, title=caption, most=float(system["scale"].rpartition(" ")[2]), keys=keys)
    return Sheet(caption, ("Level", *heads), tuple(rows), svg=svg)


def _difference(name: str, system: Json, *, beside: str) -> Iterator[str]:
    difference = system.get("difference")
    if difference and difference["n"] is None:
        yield f"{name}: the difference by {_lower(beside)} is hidden, because one kind is of few authors."
    elif difference and difference["value"] is not None:
        apart = interval(difference, scale=1, digits=2)
        yield f"{name}: {_lower(beside)}, mean score of present minus absent within levels, over all levels: {apart}."


def _lower(title: str) -> str:
    return f"{title[:1].lower()}{title[1:]}"


def pairs(metrics: Json) -> Sheet:
    """Return the paired tests between systems, on the items that both judged."""
    rows = tuple(
        (
            f"{pair['a']} against {pair['b']}",
            FLAGS[pair["flag"]],
            f"{pair['n']:,}",
            interval(pair["difference"], scale=1, digits=3),
            f"{pair['a_only']:,} / {pair['b_only']:,}",
            *(f"{p_value(pair['p'][test])} ({p_value(pair['holm'][test])})" for test in ("mcnemar", "randomisation")),
        )
        for pair in metrics["pairs"]
    )
    columns = ("A against B", "Flag", "Both judged", "Rate, A−B [95 %]", "Flagged alone: A / B")
    return Sheet("Paired tests", (*columns, "McNemar, p (Holm)", "Randomisation, p (Holm)"), rows, "folded")


def unanswered(metrics: Json) -> Sheet:
    """Return by system how many items were judged and why the others were not; refusals and failures stand apart."""
    rows = tuple(
        (
            name,
            f"{system['model']}, {system['input']}",
            *(f"{system['outcomes'].get(outcome, 0):,}" for outcome in OUTCOMES),
            f"{system['partial']:,}",
            ", ".join(f"{word} {n:,}" for word, n in system["reasons"].items()) or UNDEFINED,
        )
        for name, system in metrics["systems"].items()
    )
    outcomes = ("Judged", "Refused", "Malformed", "Failed", "Not sent")
    return Sheet("Outcomes", ("System", "Model and input", *outcomes, "Judged in part", "Reasons"), rows)
