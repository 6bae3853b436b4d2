"""Run the stage ``baselines``: collect predictions on dev and test from models that this project does not tune.

By kind, predictions are requested from a language model over HTTP (``prompted``), computed now (``local``,
``registered``), read from an earlier stage (``votes`` of a labeller, silver labels of an ``ensemble``), or read from an
external file (``saved``). A prediction has labels only if its
outcome is ``vote``. A record without an answer has no row; evaluation counts the record as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.models import (
    EnsembleModel,
    LocalModel,
    PromptedModel,
    RegisteredModel,
    SavedModel,
    VotesModel,
)
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams, ConfigError
from pipelines.core.progress import reporter
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets import posts
from pipelines.datasets.example import LabelSet
from pipelines.datasets.post import Post
from pipelines.datasets.posts import Posts, SplitPosts
from pipelines.label.remote import LEAST_SHARE, Remote
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import Answer, Outcome, Raw, check_failures
from pipelines.llm.prompting.post_prompt import prompt_for
from pipelines.llm.prompting.prompts import DEV, Prompt, register
from pipelines.llm.response_parser import interpret
from pipelines.predict import external_predictions
from pipelines.predict.predict_finetuned import Spent, ask, counted, rows_of, write
from pipelines.store import tables
from pipelines.store.answers import AnswerStore
from pipelines.store.metrics_file import write_metrics
from pipelines.store.vault.vault import Vault
from pipelines.train.predictors import finetuned
from pipelines.train.predictors.prediction import VOTE, Prediction, Predictor

STEP = "baselines"
TEST = "test"


@dataclass(frozen=True)
class PromptedPosts:
    """The posts of a corpus, and a model of section ``models`` that is asked about those of dev and test."""

    corpus: str
    model: str
    params: Params
    settings: Settings
    vault: Vault
    root: Path

    @cached_property
    def material(self) -> SplitPosts:
        """The posts of all splits, with gold and the prompt's examples."""
        return SplitPosts.read(self.corpus, params=self.params, vault=self.vault, root=self.root)

    def answers(self, spec: PromptedModel, *, posts: Sequence[Post]) -> Mapping[str, Answer]:
        """Return a served model's answers by record id; stored answers are not requested again."""
        with AnswerStore.open(self.settings.answers_url) as store:
            asked = self._remote(spec, store=store)
            register(asked.prompt, tracking_uri=self.settings.mlflow_tracking_uri)
            answers = asked.label(posts, progress=reporter(self.model, total=len(posts)))
        outcomes = [answer.outcome for answer in answers]
        check_failures(outcomes, labeller=spec.labeller, most=self.params.votes.max_failed)
        return {answer.record_id: answer for answer in answers}

    def planned(self, spec: PromptedModel) -> PlannedRequests:
        """Return what a served model would be sent, and at what cost; nothing is sent."""
        posts = [
            post
            for record_id, post in self.material.posts.items()
            if self.material.split[record_id] in (DEV, TEST)
            and record_id in self.material.gold
            and record_id not in self.material.examples
        ]
        with AnswerStore.open(self.settings.answers_url) as store:
            asked = self._remote(spec, store=store)
            cost, leaves = asked.estimate(posts), asked.leaving(posts)
        return PlannedRequests(STEP, self.model, asked.receiver, cost=cost, leaves=leaves)

    def local(self, spec: LocalModel, *, seed: int) -> Predictor:
        """Return a model in this process that is asked with the labellers' prompt, and shortens posts as they do."""
        from pipelines.train.predictors.generate import Generator

        task = task_of(self.material.scheme, self.material.scheme.category().key)
        prompt = prompt_for(self.material, system="open", secret=self.settings.secret())
        return Generator(
            spec.base,
            task=task,
            scheme=self.material.scheme,
            max_length=spec.max_length,
            max_new_tokens=self.params.votes.max_output_tokens,
            batch=spec.batch,
            seed=seed,
            folder=self.settings.home / "train",
            revision=spec.revision,
            constrained=False,
            prompt=prompt,
            reader=lambda text: self._read(text, prompt=prompt),
            least=int(spec.max_length * LEAST_SHARE),
        )

    def _remote(self, spec: PromptedModel, *, store: AnswerStore) -> Remote:
        labeller = self.params.labellers[spec.labeller]
        if not isinstance(labeller, RemoteLabeller):
            raise BadParams(where=f"models.{self.model}.labeller", detail=f"'{spec.labeller}' is offline")
        if spec.runs != 1:
            raise BadParams(where=f"models.{self.model}.runs", detail="a model is asked once about posts: set 1")
        secret, scheme = self.settings.secret(), self.material.scheme
        prompt = prompt_for(self.material, system=labeller.system, secret=secret, most=spec.examples)
        return Remote.of(
            spec.labeller,
            labeller=labeller,
            params=self.params,
            settings=self.settings,
            prompt=prompt,
            scheme=scheme,
            answers=store,
            vault=self.vault,
        )

    def _read(self, text: str, *, prompt: Prompt) -> tuple[str, LabelSet]:
        raw = Raw(text=text, finish="stop", refused=None, input_tokens=0, output_tokens=0, effective={})
        scheme, mode = self.material.scheme, self.params.votes.mode
        [answer] = interpret(raw, record_id="", labeller=self.model, prompt=prompt, scheme=scheme, mode=mode, cost=0.0)
        return str(answer.outcome), frozenset(answer.labels if answer.outcome is Outcome.VOTE else ())


def planned(
    corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> Iterator[PlannedRequests]:
    """Yield what each served model of ``baselines.models`` would be sent, and at what cost."""
    for model in params.baselines.models:
        spec = params.models[model]
        if isinstance(spec, PromptedModel):
            yield PromptedPosts(corpus, model, params, settings, vault, root).planned(spec)


SEED = 0  # nothing is sampled
DECIMALS = 6  # of US dollars, as in the stage votes


@dataclass(frozen=True)
class BaselineAnswers:
    """A model's predictions by record id, their cost if known, and further metrics (``more``) of its kind of model."""

    said: Mapping[str, Prediction]
    spent: Spent | None
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BaselineContext:
    """What the stage ``baselines`` passes to a model whose predictions it collects: parameters, task and posts."""

    corpus: str
    model: str
    params: Params
    settings: Settings
    scheme: Scheme
    task: Task
    material: Posts
    vault: Vault
    root: Path

    @property
    def prompted(self) -> PromptedPosts:
        """The corpus's posts for a model that is asked with the labellers' prompt."""
        return PromptedPosts(self.corpus, self.model, self.params, self.settings, self.vault, self.root)

    @property
    def ids(self) -> list[str]:
        """The ids of the records to predict."""
        return [example.item[0] for example in self.material.asked]

    def asked(self, predictor: Predictor) -> BaselineAnswers:
        """Predict every record with a model on this machine; return the predictions and their cost."""
        said, seconds = ask(predictor, self.material.asked, name=self.model)
        return BaselineAnswers(dict(zip(self.ids, said, strict=True)), Spent.here(said, seconds=seconds))


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
    scheme = scheme_of(params.corpora[corpus].scheme, root=root)
    task = task_of(scheme, params.finetune.category)
    material = posts.load(corpus, task=task, subset=None, ensemble=None, params=params, vault=vault, root=root)
    desk = BaselineContext(corpus, model, params, settings, scheme, task, material, vault, root)
    collected = COLLECTORS[spec.kind](spec, desk=desk)
    answers = [collected.said.get(record_id) for record_id in desk.ids]
    place = root / "snapshot" / corpus / "predictions" / "untuned" / model
    write(place, rows=rows_of(material, answers, task=task.key, model=model, seed=SEED), spent=collected.spent)
    spent = asdict(collected.spent) if collected.spent else None
    metrics = {"kind": spec.kind, **counted(material, answers), "spent": spent, **collected.more}
    return write_metrics(metrics, root / "metrics" / corpus / f"baselines-{model}.json")


def _prompted(spec: PromptedModel, *, desk: BaselineContext) -> BaselineAnswers:
    posts_asked = [desk.material.posts[record_id] for record_id in desk.ids]
    answers = desk.prompted.answers(spec, posts=posts_asked)
    said = {
        record_id: Prediction(
            str(answer.outcome),
            frozenset(answer.labels),
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
        )
        for record_id, answer in answers.items()
    }
    read, written = (sum(getattr(p, name) for p in said.values()) for name in ("input_tokens", "output_tokens"))
    cost = round(sum(sorted(answer.cost for answer in answers.values())), DECIMALS)
    return BaselineAnswers(said, Spent(len(said), None, read, written, cost), {"labeller": spec.labeller})


def _local(spec: LocalModel, *, desk: BaselineContext) -> BaselineAnswers:
    if spec.prompt == "evaluation":
        return desk.asked(desk.prompted.local(spec, seed=desk.params.finetune.seed))
    from pipelines.train.predictors.generate import Generator

    section = desk.params.finetune
    generator = Generator(
        spec.base,
        task=desk.task,
        scheme=desk.scheme,
        max_length=spec.max_length,
        max_new_tokens=section.max_new_tokens,
        batch=spec.batch,
        seed=section.seed,
        folder=desk.settings.home / "train",
        revision=spec.revision,
    )
    return desk.asked(generator)


def _registered(spec: RegisteredModel, *, desk: BaselineContext) -> BaselineAnswers:
    from pipelines.predict.registered import Registered

    posts_by_id = desk.material.posts
    return desk.asked(Registered(spec.uri, task=desk.task, posts=posts_by_id, settings=desk.settings))


def _votes(spec: VotesModel, *, desk: BaselineContext) -> BaselineAnswers:
    rows = finetuned.votes(desk.corpus, labeller=spec.labeller, task=desk.task, root=desk.root)
    said = {
        record_id: Prediction(
            outcome=rows[record_id]["outcome"],
            labels=frozenset(rows[record_id]["labels"] or ()),
            scores=tuple(rows[record_id]["scores"] or ()),
        )
        for record_id in desk.ids
        if record_id in rows
    }
    return BaselineAnswers(said, _bill([rows], ids=said.keys()))


def _ensemble(spec: EnsembleModel, *, desk: BaselineContext) -> BaselineAnswers:
    """Return an ensemble's decisions: without a majority, its fallback's answer, or else an abstention."""
    if spec.ensemble not in desk.params.ensembles:
        raise BadParams(where=f"models.{desk.model}.ensemble", detail=f"section ensembles has no '{spec.ensemble}'")
    path = desk.root / "snapshot" / desk.corpus / "silver" / spec.ensemble / "silver.parquet"
    if not path.is_file():
        raise ConfigError("NoSilver", corpus=desk.corpus, ensemble=spec.ensemble)
    asked = set(desk.ids)
    said = {
        row["record_id"]: Prediction(str(Outcome.ABSTAINED), frozenset())
        if row["labels"] is None
        else Prediction(VOTE, frozenset(row["labels"]))
        for row in tables.read(path, name="silver", columns=["record_id", "category", "labels"]).to_pylist()
        if row["category"] == desk.task.key and row["record_id"] in asked
    }
    members = dict.fromkeys(desk.params.ensembles[spec.ensemble].members)
    bills = [finetuned.votes(desk.corpus, labeller=member, task=desk.task, root=desk.root) for member in members]
    return BaselineAnswers(said, _bill(bills, ids=said.keys()))


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


def _saved(spec: SavedModel, *, desk: BaselineContext) -> BaselineAnswers:
    said, more = external_predictions.read(
        spec.path,
        folder=desk.settings.annotation_files,
        task=desk.task,
        asked=set(desk.ids),
        known={record_id for record_id, _ in desk.material.placed},
    )
    return BaselineAnswers(said, None, more)


COLLECTORS: Mapping[str, Callable[..., BaselineAnswers]] = {
    "prompted": _prompted,
    "local": _local,
    "votes": _votes,
    "ensemble": _ensemble,
    "saved": _saved,
    "registered": _registered,
}
