"""Run the stage ``baselines``: collect predictions on dev and test from models that this project does not tune.

By kind, predictions are requested from a language model over HTTP (``prompted``), computed now (``local``,
``registered``), read from an earlier stage (``votes`` of a labeller, silver labels of an ``ensemble``), or read from an
external file (``saved``). A prediction has labels only if its
outcome is ``vote``. A record without an answer has no row; evaluation counts the record as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pipelines.core.config import models as kinds
from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError
from pipelines.core.progress import reporter
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets import posts
from pipelines.datasets.example import LabelSet
from pipelines.datasets.posts import Posts, SplitPosts
from pipelines.label.remote import LEAST_SHARE, Remote
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import Outcome, Raw, check_failures
from pipelines.llm.prompting.post_prompt import prompt_for
from pipelines.llm.prompting.prompts import DEV, Prompt, register
from pipelines.llm.response_parser import interpret
from pipelines.predict import external_predictions
from pipelines.predict.predict_finetuned import Spent, ask, write
from pipelines.store import tables
from pipelines.store.answers import AnswerStore
from pipelines.store.metrics_file import write_metrics
from pipelines.store.vault.vault import Vault
from pipelines.train.predictors import finetuned
from pipelines.train.predictors.prediction import VOTE, Prediction, Predictor

STEP = "baselines"
TEST = "test"
SEED = 0  # nothing is sampled
DECIMALS = 6  # of US dollars, as in the stage votes
ABSTAINED = str(Outcome.ABSTAINED)


@dataclass(frozen=True)
class BaselineAnswers:
    """A model's predictions by record id, their cost if known, and further metrics (``more``) of its kind of model."""

    said: Mapping[str, Prediction]
    spent: Spent | None
    more: Mapping[str, Any] = field(default_factory=dict)


def run(
    corpus: str, *, model: str, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> dict[str, Any]:
    """Collect a model's predictions; write them to ``snapshot/<corpus>/predictions/untuned/<model>/``, and metrics.

    ``predictions.parquet`` has a row (``seed`` 0) for each answer about a record of test with gold or of dev, except
    the prompt's examples. ``spent.json`` has the cost: for votes and ensembles the tokens and US dollars of these
    records, without a time, as it was not measured. Saved predictions have no such file, as their cost is unknown.

    Returns:
        ``kind``, ``records`` and ``outcomes`` by split (including ``missing``), ``without`` and ``taken_down`` (see
        ``datasets.posts.load``), ``spent`` as in ``spent.json``, and for ``saved``: ``digest`` of the file, ``unknown``
        (rows of records that are not in the corpus), ``elsewhere`` (rows of records that are not scored), ``repaired``,
        ``malformed``.
    """
    spec = params.models.get(model)
    if spec is None or spec.kind not in COLLECTORS:
        raise ConfigError("NotUntuned", model=model, kinds=", ".join(COLLECTORS))
    desk = Baseline(corpus, model, params, settings, vault, root)
    collected = COLLECTORS[spec.kind](desk, spec)
    answers = [collected.said.get(record_id) for record_id in desk.ids]
    place = root / "snapshot" / corpus / "predictions" / "untuned" / model
    counts = write(
        place, answers, material=desk.material, task=desk.task.key, model=model, seed=SEED, spent=collected.spent
    )
    metrics = {"kind": spec.kind, **counts, **collected.more}
    return write_metrics(metrics, root / "metrics" / corpus / f"baselines-{model}.json")


def planned(
    corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> Iterator[PlannedRequests]:
    """Yield what each served model of ``baselines.models`` would be sent, and at what cost."""
    for model in params.baselines.models:
        if isinstance(spec := params.models[model], kinds.PromptedModel):
            yield Baseline(corpus, model, params, settings, vault, root).planned(spec)


@dataclass(frozen=True)
class Baseline:
    """A model of section ``models`` that is not tuned, and the posts of dev and test for which it has predictions."""

    corpus: str
    model: str
    params: Params
    settings: Settings
    vault: Vault
    root: Path

    @cached_property
    def scheme(self) -> Scheme:
        """The label scheme of the corpus."""
        return scheme_of(self.params.corpora[self.corpus].scheme, root=self.root)

    @cached_property
    def task(self) -> Task:
        """The task that models of posts are compared on."""
        return task_of(self.scheme, self.params.finetune.category)

    @cached_property
    def material(self) -> Posts:
        """The posts to predict, with gold."""
        return posts.load(self.corpus, task=self.task, subset=None, ensemble=None, **self._places)

    @cached_property
    def splits(self) -> SplitPosts:
        """The posts of all splits, with gold and the prompt's examples."""
        return SplitPosts.read(self.corpus, **self._places)

    @property
    def _places(self) -> dict[str, Any]:
        return {"params": self.params, "vault": self.vault, "root": self.root}

    @property
    def ids(self) -> list[str]:
        """The ids of the records to predict."""
        return [example.item[0] for example in self.material.asked]

    def planned(self, spec: kinds.PromptedModel) -> PlannedRequests:
        """Return what a served model would be sent, and at what cost; nothing is sent."""
        splits = self.splits
        unseen = [r for r in splits.posts if r in splits.gold and r not in splits.examples]
        asked_about = [splits.posts[r] for r in unseen if splits.split[r] in (DEV, TEST)]
        with AnswerStore.open(self.settings.answers_url) as store:
            return self._remote(spec, store=store).planned(STEP, asked_about, name=self.model)

    def prompted(self, spec: kinds.PromptedModel) -> BaselineAnswers:
        """Request a served model's answers; stored answers are not requested again."""
        asked_about = [self.material.posts[record_id] for record_id in self.ids]
        with AnswerStore.open(self.settings.answers_url) as store:
            asked = self._remote(spec, store=store)
            register(asked.prompt, tracking_uri=self.settings.mlflow_tracking_uri)
            answers = asked.label(asked_about, progress=reporter(self.model, total=len(asked_about)))
        outcomes = [answer.outcome for answer in answers]
        check_failures(outcomes, labeller=spec.labeller, most=self.params.votes.max_failed)
        said = {
            a.record_id: Prediction(
                str(a.outcome), frozenset(a.labels), input_tokens=a.input_tokens, output_tokens=a.output_tokens
            )
            for a in answers
        }
        cost = round(sum(sorted(answer.cost for answer in answers)), DECIMALS)
        return BaselineAnswers(said, Spent.of(list(said.values()), cost=cost), {"labeller": spec.labeller})

    def local(self, spec: kinds.LocalModel) -> BaselineAnswers:
        """Predict with a causal model in this process."""
        return self._here(self.generator(spec))

    def generator(self, spec: kinds.LocalModel) -> Predictor:
        """Return a causal model; with the labellers' prompt it answers freely, and posts are shortened as theirs."""
        from pipelines.train.predictors.generate import Generator

        section, folder = self.params.finetune, self.settings.home / "train"
        options: dict[str, Any] = {"max_new_tokens": section.max_new_tokens}
        if spec.prompt == "evaluation":
            prompt = prompt_for(self.splits, system="open", secret=self.settings.secret())
            least, reader = int(spec.max_length * LEAST_SHARE), partial(self.read, prompt=prompt)
            options = {"max_new_tokens": self.params.votes.max_output_tokens, "least": least}
            options |= {"prompt": prompt, "reader": reader}
        options |= {"revision": spec.revision, "max_length": spec.max_length, "batch": spec.batch, "seed": section.seed}
        return Generator(spec.base, task=self.task, scheme=self.scheme, folder=folder, **options)

    def read(self, text: str, *, prompt: Prompt) -> tuple[str, LabelSet]:
        """Return outcome and labels of an answer, read by the labellers' rules."""
        raw = Raw(text=text, finish="stop", refused=None, input_tokens=0, output_tokens=0, effective={})
        by: dict[str, Any] = {"scheme": self.scheme, "mode": self.params.votes.mode}
        [answer] = interpret(raw, record_id="", labeller=self.model, prompt=prompt, cost=0.0, **by)
        return str(answer.outcome), frozenset(answer.labels if answer.outcome is Outcome.VOTE else ())

    def registered(self, spec: kinds.RegisteredModel) -> BaselineAnswers:
        """Predict with a model from the registry."""
        from pipelines.registry.registered import Registered

        return self._here(Registered(spec.uri, task=self.task, posts=self.material.posts, settings=self.settings))

    def votes(self, spec: kinds.VotesModel) -> BaselineAnswers:
        """Return a labeller's votes."""
        rows = self._votes(spec.labeller)
        said = {
            record_id: Prediction(row["outcome"], frozenset(row["labels"] or ()), tuple(row["scores"] or ()))
            for record_id in self.ids
            if (row := rows.get(record_id))
        }
        return BaselineAnswers(said, _bill([rows], ids=said.keys()))

    def ensemble(self, spec: kinds.EnsembleModel) -> BaselineAnswers:
        """Return an ensemble's decisions: without a majority, its fallback's answer, or else an abstention."""
        if spec.ensemble not in self.params.ensembles:
            raise BadParams(where=f"models.{self.model}.ensemble", detail=f"section ensembles has no '{spec.ensemble}'")
        path = self.root / "snapshot" / self.corpus / "silver" / spec.ensemble / "silver.parquet"
        if not path.is_file():
            raise ConfigError("NoSilver", corpus=self.corpus, ensemble=spec.ensemble)
        asked = set(self.ids)
        said = {
            row["record_id"]: Prediction(ABSTAINED if row["labels"] is None else VOTE, frozenset(row["labels"] or ()))
            for row in tables.read(path, name="silver", columns=["record_id", "category", "labels"]).to_pylist()
            if row["category"] == self.task.key and row["record_id"] in asked
        }
        members = dict.fromkeys(self.params.ensembles[spec.ensemble].members)
        return BaselineAnswers(said, _bill([self._votes(member) for member in members], ids=said.keys()))

    def saved(self, spec: kinds.SavedModel) -> BaselineAnswers:
        """Read predictions from an external file."""
        known = {record_id for record_id, _ in self.material.placed}
        folder = self.settings.annotation_files
        said, more = external_predictions.read(
            spec.path, folder=folder, task=self.task, asked=set(self.ids), known=known
        )
        return BaselineAnswers(said, None, more)

    def _here(self, predictor: Predictor) -> BaselineAnswers:
        said, spent = ask(predictor, self.material.asked, name=self.model)
        return BaselineAnswers(dict(zip(self.ids, said, strict=True)), spent)

    def _votes(self, labeller: str) -> Mapping[str, finetuned.Row]:
        return finetuned.votes(self.corpus, labeller=labeller, task=self.task, root=self.root)

    def _remote(self, spec: kinds.PromptedModel, *, store: AnswerStore) -> Remote:
        labeller = self.params.labellers[spec.labeller]
        if not isinstance(labeller, RemoteLabeller):
            raise BadParams(where=f"models.{self.model}.labeller", detail=f"'{spec.labeller}' is offline")
        if spec.runs != 1:
            raise BadParams(where=f"models.{self.model}.runs", detail="a model is asked once about posts: set 1")
        prompt = prompt_for(self.splits, system=labeller.system, secret=self.settings.secret(), most=spec.examples)
        asked: dict[str, Any] = {
            "params": self.params,
            "settings": self.settings,
            "vault": self.vault,
            "answers": store,
        }
        return Remote.of(spec.labeller, labeller=labeller, prompt=prompt, scheme=self.scheme, **asked)


COLLECTORS: Mapping[str, Callable[..., BaselineAnswers]] = {
    kind: getattr(Baseline, kind) for kind in ("prompted", "local", "votes", "ensemble", "saved", "registered")
}


def _bill(bills: Sequence[Mapping[str, finetuned.Row]], *, ids: Collection[str]) -> Spent:
    """Sum up the cost of votes about some records; sorted, so that the order of rows does not change the last bit."""
    rows = [rows[record_id] for rows in bills for record_id in ids if record_id in rows]
    return Spent(
        records=len(ids),
        seconds=None,
        input_tokens=sum(row["input_tokens"] or 0 for row in rows),
        output_tokens=sum(row["output_tokens"] or 0 for row in rows),
        cost=round(sum(sorted(row["cost"] or 0.0 for row in rows)), DECIMALS),
    )
