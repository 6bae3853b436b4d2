"""Build the report's sections that describe the corpus and what moderation systems flag in it.

They come from ``analysis.json``, ``moderation.json`` and the agreement of the raters; nothing is computed from items
here. A count that a stage hides is shown as "fewer than". Rates of flags have three decimals, as the paper prints them,
and count the judged items only: a refusal is never "not flagged".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.core.taxonomy import Scheme
from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report import charts
from pipelines.evaluate.report.charts import BLUE, ORANGE, Mark, Row, short
from pipelines.evaluate.report.page import Block, Notice, PageSection, points
from pipelines.evaluate.report.papers import Paper
from pipelines.evaluate.report.parts import fixed, interval, p_value, section, sections_of
from pipelines.metrics.label_tables import UNDEFINED, Sheet, percent

BLOCKS = {
    "visual": "Visual features",
    "text": "Length of texts",
    "default": "Words of our own list",
    "liwc": "LIWC",
    "nrc": "NRC emotion lexicon",
}
# Ours: plots of levels, and rows of the plot of effects, per factor; the tables have all
MOST_PLOTS, MOST_ROWS = 6, 12


def sections(metrics: Json | None, *, agreement: Json | None, scheme: Scheme, paper: Paper) -> list[PageSection]:
    if metrics is None:
        return []
    metrics = in_order(metrics)
    features = (
        (f"features-{block}", f"{title} by label", _block(block, metrics, agreement=agreement, scheme=scheme))
        for block, title in BLOCKS.items()
    )
    found = (
        ("labels-of-items", "Labels of the corpus", _labels(metrics, scheme=scheme, paper=paper)),
        ("labels-together", "Labels that occur together", _together(metrics, scheme=scheme)),
        ("items", "Months and lengths", _items(metrics)),
        *features,
        ("features-paper", "Features as the paper tested them", _as_the_paper(metrics, scheme=scheme)),
        ("features-reading", "How to read the tests", [points("analysis")] if metrics["family"] else []),
    )
    return sections_of(*((key, paper.titled(key, title), blocks) for key, title, blocks in found))


def in_order(metrics: Json) -> Json:
    """Return the content of ``analysis.json`` with labels, types, levels and lengths in the order of display."""
    order = metrics["order"]
    labels = {}
    for key in order["categories"]:
        if key in metrics["labels"]:
            counts = metrics["labels"][key]
            types = {"types": _by(counts["types"], order["types"][key])} if "types" in counts else {}
            labels[key] = {**counts, "labels": _by(counts["labels"], order["labels"][key]), **types}
    pairs = []
    for pair in metrics["pairs"]:
        rows, columns = (order["labels"][pair[side]] for side in ("rows", "columns"))
        tables = {name: _by({k: _by(v, columns) for k, v in pair[name].items()}, rows) for name in ("counts", "shares")}
        pairs.append({**pair, **tables})
    factors = {
        factor: {
            name: {**test, "levels": _by(test["levels"], order["levels"][factor])}
            for name, test in metrics["factors"][factor].items()
        }
        for factor in order["factors"]
    }
    lengths = {**metrics["lengths"], "classes": _by(metrics["lengths"]["classes"], order["lengths"])}
    return {**metrics, "labels": labels, "pairs": pairs, "factors": factors, "lengths": lengths}


def _by(values: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    return {name: values[name] for name in order if name in values}


def _labels(metrics: Json, *, scheme: Scheme, paper: Paper) -> Iterator[Block]:
    least = metrics["plan"]["least"]
    yield (
        f"{metrics['items']:,} items have gold; they come from {metrics['units']:,} authors or groups of "
        f"near-duplicates. {metrics['taken_down']:,} more were taken down. Counts of pairs, months and lengths below "
        f"{least} are hidden."
    )
    for key, counts in metrics["labels"].items():
        title = scheme.title_of(key)
        words = "items by label" if counts["kind"] == "single" else "items by label, several each"
        yield _counted(f"{title}: {words}", counts["labels"], whole=counts["items"], first="Label")
        if "types" in counts:
            caption = f"{paper.captions.get('types', '')} {title}: types, in percent of labels".strip()
            yield _counted(caption, counts["types"], whole=sum(counts["types"].values()), first="Type")
    rows = [
        (scheme.title_of(key), size, f"{n:,}", percent(n, counts["items"]), f"{counts['mean']:.2f}")
        for key, counts in metrics["labels"].items()
        if counts["kind"] == "multi"
        for size, n in counts["sizes"].items()
    ]
    if rows:
        yield Sheet("Labels per item, None not counted", ("Category", "Labels", "Items", "%", "Mean"), tuple(rows))


def _counted(caption: str, counts: Mapping[str, int], *, whole: int, first: str) -> Sheet:
    rows = tuple((name, f"{n:,}", percent(n, whole, digits=1)) for name, n in counts.items())
    bars = [Row(name, (Mark(counts[name], words=f"{n} ({share} %)"),)) for name, n, share in rows]
    return Sheet(caption, (first, "Items", "%"), rows, svg=charts.bars(bars, title=caption))


def _together(metrics: Json, *, scheme: Scheme) -> Iterator[Block]:
    least = metrics["plan"]["least"]
    for pair in metrics["pairs"]:
        columns = list(next(iter(pair["shares"].values())))
        values = tuple(tuple(cells[column] for column in columns) for cells in pair["shares"].values())
        rows = tuple(
            (label, *(_share(cells[c], n=pair["counts"][label][c], least=least) for c in columns))
            for label, cells in pair["shares"].items()
        )
        same = pair["rows"] == pair["columns"]
        second = ": labels of one item (diagonal: alone)" if same else f" by {scheme.title_of(pair['columns']).lower()}"
        title = f"{scheme.title_of(pair['rows'])}{second}, in percent of the row, and items"
        yield Sheet(title, ("Label", *columns), rows, values=values)


def _share(share: float | None, *, n: int | None, least: int) -> str:
    if n is None:
        return f"<{least}"
    return UNDEFINED if share is None else f"{100 * share:.0f} ({n:,})" if n else "0"


def _items(metrics: Json) -> Iterator[Block]:
    least = f"<{metrics['plan']['least']}"
    months, lengths = metrics["months"], metrics["lengths"]
    if months:
        caption = "Items with gold by month of creation"
        rows = tuple((month, least if n is None else f"{n:,}") for month, n in months.items())
        yield Sheet(caption, ("Month", "Items"), rows, svg=charts.columns([*months.items()], title=caption))
        if None in months.values():
            yield f"A dot marks a month that is hidden, because fewer than {least[1:]} authors posted in it."
    if lengths["n"]:
        caption = "Words per item"
        used = [i for i, n in enumerate(lengths["classes"].values()) if n != 0]
        classes = list(lengths["classes"].items())[used[0] : used[-1] + 1]
        rows = tuple((name, least if n is None else f"{n:,}") for name, n in classes)
        bars = [Row(name, (Mark(n, words=words),)) for (name, n), (_, words) in zip(classes, rows, strict=True)]
        yield Sheet(caption, ("Words", "Items"), rows, svg=charts.bars(bars, title=caption))
        low, middle, high = (short(q) for q in lengths["quartiles"])
        yield f"Words per item: mean {short(lengths['mean'])}, median {middle}, quartiles {low} and {high}."


def _block(block: str, metrics: Json, *, agreement: Json | None, scheme: Scheme) -> Iterator[Block]:
    """Yield the tests of one block of features by every factor, or why the block has none."""
    for lexicon in metrics["lexicons"]:
        if lexicon["name"] == block and lexicon["message"]:
            yield Notice(lexicon["message"])
        elif lexicon["name"] == block:
            skipped = f", {lexicon['skipped']:,} of its entries are not used" if lexicon["skipped"] else ""
            yield (
                f"Share of an item's words in each of {lexicon['categories']} categories of {lexicon['title']} "
                f"(SHA-256 {lexicon['sha256'][:16]}…{skipped})."
            )
    if block not in metrics["blocks"]:
        return
    missing = metrics["without"].get("picture" if block == "visual" else "text", 0)
    if missing != 0 and block != "text":
        what = "readable picture" if block == "visual" else "words"
        many = f"Fewer than {metrics['plan']['least']}" if missing is None else f"{missing:,}"
        yield f"{many} items have no {what}, and are not in these tests."
    rated = agreement["overall"]["categories"] if agreement and agreement.get("rounds") else {}
    for factor, features in metrics["factors"].items():
        tests = {name: features[f"{block}.{name}"] for name in metrics["blocks"][block]}
        yield from _factor(
            scheme.compared_by(factor), tests, plan=metrics["plan"], agreed=rated.get(factor), block=block
        )


def _factor(levels: str, tests: Mapping[str, Json], *, plan: Json, agreed: Json | None, block: str) -> Iterator[Block]:
    """Yield the tests of features; ``levels``: what items are compared by."""
    done = {name: test for name, test in tests.items() if "p" in test}
    by = f"{BLOCKS[block]} by {levels.lower()}"
    if not done:
        yield f"{by}: no feature varies in two levels with {plan['least']} units or more."
        return
    sure = [name for name, test in done.items() if test["significant"]]
    yield (
        f"{by}: {len(sure)} of {len(done)} features differ (Kruskal-Wallis, adjusted p at most "
        f"{plan['alpha']:g}). {_rated(agreed)}"
    )
    order = sorted(done, key=lambda name: (-done[name]["eta_squared"]["value"], name))
    caption = f"{by}: effect sizes" + (f", the {MOST_ROWS} largest" if len(order) > MOST_ROWS else "")
    effects = {name: done[name]["eta_squared"] for name in order[:MOST_ROWS]}
    drawn = [_dot(name_of(name), cell, filled=done[name]["significant"]) for name, cell in effects.items()]
    rows = tuple((name_of(name), *_cells(cell)) for name, cell in effects.items())
    svg = charts.dots(drawn, title=caption, zero=True, words=("significant", "not significant"))
    yield Sheet(caption, ("Feature", "η²", "Low", "High"), rows, svg=svg)
    yield from (_means(name, done[name], by=levels) for name in order[:MOST_PLOTS] if name in sure)
    yield _tests(f"{by}: tests", tests, agreed=agreed)
    yield _pairs(f"{by}: different pairs of levels", done)
    rows = tuple(
        (f"{name_of(name)}: {level}", f"{cell['n']:,}", *(short(cell[key]) for key in ("mean", "sd", "median")))
        for name, test in tests.items()
        for level, cell in test["levels"].items()
    )
    yield Sheet(f"{by}: means by level", ("Feature and level", "n", "Mean", "SD", "Median"), rows, "folded")


def _rated(agreed: Json | None) -> str:
    if agreed is None or agreed["alpha"]["value"] is None:
        return "The agreement of the raters is not known: no item of this corpus has two answers of annotation rounds."
    kappa = agreed["kappa"]["value"]
    mean = "" if kappa is None else f", mean κ {kappa:.2f}"
    alpha = interval(agreed["alpha"], scale=1, digits=2)
    return f"Agreement of the raters: α {alpha}{mean} over {agreed['items']:,} items."


def name_of(feature: str) -> str:
    """Return a feature's name for people, such as ``Words per sentence``."""
    return feature.replace("_", " ").strip().capitalize() if feature.islower() else feature


def _cells(cell: Json, *, digits: int = 3) -> Iterator[str]:
    return (fixed(cell[key], digits) for key in ("value", "low", "high"))


def _dot(label: str, cell: Json, *, filled: bool = True) -> Row:
    value = cell["value"] if "value" in cell else cell["mean"]
    return Row(label, (Mark(value, cell["low"], cell["high"], short(value), "filled" if filled else "open"),))


def _means(feature: str, test: Json, *, by: str) -> Sheet:
    caption = f"{name_of(feature)} by {by.lower()}: mean"
    dots = [_dot(f"{level} ({cell['n']:,})", cell) for level, cell in test["levels"].items()]
    rows = tuple(
        (level, f"{cell['n']:,}", *(short(cell[key]) for key in ("mean", "low", "high")))
        for level, cell in test["levels"].items()
    )
    svg = charts.dots(dots, title=caption, zero=False)
    return Sheet(caption, ("Level", "n", "Mean", "Low", "High"), rows, svg=svg)


def _tests(title: str, tests: Mapping[str, Json], *, agreed: Json | None) -> Sheet:
    alpha = fixed(agreed["alpha"]["value"] if agreed else None, 2)
    rows = []
    for name, test in tests.items():
        figures: Sequence[str] = (UNDEFINED,) * 8
        if "p" in test:
            adjusted = (p_value(test[key]) for key in ("p", "p_adjusted", "q"))
            figures = (short(test["h"]), str(test["df"]), *adjusted, *_cells(test["eta_squared"]))
        rows.append((name_of(name), f"{test['n']:,}", alpha, *figures))
    columns = ("Feature", "n", "α of raters", "H", "df", "p", "p (adjusted)", "q", "η²", "Low", "High")
    return Sheet(title, columns, tuple(rows))


def _pairs(title: str, tests: Mapping[str, Json]) -> Sheet:
    rows = tuple(
        (
            f"{name_of(name)}: {pair['a']} / {pair['b']}",
            f"{test['levels'][pair['a']]['n']:,} / {test['levels'][pair['b']]['n']:,}",
            f"{pair['z']:.2f}",
            p_value(pair["p"]),
            p_value(pair["p_adjusted"]),
            *_cells(pair["delta"], digits=2),
        )
        for name, test in tests.items()
        for pair in test.get("pairs", ())
        if pair["significant"]
    )
    columns = ("Feature and levels", "n", "Dunn's z", "p", "p (adjusted)", "Cliff's δ", "Low", "High")
    return Sheet(title, columns, rows)


def _as_the_paper(metrics: Json, *, scheme: Scheme) -> Iterator[Block]:
    """Yield the tests of mode ``paper``, each feature by itself, beside those of all features together."""
    for factor, tests in metrics.get("paper", {}).items():
        by, sure = scheme.compared_by(factor).lower(), sum(test["significant"] for test in tests.values())
        yield (
            f"By {by}: {sure} of {len(tests)} features differ (Kruskal-Wallis of all items, p at most "
            f"{metrics['plan']['alpha']:g}, not adjusted for the number of features)."
        )
        rows = []
        for feature, test in tests.items():
            block, _, name = feature.partition(".")
            pairs = (f"{p['a']} / {p['b']} ({p_value(p['p_adjusted'])})" for p in test["pairs"] if p["significant"])
            cells = (f"{test['n']:,}", short(test["h"]), p_value(test["p"]), "; ".join(pairs) or UNDEFINED)
            rows.append((f"{BLOCKS[block]}: {name_of(name)}", *cells))
        columns = ("Feature", "n", "H", "p", "Different pairs (Dunn, p by Bonferroni in the feature)")
        yield Sheet(f"Each feature by itself, by {by}", columns, tuple(rows), "folded")


FLAGS = {"self_harm": "Suicide/self-harm", "overall": "Any harm"}
EVERY = "all"
HIDDEN = "hidden"
KINDS = ("present", "absent")
OUTCOMES = ("vote", "refused", "malformed", "failed", "abstained")


def moderation_sections(metrics: Json | None, *, paper: Paper) -> list[PageSection]:
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
    yield moderation_pairs(metrics)
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


def moderation_pairs(metrics: Json) -> Sheet:
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
