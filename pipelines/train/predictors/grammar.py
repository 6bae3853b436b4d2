"""Constrain decoding, token by token, to the texts that ``instruct.completion`` writes for a task.

A task has few valid answers (CRADLE: 837), so the grammar is the tree of their tokens instead of an automaton over
characters. The tree works with any vocabulary, byte-level or not, maps an answer to its labels without parsing,
identifies tokens that leave no choice and need no model call, and knows the number of tokens to each end, so that the
token limit never truncates an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from pipelines.errors import BadParams, ConfigError
from pipelines.taxonomy.task import Task
from pipelines.train.predictors.instruct import completion

LabelSet = frozenset[str]
Answers = list[tuple[tuple[int, ...], LabelSet]]


class AnswersAlike(ConfigError):
    """A tokenizer encodes different answers as the same tokens, for example because it has no braces."""

    message = "{count} answers to task '{task}' have the same tokens as another answer in the base model's vocabulary."
    remedy = (
        "Name another base model under models in catalogue.yaml, whose tokens can spell JSON and every letter of the "
        "labels."
    )


@dataclass(frozen=True)
class State:
    """A node of the token tree of all valid answers: several branches, or an end with the answer's ``labels``.

    ``branches`` are keyed by their first token; ``least`` is the number of tokens of the shortest path to an end.
    """

    branches: Mapping[int, Branch]
    labels: LabelSet | None = None
    least: int = 0

    def within(self, room: int) -> list[int]:
        """Return the tokens that may come next so that the answer ends within ``room`` more tokens; none at an end.

        The list is not empty if ``room`` is at least ``least``; after any of its tokens, the rest fits as well.
        """
        return [t for t, branch in self.branches.items() if len(branch.tokens) + branch.then.least <= room]


@dataclass(frozen=True)
class Branch:
    """A branch of the tree of answers: ``tokens`` are its first token and the forced ones up to the node ``then``."""

    tokens: tuple[int, ...]
    then: State


@dataclass(frozen=True)
class Grammar:
    """All answers to one task as a tree; they begin with ``opening``, and ``start`` is the first node."""

    opening: tuple[int, ...]
    start: State

    @classmethod
    def of(cls, task: Task, *, encode: Callable[[str], Sequence[int]]) -> Grammar:
        """Build the grammar of all valid answers: one label, or one to four labels for a multi-label task.

        Label sets that the scheme's hard rules exclude are not included, nor are repeated or reordered labels.

        Args:
            task: the task of the labels.
            encode: returns the tokens of an answer, as a model reads them after its prompt.

        Raises:
            AnswersAlike: some answers have the same tokens.
        """
        sets = task.category.valid_sets()
        answers = sorted((tuple(encode(completion(labels, task=task))), sorted(labels)) for labels in sets)
        alike = sum(a[: len(b)] == b for (b, _), (a, _) in pairwise(answers))
        if alike:
            raise AnswersAlike(count=alike + 1, task=task.key)
        whole = _branch([(tokens, frozenset(labels)) for tokens, labels in answers])
        return cls(whole.tokens, whole.then)

    def check(self, room: int) -> None:
        """Check that the shortest answer has at most ``room`` tokens.

        Raises:
            BadParams: ``room`` is too small.
        """
        shortest = len(self.opening) + self.start.least
        if room < shortest:
            raise BadParams(where="max_new_tokens", detail=f"the shortest answer takes {shortest} tokens, not {room}")

    def next(self, written: Sequence[int], *, room: int) -> list[int]:
        """Return the tokens that may follow ``written`` in an answer of at most ``room`` tokens; none if it is whole.

        Raises:
            ValueError: no answer begins with ``written``.
        """
        found = self._walk(written)
        if found is None:
            raise ValueError("no answer begins with the tokens in `written`")
        forced, state = found
        return [forced[0]] if forced else state.within(room - len(written))

    def labels(self, written: Sequence[int]) -> LabelSet | None:
        """Return the labels of the answer with the tokens ``written``; ``None`` if it is incomplete or invalid."""
        forced, state = self._walk(written) or ((0,), self.start)
        return None if forced else state.labels

    def _walk(self, written: Sequence[int]) -> tuple[tuple[int, ...], State] | None:
        """Return the forced tokens after ``written`` and the state after them; ``None`` if no answer begins so."""
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
    """Return the number of tokens with which all rows begin."""
    # a common prefix of the first and last row in sorted order is common to all
    first, last = min(rows), max(rows)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def _branch(answers: Answers) -> Branch:
    """Return the branch of the sorted ``answers``: their common prefix, and the state after it."""
    shared = common([tokens for tokens, _ in answers])
    rests = [(tokens[shared:], labels) for tokens, labels in answers]
    return Branch(answers[0][0][:shared], _state(rests))


def _state(answers: Answers) -> State:
    if len(answers) == 1:
        return State({}, answers[0][1])
    parts = groupby(answers, key=lambda answer: answer[0][0])
    branches = {token: _branch(list(part)) for token, part in parts}
    return State(branches, None, min(len(way.tokens) + way.then.least for way in branches.values()))
