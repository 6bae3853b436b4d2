"""From what the stages left to what a consumer holds: a model that was really tuned, registered, judged and asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from crisis_corpus import client
from crisis_corpus.integrity import digest
from pipelines.config.models import Chosen
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.packaging.register import register
from pipelines.promotion.gate import judge
from pipelines.registry.versions import Registry
from tests.registry.small_registry import WHO, opened
from tests.train import small_posts, small_tuned

NAME = "crisis-posts"
CHOSEN = Chosen(model="encoder", subset="consensus")


@pytest.mark.faults
def test_tuned_registered_loaded_and_asked_through_a_server(address: str, small: Path, tmp_path: Path) -> None:
    made = small_posts.made()
    with opened(small) as memes, small_posts.copied(made, to=tmp_path / "copy") as corpus:
        small_tuned.tuned(corpus, memes.settings, model="encoder", recall_floors={})
        small_tuned.predicted(corpus, memes.settings, model="encoder")
        evaluate.run("posts", params=small_tuned.params(), root=corpus.root, sampling=Sampling(200, 1))
        settings = memes.settings.model_copy(update={"mlflow_tracking_uri": address})
        given: dict[str, Any] = {"settings": settings, "vault": corpus.vault, "root": corpus.root}
        context = replace(memes, registry=Registry(address), params=small_tuned.params(), **given)
        version, written = register(NAME, chosen=CHOSEN, context=context, **WHO)
        assert written and register(NAME, chosen=CHOSEN, context=context, **WHO) == (version, False)
        model = client.load(f"{NAME}/1", tracking_uri=address)
        asked = [corpus.posts[record] for record in corpus.of("test")]
        answer = model.predict(pd.DataFrame({"title": [p.title for p in asked], "body": [p.body for p in asked]}))
        assert len(answer) == len(asked) and not answer["abstain"].any()
        # the code of a version that was run is still the code that was registered
        assert digest(context.settings.home / "models" / version.digest) == version.digest
        assert judge(NAME, 1, context=context).figures["scores"]
