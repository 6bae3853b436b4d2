"""Forms and guideline offer what people may say; an answer means what its author chose and nothing that we guessed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.annotate.form import UNFIT, Form, build_form, problem, read_values
from pipelines.core import taxonomy
from pipelines.core.taxonomy.guideline import Content, digest, guideline, how_many, offered

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


SCHEMES: list[tuple[str, Content]] = [("figsim", "images"), ("cradle", "texts")]


@pytest.mark.parametrize(("name", "content"), SCHEMES)
def test_all_that_may_be_said_is_explained(name: str, content: Content) -> None:
    scheme = taxonomy.load(name)
    text = guideline(scheme, content=content)
    for category in scheme.categories.values():
        assert category.task in text
        assert all(rule in text for rule in (*category.guidelines, *category.special))
        assert all(f"`{label.name}`" in text and label.definition in text for label in offered(category))
    assert "You may skip" in text and "to be skipped" not in text


def test_an_answer_of_nothing_is_offered_where_there_is_one() -> None:
    figsim = taxonomy.load("figsim")
    assert "Suicide attempt/death" not in guideline(figsim, content="images"), "people tell the two apart"
    assert "exactly one" in how_many(figsim.category("severity"))
    assert 'choose "None" alone' in how_many(figsim.category("related"))
    assert 'choose "no_crisis" alone' in how_many(taxonomy.load("cradle").category())


def test_the_digest_follows_the_words() -> None:
    scheme = taxonomy.load("cradle")
    text = guideline(scheme, content="texts")
    assert digest(text) == digest(guideline(scheme, content="texts"))
    category = scheme.category()
    stricter = replace(scheme, categories={category.key: replace(category, special=(*category.special, "One more."))})
    for other in (stricter, replace(scheme, version=scheme.version + 1)):
        assert digest(guideline(other, content="texts")) != digest(text)
    # printf abc | sha256sum
    assert digest("abc") == "ba7816bf8f01cfea"
