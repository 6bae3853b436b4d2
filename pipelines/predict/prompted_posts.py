"""Ask language models about the posts of dev and test with the labellers' prompt, without tuning (CRADLE 4.1, Table 4).

A model that is served over HTTP is asked like a labeller, with the same store of answers, budget and outcomes. A model
in this process writes its answer freely, and the answer is read by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipelines.config.label import RemoteLabeller
from pipelines.config.models import LocalModel, PromptedModel
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.datasets.example import LabelSet
from pipelines.datasets.post import Post
from pipelines.datasets.posts import SplitPosts
from pipelines.errors import BadParams
from pipelines.label.remote import LEAST_SHARE, Remote
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import Answer, Outcome, Raw, check_failures
from pipelines.llm.prompting.post_prompt import prompt_for
from pipelines.llm.prompting.prompts import DEV, Prompt, register
from pipelines.llm.response_parser import interpret
from pipelines.progress import reporter
from pipelines.storage.answers import AnswerStore
from pipelines.train.predictors.prediction import Predictor
from pipelines.vault.vault import Vault

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
            found = asked.label(posts, progress=reporter(self.model, total=len(posts)))
        check_failures([one.outcome for one in found], labeller=spec.labeller, most=self.params.votes.max_failed)
        return {one.record_id: one for one in found}

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
        from pipelines.taxonomy.task import task_of
        from pipelines.train.predictors.generate import Generator

        task = task_of(self.material.scheme, self.material.scheme.category().key)
        prompt = prompt_for(self.material, system="open", secret=self.settings.secret())
        return Generator.open(
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
