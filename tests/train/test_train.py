"""The stage ``train`` as a task runs it: a process of its own that may be killed at any step."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from pipelines.train.classifiers import train as stage

from pipelines.core.config.params import Params, load, overlay, read_params
from pipelines.core.config.settings import Settings
from pipelines.datasets.features import packed, place
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from tests import mlflow_database
from tests.refusals import refused
from tests.train import small_memes
from tests.train.models.test_build import INFUSED, M3H
from tests.train.test_finetune import runs

REPO = Path(__file__).resolve().parents[2]
RUN = ("train", "memes", "--task", "severity", "--model", "tiny-text", "--seed", "1")
SMALL = {
    "models": {"tiny-text": {"kind": "text", "base": "tiny:bert"}},
    "train": {"models": ["tiny-text"], "epochs": 3, "checkpoint_steps": 1, "learning_rate": 0.001},
}


def world(folder: Path) -> dict[str, str]:
    """Make a home and a checkout with a small corpus; return the environment of a task in it."""
    home, root = folder / "home", folder / "root"
    environment = {
        **os.environ, "CORPUS_HOME": str(home), "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.sqlite", "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip
    root.mkdir(parents=True)
    mlflow_database.place(folder)
    params = read_params(REPO)
    (root / "params.yaml").write_text(yaml.safe_dump(overlay(params, SMALL)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home))
        settings = Settings.from_env()
        with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
            small_memes.write(root, vault=vault, shows="text")
    return environment


def start(folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "pipelines", *RUN]
    return subprocess.Popen(argv, cwd=folder / "root", env=environment, stdout=subprocess.PIPE, text=True)


def metrics(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "root/metrics/memes/train-severity-tiny-text-1.json").read_text())
    return found


def predictions(folder: Path) -> list[dict[str, Any]]:
    path = folder / "root/snapshot/memes/predictions/train/severity/tiny-text/1/predictions.parquet"
    rows: list[dict[str, Any]] = tables.read(path, name="predictions").to_pylist()
    return rows


def states(folder: Path) -> list[str]:
    return [run.info.status for run in runs(folder)]


@pytest.mark.faults
def test_a_killed_run_that_is_tried_again_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    environment = world(calm)
    shutil.copytree(calm, disturbed)
    other = {name: value.replace(str(calm), str(disturbed)) for name, value in environment.items()}
    with start(calm, environment) as child:
        child.communicate()
    assert child.returncode == 0

    with start(disturbed, other) as killed:
        checkpoints = disturbed / "home" / "train"
        deadline = time.monotonic() + 120
        while not any(path.suffix == ".safetensors" for path in checkpoints.rglob("*")):
            assert killed.poll() is None and time.monotonic() < deadline, "it never wrote a checkpoint"
            time.sleep(0.01)
        os.kill(killed.pid, signal.SIGKILL)
    assert "RUNNING" in states(disturbed), "nothing was tracked, so this proves nothing"
    with start(disturbed, other) as again:
        again.communicate()
    assert again.returncode == 0
    told, expected = metrics(disturbed), metrics(calm)
    assert told["weights"].pop("run") != expected["weights"].pop("run") is not None
    assert told == expected, "the SHA-256 of the weights, too"
    assert predictions(disturbed) == predictions(calm)
    assert states(disturbed) == ["FINISHED"]
    assert {row["split"] for row in predictions(calm)} == {"validation", "test"}
    assert not [path for path in checkpoints.rglob("*") if path.is_file()], "checkpoints go when a run ends"


def test_a_system_about_severity_predicts_nothing_else_and_says_so(tmp_path: Path) -> None:
    done = stage.run(
        "memes", task="related", model="yadav", seed=1, params=load(REPO), settings=None, vault=None, root=tmp_path
    )  # type: ignore[arg-type]
    assert "severity" in done["skipped"]
    path = tmp_path / "snapshot/memes/predictions/train/related/yadav/1/predictions.parquet"
    assert tables.read(path, name="predictions").num_rows == 0


@pytest.mark.parametrize("spec", [INFUSED, M3H], ids=lambda spec: spec.kind)
def test_a_model_reads_what_the_stage_rationales_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: Any
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    train = {"models": ["reader"], "epochs": 1, "learning_rate": 0.001}
    values = overlay(read_params(REPO), {"models": {"reader": spec.model_dump()}, "train": train})
    params, settings = Params.model_validate(values), Settings.from_env()
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        memes = small_memes.write(tmp_path, vault=vault, sizes={"train": 12, "validation": 6, "test": 6})
        declined, gone = sorted(memes.memes)[:2]

        def run() -> dict[str, Any]:
            return stage.run(
                "memes", task="severity", model="reader", seed=1, params=params, settings=settings, vault=vault,
                root=tmp_path,
            )  # fmt: skip

        with refused("NoCues", match="stage `rationales`"):
            run()
        said = packed(("rain", "a zebrafinch", ""))
        rows = [
            {"record_id": item[0], "image": item[1], "labeller": "gpt", **({"outcome": "refused", "remarks": None} if
             item == declined else {"outcome": "vote", "remarks": said})}
            for item in memes.memes
        ]  # fmt: skip
        path = place("memes", model="reader", root=tmp_path)
        write_rows(rows, path, name="remarks", vault=vault)
        vault.destroy([gone[0]], reason="request", now=small_memes.NOW)
        done = run()
        assert done["remarks"] == {"refused": 1, "vote": 23}
        assert sum(done["taken_down"].values()) == 1
        assert len(done["history"]) == 1
        predicted = tmp_path / "snapshot/memes/predictions/train/severity/reader/1/predictions.parquet"
        judged = {(row["record_id"], row["image"]) for row in tables.read(predicted, name="predictions").to_pylist()}
        assert judged == {item for item, meme in memes.memes.items() if meme.split != "train"} - {gone}
        assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"zebrafinch" in file.read_bytes()]
        write_rows([row for row in rows if row["record_id"] != max(judged)[0]], path, name="remarks", vault=vault)
        with refused("NoCues", match="has no rationales"):
            run()


@pytest.mark.parametrize("model", ["gpt-5-mini-zero", "nobody"])
def test_what_is_asked_is_not_trained(tmp_path: Path, model: str) -> None:
    with refused("NotTrained", match=model):
        stage.run(
            "memes", task="severity", model=model, seed=1, params=load(REPO), settings=None, vault=None, root=tmp_path
        )  # type: ignore[arg-type]
