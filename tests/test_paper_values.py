"""The parameters hold what the papers state, and tasks keep the pools and queues that protect a deployment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.core.config.params import load

ROOT = Path(__file__).resolve().parents[1]
STATED = yaml.safe_load((Path(__file__).parent / "paper_values.yaml").read_text())
# a profile of a paper may add to params.yaml, never contradict the paper
PAPERS = [None, *(name for name in ("cradle", "figsim") if (ROOT / "profiles" / f"{name}.yaml").is_file())]
# Pool and queue of every task that needs one, and what happens without it.
GPU = ({"pool": "gpu", "queue": "gpu"}, "a worker without an accelerator would train, or two tasks would share one GPU")
PLACES: dict[str, tuple[dict[str, str], str]] = {
    **dict.fromkeys(("train", "finetune", "predict_finetuned", "repeats", "baselines", "batch_predict"), GPU),
    **dict.fromkeys(
        ("collect", "refresh", "sweep"), ({"pool": "reddit"}, "two tasks would spend one client id's budget at Reddit")
    ),
    "images": ({"pool": "images"}, "more pictures would be decoded at once than there are cores"),
    "texts": ({"pool": "texts"}, "more shards would be checked at once than there are cores"),
    **dict.fromkeys(
        ("publish", "champions", "takedown"), ({"pool": "publish"}, "commits would race and lose their work")
    ),
}
ONE_SLOT = ("reddit", "publish", "openai", "anthropic", "google", "local", "azure", "guard")


def sorted_names(value: Any) -> Any:
    """Return a list of names sorted: the order of subreddits or ensemble members means nothing."""
    return sorted(value) if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value) else value


@pytest.mark.parametrize("profile", PAPERS)
def test_the_parameters_hold_what_the_papers_state(profile: str | None) -> None:
    params = load(ROOT, profile=profile).model_dump(mode="json")
    differs = []
    for path, stated in (STATED["all"] | STATED.get(profile, {})).items():
        found: Any = params
        for key in path.split("."):
            found = found[key]
        if sorted_names(found) != sorted_names(stated["is"]):
            differs.append(f"{path} is {found!r}; {stated['source']} states {stated['is']!r}")
    assert not differs, (
        f"{'; '.join(differs)}. Restore the paper's value in params.yaml or profiles/{profile}.yaml and put yours into "
        "a profile of its own; if the transcription is wrong, correct tests/paper_values.yaml after reading the paper."
    )


def test_expensive_tasks_keep_their_pool_and_queue() -> None:
    options = json.loads((ROOT / "profiles" / "tasks.json").read_text())
    for task, (place, reason) in PLACES.items():
        found = {key: options.get(task, {}).get(key) for key in place}
        assert found == place, f"profiles/tasks.json, {task}: restore {place}: {reason}"
    others = {t for t, o in options.items() if {"pool", "queue"} & set(o)} - set(PLACES)
    assert not others, f"tests/test_paper_values.py: add {sorted(others)} to PLACES, with the reason"


def test_what_must_not_run_twice_at_once_has_one_slot() -> None:
    pools = json.loads((ROOT / "profiles" / "pools.json").read_text())
    assert {place["pool"] for place, _ in PLACES.values()} <= set(pools)
    for name in ONE_SLOT:
        assert pools[name]["slots"] == 1, f"profiles/pools.json, {name}: {pools[name]['description']}"
    assert all(pool["description"] and not pool["include_deferred"] for pool in pools.values())
