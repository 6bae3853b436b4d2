"""Bases are pinned to a commit and identified by their files, and each base of a paper has a published size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from pydantic import ValidationError

from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import load
from pipelines.models import kind
from pipelines.models.backbones import opened
from pipelines.models.base_files import files_of, identified, located, quiet
from pipelines.models.fitting import adapter
from pipelines.models.kinds.text import Text
from pipelines.models.kinds.yadav import Yadav
from pipelines.operate.plan.needs import base_sizes
from tests.refusals import refused
from tests.small_corpus import ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = COMMIT[::-1]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a base model in a cache, which is all that can be reached."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    place = tmp_path / "models--team--base" / "snapshots" / COMMIT
    place.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "vocab.txt", "pytorch_model.bin", "README.md"):
        (place / name).write_text(name)
    return place


@pytest.mark.parametrize("revision", ["main", "v1.0", COMMIT[:12], COMMIT.upper(), ""])
def test_a_branch_a_tag_or_a_part_of_a_commit_is_no_revision(revision: str) -> None:
    with pytest.raises(ValidationError):
        Text(kind="text", base="team/base", revision=revision)
    with pytest.raises(ValidationError):
        Yadav(kind="yadav", text="team/base", image="team/base", image_revision=revision)


def test_only_the_commit_is_taken(cache: Path, tmp_path: Path) -> None:
    with opened("team/base", revision=COMMIT, seed=1, folder=tmp_path / "run") as place:
        assert Path(place) == cache
    with refused("BaseMissing"):
        located("team/base", revision=OTHER)
    with refused("BaseUnpinned", match="hf models info team/base"):
        located("team/base", revision=None)


def test_a_folder_needs_no_revision(cache: Path) -> None:
    assert located(str(cache), revision=None) == str(cache)


def test_the_digest_is_of_the_files_that_are_read(cache: Path) -> None:
    [before] = identified([("team/base", COMMIT)])
    assert (before["name"], before["revision"]) == ("team/base", COMMIT)
    assert set(files_of(cache)) == {"config.json", "model.safetensors", "vocab.txt"}
    (cache / "README.md").write_text("more")
    assert identified([("team/base", COMMIT)]) == [before]
    (cache / "vocab.txt").write_text("more")
    assert identified([("team/base", COMMIT)])[0]["digest"] != before["digest"]
    (cache / "model.safetensors").unlink()
    assert set(files_of(cache)) == {"config.json", "pytorch_model.bin", "vocab.txt"}


def test_a_tiny_base_follows_from_its_name_and_seed() -> None:
    assert identified([("tiny:bert", None)]) == [{"name": "tiny:bert", "revision": None, "digest": None}]


def test_a_base_with_an_altered_file_is_not_read_for_an_adapter(cache: Path, tmp_path: Path) -> None:
    """The whole way of an adapter, from training to a server, is in ``tests/registry/test_adapter_served.py``."""
    tuned = tmp_path / "tuned"
    tuned.mkdir()
    identity = adapter.BaseIdentity(base="team/base", revision=COMMIT, files=files_of(cache))
    (tuned / adapter.IDENTITY).write_text(identity.model_dump_json())
    (cache / "model.safetensors").write_text("model.safetensorz")
    with refused("BaseAltered", match=r"trained: model\.safetensors"):
        adapter.loaded(str(tuned), base="team/base")


@pytest.mark.parametrize("base", base_sizes())
def test_the_full_configuration_has_the_published_number_of_parameters(base: str) -> None:
    told = base_sizes()[base]
    with torch.device("meta"), quiet():
        model = getattr(transformers, told.model)(getattr(transformers, told.config)(**told.sizes))
    assert sum(weight.numel() for weight in model.parameters()) == told.parameters
    assert all(weight.is_meta for weight in model.parameters())


@pytest.mark.parametrize("profile", ["figsim", "cradle"])
def test_every_base_and_open_model_of_a_paper_has_a_size(profile: str) -> None:
    params = load(ROOT, profile=profile)
    used = [kind.spec(params, name) for name in params.used_models]
    bases = {base for spec in used for base, _ in spec.bases}
    labellers = {params.models[name].labeller for name in params.used_models} - {None}
    asked = [params.labellers[name] for name in labellers]
    bases |= {one.model for one in asked if isinstance(one, RemoteLabeller) and one.provider == "local"}
    assert len(bases) >= 8 and bases <= base_sizes().keys()
