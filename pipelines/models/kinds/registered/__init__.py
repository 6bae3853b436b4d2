"""A version of a registered model as predictor."""

from __future__ import annotations

from pipelines.core.errors import DataError
from pipelines.models.kind import Answers, Desk, Kind


class Registered(Kind):
    """Use a registered model as predictor, such as ``models:/crisis-posts@champion``.

    ``labels`` has, of a model of another corpus or scheme, each of its labels with ours, or with null: transfer. A
    version that has learnt from a group of the test is refused: its scores here would be those of an exam that it has
    seen.
    """

    uri: str
    labels: dict[str, str | None] | None = None

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.fitting.asking import ask
        from pipelines.models.kinds.registered.version import RegisteredPredictor
        from pipelines.models.label_map import LabelMap

        mapped = LabelMap(self.labels, desk.task, desk.model) if self.labels else None
        posts, settings = desk.material.posts, desk.settings
        predictor = RegisteredPredictor(self.uri, mapped=mapped, task=desk.task, posts=posts, settings=settings)
        if groups := desk.tested & desk.groups_of(predictor.learnt()):
            raise DataError("LeakLearnt", where=f"models.{desk.model}", uri=self.uri, groups=len(groups))
        said, spent = ask(predictor, desk.material.asked, name=desk.model)
        return Answers({0: said}, spent)
