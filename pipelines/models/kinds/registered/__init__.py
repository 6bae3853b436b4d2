"""A version of a registered model as predictor."""

from __future__ import annotations

from pipelines.models.kind import Answers, Desk, Kind


class Registered(Kind):
    """Use a registered model as predictor, such as ``models:/crisis-posts@champion``.

    ``labels`` has, of a model of another corpus or scheme, each of its labels with ours, or with null: transfer.
    """

    uri: str
    labels: dict[str, str | None] | None = None

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.fitting.asking import ask
        from pipelines.models.kinds.registered.version import RegisteredPredictor
        from pipelines.models.label_map import LabelMap

        mapped = LabelMap(self.labels, desk.task, desk.model) if self.labels else None
        given = {"task": desk.task, "posts": desk.material.posts, "settings": desk.settings}
        predictor = RegisteredPredictor(self.uri, mapped=mapped, **given)
        said, spent = ask(predictor, desk.material.asked, name=desk.model)
        return Answers({0: said}, spent)
