"""What annotators are asked, rendered from the taxonomy and from nothing else; a backend turns it into its own form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.taxonomy import Category, Checked, Scheme, tiers_of
from pipelines.taxonomy.guideline import guideline, how_many, offered

# What may be put right without asking: how a label is written, never which one is meant.
SPELLING = frozenset({"alias", "duplicate"})


@dataclass(frozen=True, slots=True)
class Choice:
    """One label that may be chosen, and what it means."""

    value: str
    hint: str


@dataclass(frozen=True, slots=True)
class Question:
    """One category. ``required`` is false for an adjudicator, who decides only what is disputed."""

    key: str
    text: str
    kind: Literal["single", "multi"]
    choices: tuple[Choice, ...]
    required: bool


@dataclass(frozen=True)
class Form:
    """A whole form. ``guideline`` is Markdown; ``note`` is the caption of the free field."""

    title: str
    content: Literal["images", "texts"]
    warning: str
    contacts: tuple[str, ...]
    guideline: str
    questions: tuple[Question, ...]
    note: str
    note_required: bool
    adjudication: bool


def annotation_form(
    scheme: Scheme, *, title: str, content: Literal["images", "texts"], warning: str, contacts: Sequence[str]
) -> Form:
    """Return the form of an annotator: every category is asked and must be answered, the note is free."""
    return _form(
        scheme,
        title=title,
        content=content,
        warning=warning,
        contacts=contacts,
        note="Note, if you like: what was unclear or hard to decide? No names, no quotations.",
        adjudication=False,
    )


def adjudication_form(
    scheme: Scheme, *, title: str, content: Literal["images", "texts"], warning: str, contacts: Sequence[str]
) -> Form:
    """Return the form of the adjudicator, who answers what is disputed and says why."""
    return _form(
        scheme,
        title=title,
        content=content,
        warning=warning,
        contacts=contacts,
        note="Why: what decides it, and by which part of the guideline? No names, no quotations.",
        adjudication=True,
    )


def read_values(category: Category, values: Sequence[str]) -> Checked:
    """Return the label set that a person's answer to one question means.

    Only spelling is put right: an alias and a label given twice. Everything else is for the person to decide and
    becomes a violation, by the name that the scheme's check gives it: ``unknown_label`` (also for a label that people
    are not offered), ``empty`` (nothing chosen, which is not the same as the label for nothing), ``several``,
    ``exclusive``, and the scheme's own rules of the tier ``improved`` (SPEC 23, (d) and (e)).

    Returns:
        the set in the annotators' label space (an empty one for "None" where that stands outside the task), and the
        repairs. Where there are violations, the set is empty and stands for nothing; ``problem`` says which kind.
    """
    checked = category.check(values, mode="repair", tiers=tiers_of("improved"), task=False)
    strange = checked.labels - {label.name for label in offered(category)}
    unknown = checked.unknown + len(strange)
    wrong = [*checked.violations, *(r for r in checked.repairs if r not in SPELLING), *["unknown_label"] * len(strange)]
    if not values and not wrong:
        wrong = ["empty"]
    repairs = tuple(r for r in checked.repairs if r in SPELLING)
    return Checked(frozenset() if wrong else checked.labels, repairs, tuple(sorted(wrong)), unknown)


def problem(checked: Checked) -> Literal["outside_scheme", "against_rules"] | None:
    """Return the one of ``backend.PROBLEMS`` that keeps an answer from counting, or ``None`` where it counts."""
    if checked.unknown:
        return "outside_scheme"
    return "against_rules" if checked.violations else None


def _form(
    scheme: Scheme,
    *,
    title: str,
    content: Literal["images", "texts"],
    warning: str,
    contacts: Sequence[str],
    note: str,
    adjudication: bool,
) -> Form:
    questions = tuple(
        Question(
            key=category.key,
            text=f"{category.task} {how_many(category)}",
            kind=category.kind,
            choices=tuple(Choice(value=label.name, hint=label.definition) for label in offered(category)),
            required=not adjudication,
        )
        for category in scheme.categories.values()
    )
    return Form(
        title=title,
        content=content,
        warning=warning,
        contacts=tuple(contacts),
        guideline=guideline(scheme, content=content),
        questions=questions,
        note=note,
        note_required=adjudication,
        adjudication=adjudication,
    )
