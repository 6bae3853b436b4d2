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

from pipelines.core import rows as row_file
from pipelines.core.config.params import Params, overlay, read_params
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.datasets.features import packed, place
from pipelines.models import kind, predict, train
from pipelines.models.fitting import card
from pipelines.models.kind import Serving
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from tests import mlflow_database
from tests.contexts import context_of
from tests.refusals import refused
from tests.train import small_memes, small_tuned
from tests.train.models.test_build import INFUSED, M3H
from tests.train.test_finetune import runs

REPO = Path(__file__).resolve().parents[2]
ROW = "severity-tiny-text-gold-1"
RUN = ("train", "memes", "--row", ROW)
SMALL = {
    "models": {"tiny-text": {"kind": "text", "base": "tiny:bert", "epochs": 3, "learning_rate": 0.001}},
    "train": {"checkpoint_steps": 1, "rows": {"memes": {"models": ["tiny-text"], "seeds": [1]}}},
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
    params = overlay(read_params(REPO), SMALL)
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    (root / row_file.FILE).write_text(row_file.text(Params.model_validate(params), root=root))
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
    found: dict[str, Any] = json.loads((folder / f"root/metrics/memes/train-{ROW}.json").read_text())
    found["predictions"]["spent"]["seconds"] = None
    return found


def predictions(folder: Path) -> list[dict[str, Any]]:
    path = folder / "root/snapshot/memes/fits" / ROW / "predictions.parquet"
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


@pytest.mark.parametrize("spec", [INFUSED, M3H], ids=lambda spec: spec.kind)
def test_a_model_reads_what_the_stage_rationales_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: Any
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    entry = spec.model_dump(exclude_unset=True) | {"epochs": 1, "learning_rate": 0.001, "tasks": ["severity"]}
    own = {"models": {"reader": entry}, "train": {"rows": {"memes": {"models": ["reader"], "seeds": [1]}}}}
    params, settings = (
        Params.model_validate(overlay(read_params(REPO), own)),
        Settings.from_env(),
    )
    row = "severity-reader-gold-1"
    (tmp_path / row_file.FILE).write_text(row_file.text(params, root=tmp_path))
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        memes = small_memes.write(tmp_path, vault=vault, sizes={"train": 12, "validation": 6, "test": 6})
        declined, gone = sorted(memes.memes)[:2]

        def run() -> dict[str, Any]:
            return train.run(context_of("memes", row=row, params=params, settings=settings, vault=vault, root=tmp_path))

        with refused("NoCues", match="stage `rationales`"):
            run()
        said = packed(("rain", "a zebrafinch", ""))
        rows = [
            {"record_id": item[0], "image": item[1], "labeller": "gpt", **({"outcome": "refused", "remarks": None} if
             item == declined else {"outcome": "vote", "remarks": said})}
            for item in memes.memes
        ]  # fmt: skip
        path = place("memes", model="reader", root=tmp_path)
        write_rows(rows, path, name="rationales", vault=vault)
        vault.destroy([gone[0]], reason="request", now=small_memes.NOW)
        done = run()
        assert done["remarks"] == {"refused": 1, "vote": 23}
        assert sum(done["taken_down"].values()) == 1
        assert len(done["fit"]["history"]) == 1
        predicted = tmp_path / "snapshot/memes/fits" / row / "predictions.parquet"
        judged = {(row["record_id"], row["image"]) for row in tables.read(predicted, name="predictions").to_pylist()}
        assert judged == {item for item, meme in memes.memes.items() if meme.split != "train"} - {gone}
        assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"zebrafinch" in file.read_bytes()]
        write_rows([row for row in rows if row["record_id"] != max(judged)[0]], path, name="rationales", vault=vault)
        with refused("NoCues", match="has no rationales"):
            run()


KEPT = {
    "text": {"kind": "text", "base": "tiny:bert"},
    "fusion": {"kind": "fusion", "base": "tiny:clip"},
    "yadav": {"kind": "yadav", "text": "tiny:bert", "image": "tiny:resnet"},
}


@pytest.mark.parametrize("name", KEPT)
def test_kept_weights_predict_what_the_fit_predicted_and_so_does_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    entry = KEPT[name] | {"epochs": 1, "learning_rate": 0.001, "batch": 8}
    key, settings, found = f"figurative-own-{name}-gold-1", Settings.from_env(), []
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        memes = small_memes.write(tmp_path, vault=vault, sizes={"train": 18, "validation": 9, "test": 9})
        for keep in ([], [f"memes-{key}"]):
            own = {
                "models": {f"own-{name}": entry},
                "train": {"rows": {"memes": {"models": [f"own-{name}"], "seeds": [1]}}, "keep": keep},
            }
            params = Params.model_validate(overlay(read_params(REPO), own))
            (tmp_path / row_file.FILE).write_text(row_file.text(params, root=tmp_path))
            given = {"params": params, "settings": settings, "vault": vault, "root": tmp_path}
            told = train.run(context_of("memes", row=key, **given))
            predict.run(context_of("memes", row=key, **given))
            path = tmp_path / "snapshot/memes/predictions" / key / "predictions.parquet"
            found.append(tables.read(path, name="predictions").to_pylist())
        folder = tmp_path / "snapshot/memes/fits" / key
        assert found[0] == found[1] and {row["split"] for row in found[0]} == {"validation", "test"}
        assert {path.name for path in card.parts(folder).values()} == {"weights.safetensors", "thresholds.json"}
        assert set(told["weights"]["files"]) == {"weights.safetensors", "thresholds.json"}
        spec, material = kind.spec(params, f"own-{name}"), memes.load("figurative")
        if spec.packable is None:
            serving = Serving(task=material.task, scheme=load_scheme("figsim"), folder=tmp_path / "home", seed=1)
            (to := tmp_path / "pack").mkdir()
            spec.pack(folder, to=to, serving=serving)
            answers = spec.open(to, serving).predict(material.test)
            rows_of = {(r["record_id"], r["image"]): r for r in found[1]}
            for example, answer in zip(material.test, answers, strict=True):
                assert rows_of[example.item]["scores"] == pytest.approx(answer.scores, abs=1e-6)


def test_a_model_of_memes_learns_from_silver_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings = Settings.from_env()
    fitted = {"models": ["encoder"], "subsets": ["consensus"], "ensemble": "offline", "seeds": [1]}
    entry = small_tuned.MODELS["encoder"].model_dump(exclude_unset=True)
    own: dict[str, Any] = {"models": {"encoder": entry}, "train": {"rows": {"memes": fitted}}}
    own["silver"] = {"ensembles": {"memes": ["offline"]}}
    params = Params.model_validate(overlay(read_params(REPO), own))
    (tmp_path / row_file.FILE).write_text(row_file.text(params, root=tmp_path))
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        memes = small_memes.write(tmp_path, vault=vault, sizes={"train": 18, "validation": 9, "test": 9})
        silver = [
            {"record_id": r, "image": n, "category": "severity", "ensemble": "offline", "agreement": "consensus",
             "labels": sorted(meme.labels["severity"]), "how": "majority"}
            for (r, n), meme in memes.memes.items() if meme.split == "train"
        ]  # fmt: skip
        path = tmp_path / "snapshot/memes/silver/offline/silver.parquet"
        small_memes.write_table(path, silver, name="silver")
        given = {"params": params, "settings": settings, "vault": vault, "root": tmp_path}
        told = train.run(context_of("memes", row="severity-encoder-consensus-1", **given))
    assert (told["ensemble"], told["train"]["records"], told["validation"]) == ("offline", 18, 9)
    rows_of = tables.read(
        tmp_path / "snapshot/memes/fits/severity-encoder-consensus-1/predictions.parquet", name="predictions"
    ).to_pylist()
    assert {row["model"] for row in rows_of} == {"encoder-consensus"} and all(len(r["labels"]) == 1 for r in rows_of)
