"""Write the model card: intended and prohibited uses, metrics and known failures (``card.json`` and ``card.md``).

Every number comes from ``evaluate.json`` (test split, gold, unanswered items counted as wrong), for alerts from the
package's ``calibration.json`` (dev), or for time and memory from ``loading.yaml``; nothing is measured here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from crisis_corpus.integrity import CARD, PAGE
from pipelines.core.templates import render
from pipelines.metrics import recall_constraints
from pipelines.metrics.alerts import VERDICTS
from pipelines.registry.packaging.described import Described
from pipelines.store.metrics_file import read_metrics

Json = Mapping[str, Any]

# Ours: how many labels to name as the weakest, and how many confusions as the commonest.
WORST, COMMONEST = 3, 3
# As for recall floors (promote.min_positives, SPEC 2.3): labels with fewer items are not judged.
FEW = 5
ANSWERED = "vote"
TEMPLATE = Path(__file__).with_name("card.md.jinja")
# What bench/loaded.py measured with small weights of each kind.
LOADING = Path(__file__).with_name("loading.yaml")

INTENDED = (
    "Research on how {things} describe crises: counting labels over a corpus, comparing corpora, and drawing samples "
    "for trained annotators.",
    "Ordering a queue that trained people read completely, so that items that may be urgent are read first.",
    "A baseline for other models of the same labels, on the same frozen test.",
)
PROHIBITED = (
    "Any action on a person without a human decision: no message, report, ban, removal or call that follows from an "
    "answer alone.",
    "Diagnosis, or any judgement of a person's health or risk, also by clinicians: it reads a single {thing} and was "
    "not evaluated on patients.",
    "Leaving a {thing} unread because no crisis was found: the model misses some, as the tables below show.",
    "Identifying or tracking authors, or joining its answers with data about persons.",
    "Decisions about insurance, work, credit, policing, schooling, benefits or housing, and advertising of any kind.",
    "Languages other than English, texts other than {things} from forums, and minors' private messages.",
    "Making or improving content that encourages self-harm, and training generators on what it labels.",
)
DECODED = {
    "set": "Labels are the most probable set that the scheme's rules allow. That aims at exact match, while the gate "
    "compares macro-F1.",
    "free": "These figures are of answers written freely to the labellers' prompt, as the paper scores the model. "
    "Served, it is asked with the prompt that it was tuned on and gives the most probable set; the gate measures that.",
    "multi": "A label is given from the threshold with its best F1 on dev. That aims at the gate's metric, macro-F1.",
    "single": "The label is the most probable class. That aims at exact match, while the gate compares macro-F1.",
}
# MLflow's limit for the description of a version is 5,000 characters.
LONGEST = 4_900
SHOWN = ("Measured", "Alerts", "Known failures", "Never for")
MORE = "\nThe whole card is `card.md` among the files of this version."
HELP = (
    "If you or someone you know is in danger, call your local emergency number.",
    "Helplines by country: https://findahelpline.com",
)


def write(pack: Path, *, described: Described, measured: Json) -> dict[str, Any]:
    """Write ``card.json`` and ``card.md`` into a model package; return the content of ``card.json``.

    ``measured`` is the ``Task`` of ``evaluate.json``, plus its ``sampling`` and ``split``.
    """
    calibrated = (pack / recall_constraints.FILE).is_file()
    alerts = read_metrics(pack / recall_constraints.FILE).get("alerts", {}) if calibrated else None
    made = card(described, measured=measured, alerts=alerts) | {"loading": loading(described, weights=weights_of(pack))}
    (pack / CARD).write_text(json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    (pack / PAGE).write_text(page(made))
    return made


def card(described: Described, *, measured: Json, alerts: Mapping[str, Json] | None = None) -> dict[str, Any]:
    """Return the content of ``card.json``; ``alerts`` has the ``metrics.alerts.Alert`` by label of a calibrated one."""
    model = measured["models"][described.shown]
    words = {"thing": described.item, "things": described.items}
    # a calibrated model decides on whole sets, another one by thresholds
    decoded = measured["kind"] if alerts is None else "set" if model["calibration"] else "free"
    return {
        "name": described.name,
        "model": {
            **described.model_dump(include={"kind", "model", "subset", "base", "seed", "task", "item", "items"}),
            "labels": described.definitions,
        },
        "data": {
            **described.model_dump(include={"corpus", "data_commit", "split_digest", "votes_digest", "scheme"}),
            "scheme_digest": described.scheme_digest,
            "train": described.train.model_dump(),
        },
        "use": {
            "intended": [line.format(**words) for line in INTENDED],
            "prohibited": [line.format(**words) for line in PROHIBITED],
        },
        "measured": {
            "split": measured["split"],
            "items": measured["n"],
            "confidence": measured["sampling"]["confidence"],
            "runs": model["runs"],
            "figures": {name: _cell(cell) for name, cell in model["all"]["figures"].items()},
            "labels": {
                label: {
                    "items": measured["support"][label],
                    **{name: _cell(cell) for name, cell in model["all"]["labels"][label].items()},
                }
                for label in measured["labels"]
            },
            # the pack has one of several seeds
            "this_seed": model["by_seed"].get(str(described.seed), {}).get("all", {}).get("figures"),
            "majority": measured["baselines"].get("majority", {}).get("figures"),
            "outcomes": model["outcomes"],
            "decoding": DECODED[decoded],
        },
        "alerts": {
            label: dict(alert) | {"test": _on_test(model["floors"].get(label))}
            for label, alert in sorted((alerts or {}).items())
        },
        "failures": list(failures(model, measured=measured, **words)),
        "help": list(HELP),
    }


def loading(described: Described, *, weights: float) -> dict[str, Any] | None:
    """Return what loading a small model of the same kind takes, beside the model's own weights in MB."""
    found, entry = yaml.safe_load(LOADING.read_text()), described.entry.model_dump()
    rows = [row for row in found["rows"] if row["entry"].items() <= entry.items()]
    return {"date": found["date"], "machine": found["machine"], "own": weights, **rows[0]} if rows else None


def weights_of(pack: Path) -> float:
    """Return the size of a package's weights in MB."""
    return round(sum(path.stat().st_size for path in pack.rglob("*.safetensors")) / 1e6, 1)


def page(made: Json) -> str:
    """Format the content of ``card.json`` (``made``) as Markdown for ``card.md``."""
    formats = {"interval": interval, "share": share, "rate": rate, "verdicts": VERDICTS}
    return render(TEMPLATE, card=made, thing=made["model"]["item"], things=made["model"]["items"], **formats)


def description(page: str) -> str:
    """Return the part of ``card.md`` that MLflow shows on a version's page, most important sections first.

    It is cut at the end of a line, because MLflow limits its length.
    """
    head, *sections = page.strip().split("\n## ")
    by_title = {section.partition("\n")[0]: section for section in sections}
    chosen = [head, *(f"## {by_title[title]}" for title in SHOWN if title in by_title)]
    kept, length = list[str](), len(MORE)
    for line in "\n".join(chosen).splitlines():
        length += len(line) + 1
        if length > LONGEST:
            break
        kept.append(line)
    return "\n".join([*kept, MORE])


def _on_test(floor: Json | None) -> Json | None:
    alert = floor and floor["alert"]
    return {name: alert[name] for name in ("recall", "alert_rate", "verdict")} if alert else None


def _cell(cell: Json) -> Json:
    return {name: cell[name] for name in ("mean", "low", "high")}


def failures(model: Json, *, measured: Json, thing: str, things: str) -> Iterator[str]:
    """Yield one sentence for each kind of error of a model that ``evaluate.json`` reports.

    ``model`` is a ``Model`` of ``evaluate.json``, ``measured`` its ``Task``, ``thing`` the noun for one input, and
    ``things`` its plural.
    """
    if clean := model.get("leak_free"):
        score = clean["all"] and clean["all"]["figures"]["macro_f1"]["mean"]
        shared = f"{measured['leaks']} {things} of test share a near-duplicate or an author with an earlier split"
        yield f"{shared}. Without these, {clean['n']} are left; macro-F1 on them, leak-free: {share(score)}."
    yield from _weakest(model, measured=measured)
    if rare := [f"`{label}`" for label in measured["labels"] if measured["support"][label] < FEW]:
        yield f"Fewer than {FEW} items of test carry {', '.join(rare)}: too few to judge the model on them."
    if lost := {outcome: count for outcome, count in model["outcomes"].items() if outcome != ANSWERED and count}:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in lost.items())
        yield f"It left a {thing} without an answer {sum(lost.values())} times: {counts}."
    if model["crises"]:
        yield from _crises(model["crises"], things=things)
    yield from _mistakes(model["errors"], ordinal=measured["ordinal"], things=things)
    for label, floor in model["floors"].items():
        yield from _alert(label, floor["alert"], floor=floor["floor"], things=things)


def _alert(label: str, alert: Json | None, *, floor: float, things: str) -> Iterator[str]:
    if alert is None:
        return
    if not alert["dev"]["guarantee"]:
        yield (
            f"The alert of `{label}` is without guarantee: dev has {alert['dev']['positives']} independent {things} "
            f"with it, too few for a recall of {floor}."
        )
    if alert["verdict"] == "below":
        yield (
            f"The alert of `{label}` finds fewer {things} of test than guaranteed: {rate(alert['recall'])}, guaranteed "
            f"{share(alert['dev']['guaranteed_recall'])}."
        )


def interval(cell: Json) -> str:
    """Format a metric's mean and confidence interval with two digits, or a dash if the mean is undefined."""
    if cell["mean"] is None:
        return "–"
    return f"{share(cell['mean'])} [{share(cell['low'])}, {share(cell['high'])}]"


def share(value: float | None) -> str:
    """Format a fraction with two digits."""
    return "–" if value is None else f"{value:.2f}"


def rate(counts: Json | None) -> str:
    """Format a count, the total and the count's share of the total."""
    return "–" if counts is None else f"{counts['count']} of {counts['of']} ({share(counts['rate'])})"


def _weakest(model: Json, *, measured: Json) -> Iterator[str]:
    judged = [label for label in measured["labels"] if measured["support"][label] >= FEW]
    cells = {label: model["all"]["labels"][label]["f1"] for label in judged}
    known = sorted((cell["mean"], label) for label, cell in cells.items() if cell["mean"] is not None)
    for _, label in known[:WORST]:
        recall = model["all"]["labels"][label]["recall"]
        yield (
            f"`{label}` is among its weakest labels: F1 {interval(cells[label])}, recall {interval(recall)}, on "
            f"{measured['support'][label]} items."
        )


def _crises(crises: Json, *, things: str) -> Iterator[str]:
    severity = crises["severity"]
    if severity["missed"]["count"]:
        yield f"A crisis was missed in {rate(severity['missed'])} {things} that describe one."
    if severity["alarms"]["count"]:
        yield f"A crisis was found in {rate(severity['alarms'])} {things} that describe none."
    swaps = (swap for confusion in crises["confusions"].values() for swap in confusion["swaps"])
    for (gold, said), swap in _commonest((((swap["gold"], swap["said"]), swap) for swap in swaps), COMMONEST):
        yield f"`{gold}` was predicted as `{said}` in {rate(swap)} cases."
    for kind, over in _commonest(((kind, row["over"]) for kind, row in crises["over_extension"].items()), 1):
        yield f"{kind.replace('_', ' ').capitalize()} is most often added wrongly: to {rate(over)} {things} without it."


def _mistakes(errors: Json, *, ordinal: bool, things: str) -> Iterator[str]:
    if errors["wrong"]["count"]:
        yield f"Its answer differed from the annotators' for {rate(errors['wrong'])} answers."
    for way, word in {"under": "too mild", "over": "too grave"}.items() if ordinal else ():
        for label, row in _commonest(((label, row[way]) for label, row in errors["by_label"].items()), 1):
            yield f"It is {word} most often for {things} of `{label}`: {rate(row)}."


def _commonest(rates: Iterable[tuple[Any, Json]], n: int) -> list[tuple[Any, Json]]:
    """Return the ``n`` entries with the highest rates, those without a case left out; ties in order of their keys."""
    known = [(key, row) for key, row in rates if row["count"]]
    return sorted(known, key=lambda each: (-each[1]["rate"], each[0]))[:n]
