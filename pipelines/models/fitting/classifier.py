"""Define classifiers: models with one output for each label, fitted by the same loop (FigSIM 5.1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pipelines.models.fitting.recipe import Recipe, TrainingSettings
from pipelines.models.kind import Based, Job, Kind, Say, Serving, later

if TYPE_CHECKING:
    from pipelines.models.backbones import Built
    from pipelines.models.prediction import Predictor


class Classifier(Recipe, Kind):
    """A classifier that learns labels of validation's best epoch; it gives probabilities, and no alerts."""

    @property
    def soft(self) -> bool:
        return self.targets is not None

    @property
    def deviations(self) -> tuple[str, ...]:
        return ("annotators' shares as targets",) if self.soft else ()

    def build(self, serving: Serving) -> Built:
        """Build the classifier, not yet trained, its new weights drawn from ``serving.seed``."""
        raise NotImplementedError

    def settings(self, job: Job[Any]) -> TrainingSettings:
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
        from pipelines.models.fitting.classifier_serving import opened

        return opened(self, folder, serving=serving)


class PackableClassifier(Classifier, Based):
    """A classifier on one base model, which a package for consumers has in the format of ``transformers``."""

    packable: ClassVar[str | None] = None

    def pack(self, folder: Path, *, to: Path, serving: Serving) -> None:
        later("fitting.loop").pack_classifier(self, folder, to=to, serving=serving)
