"""A real registry's model as a row of the benchmark: asked with title and body, and held to its signature."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crisis_corpus import integrity
from crisis_corpus.trusted import FilesChanged, NotOnRecord
from crisis_corpus.versions import DIGEST, NoRegistry
from pipelines.core.config.settings import Settings
from pipelines.models.kinds.registered import Registered as Kind
from pipelines.models.kinds.registered.version import RegisteredPredictor
from pipelines.registry import transitions, versions
from pipelines.registry.journal import Journal
from pipelines.store import tables
from tests import mlflow_database
from tests.refusals import refused
from tests.train.small_posts import TASK, SmallPosts
from tests.train.small_untuned import ASKED, LABELS, asked, rows_of, run, spent

# mlflow warns of models without type hints
pytestmark = pytest.mark.filterwarnings("ignore")
SPOIL = "SMALL_MODEL_SPOIL"
NAME, WHO = "crisis-posts", {"who": "tester", "why": "a test"}
SERVED = '''
import os

from pathlib import Path

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


@dataclass(frozen=True)
class Registered:
    """A registry and its journal: of ``NAME`` version 1 is champion, 2 was altered since, 3 is not on record."""

    uri: str
    journal_url: str


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registered:
    from mlflow import pyfunc

    folder = tmp_path_factory.mktemp("registry")
    (folder / "code.py").write_text(SERVED.format(labels=list(LABELS)))
    (folder / "pack").mkdir()
    packed(folder / "pack")
    artifacts = {"pack": str(folder / "pack")}
    pyfunc.save_model(str(folder / "1"), python_model=str(folder / "code.py"), artifacts=artifacts, pip_requirements=[])
    made = Registered(mlflow_database.place(folder), f"sqlite:///{folder}/journal.sqlite")
    registry, files = versions.Registry(made.uri), integrity.digest(folder / "1")
    with Journal.open(made.journal_url, secret=b"5" * 64) as journal:
        for number in (1, 2, 3):
            if number > 1:
                shutil.copytree(folder / "1", folder / str(number))
            registry.add(NAME, source=str(folder / str(number)), run_id=None, tags={DIGEST: files})
            if number < 3:
                journal.append(NAME, event="registered", to_version=number, files=files, **WHO)
        move = transitions.Move(NAME, "promoted", None, None, 1, WHO["who"], WHO["why"], {}, files)
        transitions.finish(
            transitions.intend(move, journal=journal), registry=registry, journal=journal, say=lambda _: None
        )
    with (folder / "2" / "code.py").open("a") as code:
        code.write(f"Path({str(folder / 'ran')!r}).touch()\n")
    return made


def packed(folder: Path, *records: str) -> None:
    """Write what every pack has, of a model that learnt from ``records``."""
    described = {"format": 1, "kind": "rule", "task": TASK.key, "labels": list(LABELS), "data_commit": "c" * 40}
    described |= {
        "scheme_digest": "5" * 64,
        "split_digest": "6" * 64,
        "inputs": ["title", "body"],
        "train": {"records": 0, "digest": "7" * 64},
    }
    (folder / integrity.MODEL).write_text(json.dumps(described))
    (folder / integrity.CARD).write_text(json.dumps({"intended": "tests", "prohibited": "everything else"}))
    (folder / integrity.PAGE).write_text("# A model for tests\n")
    table = pa.table({"record_id": pa.array(records, pa.string())})
    tables.write(table, folder / integrity.RECORDS, name="pack_records")
    (folder / integrity.FILES).write_text(json.dumps(integrity.listing(folder)))


def at(registry: Registered, settings: Settings) -> Settings:
    return settings.model_copy(update={"mlflow_tracking_uri": registry.uri, "journal_url": registry.journal_url})


def ask(posts: SmallPosts, settings: Settings, registry: Registered, *, which: str = "@champion") -> dict[str, Any]:
    return run(posts, at(registry, settings), spec=Kind(kind="registered", uri=f"models:/{NAME}{which}"))


def test_a_registered_model_is_asked_with_title_and_body(
    posts: SmallPosts, settings: Settings, registry: Registered
) -> None:
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


def test_a_model_of_another_corpus_answers_in_the_labels_that_the_map_names(
    posts: SmallPosts, settings: Settings, registry: Registered
) -> None:
    labels = {**dict.fromkeys(LABELS), LABELS[0]: LABELS[0], LABELS[1]: LABELS[0], LABELS[2]: LABELS[3]}
    run(posts, at(registry, settings), spec=Kind(kind="registered", uri=f"models:/{NAME}@champion", labels=labels))
    for record_id, row in rows_of(posts).items():
        theirs = LABELS[len(posts.posts[record_id].body) % len(LABELS)]
        ours, silent = labels[theirs], len(posts.posts[record_id].title) % 5 == 0
        assert row["labels"] == ([] if silent or ours is None else [ours])
        assert row["outcome"] == ("vote" if row["labels"] else "abstained")
        assert row["scores"] == [float(label == ours) for label in LABELS]


@pytest.mark.parametrize(("split", "leaks"), [("train", False), ("dev", False), ("test", True)])
def test_a_model_that_learnt_from_a_group_of_the_test_is_refused(
    posts: SmallPosts, settings: Settings, registry: Registered, tmp_path: Path, split: str, *, leaks: bool
) -> None:
    shutil.copytree(Path(registry.uri.removeprefix("sqlite:///")).parent / "1", tmp_path / "4")
    pack = next((tmp_path / "4").rglob(integrity.RECORDS)).parent
    packed(pack, "t3_ofanothercorpus", posts.of(split)[0])
    known, files = versions.Registry(registry.uri), integrity.digest(tmp_path / "4")
    number = known.add(NAME, source=str(tmp_path / "4"), run_id=None, tags={DIGEST: files}).version
    with Journal.open(registry.journal_url, secret=b"5" * 64) as journal:
        journal.append(NAME, event="registered", to_version=number, files=files, **WHO)
    if leaks:
        with refused("LeakLearnt", match=f"{NAME}/{number} has learnt from 1 groups"):
            ask(posts, settings, registry, which=f"/{number}")
        assert not (posts.snapshot / "predictions").exists()
    else:
        ask(posts, settings, registry, which=f"/{number}")
        assert len(rows_of(posts)) == ASKED


@pytest.mark.parametrize("labels", [{LABELS[0]: LABELS[0]}, {**dict.fromkeys(LABELS), LABELS[0]: "sadness"}])
def test_a_map_that_does_not_fit_is_refused(
    posts: SmallPosts, settings: Settings, registry: Registered, labels: dict[str, str | None]
) -> None:
    with refused("BadParams", match=r"models\.it\.labels"):
        run(posts, at(registry, settings), spec=Kind(kind="registered", uri=f"models:/{NAME}/1", labels=labels))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("rows.pop()", "22 answers were returned for 23 items"),
        ("rows[3]['labels'] = ['sadness']", "its labels or alerts are not labels of the task"),
        ("rows[3]['labels'] = 'rape_past'", "its labels or alerts are not a list"),
        ("rows[3]['probabilities'] = [0.5]", "its probabilities are not one number"),
        ("rows[3]['probabilities'] = 0.5", "its probabilities are not a list of numbers"),
        ("rows[3]['abstain'] = None", "abstain is not true or false"),
        ("raise ValueError(model_input['body'][0])", r"the model fails \(ValueError\)"),
        ("rows = [{'labels': []} for _ in rows]", "its answer lacks some of the columns"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(
    posts: SmallPosts, settings: Settings, registry: Registered, monkeypatch: pytest.MonkeyPatch, spoil: str, said: str
) -> None:
    monkeypatch.setenv(SPOIL, spoil)
    with refused("AnswerUnfit", match=said) as caught:
        ask(posts, settings, registry)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert posts.posts[asked(posts)[0]].body[:20] not in str(caught.value)
    assert not (posts.snapshot / "predictions").exists()


def test_an_unregistered_or_changed_version_is_not_run(
    posts: SmallPosts, settings: Settings, registry: Registered
) -> None:
    with pytest.raises(NoRegistry):
        ask(posts, settings, replace(registry, uri=""))
    with pytest.raises(FilesChanged):
        ask(posts, settings, registry, which="/2")
    with pytest.raises(NotOnRecord):
        ask(posts, settings, registry, which="/3")
    assert not (Path(registry.uri.removeprefix("sqlite:///")).parent / "ran").exists()


def test_a_model_of_another_task_is_not_asked(posts: SmallPosts, settings: Settings, registry: Registered) -> None:
    material = posts.load(None)
    given = {"task": replace(TASK, labels=TASK.labels[1:]), "posts": material.posts, "settings": at(registry, settings)}
    with refused("AnswerUnfit", match="other labels"):
        RegisteredPredictor(f"models:/{NAME}/1", **given).predict(material.test[:1])


def test_a_model_gets_its_own_columns_of_posts_with_pictures(
    posts: SmallPosts, settings: Settings, registry: Registered
) -> None:
    material = posts.load(None)
    given: dict[str, Any] = {"task": TASK, "settings": at(registry, settings)}
    pictured = {item: replace(post, images=(b"picture",)) for item, post in material.posts.items()}
    plain, shown = (
        RegisteredPredictor(f"models:/{NAME}/1", posts=each, **given).predict(material.test[:3])
        for each in (material.posts, pictured)
    )
    assert plain == shown
