"""Compute the exact probability of every answer to a prompt; each prefix that answers share is read once.

A task has few valid answers (CRADLE: 837): the texts that ``instruct.completion`` writes. They form a tree of tokens,
which works with any vocabulary, byte-level or not, maps an answer to its labels without parsing, and knows the number
of tokens to each end, so that the token limit never truncates an answer.

The probability of an answer is the product of the probabilities of its tokens, divided by the sum over all answers:
what the model would write if it wrote an answer at all. The tree is read from the most probable branch on. Branches of
one prompt are read in one row, in which a token sees the prompt, the tokens before it in its branch, and those of the
branches above (tree attention), so that neither the prompt nor a branch is read or stored twice: rows that repeat the
cached prompt for each branch took 4.4 times as long (docs/log/performance.md).

A branch is at least as probable as all answers on it together. Reading ends when the unread branches have less than
``LEFT_OUT`` of the probability of the answers that were read, which bounds the error of every probability.

Models whose memory is not a plain key-value cache (sliding windows, states) read each branch with its whole prompt.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Protocol

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pipelines.core.errors import BadParams, ConfigError
from pipelines.core.taxonomy.task import Task
from pipelines.models.fitting.instruct import completion

LEFT_OUT = 1e-6  # ours: of the probability of all answers, at most
WIDTH = 128  # ours: tokens of one prompt's branches that are read together; their logits fill a vocabulary each

LabelSet = frozenset[str]
Answers = list[tuple[tuple[int, ...], LabelSet]]
Posterior = dict[LabelSet, float]


@dataclass(frozen=True)
class State:
    """A node of the token tree of all valid answers: several branches, or an end with the answer's ``labels``.

    ``branches`` are keyed by their first token; ``least`` is the number of tokens of the shortest path to an end.
    """

    branches: Mapping[int, Branch]
    labels: LabelSet | None = None
    least: int = 0

    def within(self, room: int) -> list[int]:
        """Return the tokens that may come next so that the answer ends within ``room`` more tokens; none at an end."""
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
            encode: returns the tokens of an answer, as a model reads them after its prompt.
        """
        sets = task.category.valid_sets()
        answers = sorted((tuple(encode(completion(labels, task=task))), sorted(labels)) for labels in sets)
        alike = sum(a[: len(b)] == b for (b, _), (a, _) in pairwise(answers))
        if alike:
            raise ConfigError("AnswersAlike", count=alike + 1, task=task.key)
        whole = _branch([(tokens, frozenset(labels)) for tokens, labels in answers])
        return cls(whole.tokens, whole.then)

    def check(self, room: int) -> None:
        """Check that the shortest answer has at most ``room`` tokens."""
        shortest = len(self.opening) + self.start.least
        if room < shortest:
            raise BadParams(where="max_new_tokens", detail=f"the shortest answer takes {shortest} tokens, not {room}")


def common(rows: Sequence[tuple[int, ...]]) -> int:
    """Return the number of tokens with which all rows begin."""
    # a common prefix of the first and last row in sorted order is common to all
    first, last = min(rows), max(rows)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def _branch(answers: Answers) -> Branch:
    shared = common([tokens for tokens, _ in answers])
    rests = [(tokens[shared:], labels) for tokens, labels in answers]
    return Branch(answers[0][0][:shared], _state(rests))


def _state(answers: Answers) -> State:
    if len(answers) == 1:
        return State({}, answers[0][1])
    parts = groupby(answers, key=lambda answer: answer[0][0])
    branches = {token: _branch(list(part)) for token, part in parts}
    return State(branches, None, min(len(way.tokens) + way.then.least for way in branches.values()))


@dataclass(frozen=True)
class Node:
    """A branch of the token tree of answers, after the prompt with index ``prompt``.

    Args:
        log: the log-probability of the answer's tokens up to and including the first of ``tokens``.
        path: the tokens before the branch, from the last one of the prompt on.
    """

    prompt: int
    log: float
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    then: State

    @property
    def read(self) -> tuple[int, ...]:
        """The tokens of the branch that the model must read: all, without the last one of a whole answer."""
        return self.tokens if self.then.branches else self.tokens[:-1]


Asked = Sequence[tuple[int, int]]
"""Positions in a node's tokens, and the tokens whose log-probability after them is wanted."""


class Reader(Protocol):
    """Runs a causal model on branches of answers, each after its prompt."""

    def read(self, nodes: Sequence[Node], *, asked: Sequence[Asked]) -> list[list[float]]:
        """Return the wanted log-probabilities of each branch, in the order of ``asked``."""


def posteriors(prompts: Sequence[list[int]], *, reader: Reader, grammar: Grammar, room: int) -> list[Posterior]:
    """Return for each prompt the probability of each answer of at most ``room`` tokens, by label set.

    Improbable answers are left out; together they have less than ``LEFT_OUT`` of the probability.
    """
    logs: list[Posterior] = [{} for _ in prompts]
    waiting = [[Node(i, 0.0, (), (prompt[-1], *grammar.opening), grammar.start)] for i, prompt in enumerate(prompts)]
    while now := [node for i, nodes in enumerate(waiting) for node in _taken(nodes, known=logs[i])]:
        options = [node.then.within(room + 1 - len(node.path) - len(node.tokens)) for node in now]
        asked = [
            [*enumerate(node.tokens[1:]), *((len(node.tokens) - 1, token) for token in tokens)]
            for node, tokens in zip(now, options, strict=True)
        ]
        for node, tokens, values in zip(now, options, reader.read(now, asked=asked), strict=True):
            log = node.log + sum(values[: len(node.tokens) - 1])
            if node.then.labels is not None:
                logs[node.prompt][node.then.labels] = log
            for token, more in zip(tokens, values[len(node.tokens) - 1 :], strict=True):
                branch = node.then.branches[token]
                child = Node(node.prompt, log + more, node.path + node.tokens, branch.tokens, branch.then)
                if not child.read and branch.then.labels is not None:
                    logs[node.prompt][branch.then.labels] = child.log
                else:
                    waiting[node.prompt].append(child)
    return [_normal(answers) for answers in logs]


def _taken(waiting: list[Node], *, known: Posterior) -> Iterator[Node]:
    """Remove and yield the most probable branches, up to :data:`WIDTH` tokens, if they must be read."""
    most = max([*known.values(), *(node.log for node in waiting)], default=0.0)
    least = LEFT_OUT * sum(math.exp(log - most) for log in known.values())
    waiting.sort(key=lambda node: node.log)
    unread, width = sum(math.exp(node.log - most) for node in waiting), 0
    while waiting and unread > least and (not width or width + len(waiting[-1].read) <= WIDTH):
        node = waiting.pop()
        unread -= math.exp(node.log - most)
        width += len(node.read)
        yield node


def _normal(logs: Posterior) -> Posterior:
    most = max(logs.values())
    whole = sum(math.exp(log - most) for log in logs.values())
    return {labels: math.exp(log - most) / whole for labels, log in logs.items()}


class CachedTrees:
    """Reads branches in the rows of their prompts, whose keys and values are cached; for models with full attention."""

    def __init__(self, model: Any, *, cache: Any, shared: int, prompts: Sequence[list[int]]) -> None:
        """Read the prompts without their last token; ``cache`` has their first ``shared`` tokens in one row."""
        self._model, self._prompts, self._cache = model, prompts, deepcopy(cache)
        self._cache.batch_repeat_interleave(len(prompts))
        self._seen = torch.ones((len(prompts), shared), dtype=torch.bool)
        # columns of the cache, by prompt and tokens after it
        self._columns: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        rests = [(i, shared, tuple(prompt[shared:-1]), ()) for i, prompt in enumerate(prompts)]
        if any(tokens for _, _, tokens, _ in rests):
            self._forward(rests, keep=1)
            for i, _, tokens, _ in rests:
                self._seen[i, shared : shared + len(tokens)] = True

    def read(self, nodes: Sequence[Node], *, asked: Sequence[Asked]) -> list[list[float]]:
        """Return the wanted log-probabilities of each branch; branches above them have been read."""
        above = [self._columns.get((node.prompt, node.path), ()) for node in nodes]
        rows = [
            (node.prompt, len(self._prompts[node.prompt]) - 1 + len(node.path), node.read, columns)
            for node, columns in zip(nodes, above, strict=True)
        ]
        begin = self._seen.shape[1]
        logits, starts = self._forward(rows, keep=0)
        for node, columns, start in zip(nodes, above, starts, strict=True):
            own = range(begin + start, begin + start + len(node.read))
            self._columns[node.prompt, node.path + node.tokens] = (*columns, *own)
        places = [
            (node.prompt, start + place, token)
            for node, start, wanted in zip(nodes, starts, asked, strict=True)
            for place, token in wanted
        ]
        logs = iter(_logs(logits, places=places))
        return [[next(logs) for _ in wanted] for wanted in asked]

    def _forward(
        self, parts: Sequence[tuple[int, int, tuple[int, ...], tuple[int, ...]]], *, keep: int
    ) -> tuple[Any, list[int]]:
        """Read parts, given as prompt, first position, tokens, and visible columns besides the prompt's.

        Returns logits, shape (prompts, width, vocabulary), and where each part starts in its row.
        """
        count, begin = self._seen.shape
        used, starts = [0] * count, []
        for prompt, _, tokens, _ in parts:
            starts.append(used[prompt])
            used[prompt] += len(tokens)
        width = max(used)
        ids, positions = torch.zeros((count, width), dtype=torch.long), torch.zeros((count, width), dtype=torch.long)
        sees = torch.zeros((count, width, begin + width), dtype=torch.bool)
        before = torch.ones((width, width), dtype=torch.bool).tril()
        sees[:, :, :begin] = self._seen[:, None]
        sees[:, range(width), range(begin, begin + width)] = True  # padding must see something
        for (prompt, position, tokens, columns), start in zip(parts, starts, strict=True):
            here, size = slice(start, start + len(tokens)), len(tokens)
            ids[prompt, here] = torch.tensor(tokens, dtype=torch.long)
            positions[prompt, here] = torch.arange(position, position + size)
            sees[prompt, here, list(columns)] = True
            sees[prompt, here, begin + start : begin + start + size] = before[:size, :size]
        self._seen = torch.cat([self._seen, torch.zeros((count, width), dtype=torch.bool)], dim=1)
        device, form = self._model.device, self._model.dtype
        mask = torch.zeros(sees.shape, dtype=form).masked_fill(~sees, torch.finfo(form).min)
        said = self._model(
            input_ids=ids.to(device), attention_mask=mask[:, None].to(device), position_ids=positions.to(device),
            past_key_values=self._cache, use_cache=True, logits_to_keep=keep,
        )  # fmt: skip
        return said.logits, starts


class WholeRows:
    """Reads each branch together with its whole prompt, without a cache; for any causal model."""

    def __init__(self, model: Any, *, prompts: Sequence[list[int]], batch: int) -> None:
        self._model, self._prompts, self._batch = model, prompts, batch
        self._keeps = "logits_to_keep" in _arguments(model)

    def read(self, nodes: Sequence[Node], *, asked: Sequence[Asked]) -> list[list[float]]:
        """Return the wanted log-probabilities of each branch, in the order of ``asked``."""
        parts = [slice(begin, begin + self._batch) for begin in range(0, len(nodes), self._batch)]
        return [values for part in parts for values in self._read_together(nodes[part], asked=asked[part])]

    def _read_together(self, nodes: Sequence[Node], *, asked: Sequence[Asked]) -> Iterator[list[float]]:
        rows = [[*self._prompts[node.prompt][:-1], *node.path, *node.read] for node in nodes]
        width, device = max(map(len, rows)), self._model.device
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
        starts = [len(row) - len(node.read) for node, row in zip(nodes, rows, strict=True)]
        read = sorted({start + place for start, places in zip(starts, asked, strict=True) for place, _ in places})
        column = {position: column for column, position in enumerate(read)}
        # the logits of a whole prompt fill a vocabulary at each position
        kept = {"logits_to_keep": torch.tensor(read, dtype=torch.long, device=device)} if self._keeps else {}
        logits = self._model(input_ids=ids, attention_mask=mask, use_cache=False, **kept).logits
        logits = logits if self._keeps else logits[:, read]
        for i, (start, places) in enumerate(zip(starts, asked, strict=True)):
            yield _logs(logits, places=[(i, column[start + place], token) for place, token in places])


class PosteriorReader:
    """Computes the probabilities of the answers to prompts; a model with a plain cache reads their prefix only once."""

    def __init__(self, model: Any, *, prompts: Sequence[list[int]], batch: int) -> None:
        """Read the common prefix of ``prompts`` without its last token, so that each prompt has an unread token."""
        self._model, self._batch, self._shared = model, batch, 0
        self._cache = DynamicCache(config=model.config) if plain(model) else None
        shared = prompts[0][: common([tuple(prompt) for prompt in prompts])][:-1]
        if self._cache is not None and shared:
            self._shared = len(shared)
            model(input_ids=torch.tensor([shared], device=model.device), past_key_values=self._cache, logits_to_keep=1)

    def __call__(self, prompts: Sequence[list[int]], *, grammar: Grammar, room: int) -> list[Posterior]:
        """Return the posterior of each prompt, which begins with the common prefix."""
        reader: Reader = (
            WholeRows(self._model, prompts=prompts, batch=self._batch)
            if self._cache is None
            else CachedTrees(self._model, cache=self._cache, shared=self._shared, prompts=prompts)
        )
        return posteriors(prompts, reader=reader, grammar=grammar, room=room)


def _logs(logits: Any, *, places: Sequence[tuple[int, int, int]]) -> list[float]:
    """Return the log-probabilities of tokens at places, given as row, position and token."""
    if not places:
        return []
    row, position, token = (torch.tensor(each, device=logits.device) for each in zip(*places, strict=True))
    spots, spot = torch.unique(torch.stack([row, position]), dim=1, return_inverse=True)
    values = logits[row, position, token].float() - logits[spots[0], spots[1]].float().logsumexp(-1)[spot]
    return [float(value) for value in values.tolist()]


def plain(model: Any) -> bool:
    """Return whether a model can read several tokens at once under any mask: a plain cache, full attention only."""
    layers = DynamicCache(config=model.config).layers
    full = all(type(layer) is DynamicLayer for layer in layers) and not model._is_stateful
    return full and {"position_ids", "logits_to_keep"} <= _arguments(model)


def _arguments(model: Any) -> set[str]:
    return set(inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters)
