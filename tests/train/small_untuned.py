"""The stage ``predict`` on the small corpus, for a model that is not fitted and is called ``it``."""

from __future__ import annotations

import json
from typing import Any

from pipelines.core import rows
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.models import predict
from pipelines.models.kind import Desk, Kind
from pipelines.store import tables
from tests.contexts import context_of
from tests.train import small_posts as small
from tests.train import small_tuned
from tests.train.small_posts import SmallPosts

ASKED = 11 + 12  # dev without the prompt's one example, and test
LABELS = small.TASK.labels
Rows = dict[str, dict[str, Any]]
ROW = "labels-it"


def params_of(posts: SmallPosts, spec: Kind | None, *, name: str = "it") -> Params:
    """Return the parameters with one row, that of the model."""
    models = {**posts.params.models, **({} if spec is None else {"it": small_tuned.entry(spec)})}
    section = posts.params.predict.model_copy(update={"rows": {"posts": (name,)}})
    train = posts.params.train.model_copy(update={"rows": {}})
    return posts.params.model_copy(update={"models": models, "predict": section, "train": train, "registry": {}})


def run(posts: SmallPosts, settings: Settings, *, spec: Kind | None = None, name: str = "it") -> dict[str, Any]:
    params = params_of(posts, spec, name=name)
    (posts.root / rows.FILE).write_text(rows.text(params, root=posts.root))
    given = {"params": params, "settings": settings, "vault": posts.vault, "root": posts.root}
    return predict.run(context_of("posts", row=f"labels-{name}", **given))


def desk(posts: SmallPosts, settings: Settings, *, params: Params | None = None) -> Desk:
    """Return what a model that is not fitted answers about."""
    return Desk("posts", "it", small.TASK, params or posts.params, settings, posts.vault, posts.root)


def rows_of(posts: SmallPosts) -> Rows:
    path = posts.snapshot / "predictions" / ROW / "predictions.parquet"
    found = tables.read(path, name="predictions").to_pylist()
    assert len({row["record_id"] for row in found}) == len(found)
    assert {(r["task"], r["model"], r["seed"], r["image"]) for r in found} <= {("labels", "it", 0, 0)}
    return {row["record_id"]: row for row in found}


def spent(posts: SmallPosts) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((posts.snapshot / "predictions" / ROW / "spent.json").read_text())
    return found


def asked(posts: SmallPosts) -> list[str]:
    return [example.item[0] for example in posts.load(None).asked]
