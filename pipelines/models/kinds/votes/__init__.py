"""The stored votes of one labeller as predictions."""

from __future__ import annotations

from pipelines.core.config.params import Params
from pipelines.models.kind import Answers, Desk, Kind
from pipelines.models.prediction import Prediction


class StoredVotes(Kind):
    """Use the stored votes of one labeller as predictions."""

    votes: str

    def labellers(self, params: Params) -> tuple[str, ...]:
        return (self.votes,)

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.fitting import asking

        rows = asking.votes(desk.corpus, labeller=self.votes, task=desk.task, root=desk.root)
        said = {
            example.item: Prediction(row["outcome"], frozenset(row["labels"] or ()), tuple(row["scores"] or ()))
            for example in desk.material.asked
            if (row := rows.get(example.item))
        }
        return Answers({0: said}, asking.bill([rows], items=said.keys()))
