"""CRADLE's published silver through the commands: two subsets tune the six models of Table 8, and nothing is asked."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from crisis_corpus_sandbox.reddit import label_quotas, narratives
from pipelines.core.config.settings import Settings
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests.annotate import published_sets as sets
from tests.commands import answered
from tests.small_checkout import checkout
from tests.stages import run_commands

pytestmark = pytest.mark.faults
MODELS = ("qwen3-14b", "llama-70b", "qwen2-72b")
SIZES = {"dev": 12, "test": 12, "train_consensus": 24}
TINY = {
    "base": "tiny:qwen3",
    "revision": None,
    "epochs": 1,
    "accumulation": 1,
    "learning_rate": 0.003,
    "evaluation": {"max_length": 2048, "max_new_tokens": 24},
}
PROFILE: dict[str, Any] = {
    "corpora": {"memes": None},
    "sample": {"posts": {"size": 48}},
    "gold": {"posts": {"published": "annotations/posts/cradle/gold.csv"}},
    "split": {"posts": {"published": "annotations/posts/cradle/splits.csv", "proposals": 2000}},
    "few_shot": {"examples": {"posts": 2}},
    "ensembles": {"theirs": {"aggregate": "published", "published": "annotations/posts/cradle/silver.csv"}},
    "votes": {"labellers": {"posts": []}},
    "silver": {"ensembles": {"posts": ["theirs"]}, "resamples": 100},
    "models": dict.fromkeys(MODELS, TINY),
    "train": {"rows": {"posts": {"ensemble": "theirs", "models": list(MODELS), "seeds": [1]}}},
    "predict": {"rows": {"posts": []}},
    "evaluate": {"resamples": 100},
}


def release(folder: Path) -> list[str]:
    """Write the published files: dev, test, and the training set with its unanimous half."""
    chance, files = Random(7), dict[str, list[dict[str, Any]]]()
    for name, size in SIZES.items():
        told = [
            (narratives.write(labels, rng=chance, words=40), labels) for labels in label_quotas.cradle(size, rng=chance)
        ]
        files[name] = [
            {"title": post.title, "text": post.body, "labels": sorted(labels) or ["no_crisis"]} for post, labels in told
        ]
    files["train_unanimous"] = files["train_consensus"][::2]
    return [str(sets.jsonl(folder / f"{name}.jsonl", rows)) for name, rows in files.items()]


def test_published_silver_tunes_all_six_rows_of_table_8_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = checkout(tmp_path / "code")
    (code / "profiles/own.yaml").write_text(yaml.safe_dump(PROFILE))
    git("add", "--all", cwd=code)
    git("commit", "--quiet", "-m", "the profile", cwd=code)
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    connect, asked = socket.socket.connect, []

    def counted(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            asked.append(address)
            raise ConnectionRefusedError("no vendor is reachable")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", counted)
    settings = Settings.from_env()
    with contextlib.chdir(code):
        repository.init(settings, checkout=code, profile="own")
        imported = answered("import", "posts", *release(tmp_path), "--mapping", "cradle", "--allow-bad", "0")
    assert (imported["gold"], imported["silver"], imported["texts"]["kept"]) == (24, 24, 48)
    with workspace(settings) as clone:
        run_commands("report@posts", clone=clone)
        metrics = {path.stem: json.loads(path.read_text()) for path in clone.path.glob("metrics/posts/*.json")}
        page = (clone.path / "snapshot/posts/report/report.md").read_text()
    assert asked == [] and not (settings.home / "answers.sqlite").exists()
    silver = metrics["silver-theirs"]
    assert silver["categories"]["labels"]["agreement"]["train"] == {"unanimous": 12, "consensus": 12, "none": 0}
    assert (silver["members"], silver["cost"]) == ([], 0)
    for model in MODELS:
        for subset, count in (("unanimous", 12), ("consensus", 24)):
            told = metrics[f"train-labels-{model}-{subset}-1"]
            assert (told["ensemble"], told["subset"], told["train"]["records"]) == ("theirs", subset, count)
            scored = metrics["evaluate"]["tasks"]["labels"]["models"][f"{model}-{subset}"]
            assert sum(scored["outcomes"].values()) == 12, "each post of test has an outcome"
            assert f"{model}-{subset}" in page
