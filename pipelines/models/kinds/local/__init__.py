"""A causal language model that runs on this machine and is prompted without tuning (CRADLE 4.1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipelines.core.config.base import Positive
from pipelines.models.kind import Answers, Based, Desk

if TYPE_CHECKING:
    from pipelines.datasets.example import LabelSet
    from pipelines.llm.prompts import Prompt
    from pipelines.models.prediction import Predictor


class Local(Based):
    """A causal language model that runs locally and is prompted without tuning.

    ``prompt``: ``evaluation`` asks as labellers are asked (CRADLE 4.1 and B: their prompt with its examples, up to
    ``votes.max_output_tokens`` tokens written freely); ``training`` asks as a model fine-tuned on this corpus is asked
    (its short prompt, constrained to valid answers), which a base that cannot follow an instruction needs.
    """

    large: ClassVar[bool] = True
    max_new_tokens: Positive = 128
    batch: Positive
    max_length: Positive
    prompt: Literal["evaluation", "training"] = "evaluation"

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.fitting.asking import ask

        said, spent = ask(self.generator(desk), desk.material.asked, name=desk.model)
        return Answers({0: said}, spent)

    def generator(self, desk: Desk) -> Predictor:
        """Return the model; with the labellers' prompt it answers freely, and items are shortened as theirs."""
        from pipelines.models.fitting.generate import Generator

        params, folder = desk.params, desk.settings.home / "train"
        options: dict[str, Any] = {"max_new_tokens": self.max_new_tokens}
        if self.prompt == "evaluation":
            from pipelines.label.remote import LEAST_SHARE
            from pipelines.models.fitting.prompts import evaluation_prompt

            prompt = evaluation_prompt(desk, system="open")
            least, reader = int(self.max_length * LEAST_SHARE), partial(_read, prompt=prompt, desk=desk)
            options = {"max_new_tokens": params.votes.max_output_tokens, "least": least}
            options |= {"prompt": prompt, "reader": reader}
        options |= {"revision": self.revision, "max_length": self.max_length, "batch": self.batch}
        seed = params.votes.seed
        return Generator(self.base, task=desk.task, scheme=desk.scheme, folder=folder, seed=seed, **options)


def _read(text: str, *, prompt: Prompt, desk: Desk) -> tuple[str, LabelSet]:
    """Return outcome and labels of an answer, read by the labellers' rules."""
    from pipelines.llm.outcome import Outcome, Raw
    from pipelines.llm.response_parser import interpret

    raw = Raw(text=text, finish="stop", refused=None, input_tokens=0, output_tokens=0, effective={})
    by: dict[str, Any] = {"scheme": desk.scheme, "mode": desk.params.votes.mode}
    [answer] = interpret(raw, record_id="", labeller=desk.model, prompt=prompt, cost=0.0, **by)
    return str(answer.outcome), frozenset(answer.labels if answer.outcome is Outcome.VOTE else ())
