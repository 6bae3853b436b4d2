"""Generate a causal model's answers about posts: labels of a task, decoded greedily as JSON that is always valid.

The model is called only at the choices of the grammar: tokens that must follow are read in one pass, together with the
choice before them, so an answer takes as many passes as it has choices. The common prefix of all prompts is read once.
Models whose memory is not a plain key-value cache (sliding windows, states) are decoded by the library, token by token,
under the same grammar.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, GenerationConfig, LogitsProcessor
from transformers.cache_utils import DynamicLayer

from pipelines.models.backbones import BaseUnfit, had, opened
from pipelines.taxonomy import Scheme
from pipelines.taxonomy.task import Task
from pipelines.train.prediction import MALFORMED, VOTE, Prediction
from pipelines.train.sft import adapter
from pipelines.train.sft.grammar import Grammar, common
from pipelines.train.sft.instruct import conversation, instruction, read


class Generator:
    """A causal model that generates answers by greedy decoding (temperature 0, SPEC 25)."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        task: Task,
        scheme: Scheme,
        max_length: int,
        max_new_tokens: int,
        batch: int,
        constrained: bool = True,
    ) -> None:
        """Take a model in evaluation mode and its tokenizer; see :meth:`open` for the rest."""
        self._model, self._tokenizer, self._task = model, tokenizer, task
        self._ends = _ends(model, tokenizer)
        # a checkpoint's own settings (such as a repetition penalty) would change which token is most probable
        model.generation_config = GenerationConfig(eos_token_id=self._ends, pad_token_id=self._ends[0])
        self._prompt = instruction(scheme, category=task.key)
        self._max_length, self._batch = max_length, batch
        self._grammar = Grammar.of(task, encode=self._encode) if constrained else None
        self._room = max_new_tokens
        if self._grammar:
            self._grammar.check(max_new_tokens)

    @classmethod
    def open(
        cls,
        base: str | Path,
        *,
        task: Task,
        scheme: Scheme,
        max_length: int,
        max_new_tokens: int,
        batch: int,
        seed: int = 0,
        folder: Path,
        constrained: bool = True,
        revision: str | None = None,
    ) -> Generator:
        """Load a model on all accelerators, in bfloat16 if supported, else in float32.

        Args:
            base: the base model: a folder with weights, a Hugging Face id, or a ``tiny:`` name.
            task: the task of the labels.
            scheme: provides the words of the prompt.
            max_length: tokens of prompt and answer together; a longer post loses its middle.
            max_new_tokens: tokens of an answer, reserved as they were during tuning. A constrained answer ends within
                them.
            batch: posts in a batch.
            seed: seeds the weights of a ``tiny:`` base model.
            folder: where a temporary ``tiny:`` base model is created.
            constrained: if false, the model may write anything; for comparison.
            revision: of a base model on the hub.

        Raises:
            BaseMissing: the base model is neither local nor downloadable.
            BaseUnfit: the base model is not a causal model, its checkpoint lacks weights, or no token ends an answer.
            AnswersAlike: the tokenizer encodes different answers as the same tokens.
            BadParams: ``max_new_tokens`` is less than the shortest answer.
        """
        name = str(base)
        with opened(name, revision=revision, seed=seed, folder=folder) as place:
            tokenizer = had(AutoTokenizer, place, base=name)
            model = _loaded(place, base=name)
        if not _ends(model, tokenizer):
            raise BaseUnfit(base=name, detail="it has no token that ends an answer")
        return cls(
            model,
            tokenizer,
            task=task,
            scheme=scheme,
            max_length=max_length,
            max_new_tokens=max_new_tokens,
            batch=batch,
            constrained=constrained,
        )

    def predict(
        self,
        texts: Sequence[str],
        *,
        record_ids: Sequence[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """Predict labels without probabilities; see :meth:`pipelines.train.prediction.Predictor.predict`.

        Posts of similar length share a batch, the longest first, so that running out of memory shows at once. An answer
        is malformed only without constraint. ``record_ids`` are not used.

        Raises:
            NoTemplate: the base model has no chat template.
            NoRoom: ``max_length`` is too small for the instruction.
        """
        prompts = [
            conversation(
                text, prompt=self._prompt, tokenizer=self._tokenizer, max_length=self._max_length, room=self._room
            )
            for text in texts
        ]
        order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
        answers: dict[int, Prediction] = {}
        with torch.inference_mode():
            for which, written in self._batches(prompts, order=order):
                answers |= {i: self._read(tokens, prompt=prompts[i]) for i, tokens in zip(which, written, strict=True)}
                if progress:
                    progress(len(answers))
        return [answers[i] for i in range(len(prompts))]

    def _batches(
        self, prompts: Sequence[list[int]], *, order: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], list[list[int]]]]:
        """Yield positions in ``prompts`` and the tokens that were generated after those prompts."""
        leap = Leap.over(prompts, model=self._model) if self._grammar and order and leaps(self._model) else None
        for begin in range(0, len(order), self._batch):
            which = order[begin : begin + self._batch]
            rows = [prompts[i] for i in which]
            if leap and self._grammar:
                yield which, leap.write(rows, grammar=self._grammar, room=self._room)
            else:
                yield which, self._step(rows)

    def _step(self, rows: Sequence[list[int]]) -> list[list[int]]:
        """Let the library generate token by token; return the tokens without the end token."""
        width, end = max(map(len, rows)), self._ends[0]
        ids = torch.tensor([[end] * (width - len(row)) + row for row in rows], device=self._model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=self._model.device)
        guide = [Guide(self._grammar, begin=width, room=self._room, end=end)] if self._grammar else []
        whole = self._model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=self._room, logits_processor=guide
        )
        written = whole[:, width:].tolist()
        return [row[: next((i for i, token in enumerate(row) if token in self._ends), len(row))] for row in written]

    def _read(self, written: list[int], *, prompt: list[int]) -> Prediction:
        labels = (
            self._grammar.labels(written)
            if self._grammar
            else read(self._tokenizer.decode(written, skip_special_tokens=True), task=self._task)
        )
        outcome = MALFORMED if labels is None else VOTE
        return Prediction(outcome, labels or frozenset(), input_tokens=len(prompt), output_tokens=len(written))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


class Guide(LogitsProcessor):  # type: ignore[misc]
    """Restrict each next token to those that the grammar permits, and to the end token after a complete answer."""

    def __init__(self, grammar: Grammar, *, begin: int, room: int, end: int) -> None:
        self._grammar, self._begin, self._room, self._end = grammar, begin, room, end

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores, set to minus infinity for tokens that the grammar does not permit."""
        allowed = torch.full_like(scores, float("-inf"))
        for row, written in enumerate(input_ids[:, self._begin :].tolist()):
            said = written[: written.index(self._end)] if self._end in written else written
            which = self._grammar.next(said, room=self._room) or [self._end]
            allowed[row, which] = scores[row, which]
        return allowed


class Leap:
    """Decode answers with a model that has read the common prefix of all prompts; forced tokens are not generated."""

    def __init__(self, model: Any, *, shared: list[int]) -> None:
        self._model, self._shared = model, shared
        self._cache = DynamicCache(config=model.config)
        if shared:
            CachedRows(model, cache=self._cache, count=1, seen=0).read([shared])

    @classmethod
    def over(cls, prompts: Sequence[list[int]], *, model: Any) -> Leap:
        """Read the common prefix of ``prompts`` without its last token, so that each prompt has an unread token."""
        return cls(model, shared=prompts[0][: common([tuple(prompt) for prompt in prompts])][:-1])

    def write(self, prompts: Sequence[list[int]], *, grammar: Grammar, room: int) -> list[list[int]]:
        """Return the tokens of the answer to each prompt; at each choice, the most probable option is taken."""
        cache = deepcopy(self._cache)
        cache.batch_repeat_interleave(len(prompts))
        rows = CachedRows(self._model, cache=cache, count=len(prompts), seen=len(self._shared))
        written = [list(grammar.opening) for _ in prompts]
        states = [grammar.start for _ in prompts]
        unread = [prompt[len(self._shared) :] + answer for prompt, answer in zip(prompts, written, strict=True)]
        live = [i for i, state in enumerate(states) if state.branches]
        while live:
            scores = rows.read([unread[i] for i in live])
            options = [states[i].within(room - len(written[i])) for i in live]
            for i, token in zip(live, best(scores, options=options), strict=True):
                branch = states[i].branches[token]
                written[i] += branch.tokens
                unread[i], states[i] = list(branch.tokens), branch.then
            keep = [place for place, i in enumerate(live) if states[i].branches]
            if len(keep) < len(live):
                rows.keep(keep)
                live = [live[place] for place in keep]
        return written


class CachedRows:
    """Token rows in a model's cache; new tokens are padded on the left and masked."""

    def __init__(self, model: Any, *, cache: Any, count: int, seen: int) -> None:
        """Start after ``seen`` tokens that the ``cache`` holds for each of ``count`` rows."""
        self._model, self._cache = model, cache
        self._mask = torch.ones((count, seen), dtype=torch.bool)

    def read(self, rows: Sequence[Sequence[int]]) -> Any:
        """Return the scores of each row's next token, shape (rows, vocabulary)."""
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + [*row] for row in rows])
        new = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
        positions = (self._mask.sum(1, keepdim=True) + new.cumsum(1) - 1).clamp(min=0)
        self._mask = torch.cat([self._mask, new], dim=1)
        device = self._model.device
        said = self._model(
            input_ids=ids.to(device),
            attention_mask=self._mask.to(device),
            position_ids=positions.to(device),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return said.logits[:, -1]

    def keep(self, places: Sequence[int]) -> None:
        """Remove all rows but ``places`` from the model's cache."""
        which = torch.tensor(places, dtype=torch.long)  # on the CPU, as layers may be on several accelerators
        self._mask = self._mask[which]
        self._cache.batch_select_indices(which)


def best(scores: Any, *, options: Sequence[Sequence[int]]) -> list[int]:
    """Return for each row of ``scores`` the token with the highest score among its ``options``."""
    width = max(map(len, options))
    ids = torch.tensor([[*row, *[row[0]] * (width - len(row))] for row in options], device=scores.device)
    found = scores.gather(1, ids).argmax(1, keepdim=True)
    return list(ids.gather(1, found)[:, 0].tolist())


def leaps(model: Any) -> bool:
    """Return whether a model can add several tokens to its cache at once, some masked (full attention only)."""
    layers = DynamicCache(config=model.config).layers
    takes = inspect.signature(model.forward).parameters
    plain = all(type(layer) is DynamicLayer for layer in layers) and not model._is_stateful
    return plain and {"position_ids", "logits_to_keep"} <= takes.keys()


def _loaded(place: str, *, base: str) -> Any:
    """Return the model in evaluation mode, without gradients; see ``Generator.open``."""
    gpu = torch.cuda.is_available()
    form = torch.bfloat16 if gpu and torch.cuda.is_bf16_supported() else torch.float32
    where = {"device_map": "auto"} if gpu else {}
    if adapter.stored(place):
        model, info = adapter.loaded(place, base=base, dtype=form, **where)
    else:
        model, info = had(AutoModelForCausalLM, place, base=base, output_loading_info=True, dtype=form, **where)
    lacking = sorted([*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])])
    if lacking:
        raise BaseUnfit(base=base, detail=f"its checkpoint lacks {len(lacking)} weights (such as {lacking[0]})")
    return model.eval().requires_grad_(False)


def _ends(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end an answer: the tokenizer's first, then the checkpoint's."""
    named = model.generation_config.eos_token_id
    more = named if isinstance(named, list) else [named]
    return list(dict.fromkeys(token for token in (tokenizer.eos_token_id, *more) if token is not None))
