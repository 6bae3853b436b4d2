"""Gather the numbers of ``corpus status`` from the newest commit of the corpus branch, without recomputing them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.table import Table

from pipelines.annotate.manifest import opened
from pipelines.collect.month_ledger import coverage_of
from pipelines.collect.refresh_store import RefreshStore
from pipelines.core import rows
from pipelines.core.config.params import Params, leaves, load
from pipelines.core.config.settings import Settings
from pipelines.core.process import now, write_private
from pipelines.label import votes_report
from pipelines.registry import show as show_models
from pipelines.registry import versions
from pipelines.registry.journal import Journal
from pipelines.store.metrics_file import read_metrics
from pipelines.store.vault import checks
from pipelines.store.vault.vault import Vault
from pipelines.takedown import receipts
from pipelines.workspace.clone import Workspace, workspace


def gather(settings: Settings) -> dict[str, Any]:
    """Collect the numbers that `corpus status --json` prints; parts without data are left out.

    The parts of each declared corpus are under ``corpora.<corpus>``.
    """
    with workspace(settings) as clone:
        params = load(clone.path)
        corpora = {corpus: _parts(clone.path, corpus, settings=settings) for corpus in params.corpora}
        for corpus, part in _coverage(clone, params=params, settings=settings).items():
            corpora[corpus]["coverage"] = part
        status: dict[str, Any] = {"commit": clone.head, "corpora": corpora}
    with Vault.existing(settings) as vault:
        status["vault"] = vault.counts()
        with vault.database.reading() as connection:
            for corpus, parts in corpora.items():
                if unchecked := checks.never_checked(connection, corpus=corpus):
                    parts["deletions"] = {"never_checked": unchecked}
    with Journal.of(settings) as journal:
        status["registry"] = {model.pop("name"): model for model in show_models.summary(journal)} or None
    takedowns = receipts.told(settings, now=now())
    status["takedowns"] = takedowns if takedowns["open"] or takedowns["done"] else None
    return {key: value for key, value in status.items() if value is not None}


def _coverage(clone: Workspace, *, params: Params, settings: Settings) -> dict[str, dict[str, Any]]:
    """Return, for each corpus, the months with gaps and what waits in the store of refreshes, if it has any of both."""
    by_corpus = {corpus: coverage_of(clone, corpus) for corpus in params.corpora}
    with RefreshStore.existing(settings.refresh_url) as store:
        if store:
            from pipelines.collect import refresh

            for corpus in filter(params.listing, params.corpora):
                part = refresh.ledger(corpus, params=params, store=store)
                by_corpus[corpus] |= part | {"revise": ", ".join(part["revise"]) or "none"}
    return {corpus: part for corpus, part in by_corpus.items() if part}


def _parts(root: Path, corpus: str, *, settings: Settings) -> dict[str, Any]:
    """Return the metrics of one corpus by part."""
    folder = root / "metrics" / corpus
    names = ("quality", "dedupe", "split", "evaluate", "batch_predict")
    score, dedupe, split, evaluated, predicted = (read_metrics(folder / f"{name}.json") for name in names)
    parts: dict[str, Any] = some(score, "collect", "ocr", "truth")
    if dedupe:
        parts["dedupe"] = some(dedupe, "pairs", "dropped") | some(score.get("truth") or {}, "precision", "recall")
    if split:
        known = {key: split[key] for key in ("separated_pairs", "withheld") if split.get(key)}
        shown = ("sizes", "excluded", "max_deviation", "mean_deviation", "leakage")
        if published := split.get("published"):
            known |= {"published_leaks": {name: counts["leaks"] for name, counts in published["splits"].items()}}
        parts["split"] = some(split, *shown) | known | _labels(split.get("labels") or {})
    if evaluated:
        parts["benchmark"] = {task: _benchmark(task_metrics) for task, task_metrics in evaluated["tasks"].items()}
    if compared := {name: _drift(model["drift"]) for name, model in predicted.items() if model.get("drift")}:
        parts["drift"] = compared
    parts |= _annotation(root, corpus) | _imports(root, corpus)
    if "votes" in (voted := votes_report.gather(root, corpus)):
        parts["votes"] = votes_report.summary(votes_report.count_hits(voted, settings))
    return parts


def some(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the values of these names that there are."""
    return {name: values[name] for name in names if name in values}


def _labels(labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deviation of the labels in the split, and that of a new version if this one does not use them."""
    if not labels:
        return {}
    part = some(labels, "items", "mean_deviation") | {key: labels[key] for key in ("partial",) if labels.get(key)}
    if labels.get("unused"):
        part["in_new_version"] = labels["new_version"]["mean_deviation"]
    return {"labels": part | {"unused": labels.get("unused", False)}}


def _drift(drift: Mapping[str, Any]) -> dict[str, Any]:
    newest = drift["newest"] or {"month": None, "exceeded": ()}
    shown = {"months": drift["months"], "drifted": len(drift["exceeded"])}
    return shown | {"newest": newest["month"], "exceeded": ", ".join(newest["exceeded"]) or "none"}


def _benchmark(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return each model's macro-F1 on its valid answers, with its interval, and the majority baseline's."""
    undefined = {"figures": {"macro_f1": dict.fromkeys(("mean", "low", "high"))}}
    scores = {name: (model["valid"] or undefined)["figures"]["macro_f1"] for name, model in task["models"].items()}
    majority = task["baselines"]["majority"]["figures"]["macro_f1"]
    shown = {name: some(cell, "mean", "low", "high") for name, cell in scores.items()}
    for name, model in task["models"].items():
        if clean := model.get("leak_free"):  # of a published split
            figure = (clean["valid"] or undefined)["figures"]["macro_f1"]
            shown[f"{name}, leak-free"] = some(figure, "mean", "low", "high")
    return {"majority": majority, **shown}


def _imports(root: Path, corpus: str) -> dict[str, Any]:
    """Return by imported dataset its items and, where the corpus has pictures, those whose picture is there."""
    paths = sorted((root / "annotations" / corpus).glob("*/import.json"))
    return (
        {"imports": {path.parent.name: some(read_metrics(path), "items", "pictures") for path in paths}}
        if paths
        else {}
    )


def _annotation(root: Path, corpus: str) -> dict[str, Any]:
    """Return the rounds of a corpus, and each category's kappa: overall as in both papers, else of the last round."""
    rounds = {
        manifest.round: f"{manifest.status}, {manifest.decision.reason}" if manifest.decision else manifest.status
        for manifest in opened(root, corpus)
    }
    if not rounds:
        return {}
    part: dict[str, Any] = {"rounds": rounds}
    measured = read_metrics(root / "metrics" / corpus / "agreement.json")
    if measured_rounds := measured.get("rounds"):
        overall = measured["overall"]
        shown = overall if overall["rounds"] else max(measured_rounds.values(), key=lambda each: each["order"])
        part["agreement"] = {key: figures["kappa"]["value"] for key, figures in shown["categories"].items()}
    return {"annotation": part}


def remember(settings: Settings, *, corpus: str, logged: Mapping[str, Any]) -> None:
    """Note what :func:`track` returned for the Corpus page: run and report of the newest commit of each corpus."""
    if "run" in logged:
        run = {"run": logged["run"], "report": versions.mlflow_web(logged.get("report"))}
        write_private(_tracked(settings), json.dumps(tracked(settings) | {corpus: run}) + "\n")


def tracked(settings: Settings) -> dict[str, Any]:
    """Return what :func:`remember` noted, by corpus."""
    try:
        return dict(json.loads(_tracked(settings).read_bytes()))
    except (OSError, ValueError):
        return {}


def _tracked(settings: Settings) -> Path:
    return settings.home / "summary" / "tracked.json"


def track(settings: Settings, *, corpus: str) -> dict[str, Any]:
    """Log a corpus's numbers of `corpus status` to one MLflow run for each commit of the corpus branch, its tag.

    The run also gets the evaluation tables of the corpus's models, and the published report; the runs that trained
    these models get their scores on test.

    Returns:
        ``run`` (its id) and, if there is one, ``report`` (its URL); or ``skipped`` with the reason if
        ``MLFLOW_TRACKING_URI`` is not set.
    """
    if not settings.mlflow_tracking_uri:
        return {"skipped": "MLFLOW_TRACKING_URI is not set"}
    import mlflow

    status = gather(settings)
    mlflow.set_tracking_uri(settings.mlflow_tracking_uri)
    experiment = mlflow.set_experiment(versions.numbers_experiment(corpus)).experiment_id
    of_commit = f"tags.{versions.COMMIT} = '{status['commit']}'"
    if known := mlflow.search_runs([experiment], filter_string=of_commit, output_format="list"):
        return {"run": known[0].info.run_id}
    title = f"{corpus} at {status['commit'][:12]}"
    with mlflow.start_run(experiment_id=experiment, run_name=title) as active:
        mlflow.set_tag(versions.COMMIT, status["commit"])
        numbers = {
            ".".join(map(str, key)): float(value)
            for key, value in leaves(status["corpora"].get(corpus, {}))
            if isinstance(value, int | float)
        }
        mlflow.log_metrics(numbers)
        result = {"run": active.info.run_id}
        with workspace(settings, revision=status["commit"]) as clone:
            evaluated = read_metrics(clone.path / "metrics" / corpus / "evaluate.json")
            if evaluated:
                for file, columns in evaluation_tables(evaluated).items():
                    mlflow.log_table(columns, file)
                _log_test_scores(scores_of_runs(clone.path, corpus=corpus, metrics=evaluated))
            # the published report, which contains no items
            folder, reported = f"snapshot/{corpus}/report", f"report@{corpus}" in clone.lock()
            if reported:
                clone.checkout(folder)
                mlflow.log_artifacts(str(clone.path / folder), "report")
        address = versions.mlflow_web(settings.mlflow_tracking_uri) or settings.mlflow_tracking_uri
        if reported:
            where = f"{address}/#/experiments/{experiment}/runs/{active.info.run_id}"
            result["report"] = f"{where}/artifacts/{versions.REPORT}"
    return result


def _log_test_scores(scores: Mapping[str, Mapping[str, float]]) -> None:
    """Add to each training run its scores on test; a run that was deleted meanwhile is passed over."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException

    client, at = MlflowClient(), int(now().timestamp() * 1000)
    for run, values in scores.items():
        with suppress(MlflowException):
            known = client.get_run(run).data.metrics
            new = [Metric(name, value, at, 0) for name, value in values.items() if known.get(name) != value]
            if new:
                client.log_batch(run, metrics=new)


Columns = dict[str, list[Any]]
"""A table by column, as ``MlflowClient.log_table`` takes it."""
FOLDER = "evaluation"  # of a run's artifacts
BY_LABEL = ("f1", "precision", "recall")
FIGURES = ("macro_f1", "weighted_f1", "exact")


def evaluation_tables(metrics: Mapping[str, Any]) -> dict[str, Columns]:
    """Return the tables of ``evaluate.json`` by file: ``scores.json`` (by task and model), ``labels.json``."""
    scores, labels = [], []
    for key, task in sorted(metrics["tasks"].items()):
        for name, model in sorted(task["models"].items()):
            valid = model["valid"] or {"figures": {}, "labels": {}}
            row = {"task": key, "model": name, "kind": model["kind"] or "", "runs": model["runs"], "items": task["n"]}
            scores.append(row | _cells(valid["figures"], FIGURES))
            labels += [
                {"task": key, "model": name, "label": label, "items": task["support"].get(label, 0)}
                | _cells(valid["labels"].get(label, {}), BY_LABEL)
                for label in task["labels"]
            ]
    return {
        f"{FOLDER}/{name}.json": {column: [row[column] for row in table] for column in table[0]}
        for name, table in (("scores", scores), ("labels", labels))
        if table
    }


def _cells(scores: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    ends = {"": "mean", "_low": "low", "_high": "high"}
    return {f"{name}{suffix}": (scores.get(name) or {}).get(end) for name in names for suffix, end in ends.items()}


def scores_of_runs(root: Path, *, corpus: str, metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the scores on test by MLflow run: ``test_macro_f1`` and others; a missing answer counts as wrong.

    ``metrics`` is the ``evaluate.json`` of the corpus. Training runs have ended before these scores are computed.
    """
    folder, by_run = root / "metrics" / corpus, dict[str, dict[str, float]]()
    models = [(key, *model) for key, task in metrics["tasks"].items() for model in task["models"].items()]
    seeds = [(key, name, *part) for key, name, model in models for part in model.get("by_seed", {}).items()]
    fitted = {
        (fit.task, fit.shown, str(fit.seed)): fit.name for fit in rows.read(root).fits.values() if fit.corpus == corpus
    }
    for task, name, seed, part in seeds:
        scores = (part.get("all") or {}).get("figures") or {}
        file = folder / f"train-{fitted.get((task, name, seed))}.json"
        if run := (read_metrics(file).get("weights") or {}).get("run"):
            by_run[run] = {f"test_{key}": scores[key] for key in FIGURES if scores.get(key) is not None}
    return by_run


# The column of numbers that belong to no corpus.
ALL = "all"
CELL = {"mean", "low", "high"}
# Shown in points of 100, as in both papers.
POINTS = "benchmark"
# Beside the counts, if records were taken down: these stages do not run for that.
LAST_RUN = "Counts of dedupe, sample, gold and split are of their last run: what was taken down since is still in them."
# The table shows nothing of how it was made; `--json` has all.
LEFT_OUT = {"max_deviation", "mean_deviation", "unused", "engine"}


def table(status: Mapping[str, Any]) -> Table:
    """Format the numbers of :func:`gather` as a table."""
    made = Table(title=f"corpus at {status['commit'][:12]}", title_justify="left", caption_justify="left")
    if (status.get("takedowns") or {}).get("done"):
        made.caption = LAST_RUN
    cells: dict[str, dict[tuple[str, int], dict[str, str]]] = {}
    for corpus, parts in status["corpora"].items():
        for part, value in parts.items():
            for number, text in _rows(part, value):
                cells.setdefault(part, {}).setdefault((number, -1), {})[corpus] = text
    whole = {key: value for key, value in status.items() if key not in ("corpora", "commit")}
    others = [(part, *row) for part, value in whole.items() for row in _rows(part, value)]
    for place, (part, number, text) in enumerate(others):
        cells.setdefault(part, {})[number, place] = {ALL: text}
    made.add_column("part")
    made.add_column("number")
    columns = [*status["corpora"], *([ALL] if others else [])]
    for column in columns:
        made.add_column(column, justify="right", overflow="fold")
    for part, lines in cells.items():
        for place, ((number, _), numbers) in enumerate(lines.items()):
            made.add_row("" if place else part, number, *(numbers.get(column, "") for column in columns))
        made.add_section()
    return made


def _rows(part: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield name and text of every number of a part, with nested names joined."""
    if not isinstance(value, Mapping):
        yield "", text_of(value)
        return
    for key, inner in value.items():
        if key in LEFT_OUT:
            continue
        if isinstance(inner, Mapping) and not inner.keys() >= CELL:
            for name, text in _rows(part, inner):
                yield f"{key}: {name}" if name else key, text
        else:
            yield key, text_of(inner, scale=100 if part == POINTS else 1)


def text_of(value: Any, *, scale: int = 1) -> str:
    """Format a number for a cell: counts with separators, rates with three decimals, scores with intervals."""
    if isinstance(value, Mapping):
        mean, low, high = (text_of(value[key], scale=scale) for key in ("mean", "low", "high"))
        return mean if "–" in (low, high) else f"{mean} [{low}, {high}]"
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{scale * value:.1f}" if scale > 1 else f"{value:.3f}"
