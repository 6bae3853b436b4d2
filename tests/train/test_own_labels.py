"""Labels of one's own: the same stages and the same Dag on an imported set whose scheme is an order of five grades."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from pipelines.annotate.imports import imports
from pipelines.core.config.params import load, overlay
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests.dags.test_dags import parse
from tests.small_checkout import checkout
from tests.stages import run_commands

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LEVELS = load_scheme("cssrs").category().names
PEOPLE = 500
TASK, MODEL = "severity", "tiny-encoder"
SEEDS = (20251001, 20251002, 20251003)
pytestmark = pytest.mark.faults
CHANGES: dict[str, object] = {
    "models": {
        "tiny-encoder": {
            "kind": "encoder", "base": "tiny:modernbert", "batch": 8, "max_tokens": 64, "learning_rate": 0.002,
            "warmup": 0.1, "weight_decay": 0.01, "epochs": 4,
        }
    },
    "train": {"rows": {"posts": {"models": ["tiny-encoder", "knn"]}}},
    "registry": {"crisis-posts": {"candidates": [{"model": "tiny-encoder", "seed": SEEDS[0]}]}},
    # one labeller is enough for what nothing is learnt from here
    "votes": {"labellers": {"posts": ["words"]}},
    "ensembles": {"offline": {"members": ["words"]}},
    "silver": {"resamples": 100},
    "evaluate": {"resamples": 200},
}  # fmt: skip
# frequency of each level in the file, about as in the published one
SHARES = dict(zip(LEVELS, (6, 5, 9, 4, 3), strict=True))
# the words that give a level away, and those that do not
SIGNS = dict(zip(LEVELS, ("garden bench", "river boat", "stone bridge", "window seat", "music box"), strict=True))
PLACES = ("market", "station", "library", "harbour", "kitchen", "meadow", "village", "museum", "theatre", "bakery")
TIMES = ("this morning", "last winter", "on the weekend", "after the rain", "before lunch", "in the evening")


def posts_of(level: str, *, chance: Random) -> list[str]:
    """Return one person's two or three mild posts; the last shows the level, but not for every tenth person."""
    said = [
        f"I walked by the {chance.choice(PLACES)} {chance.choice(TIMES)} and met {chance.randint(2, 90)} people there."
        for _ in range(chance.randint(1, 2))
    ]
    shown = SIGNS[level] if chance.random() > 0.1 else "old tower"
    sign = f"Then I saw the {shown} near the {chance.choice(PLACES)} and thought about it {chance.choice(TIMES)}."
    return [*said, sign]


def write_file(path: Path) -> None:
    """Write ``User, Post list, Label`` as the published file has them."""
    chance = Random(7)
    levels = [level for level, share in SHARES.items() for _ in range(share)]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["User", "Post list", "Label"])
        for number in range(PEOPLE):
            level = levels[number % len(levels)]
            out.writerow([f"user-{number}", repr(posts_of(level, chance=chance)), level])


def begin(home: Path, *, settings: Settings) -> dict[str, Any]:
    """Make a corpus repository under C-SSRS's profile with some changes, import the file, and return the report."""
    code = checkout(home / "checkout")
    profile = overlay(yaml.safe_load((code / "profiles/cssrs.yaml").read_text()), CHANGES)
    (code / "profiles/own.yaml").write_text(yaml.safe_dump(profile))
    git("add", "--all", cwd=code)
    git("commit", "--quiet", "-m", "the profile", cwd=code)
    repository.init(settings, checkout=code, profile="own")
    write_file(home / "people.csv")
    # as `corpus import` does it in a clone, whose params.yaml has the profile's values
    with workspace(settings) as clone, Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        given: dict[str, Any] = {"params": load(clone.path), "settings": settings, "vault": vault, "now": NOW}
        return imports.run("posts", files=[home / "people.csv"], mapping="cssrs", **given)


@dataclass(frozen=True)
class Ran:
    """What the import reported, and what the stages left."""

    imported: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    page: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    home = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home / "var"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        settings = Settings.from_env()
        imported = begin(home, settings=settings)
        with workspace(settings) as clone:
            run_commands("report@posts", clone=clone)
            metrics = {path.stem: json.loads(path.read_text()) for path in clone.path.glob("metrics/posts/*.json")}
            page = (clone.path / "snapshot" / "posts" / "report" / "report.md").read_text()
        yield Ran(imported, metrics, page)


def test_the_imported_labels_are_gold_of_every_split(ran: Ran) -> None:
    assert (ran.imported["items"], ran.imported["gold"], ran.imported["texts"]["kept"]) == (PEOPLE,) * 3
    assert ran.metrics["gold"]["records"] == PEOPLE - 2
    assert ran.metrics["gold"]["how"] == {"published": PEOPLE - 2}, "two wrote what others had"


def test_the_model_learns_from_people_and_from_nothing_else(ran: Ran) -> None:
    told = ran.metrics[f"train-{TASK}-{MODEL}-gold-{SEEDS[0]}"]
    assert (told["subset"], told["ensemble"], told["train"]["records"], told["validation"]) == ("gold", None, 299, 100)
    assert sum(told["support"].values()) == 299
    assert told["unseen"] == []
    # a tenth of the people show no sign: an alert that misses none of them is raised for many
    assert told["fit"]["alerts"].keys() == {"Behavior", "Attempt"}, "the floors of the scheme"


def test_the_tuned_model_beats_the_majority_in_every_figure_of_an_order(ran: Ran) -> None:
    task = ran.metrics["evaluate"]["tasks"][TASK]
    assert (task["kind"], task["ordinal"], task["labels"]) == ("single", True, list(LEVELS))
    tuned = {name: cell["mean"] for name, cell in task["models"][MODEL]["valid"]["figures"].items()}
    majority = task["baselines"]["majority"]["figures"]
    assert task["n"] == 99
    assert tuned["exact"] > majority["exact"] + 0.3
    assert tuned["macro_f1"] > majority["macro_f1"] + 0.3
    assert tuned["kappa"] > 0.5 > majority["kappa"] == 0
    assert tuned["mae"] < majority["mae"]
    assert task["models"][MODEL]["outcomes"] == {"vote": len(SEEDS) * 99}


def test_no_model_with_an_alert_scores_below_the_majority_class(ran: Ran) -> None:
    task = ran.metrics["evaluate"]["tasks"][TASK]
    majority = task["baselines"]["majority"]["figures"]
    models = task["models"].items()
    warning = {name: model for name, model in models if any(floor["alert"] for floor in model["floors"].values())}
    assert warning.keys() >= {MODEL, "knn"}
    for model in warning.values():
        figures = model["all"]["figures"]
        assert figures["exact"]["mean"] > majority["exact"]
        assert figures["macro_f1"]["mean"] > majority["macro_f1"]
        for alert in (floor["alert"] for floor in model["floors"].values()):
            assert not alert["dev"]["guarantee"], "twenty people or fewer cannot guarantee .9"
            assert alert["dev"]["recall"] == 1
            assert 0 <= alert["alert_rate"]["rate"] <= 1
            assert alert["recall"]["rate"] is not None
    page = ran.page.partition("**Alerts of labels with a recall floor**")[2]
    assert "without guarantee of the floor" in page.splitlines()[4]


def test_the_dag_tunes_on_gold_under_the_profile(tmp_path: Path) -> None:
    parsed = parse(tmp_path, CORPUS_PROFILE="cssrs")
    assert parsed["errors"] == {}
    tasks = parsed["dags"]["posts_benchmark"]["tasks"]
    tuned = {name: task["upstream"] for name, task in tasks.items() if name.startswith("train__")}
    names = (f"{TASK}-{model}-gold-{seed}" for model in ("modernbert", "knn") for seed in SEEDS)
    assert tuned == {f"train__{name}": ["pin"] for name in names}, "nothing labels here"
