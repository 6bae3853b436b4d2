"""Build annotation forms from a label scheme, independently of the backend that renders them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from pipelines.core.taxonomy import Category, Checked, Scheme, tiers_of
from pipelines.core.taxonomy.guideline import guideline, how_many, offered

# Repairs that change only the spelling of a label, never which label is meant.
SPELLING = frozenset({"alias", "duplicate"})
# The name of the form's last question, beside the categories of the scheme.
UNFIT = "unfit"
FIT, DOUBTFUL, REJECTED = "Fit", "Ambiguous", "Unfit"
UNFIT_TEXT = "Does this item belong in the corpus? Without an answer it does."
DOUBTFUL_HINT = "People who know the guideline could well differ. Your labels count, and the final review looks at it."
UNFIT_HINT = "Broken, unreadable, or not what this corpus is about. Your other answers about it do not count."
NOTE = "Note, if you like: what was unclear or hard to decide? No names, no quotations."
RATIONALE = "Why: what decides it, and by which part of the guideline? No names, no quotations."


@dataclass(frozen=True, slots=True)
class Choice:
    """One label that an annotator may choose, with its definition."""

    value: str
    hint: str


@dataclass(frozen=True, slots=True)
class FormQuestion:
    """The question of an annotation form about one category, or about ``UNFIT`` (does the item belong in the corpus).

    ``required`` is false for adjudicators, because they decide only the disputed categories.
    """

    key: str
    text: str
    kind: Literal["single", "multi"]
    choices: tuple[Choice, ...]
    required: bool


@dataclass(frozen=True)
class Form:
    """A complete annotation form; ``guideline`` is Markdown, and ``note`` is the caption of the free-text field."""

    title: str
    content: Literal["images", "texts"]
    warning: str
    contacts: tuple[str, ...]
    guideline: str
    questions: tuple[FormQuestion, ...]
    note: str
    note_required: bool
    adjudication: bool

    @classmethod
    def of_json(cls, text: bytes) -> Form:
        """Return a form from the text of its JSON object."""
        return TypeAdapter(cls).validate_json(text)


def build_form(
    scheme: Scheme,
    *,
    title: str,
    content: Literal["images", "texts"],
    warning: str,
    contacts: Sequence[str],
    adjudication: bool = False,
) -> Form:
    """Build the annotation form of a scheme for annotators, or with ``adjudication`` for the adjudicator."""
    questions = []
    for category in scheme.categories.values():
        text = f"{category.task} {how_many(category)}"
        choices = tuple(Choice(label.name, label.definition) for label in offered(category))
        questions.append(FormQuestion(category.key, text, category.kind, choices, required=not adjudication))
    doubtful = () if adjudication else (Choice(DOUBTFUL, DOUBTFUL_HINT),)
    fit = (Choice(FIT, "Can be labelled."), *doubtful, Choice(REJECTED, UNFIT_HINT))
    return Form(
        title=title,
        content=content,
        warning=warning,
        contacts=tuple(contacts),
        guideline=guideline(scheme, content=content),
        questions=(*questions, FormQuestion(UNFIT, UNFIT_TEXT, "single", fit, required=False)),
        note=RATIONALE if adjudication else NOTE,
        note_required=adjudication,
        adjudication=adjudication,
    )


def read_values(category: Category, values: Sequence[str]) -> Checked:
    """Check a person's answer in one category; return its label set, the repairs made and the rules violated.

    Only aliases and duplicate labels are repaired. Every other fault is a violation, named as in the scheme's check:
    ``unknown_label`` (also for a label that the form does not show), ``empty`` (no choice at all, as opposed to the
    choice "None"), ``several``, ``exclusive``, and the scheme's own rules of the tier ``improved`` (SPEC 23, (d) and
    (e)).
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
    """Return which problem makes an answer invalid, or ``None`` if it is valid."""
    if checked.unknown:
        return "outside_scheme"
    return "against_rules" if checked.violations else None
