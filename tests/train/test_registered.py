"""A real registry's model as a row of the benchmark: asked with title and body, and held to its signature."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.params import Settings
from pipelines.sections import RegisteredModel
from pipelines.train.registered import AnswerUnfit, ModelNotLoaded
from tests.train import small_posts as small
from tests.train import small_untuned
from tests.train.small_posts import SmallPosts
from tests.train.small_untuned import ASKED, LABELS, asked, rows_of, run, spent

# mlflow warns of models without type hints
pytestmark = pytest.mark.filterwarnings("ignore")
SPOIL = "SMALL_MODEL_SPOIL"
SERVED = '''
import os

import mlflow
import pandas as pd
from mlflow.pyfunc import PythonModel

LABELS = {labels!r}


class Answering(PythonModel):
    """Labels a post by the length of its body, abstains by that of its title, and errs as the environment says."""

    def predict(self, context, model_input, params=None):
        rows = []
        for title, body in zip(model_input["title"], model_input["body"]):
            assert body and not body.startswith("Title: ")
            named = LABELS[len(body) % len(LABELS)]
            rows.append({{"labels": [named], "probabilities": [float(x == named) for x in LABELS],
                         "abstain": len(title) % 5 == 0}})
        there = {{"rows": rows, "model_input": model_input}}
        if spoil := os.environ.get("SMALL_MODEL_SPOIL"):
            for row in rows:
                row["abstain"] = False
            exec(spoil, there)
        return pd.DataFrame(there["rows"])


mlflow.models.set_model(Answering())
'''


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> SmallPosts:
    return small.made(tmp_path_factory.mktemp("posts"))


@pytest.fixture
def posts(original: SmallPosts, tmp_path: Path) -> Iterator[SmallPosts]:
    with small.copied(original, to=tmp_path / "root") as own:
        yield own


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return small_untuned.settings(tmp_path / "home", patch=monkeypatch)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A registry with the model ``posts@champion``, registered by its code, and ``pickled@champion``."""
    import mlflow

    folder = tmp_path_factory.mktemp("registry")
    uri = f"sqlite:///{folder}/mlflow.sqlite"

    class Pickled(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            return model_input

    (folder / "code.py").write_text(SERVED.format(labels=list(LABELS)))
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("it", artifact_location=str(folder / "artifacts")))
    for name, model in (("posts", str(folder / "code.py")), ("pickled", Pickled())):
        with mlflow.start_run():
            mlflow.pyfunc.log_model(name=name, python_model=model, registered_model_name=name, pip_requirements=[])
        mlflow.MlflowClient().set_registered_model_alias(name, "champion", "1")
    return uri


def ask(posts: SmallPosts, settings: Settings, registry: str | None, *, name: str = "posts") -> dict[str, Any]:
    told = settings.model_copy(update={"mlflow_tracking_uri": registry})
    return run(posts, told, spec=RegisteredModel(kind="registered", uri=f"models:/{name}@champion"))


def test_a_registered_model_is_asked_with_title_and_body(posts: SmallPosts, settings: Settings, registry: str) -> None:
    metrics = ask(posts, settings, registry)
    rows = rows_of(posts)
    assert len(rows) == ASKED
    for record_id, row in rows.items():
        post = posts.posts[record_id]
        abstains = len(post.title) % 5 == 0
        expected = LABELS[len(post.body) % len(LABELS)]
        assert row["outcome"] == ("abstained" if abstains else "vote")
        assert row["labels"] == ([] if abstains else [expected])
        assert row["scores"] == [float(label == expected) for label in LABELS]
    assert {"abstained", "vote"} == set().union(*metrics["outcomes"].values()), "both cases occur"
    assert spent(posts)["seconds"] > 0 and spent(posts)["cost"] == 0


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("rows.pop()", "22 answers to 23 posts"),
        ("rows[3]['labels'] = ['sadness']", "its labels are none of the task's"),
        ("rows[3]['labels'] = 'rape_past'", "its labels are no list"),
        ("rows[3]['probabilities'] = [0.5]", "its probabilities are none of these labels"),
        ("rows[3]['probabilities'] = 0.5", "its probabilities are no list of numbers"),
        ("rows[3]['abstain'] = None", "abstain is not true or false"),
        ("raise ValueError(model_input['body'][0])", r"it fails \(ValueError\)"),
        ("rows = [{'labels': []} for _ in rows]", "has not the columns"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(
    posts: SmallPosts, settings: Settings, registry: str, monkeypatch: pytest.MonkeyPatch, spoil: str, said: str
) -> None:
    monkeypatch.setenv(SPOIL, spoil)
    with pytest.raises(AnswerUnfit, match=said) as caught:
        ask(posts, settings, registry)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert posts.posts[asked(posts)[0]].body[:20] not in str(caught.value)
    assert not (posts.snapshot / "predictions").exists()


def test_a_model_that_is_missing_or_pickled_is_not_loaded(
    posts: SmallPosts, settings: Settings, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "true")
    with pytest.raises(ModelNotLoaded, match="MLFLOW_TRACKING_URI is not set"):
        ask(posts, settings, None)
    with pytest.raises(ModelNotLoaded, match="models:/nobody@champion"):
        ask(posts, settings, registry, name="nobody")
    with pytest.raises(ModelNotLoaded, match="models:/pickled@champion"):
        ask(posts, settings, registry, name="pickled")
    assert os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "true"
