"""A profile that adds a corpus has Dags, stages and parameters for it, without code."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.core.config.added_corpora import complete
from pipelines.core.config.params import load, read_params, validate
from pipelines.core.errors import BadParams
from tests.dags.test_dags import ROOT, parse

FORUM = {
    "content": "texts",
    "scheme": "cssrs",
    "subreddits": ["lonely"],
    "source": "dump",
    "first_month": "2022-11",
    "last_month": None,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what the Dags read, with a profile that adds a corpus of texts and one of images."""
    copy = tmp_path_factory.mktemp("root")
    for name in ("dvc.yaml", "params.yaml", "catalogue.yaml"):
        shutil.copy(ROOT / name, copy)
    for name in ("profiles", "dags", "plugins", "pipelines"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    pictures = {**FORUM, "content": "images", "scheme": "figsim"}
    profile = {"corpora": {"forum": FORUM, "pictures": pictures}, "sample": {"forum": {"size": 90}}}
    (copy / "profiles" / "team.yaml").write_text(yaml.safe_dump(profile))
    return copy


def test_a_corpus_takes_what_it_lacks_from_the_one_with_its_content(root: Path) -> None:
    params = load(root, profile="team")
    assert params.matrix.texts == ("posts", "forum")
    assert params.matrix.corpora == ("memes", "posts", "forum", "pictures")
    assert params.sample["forum"].size == 90
    assert params.sample["forum"].seed == params.sample["posts"].seed
    assert params.split["forum"].ratios == params.split["posts"].ratios
    assert params.split["forum"].sizes is None
    assert params.split["pictures"].strata == params.split["memes"].strata
    assert params.batch_predict["forum"] == ()
    before = load(root)
    assert {name: params.sample[name] for name in before.sample} == before.sample


def test_it_may_be_listed_before_the_corpus_that_it_takes_values_from() -> None:
    values = read_params(ROOT)
    values["corpora"] = {"forum": FORUM, **values["corpora"]}
    for name in ("sample", "split", "gold"):
        values[name]["forum"] = dict(list(values[name]["posts"].items())[:1])
    params = validate(complete(copy.deepcopy(values)), where="params.yaml")
    assert params.split["forum"].ratios == params.split["posts"].ratios
    assert params.sample["forum"] == params.sample["posts"]
    assert params.split["posts"].sizes is not None and params.gold["forum"].truth is False


@pytest.mark.parametrize("content", [["images"], {"images": None}, 1, None])
def test_a_content_of_a_wrong_form_is_named(content: object) -> None:
    values = read_params(ROOT)
    values["corpora"]["forum"] = FORUM | {"content": content}
    with pytest.raises(BadParams, match=r"corpora\.forum\.content"):
        validate(complete(values), where="params.yaml")


def test_its_dags_are_those_of_its_content(root: Path, tmp_path: Path) -> None:
    parsed: dict[str, Any] = parse(tmp_path, CORPUS_PROFILE="team", CORPUS_ROOT=str(root))
    assert parsed["errors"] == {}
    dags = parsed["dags"]
    ours = {name for name in dags if name.startswith(("forum", "pictures"))}
    assert ours == {
        "forum_collect", "forum_refresh", "forum_dataset", "forum_label", "forum_finetune",
        "pictures_collect", "pictures_refresh", "pictures_dataset", "pictures_benchmark",
    }  # fmt: skip
    for name in ours:
        corpus, _, kind = name.partition("_")
        like = f"{'posts' if corpus == 'forum' else 'memes'}_{kind}"
        assert dags[name]["tasks"].keys() == dags[like]["tasks"].keys()
        assert dags[name]["description"] and name in dags[name]["doc"]
    assert "sweep__forum" in dags["deletion_sweep"]["tasks"]
