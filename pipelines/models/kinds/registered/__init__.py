"""A version of a registered model as predictor."""

from __future__ import annotations

from pipelines.models.kind import Answers, Desk, Kind


class Registered(Kind):
    """Use a registered model as predictor, such as ``models:/crisis-posts@champion``."""

    uri: str

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.fitting.asking import ask
        from pipelines.models.kinds.registered.version import RegisteredPredictor

        predictor = RegisteredPredictor(self.uri, task=desk.task, posts=desk.material.posts, settings=desk.settings)
        said, spent = ask(predictor, desk.material.asked, name=desk.model)
        return Answers({0: said}, spent)
