"""Serve a registered encoder of posts: calibrated probabilities, a consistent label set, and alerts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.metrics import recall_constraints
from pipelines.metrics.calibration import Calibration
from pipelines.metrics.decoding import decode
from pipelines.models.pretrained.backbones import EncoderWords, SavedEncoder
from pipelines.models.pretrained.backbones import opened as held
from pipelines.packaging.model_described import Described, asked
from pipelines.packaging.model_forward import probabilities, ready
from pipelines.packaging.model_pyfunc import Asker, ServedAnswer, answered, asker


def opened(pack: Path, described: Described) -> Asker:
    """Load the encoder of a model package, and return its predict function, which answers as ``EncoderPredictor``."""
    _, task = asked(pack, described=described)
    alerts, stored = recall_constraints.load(pack, task=task)
    calibration = Calibration.of_json(stored["calibration"])
    with held(str(pack), seed=0, folder=pack) as place:
        words = EncoderWords(place, base=described.base, limit=None)
        module = ready(SavedEncoder(place, base=described.base))

    def read(texts: Sequence[str]) -> list[ServedAnswer]:
        rows = words.rows(texts)
        raw = probabilities(
            module,
            lengths=[len(row) for row in rows],
            prepare=lambda which: words.padded([rows[n] for n in which]),
            batch=described.batch,
            labels=len(task.labels),
            kind=task.kind,
        )
        scores = calibration(raw)
        decided = decode(scores, category=task.category)
        warned = recall_constraints.raised(scores, task=task, alerts=alerts)
        return [answered(*each, task=task) for each in zip(decided, scores.tolist(), warned, strict=True)]

    return asker(read, kinds=described.scrub)
