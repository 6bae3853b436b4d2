"""The folder of a tuned model of posts has all it needs to be opened, no post's text, and no deleted record."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus import integrity
from crisis_corpus.integrity import listing
from crisis_corpus.versions import UnknownModel
from pipelines.core.config.models import Chosen
from pipelines.core.taxonomy import load as load_scheme
from pipelines.packaging.model_described import Described
from pipelines.promotion.holdout import split_digest
from pipelines.registry.candidate import Pack
from pipelines.train.predictors import finetuned
from tests.refusals import refused
from tests.registry import packs
from tests.registry.packs import NAME, SUBSET, Made
from tests.small_corpus import own_scheme
from tests.train import small_posts, small_tuned
from tests.train.small_posts import SmallPosts


@pytest.fixture
def corpus(made: Made, tmp_path: Path) -> Iterator[SmallPosts]:
    with packs.copied(made, to=tmp_path / "root") as corpus:
        yield corpus


def folder_of(root: Path) -> Path:
    return finetuned.folder_of("posts", subset=SUBSET, model="encoder", root=root)


def test_it_says_what_it_was_made_of(made: Made) -> None:
    found, described = Pack.read(made.pack), Described.read(made.pack)
    root, seen = made.corpus.root, finetuned.lineage(folder_of(made.corpus.root))
    card = finetuned.read(folder_of(root))
    assert found.records == frozenset(seen)
    assert set(seen.values()) == {"train", "dev"}
    assert found.manifest.train.model_dump() == card.train.model_dump()
    assert found.manifest.split_digest == split_digest("posts", root=root)
    silver = (root / "snapshot/posts/silver/cradle/silver.parquet").read_bytes()
    assert found.manifest.votes_digest == hashlib.sha256(silver).hexdigest()
    scheme = load_scheme("cradle")
    assert found.manifest.scheme_digest == scheme.digest == hashlib.sha256(
        (made.pack / "scheme.yaml").read_bytes()
    ).hexdigest()  # fmt: skip
    assert tuple(described.definitions) == described.labels == found.manifest.labels == small_posts.TASK.labels
    assert described.scrub == small_tuned.params().collect.scrub
    assert described.measured_as == "encoder-consensus"


def test_its_files_are_listed_whole_and_no_pickles(made: Made) -> None:
    listed = json.loads((made.pack / integrity.FILES).read_text())
    assert listed == {name: value for name, value in listing(made.pack).items() if name != integrity.FILES}
    assert {"model.safetensors", "config.json", "tokenizer.json", "calibration.json", "card.json", "card.md"} <= set(
        listed
    )
    assert integrity.pickles(made.pack) == []


def test_it_holds_no_text_of_a_post_and_no_path_of_this_machine(made: Made) -> None:
    written = [path.read_bytes() for path in made.pack.iterdir()]
    assert not any(str(made.corpus.root).encode() in data for data in written)
    for post in made.corpus.posts.values():
        assert not any(part.encode() in data for part in (post.title, post.body) for data in written)


def test_the_same_model_gives_the_same_pack(corpus: SmallPosts, made: Made, tmp_path: Path) -> None:
    again = packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    assert (again / integrity.FILES).read_bytes() == (made.pack / integrity.FILES).read_bytes()


def test_a_team_s_scheme_is_packed_from_the_clone(corpus: SmallPosts, tmp_path: Path) -> None:
    scheme = own_scheme(corpus.root, like="cradle")
    to = folder_of(corpus.root)
    card = finetuned.read(to).model_copy(update={"scheme": scheme})
    (to / finetuned.CARD).write_text(card.model_dump_json())
    pack = packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    file = corpus.root / "schemes" / "own.yaml"
    assert (pack / "scheme.yaml").read_bytes() == file.read_bytes()
    assert Described.read(pack).scheme_digest == hashlib.sha256((pack / "scheme.yaml").read_bytes()).hexdigest()


@pytest.mark.parametrize("split", ["train", "dev"])
def test_who_was_taken_down_keeps_a_model_out(corpus: SmallPosts, tmp_path: Path, split: str) -> None:
    seen = sorted(r for r, where in finetuned.lineage(folder_of(corpus.root)).items() if where == split)
    corpus.vault.destroy(seen[:2], reason="request-1", now=small_posts.NOW)
    with refused("LearntFromDeleted") as caught:
        packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    assert caught.value.fields["count"] == 2
    assert not any(record_id in str(caught.value) for record_id in seen)


@pytest.mark.parametrize("name", ["model.safetensors", "calibration.json", "more.json"])
def test_a_file_that_the_training_did_not_write_is_not_packed(corpus: SmallPosts, tmp_path: Path, name: str) -> None:
    path = folder_of(corpus.root) / name
    if path.suffix == ".safetensors":
        packs.zeroed(path, to=path)
    else:
        path.write_text("{}")
    with refused("WeightsChanged", match=name):
        packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    assert not (tmp_path / "pack" / integrity.FILES).exists()


def test_metrics_that_record_no_weights_are_not_enough(corpus: SmallPosts, tmp_path: Path) -> None:
    path = corpus.root / "metrics/posts/finetune-consensus-encoder.json"
    told = json.loads(path.read_text())
    weights = told.pop("weights")
    path.write_text(json.dumps(told))
    with refused("NothingToPack", match="names no weights"):
        packs.packed(corpus, kind="encoder", to=tmp_path / "pack")
    # even where the digest is that of the zeros
    zeros = packs.zeroed(own := folder_of(corpus.root) / "model.safetensors", to=own)
    weights["files"]["model.safetensors"] = integrity.sha256(zeros)
    path.write_text(json.dumps(told | {"weights": weights}))
    with refused("WeightsDegenerate", match=r"model\.safetensors"):
        packs.packed(corpus, kind="encoder", to=tmp_path / "again")


def test_who_was_only_asked_about_does_not(corpus: SmallPosts, tmp_path: Path) -> None:
    corpus.vault.destroy(corpus.of("test")[:2], reason="request-1", now=small_posts.NOW)
    assert (packs.packed(corpus, kind="encoder", to=tmp_path / "pack") / integrity.FILES).is_file()


def test_neighbours_are_people_s_posts_and_stay_here(corpus: SmallPosts, tmp_path: Path) -> None:
    to = finetuned.folder_of("posts", subset=SUBSET, model="knn", root=corpus.root)
    shutil.copytree(folder_of(corpus.root), to)
    card = finetuned.read(to).model_copy(update={"kind": "knn", "spec": small_tuned.MODELS["knn"], "model": "knn"})
    (to / finetuned.CARD).write_text(card.model_dump_json())
    with refused("NotPackable", match="neighbours"):
        packs.packed(corpus, kind="knn", to=tmp_path / "pack")


def test_what_is_not_there_is_named(corpus: SmallPosts, tmp_path: Path) -> None:
    def attempt(code: str, said: str, **changed: Any) -> None:
        with refused(code, match=said):
            packs.packed(corpus, kind="encoder", to=tmp_path / "pack", **changed)
        assert not (tmp_path / "pack" / integrity.FILES).exists()

    attempt("NotPackable", "subset", chosen=Chosen(model="encoder"))
    attempt("NoModel", "model.json", chosen=Chosen(model="encoder", subset="gold"))
    metrics = corpus.root / "metrics/posts/evaluate.json"
    found = json.loads(metrics.read_text())
    found["tasks"]["labels"]["models"].pop("encoder-consensus")
    metrics.write_text(json.dumps(found))
    attempt("NothingToPack", "no metrics of 'encoder-consensus'")
    metrics.unlink()
    attempt("NothingToPack", "evaluate@posts has not run")
    (corpus.root / "snapshot/posts/silver/cradle/silver.parquet").unlink()
    attempt("NothingToPack", "silver")


def test_an_unknown_name_is_refused(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "NAME", f"{NAME}-2")
    with pytest.raises(UnknownModel):
        packs.packed(made.corpus, kind="encoder", to=tmp_path / "pack")
