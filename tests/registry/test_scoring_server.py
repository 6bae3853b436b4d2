"""MLflow's scoring server: the same answers to the same posts as in Python, a clear no to anything else."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.pyfunc import scoring_server
from starlette.testclient import TestClient

from crisis_corpus.client import download
from crisis_corpus.integrity import digest
from crisis_corpus_sandbox.reddit import label_quotas, narratives
from pipelines.registry.candidate import Context
from tests.ports import free_port
from tests.registry.packs import Made
from tests.registry.small_registry import GRAVEST, NAME, add, champion


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


@pytest.mark.faults
def test_the_recipe_serves_a_promoted_version_over_loopback(context: Context, tmp_path: Path) -> None:
    """As docs/registry.md has it."""
    version = add(context, knows=6)
    champion(context, version.version)
    folder = download(NAME)
    port = str(free_port())
    serve = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(folder), "--env-manager", "local"]
    quiet = {"MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false", "PYTHONDONTWRITEBYTECODE": "1"}
    # MLflow starts uvicorn by its name, as in an activated environment
    quiet["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [*serve, "--host", "127.0.0.1", "--port", port], env=os.environ | quiet, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        found = _answer(port, {"dataframe_records": [{"text": "the week door"}]}, until=time.monotonic() + 120)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    assert found["predictions"][0]["labels"] == [GRAVEST], (tmp_path / "log").read_text()[-2000:]
    assert digest(folder) == version.digest


def _answer(port: str, body: dict[str, Any], *, until: float) -> Any:
    """Return what the server answers, once it has started."""
    asked = Request(
        f"http://127.0.0.1:{port}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    while time.monotonic() < until:
        with suppress(OSError), urlopen(asked, timeout=30) as said:
            return json.load(said)
        time.sleep(0.5)
    raise TimeoutError
