"""Serve registered models of posts: the predictors of the stage ``predict``, with scrubbed input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pipelines.collect.scrub.scrub import scrub
from pipelines.core.config.models import SftModel
from pipelines.datasets.post import Post
from pipelines.registry.packaging.described import Described, asked
from pipelines.registry.packaging.served import SILENT, Asker, says, texts
from pipelines.train.predictors.encoder_predictor import EncoderPredictor
from pipelines.train.predictors.generate import Generator
from pipelines.train.predictors.prediction import Prediction, Predictor


def opened(pack: Path, described: Described) -> Asker:
    """Load the model of a package; return its predict function, which abstains on posts without words."""
    scheme, task = asked(pack, described=described)
    predictor: Predictor
    if isinstance(described.spec, SftModel):
        length, room = described.spec.max_length, described.max_new_tokens or 0
        predictor = Generator(
            pack, task=task, scheme=scheme, max_length=length, max_new_tokens=room, batch=described.batch, folder=pack
        )
    else:
        predictor = EncoderPredictor(pack, task=task)

    def ask(frame: pd.DataFrame) -> Sequence[Prediction]:
        titles, bodies = (
            [scrub(part or "", kinds=described.scrub)[0] for part in texts(frame, column)]
            for column in ("title", "body")
        )
        posts = [Post("", title, body) for title, body in zip(titles, bodies, strict=True)]
        readable = [says(post.title) or says(post.body) for post in posts]
        answers = iter(predictor.predict([post.text for post, known in zip(posts, readable, strict=True) if known]))
        if isinstance(predictor, EncoderPredictor):
            predictor.forget()
        return [next(answers) if known else SILENT for known in readable]

    return ask
