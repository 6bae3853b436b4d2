"""Write the methods paragraphs of a report from the parameters and metrics, for a paper that uses the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.evaluate.model_scores import Json
from pipelines.report.analysis_parts import levels_of
from pipelines.report.parts import noun_of, title_of

# The sources of runs (``evaluate.json``) whose models were fitted with a seed.
FITTED = ("fitted",)
INPUTS = {"text": "text", "image": "picture", "both": "text and picture"}


def paragraphs(
    metrics: Json,
    *,
    analysis: Json | None,
    agreement: Json | None,
    source: Mapping[str, str],
    synthetic: bool = False,
    moderation: Json | None = None,
) -> Iterator[str]:
    """Yield what was run, in sentences: dataset, raters, models with their seeds, metrics, and tests.

    Args:
        source: ``subreddits``, ``first_month`` and ``last_month`` of the corpus's parameters, as words.
    """
    noun = noun_of(metrics)
    items = listed([f"{n:,} {noun} of {split}" for split, n in metrics["items"].items()])
    kind = "simulated" if synthetic else "public"
    yield (
        f"Dataset. The {noun} are {kind} submissions to {source['subreddits']}{_period(analysis, source)}, without "
        f"near-duplicates; those of one author or near-duplicate group are in one split. Gold labels of the scheme "
        f"{metrics['scheme']} exist for {items}. {_raters(agreement)}"
    )
    yield from _models(metrics, noun=noun)
    if analysis and analysis["family"]:
        yield _tests(analysis)
    if moderation and moderation["systems"]:
        yield _moderation(moderation)


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _period(analysis: Json | None, source: Mapping[str, str]) -> str:
    months = sorted(analysis["months"]) if analysis else []
    if months:
        return f" (those with gold: {months[0]} to {months[-1]})" if len(months) > 1 else f" of {months[0]}"
    return f" from {source['first_month']} to {source['last_month'] or 'the last collected month'}"


def _raters(agreement: Json | None) -> str:
    if not agreement or not agreement.get("rounds"):
        return "The labels are not from annotation rounds of this corpus."
    categories = agreement["overall"]["categories"].items()
    known = {title_of(key).lower(): each for key, each in categories if each["alpha"]["value"] is not None}
    alphas = ", ".join(f"{title} {each['alpha']['value']:.2f} ({each['items']:,})" for title, each in known.items())
    return f"Krippendorff's alpha between raters (items): {alphas}." if alphas else ""


def _models(metrics: Json, *, noun: str) -> Iterator[str]:
    models: dict[str, dict[str, Any]] = {}
    for task in metrics["tasks"].values():
        for name, model in task["models"].items():
            seeds = [*models.get(name, {}).get("seeds", ()), *model["seeds"]]
            models[name] = {**model, "seeds": [*dict.fromkeys(seeds)]}
    if not models:
        return
    sampling = metrics["sampling"]
    kinds = sampling["intervals"]
    yield f"Models. {'; '.join(_model(name, model) for name, model in sorted(models.items()))}."
    yield (
        f"Metrics. Macro-F1 and the further scores of this page are computed on the {noun} of {metrics['split']}, "
        f"without unanswered {noun} unless stated. Intervals ({100 * sampling['confidence']:g} %) have "
        f"{sampling['resamples']:,} resamples (seed {sampling['seed']}); groups are the {noun} of one author or "
        f"near-duplicate group. Of scores: {kinds['figures']}; of rates: {kinds['rates']}; of differences: "
        f"{kinds['pairs']}. Pairs of models are compared with a paired bootstrap, a randomisation test and McNemar's "
        f"test; p-values are adjusted by Holm's method within a task and test."
    )


def _model(name: str, model: Json) -> str:
    """Return a model's name, kind and base, and its seeds; a model that is not fitted has runs or none."""
    details = [model["kind"] or "no longer in params.yaml"]
    if model["base"]:
        details.append(str(model["base"]))
    if model["source"] in FITTED:
        details.append(f"{'seeds' if len(model['seeds']) > 1 else 'seed'} {', '.join(map(str, model['seeds']))}")
    elif len(model["seeds"]) > 1:
        details.append(f"{len(model['seeds'])} runs")
    return f"{name} ({', '.join(details)})"


def _tests(analysis: Json) -> str:
    plan = analysis["plan"]
    factors = listed([levels_of(key, scheme=analysis["scheme"]).lower() for key in analysis["order"]["factors"]])
    blocks = {"visual": "visual features", "text": "lengths of texts", "default": "words of our own list"}
    names = [blocks.get(block, block.upper()) for block in (*blocks, "liwc", "nrc") if block in analysis["blocks"]]
    digests = [
        f"{x['name'].upper()} {x['sha256']}"
        for x in analysis["lexicons"]
        if x["categories"] and x["name"] not in blocks
    ]
    files = f" SHA-256 of the lexicons: {', '.join(digests)}." if digests else ""
    return (
        f"Features. {sentence(listed(names))} were compared by {factors} with Kruskal-Wallis tests, on one item "
        f"of each author or near-duplicate group (drawn with seed {plan['seed']}; {analysis['units']:,} units of "
        f"{analysis['items']:,} items) and in levels of at least {plan['least']} units. P-values are adjusted by "
        f"Bonferroni for all {analysis['family']} tests; after a significant test, pairs of levels were compared with "
        f"Dunn's test, confirmed by the Wilcoxon-Mann-Whitney test and adjusted for all pairs of all tests (alpha "
        f"{plan['alpha']:g} for any false finding). Of features for which most units have one value, p-values at most "
        f"{plan['alpha']:g} were confirmed by permutation. Effect sizes are eta squared of H, with an interval from "
        f"the noncentral chi-square distribution, and Cliff's delta with DeLong's variance "
        f"({100 * plan['confidence']:g} %).{files}"
    )


def sentence(words: str) -> str:
    """Return words that begin with a capital letter."""
    return words[:1].upper() + words[1:]


def _moderation(audit: Json) -> str:
    systems = listed(
        [
            f"{name} ({each['model']}, {INPUTS[each['input']]}"
            + (f", flagged from severity {each['flag_from']}" if "flag_from" in each else "")
            + f"; {each['outcomes'].get('vote', 0):,} judged)"
            for name, each in audit["systems"].items()
        ]
    )
    return (
        f"Moderation. {audit['items']:,} items with gold were sent to {systems}, each once. Items without a complete "
        "answer are in no rate. Rates have Wilson's interval at the effective sample size of the groups (author or "
        "near-duplicates), means and differences a percentile bootstrap over groups. Systems were compared on the "
        "items that both judged with McNemar's test and a randomisation test by group, adjusted by Holm's method over "
        f"all pairs and flags. Cells of fewer than {audit['least']} groups are not shown."
    )
