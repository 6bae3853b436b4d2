"""Arrange the metrics of a corpus for its report: in the order of display, with titles and what tables compare.

A task of ``evaluate.json`` (:mod:`pipelines.evaluate.evaluate`) gets ``title`` and, by model or by row: ``scored``
(models that answered, and baselines), ``about``, ``best_models``, ``order``, ``tuned``, ``unanswered``, ``on_dev``,
``review``, ``leak_free``, ``cost``, ``calibrated``, ``alerts``, ``queue``, ``later``, ``transfer``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy.guideline import offered
from pipelines.evaluate.model_scores import Json
from pipelines.evaluate.report import recomputed, tables
from pipelines.evaluate.report.papers import Paper
from pipelines.evaluate.report.tables import Table, general
from pipelines.metrics.alerts import VERDICTS
from pipelines.metrics.label_tables import Sheet

BASELINES = {"majority": "Majority", "every_label": "Every label", "majority_set": "Most frequent set"}
SPLITS = ("train", "validation", "dev", "test")
NOTES = "notes"
NONE: Mapping[str, Json] = {}


@dataclass(frozen=True)
class Results:
    """Our results, the label scheme and the paper about it; ``data`` is what paths of tables lead into."""

    data: Json
    scheme: Scheme
    paper: Paper = field(default_factory=Paper)

    @property
    def tasks(self) -> dict[str, Json]:
        tasks: dict[str, Json] = self.data["tasks"]
        return tasks

    def sheets(self, *likes: str) -> Iterator[Sheet]:
        """Yield the tables of the paper that are like these tables of every corpus, else the latter themselves."""
        for like in likes:
            plain = [Table.model_validate(general()[like])] if like in general() else []
            for table in self.paper.like(like) or plain:
                yield from self.rendered(table)

    def rendered(self, table: Table) -> Iterator[Sheet]:
        words = {key: self.scheme.title_of(key) for key in self.scheme.categories} | table.names
        words |= {key: name for key, name in self.paper.names.items() if table.like and key not in table.names}
        rule = recomputed.Rule(table, self.paper, self.scheme) if table.recomputed else None
        yield from tables.render(table, self.data, words=words, rule=rule)


def arranged(metrics: Json, *, scheme: Scheme, silver: Json | None = None, entries: Mapping[str, Json] = NONE) -> Json:
    """Return ``evaluate.json`` arranged for a report, with the metrics of silver labels and entries of tuned models."""
    order = dict.fromkeys((*SPLITS, *sorted(metrics["items"])))
    items = {split: metrics["items"][split] for split in order if split in metrics["items"]}
    tasks = scheme.in_order(metrics["tasks"])
    tasks = {key: _task(task, title=scheme.title_of(key)) for key, task in tasks.items()}
    silvers = scheme.in_order((silver or {}).get("categories", {}))
    ran = {name for task in tasks.values() for name in task["models"]}
    return {
        **metrics,
        "noun": scheme.items,
        "items": items,
        "all_items": {**items, "total": sum(items.values())},
        "tasks": tasks,
        "joint": {
            f"{tasks[pair['first']]['title']}, then {tasks[pair['second']]['title']}": pair["models"]
            for pair in metrics.get("joint", ())
        },
        "composition": _composition(metrics["composition"], scheme=scheme, silvers=silvers),
        "votes": {
            key: {split: _shares(counts) for split, counts in each["agreement_paper"].items()}
            for key, each in silvers.items()
        },
        "settings": plain(metrics["settings"]),
        "decoding": {name: plain(sent) for name, sent in metrics["decoding"].items() if name in ran},
        "entries": {name: plain(entry) for name, entry in entries.items()},
    }  # fmt: skip


def plain(settings: Json) -> dict[str, str]:
    def shown(value: Any) -> str:
        if isinstance(value, Mapping):
            return ", ".join(f"{key} {each}" for key, each in value.items()) or "none"
        return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)

    return {key: shown(value) for key, value in sorted(settings.items())}


def _composition(composition: Json, *, scheme: Scheme, silvers: Json) -> Json:
    """Return the numbers of items with each label in the scheme's order by split, in all, and in training subsets."""
    found: Json = {}
    for split in dict.fromkeys((*(split for split in SPLITS if split in composition), *sorted(composition))):
        found[split] = {
            key: {label.name: counts.get(label.name, 0) for label in offered(scheme.category(key))}
            for key, counts in scheme.in_order(composition[split]).items()
        }
    total: dict[str, Counter[str]] = {}
    for by_category in found.values():
        for key, counts in by_category.items():
            total.setdefault(key, Counter()).update(counts)
    subsets: Json = {}
    for key, silver in silvers.items():
        for split, distribution in silver["distributions"].items():
            if split not in found:
                subsets.setdefault(split, {})[key] = distribution["labels"]
    return {**found, **subsets, "total": total}


def _shares(counts: Mapping[str, int]) -> Json:
    whole = sum(counts.values())
    ends = {"low": None, "high": None}
    return {key: {"count": n, "of": whole, "rate": n / whole if whole else None, **ends} for key, n in counts.items()}


def _task(task: Json, *, title: str) -> Json:
    models = {name: {**model, "crises": _crises(model, task)} for name, model in sorted(task["models"].items())}
    lost = {name: {o: n for o, n in sorted(m["outcomes"].items()) if o != "vote"} for name, m in models.items()}
    scored = {name: {**(model["valid"] or {}), "outcomes": model["outcomes"]} for name, model in models.items()}
    baselines = {title: task["baselines"][name] for name, title in BASELINES.items() if name in task["baselines"]}
    reviewed = [name for name, model in models.items() if model.get("unflagged", {}).get("by_seed")]
    return {
        **task,
        "title": title,
        "models": models,
        "scored": scored | baselines,
        "about": {name: _about(m) for name, m in models.items()} | dict.fromkeys(baselines, "baseline"),
        "best_models": {name: model for name, model in models.items() if name == task["best"]},
        "order": {name: row["figures"] for name, row in scored.items() if "kappa" in row.get("figures", {})},
        "tuned": {name: _tuned(name, task=task) for name, m in models.items() if m["subset"] is not None},
        "unanswered": {
            name: {**models[name], "lost": ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.items())}
            for name, outcomes in lost.items()
            if outcomes
        },
        "on_dev": {name: _over_dev(m["dev"]) for name, m in models.items() if m["dev"]},
        "review": {name: _review(models[name], n=task["n"]) for name in reviewed},
        "leak_free": {name: _leak_free(m, n=task["n"]) for name, m in models.items() if m.get("leak_free")},
        "cost": {name: _cost(m["spent"]) for name, m in models.items() if m["spent"]},
        "calibrated": {name: _calibrated(m["calibration"]) for name, m in models.items() if m["calibration"]},
        "alerts": {f"{name}: {x}": _alert(floor) for name, m in models.items() for x, floor in m["floors"].items()},
        "transfer": {name: _transfer(model, task) for name, model in models.items() if "transfer" in model},
        "later": {
            name: {**row, "n": part["n"]}
            for part in task.get("backtest", {}).values()
            for name, row in part["models"].items()
        },
        "queue": {f"{n}: {x}": row for n, m in models.items() if "queue" in m for x, row in _queue(m, task).items()},
    }


def _crises(model: Json, task: Json) -> Json | None:
    """Return a model's errors on crises, the severest first, with a number for every rule that any model broke."""
    if not (crises := model["crises"]):
        return None
    known = [each["crises"] for each in task["models"].values() if each["crises"]]
    rules = sorted({rule for each in known for rule in each["violations"]})
    recall = dict(sorted(crises["severity"]["recall"].items(), key=lambda item: -int(item[0])))
    return {
        **crises,
        "severity": {**crises["severity"], "recall": recall},
        "violations": {rule: crises["violations"].get(rule, 0) for rule in rules},
    }


def _about(model: Json) -> str:
    """Return what a row of ours says of its model besides its name: kind, runs, recipe, prompt and source."""
    runs = f"{model['runs']} runs" if model["runs"] != 1 else ""
    recipe = f"not the paper's recipe: {', '.join(model['deviations'])}" if model["deviations"] else ""
    return "; ".join(filter(None, (model["kind"], runs, recipe, *model.get(NOTES, ()), model["note"])))


def _tuned(name: str, *, task: Json) -> Json:
    """Return the scores of a tuned model over all items with their change from the base, and the paired bootstrap."""
    model = task["models"][name]
    before = task["models"].get(model["untuned"], {}).get("all", {}).get("figures", {})

    def changed(figure: str, cell: Json) -> Json:
        base = (before.get(figure) or {}).get("mean")
        return {**cell, "change": None if None in (base, cell["mean"]) else cell["mean"] - base}

    pair = next((each for each in task["pairs"] if {each["a"], each["b"]} == {name, model["untuned"]}), None)
    p = pair and f"{pair['p']['bootstrap']:.3f} ({pair['holm']['bootstrap']:.3f})"
    return {"figures": {figure: changed(figure, cell) for figure, cell in model["all"]["figures"].items()}, "p": p}


def _over_dev(dev: Json) -> Json:
    runs = [seed["all"]["figures"] for seed in dev["by_seed"].values()]
    return {"n": dev["n"], "figures": {figure: over_runs([run.get(figure) for run in runs]) for figure in runs[0]}}


def over_runs(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _review(model: Json, *, n: int) -> Json:
    """Return scores with and without the items that a review took in.

    A review asks about items whose gold differs from named models' votes, so that gold may have moved towards these
    models (CRADLE 3.4, SPEC 31); figures are means over runs on answered items.
    """
    found: Json = {"n": n, "rest": model["unflagged"]["n"]}
    for figure in ("exact", "macro_f1"):
        both = [
            over_runs([run["valid"]["figures"][figure] for run in runs.values() if run["valid"]])
            for runs in (model["by_seed"], model["unflagged"]["by_seed"])
        ]
        change = None if None in both else f"{100 * ((both[1] or 0) - (both[0] or 0)):+.1f}"
        found[figure] = {"all": both[0], "not flagged": both[1], "change": change}
    return found


def _leak_free(model: Json, *, n: int) -> Json:
    """Return scores on the answered items of a published split: on all of test, and without its leaking items."""
    sets = {"as published": model["valid"], "leak-free": model["leak_free"]["valid"]}
    found: Json = {"n": n, "rest": model["leak_free"]["n"]}
    for figure in ("exact", "macro_f1"):
        found[figure] = {name: part and part["figures"][figure] for name, part in sets.items()}
    return found


def _cost(spent: Json) -> Json:
    n = spent["records"]
    tokens = {key: round(spent[key] / n) if n else None for key in ("input_tokens", "output_tokens")}
    return {**spent, **tokens}


def _calibrated(calibration: Json) -> Json:
    errors = {
        key: dict(zip(("mean", "low", "high"), (calibration[key], *calibration["intervals"][key]), strict=True))
        for key in ("ece", "brier")
    }
    risk = {f"{100 * float(share):.0f}": value for share, value in calibration["risk"]["coverage"].items()}
    base = fmean(label["base"] for label in calibration["labels"].values())
    return {**calibration, **errors, "base": base, "coverage": risk, "aurc": calibration["risk"]["aurc"]}


def _alert(floor: Json) -> Json:
    """Return a label's recall by the model's labels and by its alert, with the evidence of dev."""
    alert = floor["alert"]
    if alert is None or alert["dev"]["threshold"] is None:
        return floor
    dev = alert["dev"]
    unsure = "" if dev["guarantee"] else ", without guarantee of the floor"
    least = f"{100 * dev['guaranteed_recall']:.1f}{unsure}"
    words = {"guaranteed": least, "threshold": f"{dev['threshold']:.3f}", "verdict": VERDICTS[alert["verdict"]]}
    return {**floor, "shown": {**alert, **words, "positives": dev["positives"]}}


def _transfer(model: Json, task: Json) -> Json:
    part = model["transfer"]
    reached = f"{len(part['labels'])} of {len(task['labels'])}"
    return {**part, "reached": reached, "whole": model["all"]["figures"]["macro_f1"]}


def _queue(model: Json, task: Json) -> Json:
    """Return by label with gold, and for any of the queue's labels, what is unread by the number of items read."""
    read: Json = model["queue"]["read"]
    shown = [label for label in next(iter(read.values())) if task["support"].get(label, 1)]
    return {
        label: {part: {f"{int(k):,}": read[k][label][part] for k in read} for part in ("share", "a_day")}
        for label in shown
    }


def noted(metrics: Json, *, notes: Mapping[str, Sequence[str]], names: Mapping[str, str]) -> Json:
    """Return ``evaluate.json`` in which models have notes, and everywhere the names that ``names`` gives them."""

    def task(part: Json) -> Json:
        models = {
            names.get(name, name): {
                **model, "untuned": names.get(model.get("untuned"), model.get("untuned")),
                NOTES: [*model.get(NOTES, ()), *notes.get(name, ())],
            }
            for name, model in part["models"].items()
        }  # fmt: skip
        pairs = [{**pair, **{side: names.get(pair[side], pair[side]) for side in ("a", "b")}} for pair in part["pairs"]]
        return {**part, "models": models, "best": names.get(part["best"], part["best"]), "pairs": pairs}

    decoding = {names.get(name, name): sent for name, sent in metrics.get("decoding", {}).items()}
    joint = [
        {**pair, "models": {names.get(name, name): model for name, model in pair["models"].items()}}
        for pair in metrics.get("joint", ())
    ]
    tasks = {key: task(part) for key, part in metrics["tasks"].items()}
    return {**metrics, "decoding": decoding, "joint": joint, "tasks": tasks}
