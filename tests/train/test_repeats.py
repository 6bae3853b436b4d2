"""Further seeds: their predictions are kept and evaluated as runs of the same model, their weights are not."""

from __future__ import annotations

import pytest

from pipelines.core.config.params import load as load_params
from pipelines.core.config.params import validate
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.predict import repeats
from pipelines.store import tables
from tests.train import small_posts as small
from tests.train import small_tuned
from tests.train.small_posts import SmallPosts

pytestmark = pytest.mark.usefixtures("embedded_once")


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
