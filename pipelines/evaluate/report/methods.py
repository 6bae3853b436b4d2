"""Write the methods paragraphs of a report from the parameters and metrics, for a paper that uses the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.core.taxonomy import Scheme
from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report.page import text

# The sources of runs (``evaluate.json``) whose models were fitted with a seed.
FITTED = ("fitted",)
INPUTS = {"text": "text", "image": "picture", "both": "text and picture"}


def paragraphs(
    metrics: Json,
    *,
    scheme: Scheme,
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
    yield text(
        "dataset",
        noun=scheme.items,
        kind="simulated" if synthetic else "public",
        subreddits=source["subreddits"],
        period=_period(analysis, source),
        scheme=metrics["scheme"],
        items=listed([f"{n:,} {scheme.items} of {split}" for split, n in metrics["items"].items()]),
        raters=_raters(agreement, scheme=scheme),
    )
    yield from _models(metrics, noun=scheme.items)
    if analysis and analysis["family"]:
        yield _tests(analysis, scheme=scheme)
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


def _raters(agreement: Json | None, *, scheme: Scheme) -> str:
    if not agreement or not agreement.get("rounds"):
        return "The labels are not from annotation rounds of this corpus."
    categories = agreement["overall"]["categories"].items()
    known = {scheme.title_of(key).lower(): each for key, each in categories if each["alpha"]["value"] is not None}
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
    values = {"split": metrics["split"], "percent": 100 * sampling["confidence"], **sampling["intervals"]}
    yield text("models", models="; ".join(_model(name, model) for name, model in sorted(models.items())))
    yield text("metrics", noun=noun, resamples=sampling["resamples"], seed=sampling["seed"], **values)


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


def _tests(analysis: Json, *, scheme: Scheme) -> str:
    plan = analysis["plan"]
    blocks = {"visual": "visual features", "text": "lengths of texts", "default": "words of our own list"}
    names = [blocks.get(block, block.upper()) for block in (*blocks, "liwc", "nrc") if block in analysis["blocks"]]
    lexicons = [x for x in analysis["lexicons"] if x["categories"] and x["name"] not in blocks]
    digests = ", ".join(f"{x['name'].upper()} {x['sha256']}" for x in lexicons)
    values = {**plan, **{key: analysis[key] for key in ("units", "items", "family")}}
    return text(
        "features",
        **values,
        names=sentence(listed(names)),
        factors=listed([scheme.compared_by(key).lower() for key in analysis["order"]["factors"]]),
        percent=100 * plan["confidence"],
        files=f" SHA-256 of the lexicons: {digests}." if digests else "",
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
    return text("audit", items=audit["items"], systems=systems, least=audit["least"])
