"""The guideline says everything that the scheme says to people, and changes whenever that changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelines.core import taxonomy
from pipelines.core.taxonomy.guideline import Content, digest, guideline, how_many, offered

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


def test_people_tell_apart_what_the_task_merges() -> None:
    severity = taxonomy.load("figsim").category("severity")
    names = [label.name for label in offered(severity)]
    assert names[0] == "None"
    assert names[-2:] == ["Suicide attempts", "Suicide death"]
    assert "Suicide attempt/death" not in guideline(taxonomy.load("figsim"), content="images")
    related = [label.name for label in offered(taxonomy.load("figsim").category("related"))]
    assert related[-2:] == ["Third-person description", "None"]
    assert len(offered(taxonomy.load("cradle").category())) == 15


def test_an_answer_of_nothing_is_offered_where_there_is_one() -> None:
    figsim = taxonomy.load("figsim")
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
