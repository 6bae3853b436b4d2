"""Render the annotators' guideline from a label scheme; its digest is stored with every answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

from pipelines.core.taxonomy import Category, Label, Scheme

Content = Literal["images", "texts"]

_SHOWN: dict[Content, str] = {
    "images": "You see the picture alone. Who posted it, when, and what others wrote under it is not shown.",
    "texts": "You see a title and a text. Who wrote them, when, and what others answered is not shown.",
}
# Ours: rules for every round, whatever the scheme.
_ALWAYS = (
    "You may skip whatever you like. A skip is no mistake, needs no reason and enters no figure about you.",
    "Answer on your own. The other annotators see nothing of your answers, nor you of theirs; whoever decides where "
    "you differ sees no names.",
    "Use the note where something is unclear. Write no names and no quotations into it.",
)


def guideline(scheme: Scheme, *, content: Content) -> str:
    """Return the annotation guideline as Markdown: purpose, general rules, and each category with its labels.

    Only the first sentence of the purpose is used: the rest tells a model not to skip anything, but people may skip.
    """
    first, _, _ = scheme.purpose.partition(". ")
    parts = [
        f"# {scheme.title}",
        f"Guideline, version {scheme.version}. {first.rstrip('.')}.",
        f"## Before you begin\n\n{_list([_SHOWN[content], *_ALWAYS])}",
    ]
    for category in scheme.categories.values():
        parts += _section(category, heading=category.key.capitalize() if len(scheme.categories) > 1 else "The question")
    return "\n\n".join(parts) + "\n"


def digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of an annotation guideline's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def offered(category: Category) -> tuple[Label, ...]:
    """Return the labels of a category from which annotators choose, in the scheme's order.

    A label that only represents others merged by the task is left out: people distinguish FigSIM's attempt and death,
    while models are asked for them as one (SPEC 1.1, item 1).
    """
    merge = category.merges[category.task_merge] if category.task_merge else None
    merged = {merge.into} - merge.labels if merge else set()
    return tuple(label for label in category.labels if label.name not in merged)


def how_many(category: Category) -> str:
    """Return the guideline's sentence about how many labels annotators choose in a category."""
    if category.kind == "single":
        return "Choose exactly one."
    alone = f' Where none fits, choose "{category.none}" alone.' if category.none else ""
    return f"Choose every one that fits.{alone}"


def _section(category: Category, *, heading: str) -> list[str]:
    shared: dict[str, list[str]] = {}
    for label in offered(category):
        shared.setdefault(label.definition, []).append(f"`{label.name}`")
    labels = _list([f"{', '.join(names)}: {definition}" for definition, names in shared.items()])
    parts = [f"## {heading}", f"{category.task} {how_many(category)}", f"### Labels\n\n{labels}"]
    if category.guidelines:
        parts.append(f"### In practice\n\n{_list(category.guidelines)}")
    if category.special:
        parts.append(f"### Special rules\n\n{_list(category.special)}")
    return parts


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
