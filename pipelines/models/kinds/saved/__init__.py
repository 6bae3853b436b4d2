"""Predictions from outside this project, read from a file."""

from __future__ import annotations

from pipelines.models.kind import Answers, Desk, Kind


class Saved(Kind):
    """Use predictions from outside this project, in a file at ``path`` below ``CORPUS_ANNOTATION_FILES``."""

    path: str

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.kinds.saved import external_predictions

        said, more = external_predictions.read(
            self.path,
            folder=desk.settings.annotation_files,
            task=desk.task,
            asked={example.item for example in desk.material.asked},
            known=desk.material.placed.keys(),
        )
        return Answers({0: said}, None, more=more)
