"""Packs of small models that were really tuned, and what the stages left of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.models import Chosen, Registered
from pipelines.core.config.params import Params
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.registry.packaging import model
from pipelines.registry.packaging.pack import pack
from tests.built_once import built_once
from tests.contexts import context_of
from tests.train import small_posts, small_tuned
from tests.train.small_posts import SmallPosts

NAME = "crisis-posts"
SIZES = {"train": 32, "dev": 16, "test": 16}
SUBSET = "consensus"


@dataclass(frozen=True)
class Made:
    """A corpus with what the stages left of one model, its pack, and the model that MLflow loads."""

    corpus: SmallPosts
    kind: str
    pack: Path
    saved: Path

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """What a consumer would send: every post of test, in the order of the ids."""
        return [
            {"title": self.corpus.posts[record_id].title, "body": self.corpus.posts[record_id].body}
            for record_id in self.corpus.of("test")
        ]


def made(kind: str) -> Made:
    """Tune, predict, evaluate, package and save one small model, once for all tests."""

    def make(folder: Path) -> None:
        with small_posts.copied(small_posts.made(SIZES), to=folder / "root") as corpus:
            tuned(corpus, kind=kind, home=folder / "home")
            model.save(packed(corpus, kind=kind, to=folder / "pack"), to=folder / "saved")

    folder = built_once(f"packs-{kind}", make)
    corpus = replace(small_posts.made(SIZES), root=folder / "root")
    return Made(corpus, kind, folder / "pack", folder / "saved")


def tuned(corpus: SmallPosts, *, kind: str, home: Path) -> SmallPosts:
    """Run the stages train, predict and evaluate for one small model."""
    with pytest.MonkeyPatch.context() as patch:
        told = small_tuned.settings(home, patch=patch)
        small_tuned.tuned(corpus, told, model=kind)
        small_tuned.predicted(corpus, told, model=kind)
    evaluate.run(context_of("posts", params=params(kind), root=corpus.root), sampling=Sampling(200, 1))
    return corpus


def params(kind: str) -> Params:
    """Return the parameters with the model as the only candidate of :data:`NAME`."""
    found, chosen = small_tuned.params(models=(kind,)), Chosen(model=kind, subset=SUBSET)
    return found.model_copy(
        update={"registry": {"crisis-posts": Registered(corpus="posts", task="labels", candidates=(chosen,))}}
    )


def packed(corpus: SmallPosts, *, kind: str, to: Path, **changed: Any) -> Path:
    """Package it."""
    chosen = Chosen(model=kind, subset=SUBSET)
    given: dict[str, Any] = {"chosen": chosen, "params": params(kind), "vault": corpus.vault, "root": corpus.root}
    return pack(NAME, to=to, **given | changed)


@contextmanager
def copied(original: Made, *, to: Path) -> Iterator[SmallPosts]:
    """Give a copy of the corpus with its vault open."""
    with small_posts.copied(original.corpus, to=to) as corpus:
        yield corpus


def zeroed(path: Path, *, to: Path) -> Path:
    """Write weights with every number replaced by zero; names, shapes and size stay."""
    from safetensors.torch import load_file, save_file

    save_file({name: tensor * 0 for name, tensor in load_file(path).items()}, to, metadata={"format": "pt"})
    return to
