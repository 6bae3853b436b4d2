"""The silver labels (aggregated votes) of one ensemble as predictions."""

from __future__ import annotations

from typing import Any

from pipelines.core.config.params import Params
from pipelines.core.errors import ConfigError
from pipelines.models.kind import Answers, Desk, Kind
from pipelines.models.prediction import VOTE, Prediction

ABSTAINED = "abstained"


class Ensemble(Kind):
    """Use an ensemble's decisions: without a majority, its fallback's answer, or else an abstention."""

    silver: str

    def labellers(self, params: Params) -> tuple[str, ...]:
        return params.ensembles[self.silver].members if self.silver in params.ensembles else ()

    def answer(self, desk: Desk) -> Answers:
        from pipelines.models.fitting import asking
        from pipelines.store import tables

        path = desk.snapshot / "silver" / self.silver / "silver.parquet"
        if not path.is_file():
            raise ConfigError("NoSilver", corpus=desk.corpus, ensemble=self.silver)
        asked = {example.item for example in desk.material.asked}
        columns = ["record_id", "image", "category", "labels"]
        said = {
            item: Prediction(ABSTAINED if row["labels"] is None else VOTE, frozenset(row["labels"] or ()))
            for row in tables.read(path, name="silver", columns=columns).to_pylist()
            if row["category"] == desk.task.key and (item := (row["record_id"], row["image"])) in asked
        }
        members = dict.fromkeys(self.labellers(desk.params))
        given: dict[str, Any] = {"task": desk.task, "root": desk.root}
        bills = [asking.votes(desk.corpus, labeller=member, **given) for member in members]
        return Answers({0: said}, asking.bill(bills, items=said.keys()))
