"""What may be answered, as tokens: every valid answer, none other, and always an end within the limit."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import Label, load
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.train.predictors.instruct import completion, read
from pipelines.train.predictors.posterior import Grammar, State
from tests.refusals import refused
from tests.train.byte_tokens import byte_level

CRADLE = task_of(load("cradle"), "labels")


def grammar_of(task: Task, tokenizer: Any) -> Grammar:
    return Grammar.of(task, encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])


def odd() -> Task:
    """Labels of which one begins another, with letters of several bytes, quotes and blanks."""
    names = ("ab", "abc", "Übel groß", 'so "genannt"', "暴力", "🌧️🌧️")
    labels = tuple(Label(name, str(number), "") for number, name in enumerate(names))
    category = replace(CRADLE.category, labels=labels, none=None, rules=(), severities={})
    return Task("labels", "multi", False, names, category)


def walk(grammar: Grammar, *, room: int, rng: Random) -> tuple[list[int], frozenset[str] | None]:
    """Write one answer, each branch drawn among those that are allowed; return its tokens and labels."""
    written, state = [*grammar.opening], grammar.start
    while tokens := state.within(room - len(written)):
        branch = state.branches[rng.choice(tokens)]
        written, state = [*written, *branch.tokens], branch.then
    return written, state.labels


def answers(state: State, *, written: tuple[int, ...]) -> dict[tuple[int, ...], frozenset[str] | None]:
    """Return the labels of all answers below a node, by tokens."""
    whole = {written: state.labels} if not state.branches else {}
    for branch in state.branches.values():
        whole |= answers(branch.then, written=written + branch.tokens)
    return whole


@pytest.mark.parametrize("merges", [0, 60, 400])
@pytest.mark.parametrize("task", [CRADLE, odd(), task_of(load("cssrs"), "severity")], ids=["cradle", "odd", "single"])
def test_any_walk_ends_as_a_valid_answer_within_the_room(task: Task, merges: int) -> None:
    tokenizer = byte_level(merges)
    grammar = grammar_of(task, tokenizer)
    lengths = [len(tokenizer(completion(s, task=task))["input_ids"]) for s in task.category.valid_sets()]
    rng, found = Random(merges), set()
    for room in [*range(min(lengths), max(lengths) + 1), *[max(lengths)] * 100]:
        written, said = walk(grammar, room=room, rng=rng)
        text = tokenizer.decode(written)
        assert len(written) <= room
        assert said is not None
        assert said == read(text, task=task)
        assert text == completion(said, task=task)
        found.add(said)
    assert len(found) > 4


@pytest.mark.parametrize("task", [CRADLE, odd()], ids=["cradle", "odd"])
def test_every_valid_answer_can_be_written_and_no_other(task: Task) -> None:
    tokenizer = byte_level(200)
    grammar = grammar_of(task, tokenizer)
    valid = {tuple(tokenizer(completion(s, task=task))["input_ids"]): s for s in task.category.valid_sets()}
    assert answers(grammar.start, written=grammar.opening) == valid


def test_a_room_that_no_answer_keeps_is_refused() -> None:
    tokenizer = byte_level(0)
    grammar = grammar_of(CRADLE, tokenizer)
    shortest = len('{"labels": ["no_crisis"]}')
    grammar.check(shortest)
    with pytest.raises(BadParams, match=f"takes {shortest} tokens, not {shortest - 1}"):
        grammar.check(shortest - 1)
    assert walk(grammar, room=shortest, rng=Random(0))[1] in ({"no_crisis"}, {"rape_past"})


def test_a_tokenizer_that_cannot_tell_answers_apart_is_refused() -> None:
    with refused("AnswersAlike", match="labels") as caught:
        Grammar.of(CRADLE, encode=lambda text: [0] * text.count(" "))
    assert 4 < caught.value.fields["count"] <= 837


def test_one_answer_alone_needs_no_choice() -> None:
    alone = replace(CRADLE.category, labels=CRADLE.category.labels[-1:], rules=())
    task = Task("labels", "multi", False, ("no_crisis",), alone)
    grammar = grammar_of(task, byte_level(0))
    assert answers(grammar.start, written=()) == {(): {"no_crisis"}}
