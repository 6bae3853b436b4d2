"""A labeller that is prompted about items of validation and test, without training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from pipelines.core.config.base import Positive
from pipelines.core.config.params import Params
from pipelines.models.kind import Answers, Desk, Kind

if TYPE_CHECKING:
    from pipelines.datasets.post import Post
    from pipelines.label.remote import Remote
    from pipelines.llm.asking import PlannedRequests


class Prompted(Kind):
    """A labeller that is prompted without training.

    Args:
        examples: the number of labelled items in the prompt, at most.
        shots: where they come from: the choice of the stage ``few_shot`` among validation, or a draw from train that
            shows every label (pictures alone), with the seed ``votes.seed``.
        splits: about which items it is asked.
        runs: how often it is asked, each time anew; ``None``: once, and equal requests of the stage ``votes`` are not
            sent again.
        max_output_tokens: of an answer; ``None``: ``votes.max_output_tokens``.
        stop: the string at which an answer ends, where the model takes one.
    """

    labeller: str
    examples: Annotated[int, Field(ge=0)]
    shots: Literal["few_shot", "train"] = "few_shot"
    splits: tuple[Literal["validation", "test"], ...] = ("validation", "test")
    runs: Positive | None = None
    max_output_tokens: Positive | None = None
    stop: str | None = None

    def labellers(self, params: Params) -> tuple[str, ...]:
        return (self.labeller,)

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.kinds.prompted.asking import PromptedRun

        return PromptedRun(self, desk).answer()

    def asking(self, desk: Desk) -> Iterator[tuple[Remote, list[Post]]]:
        from pipelines.models.kinds.prompted.asking import PromptedRun

        yield from PromptedRun(self, desk).asking()

    def planned(self, desk: Desk) -> Iterator[PlannedRequests]:
        from pipelines.models.kinds.prompted.asking import PromptedRun

        yield from PromptedRun(self, desk).planned()
