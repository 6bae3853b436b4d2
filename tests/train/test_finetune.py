"""The stage ``train`` on posts: what it writes and counts, the card of a model, and a run that is killed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.core import rows
from pipelines.core.config.settings import Settings
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.models.fitting import card, training_records
from pipelines.models.fitting.training_records import TrainingRecords
from pipelines.store import tables
from tests import mlflow_database
from tests.contexts import context_of
from tests.refusals import refused
from tests.train import small_posts as small
from tests.train import small_tuned
from tests.train.small_posts import SmallPosts
from tests.train.small_tuned import SEED, folder, row_of, rows_of, tuned

pytestmark = pytest.mark.usefixtures("embedded_once")
METRICS = Path(f"root/metrics/posts/train-{row_of('encoder')}.json")


@pytest.mark.parametrize("model", ["encoder", "knn", "linear", "linear-embedding", "sft"])
def test_a_tuned_model_lists_its_kind_and_training_records(posts: SmallPosts, settings: Settings, model: str) -> None:
    left = folder(posts, model=model) / "left.over"
    left.parent.mkdir(parents=True)
    left.touch()
    metrics = tuned(posts, settings, model=model)
    material = posts.load("consensus")
    train, dev = ([e.item[0] for e in part] for part in (material.train, material.validation))

    written = json.loads((folder(posts, model=model) / "model.json").read_text())
    spec = small_tuned.MODELS[model]
    assert (written["task"], written["scheme"], written["subset"]) == ("labels", "cradle", "consensus")
    assert written["labels"] == list(small.TASK.labels) and written["train"]["records"] == len(train)
    assert written["base"] == getattr(spec, "base", spec.named) and written["kept"]
    assert written["spec"] == spec.model_dump(mode="json")
    assert written["train"] == training_records.trained_on(train[::-1]).model_dump() == metrics["train"]
    assert not left.exists(), "what an earlier try left is no part of a model"

    lineage = tables.read(folder(posts, model=model) / "records.parquet", name="splits").to_pylist()
    assert {(r["record_id"], r["split"]) for r in lineage} == {(r, "train") for r in train} | {(r, "dev") for r in dev}
    splits = tables.read(posts.snapshot / "split/splits.parquet", name="splits").to_pylist()
    assert all(row in splits for row in lineage)

    support = Counter(label for e in material.train for label in e.labels or ())
    assert metrics["support"] == {label: support[label] for label in small.TASK.labels}
    assert metrics["unseen"] == [label for label in small.TASK.labels if not support[label]]
    needed = 1 if model == "knn" else 5
    assert metrics["scarce"] == [label for label in small.TASK.labels if 0 < support[label] < needed]
    assert (metrics["validation"], metrics["examples"], metrics["without"]["train"]) == (11, 1, 24 - len(train))
    assert metrics["ensemble"] == "cradle" and metrics["fit"]
    stored = json.loads((posts.root / f"metrics/posts/train-{row_of(model)}.json").read_text())
    assert stored == metrics
    assert not (settings.home / "train/posts" / row_of(model)).exists(), "checkpoints go in the end"


def test_plain_files_hold_no_text_of_a_post(posts: SmallPosts, settings: Settings) -> None:
    tuned(posts, settings, model="encoder")
    open_files = [
        posts.root / f"metrics/posts/train-{row_of('encoder')}.json",
        folder(posts, model="encoder") / "model.json",
    ]
    shown = "".join(path.read_text() for path in open_files)
    for record_id, post in posts.posts.items():
        assert record_id not in shown and post.title not in shown and post.body[:20] not in shown


def test_the_subset_decides_the_training_records(posts: SmallPosts, settings: Settings) -> None:
    unanimous, consensus = (tuned(posts, settings, model="knn", subset=s) for s in ("unanimous", "consensus"))
    assert unanimous["train"]["records"] < consensus["train"]["records"]
    small.write_gold(posts, {r: post.labels for r, post in posts.posts.items()})
    gold = tuned(posts, settings, model="knn", subset="gold")
    assert gold["train"]["records"] == 24 and gold["ensemble"] is None


def test_without_labels_there_is_nothing_to_learn(posts: SmallPosts, settings: Settings) -> None:
    with refused("NothingToLearn", match="subset gold: no item of split train"):
        tuned(posts, settings, model="knn", subset="gold")
    small.write_gold(posts, {r: post.labels for r, post in posts.posts.items() if post.split != "dev"})
    with refused("NothingToLearn", match="no item of split dev"):
        tuned(posts, settings, model="knn", subset="gold")
    with refused("NoSilver", match="offline"):
        tuned(posts, settings, model="knn", ensemble="offline")
    small.write_gold(posts, {r: frozenset({"no_crisis"}) for r in posts.posts})
    with refused("OneAnswer", match=r"all \d+ labelled items of train .* at least 1 in train"):
        tuned(posts, settings, model="knn", subset="gold")
    assert not (posts.snapshot / "fits").exists()


def test_a_blend_needs_its_labellers_votes(posts: SmallPosts, settings: Settings) -> None:
    shutil.rmtree(posts.snapshot / "votes" / "gpt")
    with refused("NotVoted", match="votes@posts-gpt"):
        tuned(posts, settings, model="knn-gpt")


@pytest.mark.parametrize("model", ["gpt", "tiny-causal-zero"])
def test_what_is_asked_is_not_fitted(posts: SmallPosts, settings: Settings, model: str) -> None:
    with refused("NotTrained", match=model):
        tuned(posts, settings, model=model)


def test_a_model_that_reads_pictures_refuses_texts(posts: SmallPosts, settings: Settings) -> None:
    with refused("NoInput", match=r"tiny-fusion.*posts.*image"):
        tuned(posts, settings, model="tiny-fusion")


# -- killed ---------------------------------------------------------------------------------------------------------


def tried(model: str, *tries: tuple[Path, int]) -> list[int]:
    """Run ``small_tuned.py``: each try in a place, killed behind a checkpoint of this number; return how they ended."""
    tests = Path(__file__).resolve().parents[1]
    script = "import sys, runpy, tests; tests.__path__.insert(0, sys.argv.pop(1)); runpy.run_path(sys.argv.pop(1), "
    named = [str(part) for one in tries for part in one]
    argv = [sys.executable, "-c", script + "run_name='__main__')", str(tests), str(tests / "train/small_tuned.py")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(small.REPO), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip
    done = subprocess.run([*argv, model, *named], env=environment, capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def runs(place: Path) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.sqlite")
    return list(client.search_runs([e.experiment_id for e in client.search_experiments()]))


@pytest.mark.faults
def test_a_killed_run_that_is_tried_again_ends_as_an_undisturbed_one(original: SmallPosts, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    for place in (calm, disturbed):
        shutil.copytree(original.root, place / "root")
        mlflow_database.place(place)
    assert tried("encoder", (disturbed, 4), (disturbed, 0), (calm, 0)) == [-signal.SIGKILL, 0, 0]
    died = tmp_path / "disturbed-died"
    assert [run.info.status for run in runs(died)] == ["RUNNING"], "nothing was tracked: this proves nothing"
    assert not (died / "root/snapshot/posts/fits" / row_of("encoder") / "model.json").exists()
    assert list((died / "home/train").rglob("checkpoint-*/position.json"))

    made = {
        place: {
            path.relative_to(place): path.read_bytes()
            for part in ("root/snapshot/posts/fits", "root/metrics")
            for path in (place / part).rglob("*")
            if path.is_file()
        }
        for place in (calm, disturbed)
    }
    told = {place: json.loads(files.pop(METRICS)) for place, files in made.items()}
    ran = {place: metrics["weights"].pop("run") for place, metrics in told.items()}
    assert ran[disturbed] == runs(disturbed)[0].info.run_id != ran[calm]
    assert told[disturbed] == told[calm] and made[disturbed] == made[calm] and len(made[calm]) > 4
    (run,) = runs(disturbed)
    assert run.info.status == "FINISHED"
    assert run.data.params["subset"] == "consensus" and run.data.params["epochs"] == "3"
    assert run.data.tags["data_commit"] == "none" and len(run.data.tags["train_digest"]) == 64
    assert run.data.tags["device"] == told[calm]["environment"]["device"] and run.data.tags["torch"]
    client = MlflowClient(tracking_uri=f"sqlite:///{disturbed}/mlflow.sqlite")
    history = client.get_metric_history(run.info.run_id, "train_loss")
    assert [metric.step for metric in history] == [1, 2, 3], "each epoch once, in whichever process it ran"


def test_the_digest_is_of_the_sorted_ids() -> None:
    ids = ["b" * 32, "a" * 32, "b" * 32]
    expected = hashlib.sha256(("a" * 32 + "\n" + "b" * 32 + "\n").encode()).hexdigest()
    assert training_records.trained_on(ids) == TrainingRecords(records=2, digest=expected)
    assert training_records.trained_on(ids[:1]).digest != expected


def test_a_row_that_is_not_kept_leaves_its_predictions_and_no_weights(posts: SmallPosts, settings: Settings) -> None:
    kept = tuned(posts, settings, model="encoder", seed=2)
    small_tuned.predicted(posts, settings, model="encoder", seed=2)
    before = rows_of(posts, model="encoder", seed=2)
    assert list(card.parts(folder(posts, model="encoder", seed=2)))

    told = tuned(posts, settings, model="encoder", seed=2, keep=False)
    place = folder(posts, model="encoder", seed=2)
    assert {path.name for path in place.iterdir()} == {
        "model.json",
        "records.parquet",
        "predictions.parquet",
        "spent.json",
    }
    assert not list((settings.home / "train/posts").iterdir()), "neither checkpoints nor weights stay"
    assert told["weights"] == kept["weights"] and told["fit"] == kept["fit"]
    assert told["predictions"]["outcomes"] == {"dev": {"vote": 11}, "test": {"vote": 12}}
    shutil.rmtree(posts.snapshot / "predictions")
    copied = small_tuned.predicted(posts, settings, model="encoder", seed=2)
    assert rows_of(posts, model="encoder", seed=2) == before
    assert copied["outcomes"] == told["predictions"]["outcomes"] and copied["spent"] == told["predictions"]["spent"]


def test_two_seeds_are_two_runs_of_one_model(posts: SmallPosts, settings: Settings) -> None:
    for seed, keep in ((SEED, True), (2, False)):
        tuned(posts, settings, model="encoder", seed=seed, keep=keep)
        small_tuned.predicted(posts, settings, model="encoder", seed=seed)
    params = small_tuned.params(models=("encoder",))
    wanted = {"posts": params.train.rows["posts"].model_copy(update={"seeds": (2, SEED)})}
    update = {
        "train": params.train.model_copy(update={"rows": wanted}),
        "predict": params.predict.model_copy(update={"rows": {}}),
    }
    params = params.model_copy(update=update)
    (posts.root / rows.FILE).write_text(rows.text(params, root=posts.root))
    found = evaluate.run(context_of("posts", params=params, root=posts.root), sampling=Sampling(100, 1))
    [model] = found["tasks"]["labels"]["models"].values()
    assert (model["runs"], model["seeds"], model["subset"]) == (2, [2, SEED], "consensus")
    assert model["all"]["figures"]["macro_f1"]["n"] == 2
    assert found["sampling"]["intervals"]["figures"] == "BCa bootstrap over groups and runs"


def test_a_fit_for_gold_is_shown_by_the_models_name_alone(posts: SmallPosts, settings: Settings) -> None:
    small.write_gold(posts, {r: post.labels for r, post in posts.posts.items()})
    tuned(posts, settings, model="knn", subset="gold", keep=False)
    path = folder(posts, model="knn", subset="gold") / "predictions.parquet"
    assert {(r["model"], r["seed"]) for r in tables.read(path, name="predictions").to_pylist()} == {("knn", SEED)}
