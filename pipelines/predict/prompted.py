"""Run the stage ``prompted``: predict the memes of test with a prompted language model (SPEC 1.2, item 7).

Each request holds one meme with its picture and one task, zero-shot or few-shot. Every run of a model sends new
requests with the same examples: the paper's few-shot rows of some local models have a deviation of .00 (FigSIM T3),
which different examples would hardly allow. Answers are first looked up in the encrypted store of answers, so a
restarted stage requests only the missing ones. An answer has labels only if its outcome is ``vote``: a refusal is not a
prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.core.config.models import PromptedModel
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.progress import reporter
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import TEST, Example, Item, only
from pipelines.datasets.memes import load
from pipelines.label.memes import meme_labels
from pipelines.label.memes.meme_labels import MemeLabeller, MemePost, described, meme
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import Answer, Outcome, check_failures, counted, spent
from pipelines.llm.prompting import own_prompts
from pipelines.llm.prompting.prompts import Prompt, build, register
from pipelines.store import tables
from pipelines.store.answers import AnswerStore
from pipelines.store.metrics_file import write_metrics
from pipelines.store.vault.vault import Vault
from pipelines.train.predictors.prediction import Prediction

NO_PICTURE = "no_picture"


@dataclass(frozen=True)
class PromptedTask:
    """A task with the prompt for it, the memes to predict, and the labels that no example in the prompt has."""

    task: Task
    prompt: Prompt
    items: Sequence[Example]
    unshown: Sequence[str]


def run(
    corpus: str, *, model: str, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> dict[str, Any]:
    """Prompt a model; write ``snapshot/<corpus>/predictions/prompted/<model>/predictions.parquet`` and metrics.

    There is one row for each item of test, task of ``train.tasks`` and run (``seed``: 1 to the model's ``runs``). In
    ``train.mode`` ``paper``, a model sees the picture alone (FigSIM T11); in ``improved``, also the words that were
    read from it. ``votes.seed`` seeds the draw of the examples.

    Returns:
        By task, ``items``, ``outcomes``, ``prompts`` (:attr:`pipelines.llm.prompting.prompts.Prompt.origin`) and
        ``unshown`` (labels without an example, because no item of train has them; few-shot only); ``runs``,
        ``examples`` (number in each prompt), ``reasons`` (of answers that are not votes, and of repairs),
        ``repaired``, tokens and ``cost`` in US dollars.
    """
    stage = PromptedRun(corpus, model, params, settings, vault, root)
    # all prompts are built before the first request is sent
    tasks = {key: stage.question(key) for key in params.train.tasks}
    with AnswerStore.open(settings.answers_url) as store:
        answered = {key: [*stage.ask(question, store=store)] for key, question in tasks.items()}
    answers = {key: [answer for by_run in runs for answer in by_run] for key, runs in answered.items()}
    said = [answer for by_task in answers.values() for answer in by_task]
    check_failures([a.outcome for a in said], labeller=stage.spec.labeller, most=params.votes.max_failed)
    rows = [row for key, question in tasks.items() for row in _rows(question, answered[key], model=model)]
    path = root / "snapshot" / corpus / "predictions" / "prompted" / model / "predictions.parquet"
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["predictions"]), path, name="predictions")
    metrics = {
        "items": {key: len(question.items) for key, question in tasks.items()},
        "prompts": {key: question.prompt.origin for key, question in tasks.items()},
        "unshown": {key: list(question.unshown) for key, question in tasks.items()},
        "outcomes": {key: counted(answer.outcome for answer in by_task) for key, by_task in answers.items()},
        "runs": stage.spec.runs,
        "examples": stage.spec.examples,
        **spent(said),
    }
    return write_metrics(metrics, root / "metrics" / corpus / f"prompted-{model}.json")


def _rows(question: PromptedTask, answered: Sequence[Sequence[Answer]], *, model: str) -> Iterator[dict[str, Any]]:
    """Yield the answers of all runs as rows of the table ``predictions``; only a ``vote`` has labels."""
    for number, answers in enumerate(answered, start=1):
        for example, answer in zip(question.items, answers, strict=True):
            said = Prediction(str(answer.outcome), frozenset(answer.labels if answer.outcome is Outcome.VOTE else ()))
            about = {"task": question.task.key, "model": model, "seed": number, "split": example.split}
            yield said.row(example.item, **about, scores=None, alerts=None)


def planned(
    corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> Iterator[PlannedRequests]:
    """Yield what each model of ``prompted.models`` would be sent for all tasks and runs, and at what cost."""
    with AnswerStore.open(settings.answers_url) as store:
        for model in params.prompted.models:
            stage = PromptedRun(corpus, model, params, settings, vault, root)
            for key in params.train.tasks:
                yield from stage.planned(stage.question(key), store=store)


@dataclass(frozen=True)
class PromptedRun:
    """The stage ``prompted`` for one model: its inputs, and the steps that build the prompts and request answers."""

    corpus: str
    model: str
    params: Params
    settings: Settings
    vault: Vault
    root: Path

    @cached_property
    def spec(self) -> PromptedModel:
        """The model's entry."""
        spec = self.params.models.get(self.model)
        if not isinstance(spec, PromptedModel):
            raise ConfigError("NotPrompted", model=self.model)
        return spec

    @cached_property
    def scheme(self) -> Scheme:
        """The label scheme of the corpus."""
        return scheme_of(self.params.corpora[self.corpus].scheme, root=self.root)

    @property
    def words(self) -> bool:
        """Whether requests include the OCR text of a meme's picture."""
        return self.params.train.mode == "improved"

    def question(self, key: str) -> PromptedTask:
        """Read the memes to predict for the task ``key``, and build its prompt (with examples of train if few-shot)."""
        task = task_of(self.scheme, key)
        material = load(self.corpus, task=task, params=self.params, vault=self.vault, root=self.root)
        drawn = meme_labels.draw(material.train, task=task, count=self.spec.examples, seed=self.params.votes.seed)
        prompt = build(
            self.scheme,
            keys=[key],
            system=described(self.spec.labeller, params=self.params).system,
            examples=meme_labels.in_prompt(drawn, task=task, words=self.words),
            secret=self.settings.secret(),
            mode=self.params.train.mode,
            own=own_prompts.read(self.params.prompts, root=self.root),
        )
        register(prompt, tracking_uri=self.settings.mlflow_tracking_uri)
        unshown = meme_labels.unshown(drawn, task=task) if drawn else []
        return PromptedTask(task, prompt, only(material.test, splits=(TEST,)), unshown)

    def ask(self, question: PromptedTask, *, store: AnswerStore) -> Iterator[list[Answer]]:
        """Yield the answers of each run by meme: requested for one with a picture, an abstention for one without."""
        memes = self._memes(question)
        unseen = Answer(
            "", self.spec.labeller, question.task.key, question.prompt.digest, Outcome.ABSTAINED, NO_PICTURE
        )
        for number, labeller in enumerate(self._labellers(question, store=store), start=1):
            progress = reporter(f"{self.model} {question.task.key} {number}/{self.spec.runs}", total=len(memes))
            by_item = dict(zip(memes, labeller.label(list(memes.values()), progress=progress), strict=True))
            yield [by_item.get(e.item) or replace(unseen, record_id=e.item[0]) for e in question.items]

    def planned(self, question: PromptedTask, *, store: AnswerStore) -> Iterator[PlannedRequests]:
        """Yield what each run would send for one task, and at what cost; examples of the prompt leave too."""
        posts = list(self._memes(question).values())
        shown = sum(len(example.post.images) for example in question.prompt.examples)
        for labeller in self._labellers(question, store=store):
            planned = labeller.planned("prompted", posts, name=self.model)
            more = {"pictures": planned.leaves["pictures"] + (shown if planned.cost["to_ask"] else 0)}
            yield replace(planned, leaves={**planned.leaves, **more})

    def _memes(self, question: PromptedTask) -> dict[Item, MemePost]:
        return {e.item: meme(e, words=self.words) for e in question.items if e.image is not None}

    def _labellers(self, question: PromptedTask, *, store: AnswerStore) -> Iterator[MemeLabeller]:
        """Yield the labeller of each run, which has stored answers of its own."""
        given: dict[str, Any] = {
            "params": self.params,
            "settings": self.settings,
            "vault": self.vault,
            "answers": store,
        }
        given |= {"prompt": question.prompt, "scheme": self.scheme}
        for number in range(1, self.spec.runs + 1):
            yield MemeLabeller.named(self.spec.labeller, repetition=number, **given)
