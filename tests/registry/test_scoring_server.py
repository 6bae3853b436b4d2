"""MLflow's scoring server: the same answers to the same posts as in Python, a clear no to anything else."""

from __future__ import annotations

import random

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.pyfunc import scoring_server
from starlette.testclient import TestClient

from crisis_corpus_sandbox.reddit import label_quotas, narratives
from tests.registry.packs import Made


def sandbox_posts(count: int) -> list[dict[str, str]]:
    rng = random.Random(5)
    told = [narratives.write(chosen, rng=rng, words=40) for chosen in label_quotas.cradle(count, rng=rng)]
    return [{"title": post.title, "body": post.body} for post in told]


def test_a_server_answers_as_predict_does_and_refuses_what_is_no_post(
    made: Made, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With the application that ``mlflow models serve`` runs."""
    posts = [*sandbox_posts(200), {"title": "", "body": ""}]
    model = mlflow.pyfunc.load_model(str(made.saved))
    expected = model.predict(pd.DataFrame(posts)).to_dict("records")
    server = TestClient(scoring_server.init(model))
    said = server.post("/invocations", json={"dataframe_records": posts})
    assert said.status_code == 200 and len(said.json()["predictions"]) == len(expected) == 201
    for one, other in zip(said.json()["predictions"], expected, strict=True):
        assert (one["labels"], one["abstain"]) == (other["labels"], other["abstain"])
        np.testing.assert_allclose(one["probabilities"], other["probabilities"], atol=1e-5)
    assert len({tuple(row["probabilities"]) for row in expected}) > 100
    assert expected[-1] == {"labels": [], "probabilities": [], "abstain": True, "alerts": []}
    for body in (
        "{", '{"dataframe_records": [{"body": "a"}]}', '{"dataframe_records": [{"title": 3}]}', '{"posts": []}',
        '{"dataframe_records": [{"title": ["a"], "body": "b"}]}',
    ):  # fmt: skip
        said = server.post("/invocations", content=body, headers={"Content-Type": "application/json"})
        assert said.status_code == 400, body
        assert said.json()["error_code"] in ("BAD_REQUEST", "INVALID_PARAMETER_VALUE") and said.json()["message"]
    assert server.post("/invocations", json={"dataframe_records": posts[:1]}).status_code == 200
    written = f"{capfd.readouterr()}{caplog.text}"
    assert not any(row["body"][:40] in written for row in posts[:200])
