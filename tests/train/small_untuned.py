"""The stage ``untuned`` on the small corpus, for a model that is called ``it``."""

from __future__ import annotations

import json
from typing import Any

from pipelines.core.config.models import Model
from pipelines.core.config.settings import Settings
from pipelines.predict import baselines
from pipelines.store import tables
from tests.train import small_posts as small
from tests.train.small_posts import SmallPosts

ASKED = 11 + 12  # dev without the prompt's one example, and test
LABELS = small.TASK.labels
Rows = dict[str, dict[str, Any]]


def run(posts: SmallPosts, settings: Settings, *, spec: Model) -> dict[str, Any]:
    params = posts.params.model_copy(update={"models": {**posts.params.models, "it": spec}})
    return baselines.run("posts", model="it", params=params, settings=settings, vault=posts.vault, root=posts.root)


def rows_of(posts: SmallPosts) -> Rows:
    path = posts.snapshot / "predictions/untuned/it/predictions.parquet"
    rows = tables.read(path, name="predictions").to_pylist()
    assert len({row["record_id"] for row in rows}) == len(rows)
    assert {(r["task"], r["model"], r["seed"], r["image"]) for r in rows} <= {("labels", "it", 0, 0)}
    return {row["record_id"]: row for row in rows}


def spent(posts: SmallPosts) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((posts.snapshot / "predictions/untuned/it/spent.json").read_text())
    return found


def asked(posts: SmallPosts) -> list[str]:
    return [example.item[0] for example in posts.load(None).asked]
