"""Write the report of a corpus's models beside the paper's numbers, as HTML and Markdown (the stage ``report``).

The stage reads ``metrics/<corpus>/evaluate.json``, for posts also the metrics of their silver labels, and the paper's
numbers. These inputs contain only numbers and names of labels and models, so no text, image or id can reach the page.
The same metrics always give the same bytes. The scheme determines the sections: FigSIM's and CRADLE's have their
papers' tables, any other scheme has the sections that need no paper.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.core.config.params import Params
from pipelines.core.errors import DataError
from pipelines.core.taxonomy import load
from pipelines.evaluate.model_scores import Json
from pipelines.report import analysis_parts, dvc_data, export, figsim, methods, moderation_tables, prompt_notes
from pipelines.report import page as report_page
from pipelines.report import parts as report_parts
from pipelines.report.cradle import parts as cradle_parts
from pipelines.report.page import Block, Notice, Page
from pipelines.report.papers import stands_for
from pipelines.report.parts import best_of, figures_of, noun_of, section
from pipelines.store.metrics_file import read_metrics

SANDBOX = "These are the sandbox's synthetic {noun} and tiny models."
FORM = "The paper's numbers beside them show the format and are not for comparison."
FILES = "Every table of this page, and the numbers of every plot, are in the folder tables as CSV and LaTeX."
OTHER = (
    "The paper's numbers are from its own {noun}, split and runs. Another corpus, even one collected in the same way, "
    "is not a replication: the two columns show orders of magnitude, not which models are better."
)
WITH_PAPER = ("figsim", "cradle")
TABLES = "tables"  # the folder of their files


def run(corpus: str, *, params: Params, root: Path = Path()) -> dict[str, Any]:
    """Write a corpus's report as ``report.html`` and ``report.md`` into ``snapshot/<corpus>/report``.

    Also writes the data that ``dvc metrics show`` and ``dvc plots show`` read (:mod:`pipelines.report.dvc_data`).

    Returns:
        ``best``: by task the best model, its macro-F1 and the baselines' (0 to 1); ``models``: number of
        models by task; ``sha256`` of both files; ``tables``: number of tables in
        ``tables``, each as CSV and LaTeX.
    """
    metrics = measured(corpus, root=root)
    page = page_of(corpus, metrics=metrics, params=params, root=root)
    folder = root / "snapshot" / corpus / "report"
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, text in (("report.html", report_page.html(page)), ("report.md", report_page.markdown(page))):
        content = text.encode("utf-8")
        # in a clone the file may be a link into DVC's cache, whose object must not change
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()
    dvc_data.write(metrics, corpus=corpus, root=root)
    return {**summary(metrics), "sha256": digests, "tables": len(export.write(page, folder / TABLES))}


def measured(corpus: str, *, root: Path) -> Json:
    """Return the content of a corpus's ``evaluate.json``."""
    metrics = read_metrics(root / "metrics" / corpus / "evaluate.json")
    if not metrics:
        raise DataError("NotEvaluated", corpus=corpus)
    return metrics


def page_of(corpus: str, *, metrics: Json, params: Params, root: Path) -> Page:
    """Return the report page of a corpus from the metrics below ``root``; ``metrics`` is its ``evaluate.json``."""
    folder, sources = root / "metrics" / corpus, params.corpora[corpus]
    silver = read_metrics(folder / f"silver-{params.ensemble(corpus)}.json") or None
    source = {
        "subreddits": ", ".join(f"r/{name}" for name in sources.subreddits),
        "first_month": sources.first_month,
        "last_month": sources.last_month or "",
    }
    return build(
        metrics,
        corpus=corpus,
        synthetic=params.sandbox is not None,
        title=title_of(corpus, params=params, root=root),
        silver=silver and silver | next(iter(silver["categories"].values())),
        moderation=read_metrics(folder / "moderation.json") or None,
        models={name: params.models[name].model_dump(mode="json") for name in params.train.rows[corpus].models},
        analysis=read_metrics(folder / "analysis.json") or None,
        agreement=read_metrics(folder / "agreement.json") or None,
        source=source,
        prompts=prompt_notes.origins(corpus, params=params, root=root),
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
    title: str = "The benchmark",
    silver: Json | None = None,
    models: Mapping[str, Json] | None = None,
    analysis: Json | None = None,
    agreement: Json | None = None,
    source: Mapping[str, str] | None = None,
    moderation: Json | None = None,
    prompts: Mapping[str, Sequence[Json]] | None = None,
) -> Page:
    """Build a corpus's report page from its metrics."""
    metrics = prompt_notes.noted(report_parts.in_order(metrics), prompts=prompts or {})
    if metrics["scheme"] in WITH_PAPER:
        metrics = told_apart(metrics, paper=metrics["scheme"])
    items = ", ".join(f"{n:,} {split}" for split, n in metrics["items"].items())
    noun = noun_of(metrics)
    head: list[Block] = [f"Corpus {corpus}, {noun} with gold: {items}. Scored on {metrics['split']}."]
    published = metrics["scheme"] in WITH_PAPER
    if synthetic:
        head.append(Notice(SANDBOX.format(noun=noun) + (f" {FORM}" if published else "")))
    elif published:
        head.append(Notice(OTHER.format(noun=noun)))
    head.append(report_parts.scoreboard(metrics) if len(metrics["tasks"]) == 1 else report_parts.glance(metrics))
    if metrics["scheme"] == "figsim":
        sections = figsim.sections(metrics)
    else:
        sections = cradle_parts.sections(metrics, silver=silver, models=models or {})
    if asked := prompt_notes.sheet(metrics, prompts=prompts or {}):
        sections.insert(1, section("prompts", "Prompts", [asked, prompt_notes.EXPLAINED]))
    more = moderation_tables.sections(moderation, scheme=metrics["scheme"])
    more += analysis_parts.sections(analysis, agreement=agreement, paper=published)
    if source:
        described = {"analysis": analysis, "agreement": agreement, "moderation": moderation}
        sentences = methods.paragraphs(metrics, source=source, synthetic=synthetic, **described)
        more.append(section("methods", "Methods, for a paper", [*sentences, FILES]))
    ending = [part for part in sections if part.key in ("discrepancies", "reading")]
    return Page(title, tuple(head), (*(part for part in sections if part not in ending), *more, *ending))


def told_apart(metrics: Json, *, paper: str) -> Json:
    """Return the content of ``evaluate.json`` with each model named ``entry (weights)`` that is not its row's model."""
    names = {
        name: f"{name} ({model['base']})"
        for task in metrics["tasks"].values()
        for name, model in task["models"].items()
        if not stands_for(paper, model["name"], base=model["base"])
    }
    if not names:
        return metrics
    decoding = {names.get(name, name): settings for name, settings in metrics["decoding"].items()}
    tasks = {key: _renamed(task, names=names) for key, task in metrics["tasks"].items()}
    return {**metrics, "decoding": decoding, "tasks": tasks}


def _renamed(task: Json, *, names: dict[str, str]) -> Json:
    models = {
        names.get(name, name): {**model, "untuned": names.get(model["untuned"], model["untuned"])}
        for name, model in task["models"].items()
    }
    pairs = [{**pair, **{side: names.get(pair[side], pair[side]) for side in ("a", "b")}} for pair in task["pairs"]]
    return {**task, "models": models, "best": names.get(task["best"], task["best"]), "pairs": pairs}
