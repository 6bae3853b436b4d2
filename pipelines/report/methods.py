"""Write the methods paragraphs of a report from the parameters and metrics, for a paper that uses the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipelines.evaluate.model_scores import Json
from pipelines.report.parts import noun_of, title_of


def paragraphs(
    metrics: Json, *, analysis: Json | None, agreement: Json | None, source: Mapping[str, str]
) -> Iterator[str]:
    """Yield what was run, in sentences: dataset, raters, models with their seeds, metrics, and tests.

    Args:
        metrics: ``evaluate.json``.
        analysis: ``analysis.json``, if the stage has run.
        agreement: ``agreement.json``.
        source: ``subreddits``, ``first_month`` and ``last_month`` of the corpus, as words.
    """
    noun = noun_of(metrics)
    items = ", ".join(f"{n:,} of {split}" for split, n in metrics["items"].items())
    yield (
        f"Dataset. The {noun} are public submissions to {source['subreddits']}, {source['first_month']} to "
        f"{source['last_month']}, without near-duplicates; those of one author or near-duplicate group are in one "
        f"split. Gold labels of the scheme {metrics['scheme']} exist for {items}. {_raters(agreement)}"
    )
    yield from _models(metrics, noun=noun)
    if analysis and analysis["family"]:
        yield _tests(analysis)


def _raters(agreement: Json | None) -> str:
    if not agreement or not agreement.get("rounds"):
        return "The labels are not from annotation rounds of this corpus."
    found = agreement["overall"]["categories"]
    alphas = [
        f"{title_of(key).lower()} {each['alpha']['value']:.2f} ({each['items']:,})"
        for key, each in found.items()
        if each["alpha"]["value"] is not None
    ]
    return f"Krippendorff's alpha between raters (items): {', '.join(alphas)}." if alphas else ""


def _models(metrics: Json, *, noun: str) -> Iterator[str]:
    runs: dict[str, list[str]] = {}
    for task in metrics["tasks"].values():
        for name, model in task["models"].items():
            runs.setdefault(name, []).extend(str(seed) for seed in model["seeds"])
    if not runs:
        return
    seeds = "; ".join(f"{name} ({', '.join(dict.fromkeys(found))})" for name, found in sorted(runs.items()))
    sampling = metrics["sampling"]
    yield f"Models, with the seeds of their runs: {seeds}."
    yield (
        f"Metrics. Macro-F1 and the further scores of this page are computed on the {noun} of {metrics['split']}, "
        f"without unanswered {noun} unless stated. Intervals ({100 * sampling['confidence']:g} %) are bootstrap "
        f"intervals with {sampling['resamples']:,} resamples (seed {sampling['seed']}) of groups of near-duplicates, "
        "and of runs. Pairs of models are compared with a paired bootstrap, a randomisation test and McNemar's test; "
        "p-values are adjusted by Holm's method within a task and test."
    )


def _tests(analysis: Json) -> str:
    plan = analysis["plan"]
    factors = ", ".join(title_of(key).lower() for key in analysis["factors"])
    blocks = {"visual": "visual features", "text": "lengths of texts", "default": "our own word list"}
    names = [blocks.get(block, block.upper()) for block in analysis["blocks"]]
    digests = [
        f"{x['name'].upper()} {x['sha256']}"
        for x in analysis["lexicons"]
        if x["categories"] and x["name"] not in blocks
    ]
    files = f" SHA-256 of the lexicons: {', '.join(digests)}." if digests else ""
    return (
        f"Features. {', '.join(names).capitalize()} were compared by {factors} with Kruskal-Wallis tests, on one item "
        f"of each author or near-duplicate group (drawn with seed {plan['seed']}; {analysis['units']:,} units of "
        f"{analysis['items']:,} items) and in levels of at least {plan['least']} units. P-values are adjusted by "
        f"Bonferroni for all {analysis['family']} tests; after a significant test, pairs of levels were compared with "
        f"Dunn's test, confirmed by the Wilcoxon-Mann-Whitney test and adjusted for all pairs of all tests (alpha "
        f"{plan['alpha']:g} for any false finding). Effect sizes are eta squared of H, with an interval from the "
        f"noncentral chi-square distribution, and Cliff's delta with DeLong's variance "
        f"({100 * plan['confidence']:g} %).{files}"
    )
