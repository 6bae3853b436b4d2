"""What a model may answer, token by token: the texts that ``instruct.completion`` writes for a task, and nothing else.

A task has few valid answers (CRADLE: 837), so the grammar is the tree of their tokens instead of an automaton over
characters. It asks nothing of a vocabulary, byte-level or not, knows the labels that an answer means without reading
it, shows which tokens leave no choice and need not be asked for, and knows how far each end is, so that no limit can
cut an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from pipelines.errors import BadParams, ConfigError
from pipelines.taxonomy.task import Task
from pipelines.train.sft.instruct import completion

LabelSet = frozenset[str]
Answers = list[tuple[tuple[int, ...], LabelSet]]


class AnswersAlike(ConfigError):
    """A tokenizer writes different answers as the same tokens, as one does that knows no braces or letters."""

    message = "{count} answers to '{task}' cannot be told apart in the base's tokens."
    remedy = "Name another base under models in params.yaml: one that can write JSON and every letter of the labels."


@dataclass(frozen=True)
class State:
    """A place where an answer can go several ways, or where it has ended: then ``labels`` is what it says.

    ``branches`` by the token that enters each; ``least`` are the tokens of the shortest way from here to an end.
    """

    branches: Mapping[int, Branch]
    labels: LabelSet | None = None
    least: int = 0

    def within(self, room: int) -> list[int]:
        """Return the tokens that may come next if an end is to be reached in ``room`` tokens; none at an end.

        There is one wherever ``room`` is at least ``least``, and remains one on every branch that is given.
        """
        return [t for t, branch in self.branches.items() if len(branch.tokens) + branch.then.least <= room]


@dataclass(frozen=True)
class Branch:
    """``tokens``: the one that was chosen and all that can only follow it, up to the next choice or an end."""

    tokens: tuple[int, ...]
    then: State


@dataclass(frozen=True)
class Grammar:
    """The answers to one task: ``opening`` begins all of them, and ``start`` is where they part."""

    opening: tuple[int, ...]
    start: State

    @classmethod
    def of(cls, task: Task, *, encode: Callable[[str], Sequence[int]]) -> Grammar:
        """Write down every valid answer: of one label or at most four, as ``label.offline.decode`` has it.

        Sets that the scheme's hard rules exclude are no answers, nor is one label twice or in another order.

        Args:
            task: whose labels.
            encode: gives the tokens of an answer, as a model reads them behind its prompt.

        Raises:
            AnswersAlike: some answers are the same tokens.
        """
        sets = task.category.valid_sets()
        answers = sorted((tuple(encode(completion(labels, task=task))), sorted(labels)) for labels in sets)
        alike = sum(a[: len(b)] == b for (b, _), (a, _) in pairwise(answers))
        if alike:
            raise AnswersAlike(count=alike + 1, task=task.key)
        whole = _branch([(tokens, frozenset(labels)) for tokens, labels in answers])
        return cls(whole.tokens, whole.then)

    def check(self, room: int) -> None:
        """Refuse a limit of tokens that no answer keeps.

        Raises:
            BadParams: ``room`` is too small.
        """
        shortest = len(self.opening) + self.start.least
        if room < shortest:
            raise BadParams(where="max_new_tokens", detail=f"the shortest answer takes {shortest} tokens, not {room}")

    def next(self, written: Sequence[int], *, room: int) -> list[int]:
        """Return what may follow the beginning ``written`` of an answer of at most ``room`` tokens; none at its end.

        Raises:
            ValueError: ``written`` begins no answer.
        """
        found = self._walk(written)
        if found is None:
            raise ValueError("what is written begins no answer")
        forced, state = found
        return [forced[0]] if forced else state.within(room - len(written))

    def labels(self, written: Sequence[int]) -> LabelSet | None:
        """Return what a whole answer says, ``None`` where it is none."""
        forced, state = self._walk(written) or ((0,), self.start)
        return None if forced else state.labels

    def _walk(self, written: Sequence[int]) -> tuple[tuple[int, ...], State] | None:
        """Return the tokens that can only follow, and the place behind them; ``None`` where no answer begins so."""
        tokens, state = self.opening, self.start
        while True:
            here, written = tuple(written[: len(tokens)]), written[len(tokens) :]
            if here != tokens[: len(here)]:
                return None
            if not written:
                return tokens[len(here) :], state
            if written[0] not in state.branches:
                return None
            tokens, state = state.branches[written[0]].tokens, state.branches[written[0]].then


def common(rows: Sequence[tuple[int, ...]]) -> int:
    """Return how many tokens all rows begin with."""
    first, last = min(rows), max(rows)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def _branch(answers: Answers) -> Branch:
    """Return what the sorted ``answers``, of one beginning, have in common, and how they part."""
    shared = common([tokens for tokens, _ in answers])
    rests = [(tokens[shared:], labels) for tokens, labels in answers]
    return Branch(answers[0][0][:shared], _state(rests))


def _state(answers: Answers) -> State:
    if len(answers) == 1:
        return State({}, answers[0][1])
    parts = groupby(answers, key=lambda answer: answer[0][0])
    branches = {token: _branch(list(part)) for token, part in parts}
    return State(branches, None, min(len(way.tokens) + way.then.least for way in branches.values()))
