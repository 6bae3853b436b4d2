"""Summarise a verdict of the gate for the approver: figures and label names only."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.evaluate.model_scores import Json
from pipelines.promotion.gate import GateVerdict


def summary(verdict: GateVerdict) -> str:
    """Return Markdown with the reasons against the version, its scores and recalls compared with the champion's."""
    against = f"champion, version {verdict.champion}" if verdict.champion else "majority set (no version is champion)"
    lines = [f"Version {verdict.version} of **{verdict.name}** against the {against}."]
    if verdict.reasons:
        lines += ["", "Against it:", "", *(f"- {reason}" for reason in verdict.reasons)]
    return "\n".join([*lines, *_figures(verdict.figures)])


def _figures(figures: Json) -> Iterator[str]:
    if test := figures.get("test"):
        yield f"\nTest: {test['n']} items, split `{test['split'][:12]}`; {test['taken_down']} taken down since."
    if learnt := figures.get("candidate"):
        yield (
            f"\nThe candidate has learnt from {learnt['records']} records of `{learnt['data_commit'][:12]}`,"
            f" {learnt['taken_down']} of which were taken down since."
        )
    if scores := figures.get("scores"):
        found = scores["macro_f1"]
        yield "\n| | candidate | other |\n|---|---|---|"
        yield f"| macro-F1 | {found['candidate']:.4f} | {found['other']:.4f} |"
        yield f"| exact match | {scores['exact']['candidate']:.4f} | {scores['exact']['other']:.4f} |"
        yield f"| abstained | {scores['abstained']['candidate']} | {scores['abstained']['other']} |"
        yield (
            f"\nDifference in macro-F1: {found['difference']:.4f} [{found['low']:.4f}, {found['high']:.4f}];"
            f" the candidate is better in {found['probability']:.1%} of resamples."
        )
        if scores["recall"]:
            yield "\n| recall of | of | found | floor | judged |\n|---|---|---|---|---|"
        for label, recall in scores["recall"].items():
            judged = "yes" if recall["judged"] else "too few"
            yield f"| {label} | {recall['gold']} | {recall['recall']:.4f} | {recall['floor']:.4f} | {judged} |"
