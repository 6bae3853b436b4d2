"""Compute the exact probability of every answer to a prompt; each prefix that answers share is read once.

The answers to a task are few (CRADLE: 837). The probability of an answer is the product of the probabilities of its
tokens, divided by the sum over all answers: what the model would write if it wrote an answer at all. The tree of the
answers' tokens is read from the most probable branch on. Branches of one prompt are read together in one row, in which
a token sees the prompt, the tokens before it in its branch, and those of the branches above (tree attention), so that
neither the prompt nor a branch is read or stored twice.

A branch is at least as probable as all answers on it together. Reading ends when the unread branches have less than
``LEFT_OUT`` of the probability of the answers that were read, which bounds the error of every probability.

Models whose memory is not a plain key-value cache (sliding windows, states) read each branch with its whole prompt.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from pipelines.train.predictors.grammar import Grammar, LabelSet, State, common

LEFT_OUT = 1e-6  # ours: of the probability of all answers, at most
WIDTH = 128  # ours: tokens of one prompt's branches that are read together; their logits fill a vocabulary each

Posterior = dict[LabelSet, float]


@dataclass(frozen=True)
class Node:
    """A branch of the token tree of answers, after one prompt, with its log-probability.

    Args:
        log: the log-probability of the answer's tokens up to and including the first of ``tokens``.
        path: the tokens before the branch, from the last one of the prompt on.
        columns: the columns of ``path`` in the key-value cache.
    """

    prompt: int
    log: float
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    then: State
    columns: tuple[int, ...] = ()

    @property
    def read(self) -> tuple[int, ...]:
        """The tokens of the branch that the model must read: all, without the last one of a whole answer."""
        return self.tokens if self.then.branches else self.tokens[:-1]


Asked = Sequence[tuple[int, int]]
"""Positions in a node's tokens, and the tokens whose log-probability after them is wanted."""


class TreeReader(Protocol):
    """The interface of classes that run a model on branches of the answers' token tree after several prompts."""

    def read(self, nodes: Sequence[Node], *, asked: Sequence[Asked]) -> list[tuple[list[float], tuple[int, ...]]]:
        """Run the model on branches (``nodes``); return token log-probabilities and cache columns for each branch.

        Args:
            nodes: the branches.
            asked: for each branch, positions in its tokens, each with the next token whose log-probability is wanted.

        Returns:
            For each branch the log-probabilities in the order of ``asked``, and the columns of its path and its own
            tokens in the key-value cache (none if the class has no cache).
        """


def posteriors(prompts: Sequence[list[int]], *, reader: TreeReader, grammar: Grammar, room: int) -> list[Posterior]:
    """Return for each prompt the probability of each answer of at most ``room`` tokens, by label set.

    Improbable answers are left out; together they have less than ``LEFT_OUT`` of the probability.
    """
    logs: list[Posterior] = [{} for _ in prompts]
    waiting = [[Node(i, 0.0, (), (prompt[-1], *grammar.opening), grammar.start)] for i, prompt in enumerate(prompts)]
    while now := [node for i, nodes in enumerate(waiting) for node in _taken(nodes, found=logs[i])]:
        options = [node.then.within(room + 1 - len(node.path) - len(node.tokens)) for node in now]
        asked = [
            [*enumerate(node.tokens[1:]), *((len(node.tokens) - 1, token) for token in tokens)]
            for node, tokens in zip(now, options, strict=True)
        ]
        for node, tokens, (found, columns) in zip(now, options, reader.read(now, asked=asked), strict=True):
            log = node.log + sum(found[: len(node.tokens) - 1])
            if node.then.labels is not None:
                logs[node.prompt][node.then.labels] = log
            for token, more in zip(tokens, found[len(node.tokens) - 1 :], strict=True):
                branch, path = node.then.branches[token], node.path + node.tokens
                child = Node(node.prompt, log + more, path, branch.tokens, branch.then, columns)
                if not child.read and branch.then.labels is not None:
                    logs[node.prompt][branch.then.labels] = child.log
                else:
                    waiting[node.prompt].append(child)
    return [_normal(found) for found in logs]


def _taken(waiting: list[Node], *, found: Posterior) -> Iterator[Node]:
    """Remove and yield the most probable branches, up to :data:`WIDTH` tokens, if they must be read."""
    most = max([*found.values(), *(node.log for node in waiting)], default=0.0)
    least = LEFT_OUT * sum(math.exp(log - most) for log in found.values())
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
    """Runs a model with full attention on branches of answers after prompts whose keys and values are cached."""

    def __init__(self, model: Any, *, cache: Any, shared: int, prompts: Sequence[list[int]]) -> None:
        """Read the prompts without their last token; ``cache`` has their first ``shared`` tokens in one row."""
        self._model, self._prompts, self._cache = model, prompts, deepcopy(cache)
        self._cache.batch_repeat_interleave(len(prompts))
        self._seen = torch.ones((len(prompts), shared), dtype=torch.bool)
        rests = [(i, shared, tuple(prompt[shared:-1]), ()) for i, prompt in enumerate(prompts)]
        if any(tokens for _, _, tokens, _ in rests):
            self._forward(rests, keep=1)
            for i, _, tokens, _ in rests:
                self._seen[i, shared : shared + len(tokens)] = True

    def read(self, nodes: Sequence[Node], *, asked: Sequence[Asked]) -> list[tuple[list[float], tuple[int, ...]]]:
        """Return the wanted log-probabilities of each branch and its cache columns; see :meth:`TreeReader.read`."""
        rows = [(n.prompt, len(self._prompts[n.prompt]) - 1 + len(n.path), n.read, n.columns) for n in nodes]
        begin = self._seen.shape[1]
        logits, starts = self._forward(rows, keep=0)
        places = [
            (node.prompt, start + place, token)
            for node, start, wanted in zip(nodes, starts, asked, strict=True)
            for place, token in wanted
        ]
        logs = iter(_logs(logits, places=places))
        return [
            (
                [next(logs) for _ in wanted],
                node.columns + tuple(range(begin + start, begin + start + len(node.read))),
            )
            for node, start, wanted in zip(nodes, starts, asked, strict=True)
        ]

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
    """Runs any causal model on branches of answers, each together with its whole prompt, without a cache."""

    def __init__(self, model: Any, *, prompts: Sequence[list[int]], batch: int) -> None:
        self._model, self._prompts, self._batch = model, prompts, batch
        self._keeps = "logits_to_keep" in _arguments(model)

    def read(self, nodes: Sequence[Node], *, asked: Sequence[Asked]) -> list[tuple[list[float], tuple[int, ...]]]:
        """Return the wanted log-probabilities of each branch, and no cache columns; see :meth:`TreeReader.read`."""
        return [each for begin in range(0, len(nodes), self._batch) for each in self._some(nodes, asked, begin=begin)]

    def _some(self, nodes: Sequence[Node], asked: Sequence[Asked], *, begin: int) -> Iterator[tuple[list[float], Any]]:
        some, wanted = nodes[begin : begin + self._batch], asked[begin : begin + self._batch]
        rows = [[*self._prompts[node.prompt][:-1], *node.path, *node.read] for node in some]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self._model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self._model.device)
        starts = [len(row) - len(node.read) for node, row in zip(some, rows, strict=True)]
        read = sorted({start + place for start, places in zip(starts, wanted, strict=True) for place, _ in places})
        column = {position: column for column, position in enumerate(read)}
        # the logits of a whole prompt fill a vocabulary at each position
        kept = {"logits_to_keep": torch.tensor(read, dtype=torch.long, device=ids.device)} if self._keeps else {}
        logits = self._model(input_ids=ids, attention_mask=mask, use_cache=False, **kept).logits
        logits = logits if self._keeps else logits[:, read]
        for i, (start, places) in enumerate(zip(starts, wanted, strict=True)):
            yield _logs(logits, places=[(i, column[start + place], token) for place, token in places]), ()


def _logs(logits: Any, *, places: Sequence[tuple[int, int, int]]) -> list[float]:
    """Return the log-probabilities of tokens at places, given as row, position and token."""
    if not places:
        return []
    row, position, token = (torch.tensor(each, device=logits.device) for each in zip(*places, strict=True))
    spots, spot = torch.unique(torch.stack([row, position]), dim=1, return_inverse=True)
    values = logits[row, position, token].float() - logits[spots[0], spots[1]].float().logsumexp(-1)[spot]
    return [float(value) for value in values.tolist()]


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
        reader: TreeReader = (
            WholeRows(self._model, prompts=prompts, batch=self._batch)
            if self._cache is None
            else CachedTrees(self._model, cache=self._cache, shared=self._shared, prompts=prompts)
        )
        return posteriors(prompts, reader=reader, grammar=grammar, room=room)


def plain(model: Any) -> bool:
    """Return whether a model can read several tokens at once under any mask: a plain cache, full attention only."""
    layers = DynamicCache(config=model.config).layers
    full = all(type(layer) is DynamicLayer for layer in layers) and not model._is_stateful
    return full and {"position_ids", "logits_to_keep"} <= _arguments(model)


def _arguments(model: Any) -> set[str]:
    """Return the names of the arguments of a model's ``forward``; an adapter around a model takes any."""
    return set(inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters)
