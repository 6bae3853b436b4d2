"""Predict labels of posts with a causal model: the most probable of all valid answers, and the labels' probabilities.

The probability of each answer is exact (``posterior.py``). A label's is the sum over the answers that name it, and is
calibrated on dev if the model was tuned (``sft.calibrate``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import Example, LabelSet
from pipelines.llm.prompts import Prompt
from pipelines.metrics import recall_constraints
from pipelines.metrics.calibration import Calibration
from pipelines.metrics.label_sets import matrix
from pipelines.metrics.recall_constraints import Alerts, raised
from pipelines.models.backbones import check_complete, had, opened, unfit
from pipelines.models.fitting import adapter
from pipelines.models.fitting.instruct import completion, conversation, instruction
from pipelines.models.fitting.posterior import Grammar, PosteriorReader
from pipelines.models.prediction import VOTE, Prediction, Progress

Floats = npt.NDArray[np.float64]
Reader = Callable[[str], tuple[str, LabelSet]]
"""Returns the outcome and the labels of an answer."""


class Generator:
    """A causal model that gives its most probable answer (temperature 0, SPEC 25)."""

    def __init__(
        self,
        base: str | Path,
        *,
        task: Task,
        scheme: Scheme,
        max_length: int,
        max_new_tokens: int,
        batch: int,
        seed: int = 0,
        folder: Path,
        revision: str | None = None,
        prompt: Prompt | None = None,
        reader: Reader | None = None,
        least: int = 0,
        chat: bool = True,
    ) -> None:
        name = str(base)
        with opened(name, revision=revision, seed=seed, folder=folder) as place:
            self._tokenizer = had(AutoTokenizer, place, base=name)
            self._model = _loaded(place, base=name)
        if not chat:
            self._tokenizer.chat_template = None
        self._ends = _ends(self._model, self._tokenizer)
        if not self._ends:
            raise unfit(name, "it has no token that ends an answer")
        # a checkpoint's own settings (such as a repetition penalty) would change which token is most probable
        self._model.generation_config = GenerationConfig(eos_token_id=self._ends, pad_token_id=self._ends[0])
        self._prompt = prompt or instruction(scheme, category=task.key, tuned=Path(base))
        self._reader = reader
        self._task, self._calibration = task, None
        self._alerts: Alerts = {}
        if (Path(base) / recall_constraints.FILE).is_file():
            # of a tuned model
            self._alerts, stored = recall_constraints.load(Path(base), task=task)
            self._calibration = Calibration.of_json(stored["calibration"])
        self._max_length, self._room, self._least, self._batch = max_length, max_new_tokens, least, batch
        self._grammar = Grammar.of(task, encode=self._encode) if reader is None else None
        if self._grammar:
            self._grammar.check(max_new_tokens)

    def posteriors(self, examples: Sequence[Example]) -> Floats:
        """Return the probability that the answer about an example is each of :attr:`sets`, shape (examples, sets)."""
        return self._posteriors(self._prompts(examples), progress=None)

    def predict(self, examples: Sequence[Example], *, progress: Progress = None) -> list[Prediction]:
        """Return for each example the most probable answer, with calibrated probabilities of the labels and alerts.

        The labels are those of the one most probable answer, in a single-label task by the calibrated probabilities;
        on a tie, of the smallest, then the first alphabetically.
        With a reader the model decodes greedily without constraint, and gives no probabilities.
        """
        prompts = self._prompts(examples)
        if self._reader is not None:
            return self._written(prompts, reader=self._reader, progress=progress)
        posterior = self._posteriors(prompts, progress=progress)
        # a sum may exceed 1 by its last bit
        scores = np.clip(posterior @ self.member, 0.0, 1.0)
        if self._calibration is not None:
            scores = self._calibration(scores)
        if self._task.kind == "single":
            # calibration knows how frequent the classes are, the model may not
            posterior = scores @ self.member.T
        alerts = raised(scores, task=self._task, alerts=self._alerts)
        return [
            Prediction(VOTE, self.sets[best], tuple(row), len(prompt), self._lengths[best], alert)
            for best, row, prompt, alert in zip(posterior.argmax(axis=1), scores.tolist(), prompts, alerts, strict=True)
        ]

    @cached_property
    def sets(self) -> list[frozenset[str]]:
        """The label sets of all valid answers, sorted by size and alphabetically."""
        return sorted(self._task.category.valid_sets(), key=lambda labels: (len(labels), sorted(labels)))

    @cached_property
    def member(self) -> Floats:
        """A matrix of shape (sets, labels) that is 1 where a set of :attr:`sets` contains a label."""
        return matrix(self.sets, labels=self._task.labels).astype(np.float64)

    @cached_property
    def _lengths(self) -> list[int]:
        return [len(self._encode(completion(labels, task=self._task))) for labels in self.sets]

    def forget(self) -> None:
        """Do nothing: no example is kept."""

    def _prompts(self, examples: Sequence[Example]) -> list[list[int]]:
        sizes = {"max_length": self._max_length, "room": self._room, "least": self._least}
        return [conversation(e.text, prompt=self._prompt, tokenizer=self._tokenizer, **sizes) for e in examples]

    def _batches(self, prompts: Sequence[list[int]]) -> Iterator[list[int]]:
        order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
        yield from (order[begin : begin + self._batch] for begin in range(0, len(order), self._batch))

    def _posteriors(self, prompts: Sequence[list[int]], *, progress: Progress) -> Floats:
        if self._grammar is None:
            raise ValueError("without constraint there is no posterior")
        posterior, done = np.zeros((len(prompts), len(self.sets))), 0
        if not prompts:
            return posterior
        column = {labels: k for k, labels in enumerate(self.sets)}
        with torch.inference_mode():
            reader = PosteriorReader(self._model, prompts=prompts, batch=self._batch)
            for which in self._batches(prompts):
                rows = reader([prompts[i] for i in which], grammar=self._grammar, room=self._room)
                for i, row in zip(which, rows, strict=True):
                    posterior[i, [column[labels] for labels in row]] = list(row.values())
                done += len(which)
                if progress:
                    progress(done)
        return posterior

    def _written(self, prompts: Sequence[list[int]], *, reader: Reader, progress: Progress) -> list[Prediction]:
        answers: dict[int, Prediction] = {}
        with torch.inference_mode():
            for which in self._batches(prompts):
                for i, tokens in zip(which, self._step([prompts[i] for i in which]), strict=True):
                    outcome, labels = reader(self._tokenizer.decode(tokens, skip_special_tokens=True))
                    answers[i] = Prediction(outcome, labels, (), len(prompts[i]), len(tokens))
                if progress:
                    progress(len(answers))
        return [answers[i] for i in range(len(prompts))]

    def _step(self, rows: Sequence[list[int]]) -> list[list[int]]:
        """Let the library generate token by token, greedily; return the tokens without the end token."""
        width, end = max(map(len, rows)), self._ends[0]
        ids = torch.tensor([[end] * (width - len(row)) + row for row in rows], device=self._model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=self._model.device)
        whole = self._model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=self._room)
        written = whole[:, width:].tolist()
        return [row[: next((i for i, token in enumerate(row) if token in self._ends), len(row))] for row in written]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def _loaded(place: str, *, base: str) -> Any:
    """Return the model in evaluation mode, without gradients; see ``Generator``."""
    gpu = torch.cuda.is_available()
    form = torch.bfloat16 if gpu and torch.cuda.is_bf16_supported() else torch.float32
    where = {"device_map": "auto"} if gpu else {}
    if adapter.stored(place):
        model, info = adapter.loaded(place, base=base, dtype=form, **where)
    else:
        model, info = had(AutoModelForCausalLM, place, base=base, output_loading_info=True, dtype=form, **where)
    check_complete(info, base=base)
    return model.eval().requires_grad_(False)


def _ends(model: Any, tokenizer: Any) -> list[int]:
    named = model.generation_config.eos_token_id
    more = named if isinstance(named, list) else [named]
    return list(dict.fromkeys(token for token in (tokenizer.eos_token_id, *more) if token is not None))
