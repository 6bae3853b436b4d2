"""Summarise a verdict of the promotion gate for the person who approves: figures and label names only."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.evaluate.model_scores import Json
from pipelines.promotion.gate import GateVerdict
from pipelines.promotion.scores import undecided


def summary(verdict: GateVerdict) -> str:
    """Return a verdict as Markdown: reasons against the version, undecided labels, remaining looks, scores, recalls."""
    scores = verdict.figures.get("scores", {})
    champion = f"champion, version {verdict.champion}" if verdict.champion else "best baseline (no version is champion)"
    rival = scores.get("rival", {}).get("name") or champion
    lines = [f"Version {verdict.version} of **{verdict.name}** against: {rival}."]
    if verdict.reasons:
        lines += ["", "Against it:", "", *(f"- {reason}" for reason in verdict.reasons)]
    if open_labels := list(undecided(scores)):
        lines += ["", "The gate cannot decide, so you have to:", "", *(f"- {label}" for label in open_labels)]
    return "\n".join([*lines, *_test(verdict.figures), *(_scores(scores) if scores else ())])


def _test(figures: Json) -> Iterator[str]:
    if test := figures.get("test"):
        yield (
            f"\nTest: {test['n']} items, split `{test['split'][:12]}`; {test['taken_down']} taken down since. The gate"
            f" set has {test['gate']} of them, {test['reported']} are scored only for a version that passes"
            f"{'' if test['reported'] else ', so that every score here took part in a decision'}."
        )
    if (champion := figures.get("champion")) and champion["groups_in_test"]:
        left_out = "they are left out for both" if champion["compared"] else "too many for a comparison with it"
        yield f"\nThe champion has learnt from {champion['groups_in_test']} groups of the test: {left_out}."
    if learnt := figures.get("candidate"):
        yield (
            f"\nThe candidate has learnt from {learnt['records']} records of `{learnt['data_commit'][:12]}`,"
            f" {learnt['taken_down']} of which were taken down since."
        )


def _scores(scores: Json) -> Iterator[str]:
    yield from _look(scores["look"])
    if "candidate" in scores["macro_f1"]:
        yield from _macro_f1(scores)
    else:
        yield "\nA refused version's scores are not shown: a later one could be chosen by them."
    yield from _recalls(scores)


def _macro_f1(scores: Json) -> Iterator[str]:
    found = scores["macro_f1"]
    yield "\n| on the gate set | candidate | other |\n|---|---|---|"
    yield f"| macro-F1 | {found['candidate']:.4f} | {found['other']:.4f} |"
    yield f"| exact match | {scores['exact']['candidate']:.4f} | {scores['exact']['other']:.4f} |"
    yield f"| abstained | {scores['abstained']['candidate']} | {scores['abstained']['other']} |"
    yield f"\nDifference in macro-F1: {found['difference']:.4f} [{found['low']:.4f}, {found['high']:.4f}]."
    if len(found["seeds"]) > 1:
        values = ", ".join(f"{value:.4f}" for value in found["seeds"])
        yield f"\nMacro-F1 of its {len(found['seeds'])} seeds, the registered one first: {values}."
    yield from _reported(scores.get("reported", {"n": 0}))


def _recalls(scores: Json) -> Iterator[str]:
    if scores["recall"]:
        yield (
            "\n| recall of | groups | found | 95 % bounds | floor | alert rate (champion's) | decided |\n"
            + "|---" * 7
            + "|"
        )
    for label, recall in scores["recall"].items():
        said = {"below": "missed", "not_below": "not missed", "too_few": "too few"}[recall["verdict"]]
        found = "–" if recall.get("recall") is None else f"{recall['recall']:.4f}"
        yield (
            f"| {label} | {recall['groups']} | {found} | {_bounds(recall)} | {recall['floor']:.4f} | {_rates(recall)}"
            f" | {said} |"
        )
    if scores["severe"]:
        yield (
            "\n| severe label | groups | gained | lost | bounds of the difference | margin | alert rate (champion's)"
            " | decided |\n" + "|---" * 8 + "|"
        )
    for label, severe in scores["severe"].items():
        said = severe["verdict"].replace("_", " ")
        counts = f"{severe['groups']} | {severe.get('gained', '–')} | {severe.get('lost', '–')}"
        yield f"| {label} | {counts} | {_bounds(severe)} | {severe['margin']:.4f} | {_rates(severe)} | {said} |"


def _bounds(found: Json) -> str:
    return f"{found['low']:.4f} to {found['high']:.4f}" if "low" in found else "–"


def _rates(found: Json) -> str:
    # verdicts of earlier versions have none
    rates = [f"{found[key]:.4f}" if key in found else "–" for key in ("alert_rate", "champion_alert_rate")]
    return f"{rates[0]} ({rates[1]})"


def _look(look: Json) -> Iterator[str]:
    p = f"p {'at most' if look['better'] else 'above'} the level"
    if "p" in look:
        p = f"p = {look['p']:.4f} ({look['p_seeds']:.4f} over all seeds)"
    if "number" not in look:
        yield f"\nNot counted as a look: the champion has to go. {p}, at most {look['level']:.4g} is allowed."
        return
    returned = " It found a better candidate, so its level is returned." if look["better"] else ""
    yield (
        f"\nLook {look['number']} at part {look['gate']['part'] + 1} of {look['gate']['parts']} of the test: {p}, at"
        f" most {look['level']:.4g} is allowed.{returned} Spent: {look['spent']:.4g} of alpha {look['alpha']:.4g};"
        f" {look['left']} looks remain."
    )


def _reported(rest: Json) -> Iterator[str]:
    if rest["n"]:
        found = rest["macro_f1"]
        yield (
            f"\nOn the {rest['n']} items that did not decide: macro-F1 {found['candidate']:.4f}"
            f" [{found['low']:.4f}, {found['high']:.4f}], the other's {found['other']:.4f}; exact match"
            f" {rest['exact']['candidate']:.4f}, the other's {rest['exact']['other']:.4f}. Report these."
        )
