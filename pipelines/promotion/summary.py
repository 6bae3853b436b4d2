"""Summarise a verdict of the promotion gate for the person who approves: figures and label names only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.evaluate.model_scores import Json
from pipelines.promotion.gate import GateVerdict
from pipelines.promotion.scores import undecided

# What a person who approves takes upon themselves, in one sentence each.
RISKS = {
    "undecided": (
        "Each of these labels is too rare in the test: if the version misses it more often, that becomes known only in "
        "use."
    ),
    "taken_down": "Its weights still contain what these records taught it, until it is replaced.",
    "no_champion": "No version is in use yet, so that nothing shows how its answers differ from today's.",
    "not_compared": "It was compared with a baseline instead, and may be worse than the version in use.",
    "seen": "The comparison rests on fewer items than the whole test.",
    "no_reserve": "All items took part in the decision, so the scores of a version that passes are likely too high.",
    "alerts": "A higher alert rate means more items for people to look at; a lower one may mean missed cases.",
}


def summary(verdict: GateVerdict) -> str:
    """Return a verdict as Markdown: what it decides, the risks, scores beside the other's, recalls, the test."""
    scores = verdict.figures.get("scores", {})
    champion = f"champion, version {verdict.champion}" if verdict.champion else "best baseline (no version is champion)"
    rival = scores.get("rival", {}).get("name") or champion
    lines = [f"Version {verdict.version} of **{verdict.name}** against: {rival}."]
    if verdict.reasons:
        lines += ["", "Against it:", "", *(f"- {reason}" for reason in verdict.reasons)]
    else:
        lines += ["", "It passed every check of the gate."]
    if risks := list(_risks(verdict, scores)):
        lines += ["", "#### Risks", "", *(f"- {risk}" for risk in risks)]
    if open_labels := list(undecided(scores)):
        lines += ["", "The gate cannot decide, so you have to:", "", *(f"- {label}" for label in open_labels)]
        lines += ["", RISKS["undecided"]]
    return "\n".join([*lines, *(_scores(scores, rival=rival) if scores else ()), *_test(verdict.figures, scores)])


def _risks(verdict: GateVerdict, scores: Json) -> Iterator[str]:
    figures = verdict.figures
    if (learnt := figures.get("candidate")) and learnt["taken_down"]:
        yield f"{learnt['taken_down']} records from which it has learnt were taken down. {RISKS['taken_down']}"
    if (champion := figures.get("champion")) and champion["groups_in_test"]:
        compared = champion["compared"]
        left_out = "they are left out for both" if compared else "too many for a comparison with it"
        risk = RISKS["seen" if compared else "not_compared"]
        yield f"The champion has learnt from {champion['groups_in_test']} groups of the test: {left_out}. {risk}"
    if not verdict.champion:
        yield RISKS["no_champion"]
    if (test := figures.get("test")) and not test["reported"] and "candidate" in scores.get("macro_f1", {}):
        yield RISKS["no_reserve"]


def _scores(scores: Json, *, rival: str) -> Iterator[str]:
    yield "\n#### Scores\n"
    if "candidate" in scores["macro_f1"]:
        yield from _macro_f1(scores, rival=rival)
    else:
        yield "A refused version's scores are not shown: a later one could be chosen by them."
    yield from _recalls(scores)


def _macro_f1(scores: Json, *, rival: str) -> Iterator[str]:
    found, exact, abstained = scores["macro_f1"], scores["exact"], scores["abstained"]
    # verdicts of earlier versions have no intervals of the two
    intervals = found.get("intervals", {})
    mine, other = (f"{found[key]:.3f}{_interval(intervals.get(key))}" for key in ("candidate", "other"))
    yield f"| on the gate set | this version | {rival} | difference |\n|---|---|---|---|"
    yield f"| macro-F1 | {mine} | {other} | {found['difference']:+.3f}{_interval([found['low'], found['high']], '+')} |"
    gained = exact["candidate"] - exact["other"]
    yield f"| exact match | {exact['candidate']:.3f} | {exact['other']:.3f} | {gained:+.3f} |"
    more = abstained["candidate"] - abstained["other"]
    yield f"| items without an answer | {abstained['candidate']} | {abstained['other']} | {more:+d} |"
    yield "\nIn brackets: 95 % intervals, by resampling the items."
    if len(found["seeds"]) > 1:
        values = ", ".join(f"{value:.3f}" for value in found["seeds"])
        yield f"\nMacro-F1 of its {len(found['seeds'])} seeds, the registered one first: {values}."
    yield from _reported(scores.get("reported", {"n": 0}), rival=rival)


def _reported(rest: Json, *, rival: str) -> Iterator[str]:
    if rest["n"]:
        found = rest["macro_f1"]
        yield (
            f"\nOn the {rest['n']} items that did not decide: macro-F1 {found['candidate']:.3f}"
            f"{_interval([found['low'], found['high']])}, {rival} {found['other']:.3f}; exact match"
            f" {rest['exact']['candidate']:.3f} and {rest['exact']['other']:.3f}. Report these."
        )


def _recalls(scores: Json) -> Iterator[str]:
    # few columns, because Airflow shows them in a third of its width
    if scores["recall"]:
        yield (
            "\n#### Recalls that must reach a floor\n\n"
            "| label (groups) | found [95 % bounds] | floor | alert rate (champion's) | floor is |\n" + "|---" * 5 + "|"
        )
    for label, recall in scores["recall"].items():
        said = {"below": "missed", "not_below": "not missed", "too_few": "undecided: too few"}[recall["verdict"]]
        found = "–" if recall.get("recall") is None else f"{recall['recall']:.3f}{_bounds(recall)}"
        yield f"| {label} ({recall['groups']}) | {found} | {recall['floor']:.3f} | {_rates(recall)} | {said} |"
    if scores["severe"]:
        yield (
            "\n#### Severe labels: found as often as by the champion?\n\n"
            "| label (groups) | gained, lost | bounds (margin) | alert rate (champion's) | recall is |\n"
            + "|---" * 5
            + "|"
        )
    for label, severe in scores["severe"].items():
        said = severe["verdict"].replace("_", " ")
        counts = f"{severe.get('gained', '–')}, {severe.get('lost', '–')}"
        bounds = f"{_bounds(severe, '+') or '–'} ({severe['margin']:+.3f})"
        yield f"| {label} ({severe['groups']}) | {counts} | {bounds} | {_rates(severe)} | {said} |"
    if scores["recall"] or scores["severe"]:
        yield f"\nGroups: near-duplicates count once. {RISKS['alerts']}"


def _interval(ends: Sequence[float | None] | None, sign: str = "") -> str:
    if not ends or None in ends:
        return ""
    return f" [{', '.join(format(end, f'{sign}.3f') for end in ends)}]"


def _bounds(found: Json, sign: str = "") -> str:
    return _interval([found["low"], found["high"]], sign) if "low" in found else ""


def _rates(found: Json) -> str:
    # verdicts of earlier versions have none
    rates = [f"{found[key]:.3f}" if key in found else "–" for key in ("alert_rate", "champion_alert_rate")]
    return f"{rates[0]} ({rates[1]})"


def _test(figures: Json, scores: Json) -> Iterator[str]:
    yield "\n#### How it was compared"
    if test := figures.get("test"):
        yield (
            f"\nTest: {test['n']} items, split `{test['split'][:12]}`; {test['taken_down']} taken down since. The gate"
            f" set has {test['gate']} of them, {test['reported']} are scored only for a version that passes"
            f"{'' if test['reported'] else ', so that every score here took part in a decision'}."
        )
    if learnt := figures.get("candidate"):
        yield (
            f"\nThe candidate has learnt from {learnt['records']} records of commit `{learnt['data_commit'][:12]}`,"
            f" {learnt['taken_down']} of which were taken down since."
        )
    if scores:
        yield from _look(scores["look"])


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
