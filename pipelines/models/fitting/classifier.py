"""Define classifiers: models with one output for each label, fitted by the same loop (FigSIM 5.1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipelines.core.config.base import Fraction, Positive, Section
from pipelines.models.kind import Based, Job, Kind, Say, Serving, later

if TYPE_CHECKING:
    from pipelines.models.prediction import Predictor
    from pipelines.models.pretrained.backbones import Built


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


class TrainingSettings(Recipe):
    """A recipe, and what section ``train`` says of scores and checkpoints."""

    mode: Literal["paper", "improved"]
    checkpoint_steps: int


class Classifier(Recipe, Kind):
    """A classifier that learns labels of validation's best epoch; it gives probabilities, and no alerts."""

    def build(self, serving: Serving) -> Built:
        """Build the classifier, not yet trained, its new weights drawn from ``serving.seed``."""
        raise NotImplementedError

    def settings(self, job: Job[Any]) -> TrainingSettings:
        """Return the recipe with what section ``train`` says."""
        own = self.model_dump(include=set(Recipe.model_fields))
        return TrainingSettings(**own, mode=job.mode, checkpoint_steps=job.checkpoint_steps)

    def fit(self, job: Job[Any], *, say: Say) -> dict[str, Any]:
        """Fit the classifier; write its best weights and thresholds.

        Returns:
            ``epoch`` (the best one), ``validation_macro_f1``, ``thresholds`` by label, ``history``, and ``unseen``
            (labels that train does not have).
        """
        found: dict[str, Any] = later("fitting.loop").fit_classifier(self, job, say=say)
        return found

    def open(self, folder: Path, serving: Serving) -> Predictor:
        from pipelines.models.fitting.inference import opened

        return opened(self, folder, serving=serving)


class PackableClassifier(Classifier, Based):
    """A classifier on one base model, which a package for consumers has in the format of ``transformers``."""

    packable: ClassVar[str | None] = None

    def pack(self, folder: Path, *, to: Path, serving: Serving) -> None:
        later("fitting.loop").pack_classifier(self, folder, to=to, serving=serving)
