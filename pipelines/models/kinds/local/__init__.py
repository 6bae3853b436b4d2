"""A causal language model that runs on this machine and is prompted without tuning (CRADLE 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipelines.core.config.base import Positive
from pipelines.models.kind import Answers, Based, Desk

if TYPE_CHECKING:
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
        options: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "max_length": self.max_length}
        if self.prompt == "evaluation":
            from pipelines.models.label_prompts import freely

            options = freely(desk, max_length=self.max_length, max_new_tokens=params.votes.max_output_tokens)
        options |= {"revision": self.revision, "batch": self.batch}
        seed = params.votes.seed
        return Generator(self.base, task=desk.task, scheme=desk.scheme, folder=folder, seed=seed, **options)
