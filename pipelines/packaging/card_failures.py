"""Write sentences about a model's known failures from its metrics on the test split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

# Ours: how many labels to name as the weakest, and how many confusions as the commonest.
WORST, COMMONEST = 3, 3
# As for recall floors (promote.min_positives, SPEC 2.3): labels with fewer items are not judged.
FEW = 5
ANSWERED = "vote"


def failures(model: Json, *, measured: Json, thing: str) -> Iterator[str]:
    """Yield one sentence for each kind of error of a model that ``evaluate.json`` reports.

    Args:
        model: the model's object (``Model``) in ``evaluate.json``.
        measured: the object of its task (``Task``), which contains the model.
        thing: the noun for one input, such as ``post``.
    """
    yield from _weakest(model, measured=measured)
    yield from _untold(measured)
    yield from _unanswered(model, thing=thing)
    if model["crises"]:
        yield from _crises(model["crises"], thing=thing)
    yield from _beside(model["errors"], ordinal=measured["ordinal"], thing=thing)
    for label, floor in model["floors"].items():
        yield from _alert(label, floor["alert"], floor=floor["floor"], thing=thing)


def _alert(label: str, alert: Json | None, *, floor: float, thing: str) -> Iterator[str]:
    if alert is None:
        return
    if not alert["dev"]["guarantee"]:
        yield (
            f"The alert of `{label}` is without guarantee: dev has {alert['dev']['positives']} independent {thing}s "
            f"with it, too few for a recall of {floor}."
        )
    if alert["verdict"] == "below":
        yield (
            f"The alert of `{label}` finds fewer {thing}s of test than guaranteed: {rate(alert['recall'])}, guaranteed "
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


def rate(found: Json) -> str:
    """Format a rate as text: the count, the total and the count's share of the total."""
    return f"{found['count']} of {found['of']} ({share(found['rate'])})"


def _weakest(model: Json, *, measured: Json) -> Iterator[str]:
    told = [label for label in measured["labels"] if measured["support"][label] >= FEW]
    cells = {label: model["all"]["labels"][label]["f1"] for label in told}
    known = sorted((cell["mean"], label) for label, cell in cells.items() if cell["mean"] is not None)
    for _, label in known[:WORST]:
        recall = model["all"]["labels"][label]["recall"]
        yield (
            f"`{label}` is among its weakest labels: F1 {interval(cells[label])}, recall {interval(recall)}, on "
            f"{measured['support'][label]} items."
        )


def _untold(measured: Json) -> Iterator[str]:
    rare = [label for label in measured["labels"] if measured["support"][label] < FEW]
    if rare:
        yield f"Fewer than {FEW} items of test carry {_named(rare)}: too few to judge the model on them."


def _unanswered(model: Json, *, thing: str) -> Iterator[str]:
    lost = {outcome: count for outcome, count in model["outcomes"].items() if outcome != ANSWERED and count}
    if lost:
        said = ", ".join(f"{count} {outcome}" for outcome, count in lost.items())
        yield f"It left a {thing} without an answer {sum(lost.values())} times: {said}."


def _crises(found: Json, *, thing: str) -> Iterator[str]:
    severity = found["severity"]
    if severity["missed"]["count"]:
        yield f"A crisis was missed in {rate(severity['missed'])} {thing}s that describe one."
    if severity["alarms"]["count"]:
        yield f"A crisis was found in {rate(severity['alarms'])} {thing}s that describe none."
    swaps = [swap for confusion in found["confusions"].values() for swap in confusion["swaps"] if swap["count"]]
    for swap in sorted(swaps, key=lambda swap: (-swap["rate"], swap["gold"], swap["said"]))[:COMMONEST]:
        yield f"`{swap['gold']}` was predicted as `{swap['said']}` in {rate(swap)} cases."
    wide = [(kind, over["over"]) for kind, over in found["over_extension"].items() if over["over"]["count"]]
    for kind, over in sorted(wide, key=lambda each: (-each[1]["rate"], each[0]))[:1]:
        yield f"{kind.replace('_', ' ').capitalize()} is most often added wrongly: to {rate(over)} {thing}s without it."


def _beside(errors: Json, *, ordinal: bool, thing: str) -> Iterator[str]:
    if errors["wrong"]["count"]:
        yield f"Its answer differed from the annotators' for {rate(errors['wrong'])} answers."
    if not ordinal:
        return
    words = {"under": "too mild", "over": "too grave"}
    for way, said in words.items():
        found = [(label, row[way]) for label, row in errors["by_label"].items() if row[way]["count"]]
        for label, row in sorted(found, key=lambda each: (-each[1]["rate"], each[0]))[:1]:
            yield f"It is {said} most often for {thing}s of `{label}`: {rate(row)}."


def _named(labels: list[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)
