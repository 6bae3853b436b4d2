"""Serve a registered causal language model of posts: the most probable answer, its probabilities, and alerts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.core.config.models import SftModel
from pipelines.packaging.model_described import Described, asked
from pipelines.packaging.model_pyfunc import SILENT, Asker, ServedAnswer, answered, asker
from pipelines.train.predictors.generate import Generator
from pipelines.train.predictors.prediction import VOTE


def opened(pack: Path, described: Described) -> Asker:
    """Load a package's causal language model; return its predict function, which abstains on malformed answers."""
    scheme, task = asked(pack, described=described)
    if not isinstance(described.spec, SftModel) or described.max_new_tokens is None:
        raise ValueError(described.kind)
    generator = Generator(
        pack,
        task=task,
        scheme=scheme,
        max_length=described.spec.max_length,
        max_new_tokens=described.max_new_tokens,
        batch=described.batch,
        folder=pack,
    )

    def read(texts: Sequence[str]) -> list[ServedAnswer]:
        return [
            answered(answer.labels, answer.scores, answer.alerts, task=task) if answer.outcome == VOTE else SILENT
            for answer in generator.predict(texts)
        ]

    return asker(read, kinds=described.scrub)
