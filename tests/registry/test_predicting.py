"""``corpus predict`` and MLflow's scoring server: the same answers to the same posts, a clear no to anything else."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.pyfunc import scoring_server
from starlette.testclient import TestClient

from crisis_corpus.versions import CHAMPION
from crisis_corpus_sandbox.reddit import label_quotas, narratives
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.registry import predict
from pipelines.registry.candidate import Context
from pipelines.registry.journal import Journal
from pipelines.registry.packaging.register import put
from pipelines.registry.versions import Registry
from pipelines.store.vault.vault import Vault
from tests import mlflow_database
from tests.refusals import refused
from tests.registry import small_registry
from tests.registry.packs import NAME, Made

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def home(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A registry whose champion is the small model."""
    home = tmp_path_factory.mktemp("home")
    mlflow_database.place(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.sqlite")
        patch.chdir(home)
        settings, params = Settings.from_env(), load_params(REPO)
        vault = Vault.open(settings.vault_url, secret=small_registry.SECRET)
        with vault, Journal.of(settings) as journal:
            registry = Registry.open(settings)
            context = Context(registry, journal, params, small_registry.TERMS, settings, vault, made.corpus.root)
            version, _ = put(NAME, made.saved, context=context, who="tester", why="a test")
            moved: dict[str, Any] = {"who": "tester", "why": "a test", "to_version": version.version}
            journal.append(NAME, event="intended", files=version.digest, **moved)
            registry.point(NAME, CHAMPION, version.version)
            journal.append(NAME, event="promoted", files=version.digest, **moved)
        yield home


def sandbox_posts(count: int) -> list[dict[str, str]]:
    rng = random.Random(5)
    told = [narratives.write(chosen, rng=rng, words=40) for chosen in label_quotas.cradle(count, rng=rng)]
    return [{"title": post.title, "body": post.body} for post in told]


def predicted(reference: str, rows: list[dict[str, Any]], *, folder: Path = Path()) -> list[dict[str, Any]]:
    out = io.StringIO()
    predict.run(reference, lines=[json.dumps(row) + "\n" for row in rows], out=out, folder=folder)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(found) == len(rows)
    return found


def test_a_server_answers_as_predict_does_and_refuses_what_is_no_post(
    home: Path, monkeypatch: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With the application that ``mlflow models serve`` runs."""
    monkeypatch.setenv("CORPUS_HOME", str(home))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.sqlite")
    posts = [*sandbox_posts(200), {"title": "", "body": ""}]
    expected = predicted(NAME, posts)
    local = mlflow.artifacts.download_artifacts(f"models:/{NAME}@champion", dst_path=str(home / "served"))
    server = TestClient(scoring_server.init(mlflow.pyfunc.load_model(local)))
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


def test_answers_come_in_the_order_of_the_lines_with_their_ids(made: Made) -> None:
    posts = sandbox_posts(70)
    found = predicted(str(made.saved), [{"id": n, "subreddit": "x", **post} for n, post in enumerate(posts)])
    assert [row["id"] for row in found] == list(range(70))
    assert found[3] == {"id": 3} | predicted(str(made.saved), [posts[3]])[0] | {
        "probabilities": pytest.approx(found[3]["probabilities"], abs=1e-5)
    }
    alone = predicted(str(made.saved), [{"title": posts[0]["title"]}, {"title": None, "body": None}])
    assert [row["abstain"] for row in alone] == [False, True]
    assert "id" not in alone[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("secret", "it is not JSON"),
        ('["secret"]', "it is not a JSON object"),
        ('{"text": "secret"}', "it has no title, which the model reads"),
        ('{"title": 3, "body": "secret"}', "its title is not a string"),
        ('{"title": "secret", "body": ["secret"]}', "its body is not a string"),
        ('{"image": "secret.png"}', "it has no title, which the model reads"),
    ],
)
def test_a_bad_line_is_named_by_its_number_alone(made: Made, line: str, said: str) -> None:
    with refused("BadLine", match=said) as caught:
        predict.run(str(made.saved), lines=['{"title": "a"}\n', "\n", line], out=io.StringIO())
    assert str(caught.value).startswith("Line 3:")
    assert "secret" not in str(caught.value)


class Failing:
    """A model of pictures whose error quotes its input."""

    def predict(self, frame: pd.DataFrame) -> None:
        raise ValueError(str(frame["image"][0]))


def test_a_picture_that_is_not_there_and_a_model_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "load", lambda _: (Failing(), ("image", "text")))
    with refused("BadLine", match="its picture cannot be read"):
        predicted("a", [{"image": "secret.png"}], folder=tmp_path)
    (tmp_path / "a.png").write_bytes(b"secret")
    with refused("NoAnswer", match="an error for the input lines 1 to 1") as caught:
        predicted("a", [{"image": "a.png"}], folder=tmp_path)
    assert "secret" not in str(caught.value)
