"""Summarise a verdict of the promotion gate for the person who approves: figures and label names only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.evaluate.model_scores import Json
from pipelines.promotion.gate import GateVerdict
from pipelines.promotion.scores import undecided
from pipelines.templates import render

TEMPLATE = Path(__file__).with_name("summary.md.jinja")


def summary(verdict: GateVerdict) -> str:
    """Return a verdict as Markdown: what it decides, the risks, scores beside the other's, recalls, the test."""
    scores = verdict.figures.get("scores", {})
    champion = f"champion, version {verdict.champion}" if verdict.champion else "best baseline (no version is champion)"
    return render(
        TEMPLATE,
        verdict=verdict,
        figures={"test": None, "candidate": None} | verdict.figures,
        scores=scores and {"reported": None} | scores,
        rival=scores.get("rival", {}).get("name") or champion,
        risks=list(_risks(verdict, scores)),
        undecided=list(undecided(scores)),
    ).rstrip("\n")


def _risks(verdict: GateVerdict, scores: Json) -> Iterator[str]:
    """Yield what a person who approves takes upon themselves, in a sentence or two each."""
    figures = verdict.figures
    if (learnt := figures.get("candidate")) and learnt["taken_down"]:
        yield (
            f"{learnt['taken_down']} records from which it has learnt were taken down. Its weights still contain what "
            "these records taught it, until it is replaced."
        )
    if (champion := figures.get("champion")) and (groups := champion["groups_in_test"]):
        consequence = (
            "they are left out for both. The comparison rests on fewer items than the whole test."
            if champion["compared"]
            else "too many for a comparison with it. It was compared with a baseline instead, and may be worse than "
            "the version in use."
        )
        yield f"The champion has learnt from {groups} groups of the test: {consequence}"
    if not verdict.champion:
        yield "No version is in use yet, so that nothing shows how its answers differ from today's."
    if (test := figures.get("test")) and not test["reported"] and "candidate" in scores.get("macro_f1", {}):
        yield "All items took part in the decision, so the scores of a version that passes are likely too high."
