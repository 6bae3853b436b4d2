"""A small sealed corpus of posts of the sandbox's own writer: split, with gold of dev and test, silver and votes."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from crisis_corpus_sandbox.reddit import label_quotas, narratives
from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets import items
from pipelines.datasets.example import Material
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.built_once import built_once
from tests.small_corpus import MONTHS, NOW, write_table
from tests.small_corpus import ROOT as REPO

__all__ = ["MONTHS", "NOW", "REPO", "write_table"]
SECRET = bytes.fromhex(small_corpus.SECRET)
SIZES = {"train": 24, "dev": 12, "test": 12}
# the ensemble's labels of the records of train, cyclically
AGREED = ("unanimous", "consensus", "unanimous", "none")
LABELLERS = ("gpt", "claude", "gemini")
TASK = task_of(load_scheme("cradle"), "labels")


@dataclass(frozen=True)
class SmallPost:
    """One post in plain, with what is true of it."""

    fullname: str
    split: str
    title: str
    body: str
    labels: frozenset[str]


@dataclass(frozen=True)
class SmallPosts:
    """A corpus on disk below ``root``; ``posts`` has what went in, by record id.

    Only a copy has its vault open.
    """

    root: Path
    vault: Any
    params: Params
    posts: Mapping[str, SmallPost]

    @property
    def task(self) -> Task:
        return TASK

    def of(self, split: str) -> list[str]:
        return sorted(r for r, post in self.posts.items() if post.split == split)

    def load(self, subset: str | None = "consensus", **changed: Any) -> Material:
        given = {"task": TASK, "ensemble": "cradle", "params": self.params, "vault": self.vault, "root": self.root}
        return items.load("posts", subset=subset, **given | changed)

    @property
    def snapshot(self) -> Path:
        return self.root / "snapshot" / "posts"


def write(
    root: Path,
    *,
    vault: Vault,
    sizes: Mapping[str, int] | None = None,
    words: int = 40,
    seed: int = 7,
    examples: int = 1,
    agreed: Sequence[str] = AGREED,
) -> SmallPosts:
    """Write data, split, gold, silver of ``cradle`` and votes of its members; every second item shares its group.

    Silver is true; gpt votes what is true, claude too but for every fifth record, which it refuses, and gemini says
    no_crisis of everything. The first ``examples`` records of dev stand in the prompt.
    """
    rng = Random(seed)
    names = [split for split, size in (sizes or SIZES).items() for _ in range(size)]
    made = {}
    for number, (split, chosen) in enumerate(zip(names, label_quotas.cradle(len(names), rng=rng), strict=True)):
        told = narratives.write(chosen, rng=rng, words=words)
        fullname = f"t3_p{number}"
        made[vault.record_id(fullname)] = SmallPost(fullname, split, told.title, told.body, frozenset(chosen))
    for month in range(len(MONTHS)):
        _month(root, month, rows=list(made.items())[month :: len(MONTHS)], vault=vault)
    corpus = SmallPosts(root, vault, load_params(REPO, profile="sandbox"), made)
    small_corpus.write_splits(root, {(r, 0): post.split for r, post in made.items()}, corpus="posts")
    write_gold(
        corpus, {r: p.labels for r, p in made.items() if p.split != "train"}, examples=corpus.of("dev")[:examples]
    )
    write_silver(corpus, dict(zip(made, agreed * len(made), strict=False)))
    _votes(corpus)
    return corpus


def made(sizes: Mapping[str, int] = SIZES) -> SmallPosts:
    """Return a corpus with a vault beside it, built once for all tests, which copy it."""

    def make(folder: Path) -> None:
        with opened(folder / "root") as vault:
            corpus = write(folder / "root", vault=vault, sizes=sizes)
        (folder / "posts.pickle").write_bytes(pickle.dumps(dict(corpus.posts)))

    folder = built_once("posts-" + "-".join(map(str, sizes.values())), make)
    posts = pickle.loads((folder / "posts.pickle").read_bytes())
    return SmallPosts(folder / "root", None, load_params(REPO, profile="sandbox"), posts)


@contextmanager
def copied(original: SmallPosts, *, to: Path) -> Iterator[SmallPosts]:
    """Give a copy of what :func:`made` wrote, with its vault open, for a test to do with as it likes."""
    shutil.copytree(original.root, to)
    with opened(to) as vault:
        yield replace(original, root=to, vault=vault)


def opened(root: Path) -> Vault:
    root.mkdir(parents=True, exist_ok=True)
    return Vault.open(f"sqlite:///{root}/vault.sqlite", secret=SECRET)


def write_gold(corpus: SmallPosts, given: Mapping[str, frozenset[str]], *, examples: Sequence[str] = ()) -> None:
    """Write the results of the stages ``gold`` and ``few_shot``."""
    rows = small_corpus.gold_rows({(r, 0): {"labels": found} for r, found in given.items()})
    write_table(corpus.snapshot / "gold" / "gold.parquet", rows, name="gold")
    small_corpus.write_examples(corpus.snapshot, examples)


def write_silver(corpus: SmallPosts, agreement: Mapping[str, str]) -> None:
    """Write the result of the stage ``silver`` with the agreement of each record."""
    rows = [
        {
            "record_id": r, "image": 0, "category": "labels", "ensemble": "cradle", "agreement": agreed,
            "labels": None if agreed == "none" else sorted(corpus.posts[r].labels),
            "how": "discarded" if agreed == "none" else "majority",
        }
        for r, agreed in agreement.items()
    ]  # fmt: skip
    write_table(corpus.snapshot / "silver" / "cradle" / "silver.parquet", rows, name="silver")


def _votes(corpus: SmallPosts) -> None:
    for labeller in LABELLERS:
        rows = []
        for number, (record_id, post) in enumerate(sorted(corpus.posts.items())):
            refused = labeller == "claude" and number % 5 == 0
            said = set() if refused else {"no_crisis"} if labeller == "gemini" else post.labels
            outcome = "refused" if refused else "vote"
            rows.append(small_corpus.vote_row(record_id, labeller, labels=said, outcome=outcome))
        write_table(corpus.snapshot / "votes" / labeller / "votes.parquet", rows, name="votes")


def _month(root: Path, month: int, *, rows: list[tuple[str, SmallPost]], vault: Vault) -> None:
    name = MONTHS[month]
    small_corpus.admit(vault, {record_id: post.fullname for record_id, post in rows}, corpus="posts", month=name)
    plain = [{"record_id": record_id, "title": post.title, "body": post.body} for record_id, post in rows]
    small_corpus.write_posts(root, plain, corpus="posts", month=name, vault=vault)
