"""Define how a classifier is fitted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.core.config.base import Fraction, Positive, Section


class Recipe(Section):
    """How a classifier is fitted; the defaults are those of FigSIM's Table 9, where the paper states them.

    Args:
        epochs: FigSIM T9: "[10, 20]".
        learning_rate: the highest one.
        schedule: how the learning rate goes on after the warm-up: linearly to 0, or unchanged.
        warmup: the share of the steps in which the learning rate rises from 0.
        weight_decay: AdamW's; without it AdamW is Adam.
        clip: the largest norm of the gradients; ``None`` does not clip.
        reweighted: whether rare labels weigh more in the loss.
        max_pos_weight: the greatest weight of a rare label (SPEC 8).
        min_positives: labels rarer than this in validation share one threshold (ours).
        targets: ``annotators``: an item of train has the shares of its annotators by label as its target (soft targets,
            ours), if two or more answered; else its labels.
        max_tokens: of a text (ours: the longest caption of the sandbox has 60).
    """

    epochs: Positive = 20
    batch: Positive = 16
    learning_rate: Annotated[float, Field(gt=0)] = 2e-5
    schedule: Literal["linear", "constant"] = "linear"
    warmup: Fraction = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    clip: Annotated[float, Field(gt=0)] | None = 1.0
    reweighted: bool = True
    max_pos_weight: Annotated[float, Field(ge=1)] = 20
    min_positives: Positive = 5
    max_tokens: Positive = 128
    # left out of cards and settings of models that do not have it
    targets: Annotated[Literal["annotators"] | None, Field(exclude_if=lambda value: value is None)] = None


class TrainingSettings(Recipe):
    """A recipe, and what section ``train`` says of scores and checkpoints."""

    mode: Literal["paper", "improved"]
    checkpoint_steps: int
