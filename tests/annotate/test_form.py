"""The forms offer what people may say, and an answer means what its author chose and nothing that we guessed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.annotate.forms.form import UNFIT, Form, build_form, problem, read_values
from pipelines.core import taxonomy
from pipelines.core.taxonomy.guideline import guideline, offered

FIGSIM, CRADLE = taxonomy.load("figsim"), taxonomy.load("cradle")
CATEGORIES = [*FIGSIM.categories.values(), CRADLE.category()]


def form(scheme: taxonomy.Scheme = FIGSIM, *, adjudication: bool = False) -> Form:
    said = {"title": "memes/pilot-1", "warning": "Take care.", "contacts": ["a", "b"]}
    return build_form(scheme, content="images", adjudication=adjudication, **said)


def test_an_annotator_is_asked_everything_and_need_not_write() -> None:
    asked = form()
    keys = ["figurative", "severity", "related", "modality", "context", UNFIT]
    assert [q.key for q in asked.questions] == keys
    assert [q.kind for q in asked.questions] == ["multi", "single", "multi", "single", "single", "single"]
    assert [q.key for q in asked.questions if not q.required] == [UNFIT]
    assert not asked.note_required and not asked.adjudication
    assert (asked.title, asked.content) == ("memes/pilot-1", "images")
    assert (asked.warning, asked.contacts) == ("Take care.", ("a", "b"))
    assert asked.guideline == guideline(FIGSIM, content="images")


def test_an_adjudicator_answers_what_is_disputed_and_says_why() -> None:
    asked = form(adjudication=True)
    assert not any(q.required for q in asked.questions)
    assert asked.note.startswith("Why: ") and asked.note_required and asked.adjudication
    assert [q.choices for q in asked.questions[:-1]] == [q.choices for q in form().questions[:-1]]
    assert [choice.value for choice in asked.questions[-1].choices] == ["Fit", "Unfit"], "who decides leaves no doubt"


def test_every_choice_says_what_it_means() -> None:
    for scheme in (FIGSIM, CRADLE):
        *questions, fit = form(scheme).questions
        assert [c.value for c in fit.choices] == ["Fit", "Ambiguous", "Unfit"] and all(c.hint for c in fit.choices)
        for question in questions:
            labels = offered(scheme.category(question.key))
            assert [(c.value, c.hint) for c in question.choices] == [(x.name, x.definition) for x in labels]


@pytest.mark.parametrize("category", CATEGORIES, ids=lambda c: c.key)
def test_every_choice_alone_is_an_answer(category: taxonomy.Category) -> None:
    for label in offered(category):
        checked = read_values(category, [label.name])
        assert problem(checked) is None
        nothing = label.name == category.none and label.name not in category.names
        assert checked.labels == (frozenset() if nothing else {label.name})


@pytest.mark.parametrize(
    ("key", "values", "labels"),
    [
        ("figurative", ["None"], set()),
        ("figurative", ["irony", "Metaphor", "Metaphor"], {"Irony/sarcasm", "Metaphor"}),
        ("severity", ["SS4"], {"Suicide attempts"}),
        ("severity", ["SS5"], {"Suicide death"}),
        ("severity", ["None"], {"None"}),
        ("related", ["Third-person description", "Harmful factors"], {"Third-person description", "Harmful factors"}),
        ("labels", ["rape_past", "sexualharassment_past"], {"rape_past", "sexualharassment_past"}),  # two incidents
    ],
)
def test_spelling_is_put_right_and_nothing_is_lost(key: str, values: list[str], labels: set[str]) -> None:
    checked = read_values((CRADLE if key == "labels" else FIGSIM).category(key), values)
    assert (checked.labels, checked.violations) == (labels, ())


@given(data=st.data())
@settings(max_examples=150)
def test_order_and_repetition_change_nothing(data: st.DataObject) -> None:
    category = data.draw(st.sampled_from(CATEGORIES))
    strings = [s for x in category.labels for s in (x.name, x.code)] + ["else"]
    values = data.draw(st.lists(st.sampled_from(strings), max_size=5))
    shuffled = data.draw(st.permutations([*values, *values]))
    one, other = read_values(category, values), read_values(category, shuffled)
    assert (one.labels, set(one.violations), problem(one)) == (other.labels, set(other.violations), problem(other))
    assert set(one.repairs) <= {"alias", "duplicate"}
    assert one.labels <= {label.name for label in offered(category)}
