"""Write the report of a corpus's models beside the paper's numbers, as HTML and Markdown.

The stage reads ``metrics/<corpus>/evaluate.json`` and other metrics of the corpus, and the paper about its label scheme
(``papers/<name>.yaml``). These inputs contain only numbers and names of labels and models, so no text, image or id can
reach the page. The same metrics always give the same bytes. Without a paper the page has the same tables without its
rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.core import rows
from pipelines.core.config.params import ALL_CORPORA, Params
from pipelines.core.errors import DataError
from pipelines.core.taxonomy import Scheme, load
from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report import analysis_parts, papers, parts
from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report.page import Block, Notice, Page, text
from pipelines.evaluate.report.parts import best_of, figures_of, section
from pipelines.evaluate.report.results import BASELINES, Results, arranged, noted, plain
from pipelines.evaluate.report.sections import sections
from pipelines.metrics.label_tables import UNDEFINED, Sheet
from pipelines.store.approvals import sources_of, stated
from pipelines.store.metrics_file import read_metrics
from pipelines.store.stage import SCHEME, Context, Stage

TABLES = "tables"  # the folder of their files


STAGE = Stage(
    reads=("agreement.json", "analysis.json", "evaluate.json", "moderation.json", "papers", "split.json"),
    params=(
        "report",
        "sandbox",
        "prompts",
        "sources",
        "train.rows",
        "rows.answers",
        "ensembles",
        "models",
        "corpora.{corpus}.first_month",
        "corpora.{corpus}.last_month",
        SCHEME,
        "corpora.{corpus}.subreddits",
    ),
    writes=(
        "report",
        "metrics/all-corpora/labels/{corpus}.json",
        "metrics/all-corpora/scores/{corpus}.json",
        "metrics/all-corpora/summary/{corpus}.json",
    ),
)


def run(ctx: Context) -> dict[str, Any]:
    """Write a corpus's report as ``report.html`` and ``report.md`` into ``snapshot/<corpus>/report``.

    Also writes the data that ``dvc metrics show`` and ``dvc plots show`` read.

    Returns:
        ``best``: by task the best model, its macro-F1 and the baselines' (0 to 1); ``models``: number of
        models by task; ``sha256`` of both files; ``tables``: number of tables in
        ``tables``, each as CSV and LaTeX.
    """
    corpus, params, root = ctx.corpus, ctx.params, ctx.root
    metrics = measured(corpus, root=root)
    page = page_of(corpus, metrics=metrics, params=params, root=root)
    folder = root / "snapshot" / corpus / "report"
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, content in (
        ("report.html", report_page.html(page).encode()),
        ("report.md", report_page.markdown(page).encode()),
    ):
        # in a clone the file may be a link into DVC's cache, whose object must not change
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()
    scheme = load(params.corpora[corpus].scheme, root=root)
    write_dvc_data(arranged(metrics, scheme=scheme), corpus=corpus, root=root)
    return {**summary(metrics), "sha256": digests, "tables": len(report_page.write_tables(page, folder / TABLES))}


def measured(corpus: str, *, root: Path) -> Json:
    metrics = read_metrics(root / "metrics" / corpus / "evaluate.json")
    if not metrics:
        raise DataError("NotEvaluated", corpus=corpus)
    return metrics


def page_of(corpus: str, *, metrics: Json, params: Params, root: Path) -> Page:
    """Return the report page of a corpus from the metrics below ``root``; ``metrics`` is its ``evaluate.json``."""
    folder, sources = root / "metrics" / corpus, params.corpora[corpus]
    source = {
        "subreddits": ", ".join(f"r/{name}" for name in sources.subreddits),
        "first_month": sources.first_month,
        "last_month": sources.last_month or "",
    }
    approved = stated(sources_of(corpus, params=params))
    return build(
        {**metrics, "approvals": {name: plain(each) for name, each in approved.items()}},
        corpus=corpus,
        root=root,
        synthetic=params.sandbox is not None,
        title=title_of(corpus, params=params, root=root),
        silver=read_metrics(folder / f"silver-{params.ensemble(corpus)}.json") or None,
        moderation=read_metrics(folder / "moderation.json") or None,
        models={name: params.models[name].model_dump(mode="json") for name in params.fitted(corpus)},
        analysis=read_metrics(folder / "analysis.json") or None,
        agreement=read_metrics(folder / "agreement.json") or None,
        source=source,
        prompts=prompt_origins(corpus, params=params, root=root),
        published=read_metrics(folder / "split.json").get("published"),
    )


def title_of(corpus: str, *, params: Params, root: Path) -> str:
    """Return the title of a corpus's report: that of section ``report``, or that of the label scheme."""
    return params.report.titles.get(corpus, load(params.corpora[corpus].scheme, root=root).title)


def summary(metrics: Json) -> dict[str, Any]:
    """Return by task the best model, its macro-F1 and the baselines', and the number of models, for the log."""
    best: dict[str, Any] = {}
    for key, task in metrics["tasks"].items():
        figure = figures_of(best_of(task)).get("macro_f1", {}).get("mean")
        baselines = {name: row["figures"]["macro_f1"] for name, row in task["baselines"].items()}
        best[key] = {"model": task["best"], "macro_f1": figure, "baselines": baselines}
    return {"best": best, "models": {key: len(task["models"]) for key, task in metrics["tasks"].items()}}


def build(
    metrics: Json,
    *,
    corpus: str,
    synthetic: bool,
    root: Path = Path(),
    title: str = "The benchmark",
    silver: Json | None = None,
    models: Mapping[str, Json] | None = None,
    analysis: Json | None = None,
    agreement: Json | None = None,
    source: Mapping[str, str] | None = None,
    moderation: Json | None = None,
    prompts: Mapping[str, Sequence[Json]] | None = None,
    published: Json | None = None,
) -> Page:
    """Build a corpus's report page from its metrics."""
    scheme = load(metrics["scheme"], root=root)
    paper, noun = papers.about(scheme.name, root=root), scheme.items
    # entries with other weights than the paper's row of their name
    others = {
        name: f"{name} ({model['base']})"
        for task in metrics["tasks"].values()
        for name, model in task["models"].items()
        if not paper.stands_for(model["name"], base=model["base"])
    }
    metrics = noted(metrics, notes=prompt_notes(prompts or {}), names=others)
    results = Results(arranged(metrics, scheme=scheme, silver=silver, entries=models or {}), scheme, paper)
    metrics = results.data
    items = ", ".join(f"{n:,} {split}" for split, n in metrics["items"].items())
    head: list[Block] = [f"Corpus {corpus}, {noun} with gold: {items}. Scored on {metrics['split']}."]
    if synthetic:
        head.append(Notice(text("sandbox_paper" if paper.name else "sandbox", noun=noun)))
    elif paper.name:
        head.append(Notice(text("other", noun=noun)))
    head += published_split(published, test=metrics["split"], noun=noun)
    head += [*results.sheets("models_of_one_task")] if len(results.tasks) == 1 else [parts.glance(metrics)]
    found = sections(results)
    if asked := prompts_sheet(metrics, prompts=prompts or {}):
        found.insert(1, section("prompts", "Prompts", [asked, text("prompts")]))
    more = analysis_parts.moderation_sections(moderation, paper=paper)
    more += analysis_parts.sections(analysis, agreement=agreement, scheme=scheme, paper=paper)
    if source:
        described = {"analysis": analysis, "agreement": agreement, "moderation": moderation}
        sentences = methods_paragraphs(metrics, scheme=scheme, source=source, synthetic=synthetic, **described)
        more.append(section("methods", "Methods, for a paper", [*sentences, text("files")]))
    ending = [part for part in found if part.key in ("discrepancies", "reading")]
    return Page(title, tuple(head), (*(part for part in found if part not in ending), *more, *ending))


def published_split(published: Json | None, *, test: str, noun: str) -> list[Block]:
    """Return what a reader must know of a published split: its members, and what leaks; nothing of a split of ours."""
    if not published:
        return []
    shown = (
        f"{name} {n['placed']:,} of {n['members']:,}, {n['deleted']:,} deleted and {n['missing']:,} missing"
        for name, n in published["splits"].items()
    )
    counts = {key: f"{published[key]:,}" for key in ("near_duplicates", "authors")}
    leaks = published["splits"][test]["leaks"]
    beside = [Notice(text("leaks", leaks=f"{leaks:,}", noun=noun))] if leaks else []
    return [text("published", splits="; ".join(shown), **counts), *beside]


DIGITS = 4


def write_dvc_data(metrics: Json, *, corpus: str, root: Path) -> None:
    """Write what ``dvc metrics show`` and ``dvc plots show`` read, from ``evaluate.json`` as arranged for the report.

    ``dvc.yaml`` names the folders, not the files: DVC reports an error for a file that a corpus does not have yet. They
    are beside the metrics of single corpora, in ``metrics/all-corpora``, a name that no corpus can have: ``summary``
    (``test`` (scored items), ``models``, ``macro_f1`` of each task's best model), ``scores`` (of each model, baselines
    included) and ``labels`` (of each task's best model).
    """
    tasks = metrics["tasks"]
    for kind, content in {"summary": _summary(tasks), "scores": _scores(tasks), "labels": _labels(tasks)}.items():
        path = root / "metrics" / ALL_CORPORA / kind / f"{corpus}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n")


def _summary(tasks: Json) -> Json:
    best = {key: _macro_f1(parts.best_of(task)) for key, task in tasks.items()}
    return {
        "test": max((task["n"] for task in tasks.values()), default=0),
        "models": len({name for task in tasks.values() for name in task["models"]}),
        "macro_f1": {key: value for key, value in best.items() if value is not None},
    }


def _scores(tasks: Json) -> list[dict[str, Any]]:
    rows = []
    for task in tasks.values():
        values = {name: _macro_f1(model) for name, model in sorted(task["models"].items())}
        values |= {BASELINES[name]: row["figures"]["macro_f1"] for name, row in task["baselines"].items()}
        rows += [
            {"model": f"{task['title']}: {name}", "macro_f1": _rounded(value)}
            for name, value in values.items()
            if value is not None
        ]
    return rows


def _labels(tasks: Json) -> list[dict[str, Any]]:
    rows = []
    for task in tasks.values():
        best = parts.best_of(task)
        for label in task["labels"] if best and best["valid"] else ():
            value = best["valid"]["labels"][label]["f1"]["mean"] if best and task["support"].get(label) else None
            if value is not None:
                rows.append({"label": f"{task['title']}: {label}", "f1": _rounded(value)})
    return rows


def _macro_f1(model: Json | None) -> float | None:
    return _rounded(parts.figures_of(model).get("macro_f1", {}).get("mean"))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


MARKS = {"learnt": "prompt has rules learnt from the paper's test errors", "own": "prompt of the team's own folder"}
SHORT = 12


def prompt_origins(corpus: str, *, params: Params, root: Path) -> dict[str, list[Json]]:
    """Return the origins of the prompts of each model in ``evaluate.json``, as far as metrics below ``root`` tell."""
    folder = root / "metrics" / corpus

    def of(name: str) -> list[Json]:
        metrics = read_metrics(folder / f"{name}.json")
        return [metrics["prompt"]] if metrics.get("prompt") else []

    by_model: dict[str, list[Json]] = {}
    for row in rows.read(root).answers.values():
        if row.corpus == corpus and (entry := params.models.get(row.model)):
            own = [*of(f"predict-{row.name}"), *(of(f"train-{row.name}") if row.subset else ())]
            members = params.ensembles[entry.silver].members if entry.silver else ()
            labellers = (*members, *((entry.votes,) if entry.votes and not row.subset else ()))
            found = own or [origin for name in labellers for origin in of(f"votes-{name}")]
            by_model.setdefault(row.shown, []).extend(found)
    return {name: each for name, each in by_model.items() if each}


def prompt_notes(prompts: Mapping[str, Sequence[Json]]) -> dict[str, list[str]]:
    """Return what is noted beside the rows of models because of their prompts."""
    return {
        name: [mark for kind, mark in MARKS.items() if any(origin[kind] for origin in origins)]
        for name, origins in prompts.items()
    }


def prompts_sheet(metrics: Json, *, prompts: Mapping[str, Sequence[Json]]) -> Sheet | None:
    """Return a table of whose prompt each evaluated model was asked with, or ``None`` if no metrics tell."""
    names = {name for task in metrics["tasks"].values() for name in task["models"]}
    rows = [
        (
            name,
            "the team's" if origin["own"] else "ours",
            origin["digest"][:SHORT],
            (origin["own"] or "")[:SHORT] or UNDEFINED,
            "; ".join(origin["learnt"]) or "none",
        )
        for name in sorted(names & prompts.keys())
        for origin in {json.dumps(each, sort_keys=True): each for each in prompts[name]}.values()
    ]
    whose = ("Whose prompt", "Its digest", "Digest of prompts.folder", "Rules learnt from printed test errors")
    return Sheet("Prompts that the models were asked with", ("Model", *whose), tuple(rows)) if rows else None


# The sources of runs (``evaluate.json``) whose models were fitted with a seed.
FITTED = ("fitted",)
INPUTS = {"text": "text", "image": "picture", "both": "text and picture"}


def methods_paragraphs(
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
    if leaks := [f"{key}: {task['leaks']:,}" for key, task in sorted(metrics["tasks"].items()) if task.get("leaks")]:
        yield text("methods_leaks", noun=noun, leaks=", ".join(leaks), scores=", ".join(_leak_free_scores(metrics)))
    yield text("metrics", noun=noun, resamples=sampling["resamples"], seed=sampling["seed"], **values)


def _leak_free_scores(metrics: Json) -> Iterator[str]:
    for key, task in sorted(metrics["tasks"].items()):
        for name, model in sorted(task["models"].items()):
            valid = (model.get("leak_free") or {}).get("valid")
            if valid and (score := valid["figures"]["macro_f1"]["mean"]) is not None:
                yield f"{name} ({key}) {100 * score:.1f}"


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
