"""Ask a labeller about the items of one task (SPEC 1.2, item 7).

Each request holds one item and one task, zero-shot or few-shot. Every run of a model sends new requests with the same
examples: the paper's few-shot rows of some local models have a deviation of .00 (FigSIM T3), which different examples
would hardly allow. Answers are first looked up in the encrypted store of answers, so a restarted stage requests only
the missing ones. An answer has labels only if its outcome is ``vote``: a refusal is not a prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pipelines.core.config.label import RemoteLabeller
from pipelines.core.process import reporter
from pipelines.datasets.example import Example, Item, only
from pipelines.datasets.post import Post
from pipelines.label.remote import Decoding, Remote, described
from pipelines.llm import prompt_examples as examples
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import Answer, Outcome, check_failures, spent
from pipelines.llm.prompts import Prompt, PromptExample, register
from pipelines.models import label_prompts as prompts
from pipelines.models.fitting.asking import DECIMALS
from pipelines.models.kind import Answers, Desk
from pipelines.models.kinds.prompted import Prompted
from pipelines.models.prediction import Prediction, Spent
from pipelines.store import approvals
from pipelines.store.answers import AnswerStore

STEP = "predict"


@dataclass(frozen=True)
class PromptedRun:
    """One entry and the task that it is asked about."""

    spec: Prompted
    desk: Desk

    @cached_property
    def labeller(self) -> RemoteLabeller:
        """The labeller, after a check that it can be asked."""
        return described(self.spec.labeller, params=self.desk.params, pictures=prompts.pictured(self.desk))

    @cached_property
    def asked(self) -> Sequence[Example]:
        asked = [example for example in self.desk.material.asked if example.split in self.spec.splits]
        return only(asked, splits=self.spec.splits)

    @cached_property
    def posts(self) -> dict[Item, Post]:
        return prompts.sent({e.item: self.desk.material.posts[e.item] for e in self.asked}, desk=self.desk)

    @cached_property
    def drawn(self) -> Sequence[Example]:
        """The items of train that the prompt shows, if it shows any of train."""
        material, spec = self.desk.material, self.spec
        count = spec.examples if spec.shots == "train" else 0
        return examples.draw(material.train, task=self.desk.task, count=count, seed=self.desk.params.votes.seed)

    @cached_property
    def prompt(self) -> Prompt:
        prompt = prompts.evaluation_prompt(self.desk, system=self.labeller.system, shown=self._shown())
        register(prompt, tracking_uri=self.desk.settings.mlflow_tracking_uri)
        return prompt

    def _shown(self) -> list[PromptExample]:
        if self.spec.shots == "few_shot":
            return prompts.chosen(self.desk, most=self.spec.examples)
        words = self.desk.params.votes.mode == "improved"
        return examples.in_prompt(self.drawn, task=self.desk.task, words=words)

    def answer(self) -> Answers:
        """Request the answers of all runs; ``unshown`` of the metrics are the labels that no example of train has."""
        spec, desk = self.spec, self.desk
        runs: dict[int, list[Answer]] = {}
        with AnswerStore.open(desk.settings.answers_url) as store:
            for number, labeller in self._labellers(store):
                progress = reporter(f"{desk.model} {desk.task.key} {number}/{spec.runs or 1}", total=len(self.posts))
                runs[number] = labeller.label(list(self.posts.values()), progress=progress)
        answers = [answer for by_run in runs.values() for answer in by_run]
        check_failures([a.outcome for a in answers], labeller=spec.labeller, most=desk.params.votes.max_failed)
        said = {number: dict(zip(self.posts, map(_prediction, by_run), strict=True)) for number, by_run in runs.items()}
        cost = round(sum(sorted(answer.cost for answer in answers)), DECIMALS)
        billed = Spent.of([one for by_run in said.values() for one in by_run.values()], cost=cost)
        counted = spent(answers)
        more = {
            "labeller": spec.labeller,
            "prompt": self.prompt.origin,
            "unshown": examples.unshown(self.drawn, task=desk.task) if self.drawn else [],
            "examples": spec.examples,
            "reasons": counted["reasons"],
            "repaired": counted["repaired"],
        }
        return Answers(said, billed, splits=spec.splits, more=more)

    def planned(self) -> Iterator[PlannedRequests]:
        """Yield what each run would send, and at what cost; pictures of the prompt leave too."""
        shown = sum(len(example.post.images) for example in self.prompt.examples)
        for labeller, posts in self.asking():
            planned = labeller.planned(STEP, posts, name=self.desk.model)
            more = {"pictures": planned.leaves["pictures"] + (shown if planned.cost["to_ask"] else 0)}
            yield replace(planned, leaves={**planned.leaves, **more})

    def asking(self) -> Iterator[tuple[Remote, list[Post]]]:
        """Yield the labeller of each run, and what it is asked about; nothing is sent."""
        with AnswerStore.open(self.desk.settings.answers_url) as store:
            for _, labeller in self._labellers(store):
                yield labeller, list(self.posts.values())

    def _labellers(self, store: AnswerStore) -> Iterator[tuple[int, Remote]]:
        """Yield the labeller of each run with the run's number, 0 for one that shares the answers of ``votes``."""
        spec, desk = self.spec, self.desk
        given: dict[str, Any] = {
            "params": desk.params,
            "settings": desk.settings,
            "vault": desk.vault,
            "answers": store,
        }
        given["sources"] = approvals.sources_of(desk.corpus, params=desk.params, root=desk.root)
        given |= {"prompt": self.prompt, "scheme": desk.scheme, "pictures": prompts.pictured(desk)}
        for number in range(1, spec.runs + 1) if spec.runs else (0,):
            decoding = Decoding(spec.max_output_tokens, spec.stop, number or None)
            yield number, Remote.of(spec.labeller, decoding=decoding, **given)


def _prediction(answer: Answer) -> Prediction:
    labels = frozenset(answer.labels if answer.outcome is Outcome.VOTE else ())
    return Prediction(str(answer.outcome), labels, (), answer.input_tokens, answer.output_tokens)
