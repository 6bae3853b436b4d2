"""Load the posts that text models are tuned and evaluated on: train with silver or gold labels, dev and test with gold.

Silver labels are decided by an ensemble of models, gold labels by people.

Access is restricted as for memes (:mod:`pipelines.datasets.memes`): examples of test carry no labels, and ``only``
refuses examples of another split. In addition, a record of train never has a label from outside its subset, and the
records of dev whose answers are shown in the prompt (CRADLE B) are not used for validation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa

from pipelines.core.config.label import Prompts
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, ConfigError, DataError
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.example import (
    TEST,
    TRAIN,
    VALIDATION,
    Example,
    Item,
    LabelSet,
    Material,
    NoGold,
    groups_apart,
    material,
)
from pipelines.datasets.post import Post
from pipelines.store import tables
from pipelines.store.seal import open_posts
from pipelines.store.vault.vault import Vault

GOLD = "gold"
# CRADLE 5.1: the agreement that a silver label needs; unanimous records are part of the consensus
AGREEMENTS: dict[str, frozenset[str]] = {
    "unanimous": frozenset({"unanimous"}),
    "consensus": frozenset({"unanimous", "consensus"}),
}
# the names that corpora use for the validation split
VALIDATIONS = ("dev", VALIDATION)


def opened_posts(corpus: str, *, ids: Collection[str], vault: Vault, root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield record id, decrypted title and body of those of a corpus's posts in ``ids`` that were not taken down."""
    wanted = tables.strings(sorted(ids))
    for path in sorted((root / "data" / corpus).glob("*/records.parquet")):
        table = tables.read(path, name="records", columns=["record_id", "title", "body"])
        yield from open_posts(table.filter(pa.compute.is_in(table["record_id"], value_set=wanted)), vault=vault)


@dataclass(frozen=True)
class SplitPosts:
    """The posts in the splits of a corpus, decrypted in memory, with their splits, groups and existing gold labels."""

    posts: dict[str, Post]
    split: dict[str, str]
    group: dict[str, str]
    gold: dict[str, frozenset[str]]
    examples: tuple[str, ...]
    scheme: Scheme
    mode: Literal["paper", "improved"] = "improved"
    prompts: Prompts = field(default_factory=Prompts)
    root: Path = Path()

    @classmethod
    def read(cls, corpus: str, *, params: Params, vault: Vault, root: Path) -> SplitPosts:
        """Read the posts of all splits of a corpus in the order of their ids, without those that were taken down."""
        folder = root / "snapshot" / corpus
        if not all((folder / name).is_dir() for name in ("split", "gold", "few_shot")):
            raise NoGold(corpus=corpus)
        splits = tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist()
        split = {row["record_id"]: row["split"] for row in splits}
        opened = sorted(opened_posts(corpus, ids=split, vault=vault, root=root))
        gold = tables.read(folder / "gold" / "gold.parquet", name="gold").to_pylist()
        return cls(
            posts={post[0]: Post(*post) for post in opened},
            split=split,
            group={row["record_id"]: row["group"] for row in splits},
            gold={row["record_id"]: frozenset(row["labels"]) for row in gold if row["record_id"] in split},
            examples=tuple(sorted(record_id for record_id, _ in tables.examples(folder))),
            scheme=scheme_of(params.corpora[corpus].scheme, root=root),
            mode=params.votes.mode,
            prompts=params.prompts,
            root=root,
        )

    def shards(self, *, size: int) -> list[list[Post]]:
        """Return the posts in shards of ``size``, in the order of their ids."""
        posts = list(self.posts.values())
        return [posts[i : i + size] for i in range(0, len(posts), size)]


@dataclass(frozen=True)
class Posts(Material):
    """The examples of one task in train, validation (dev) and test, from a corpus of posts.

    Args:
        examples: how many records of dev are left out because the prompt shows their answers.
        validation_name: the corpus's name of the split called ``validation`` here.
        posts: the decrypted posts by record id, for models that need title and body separately.
        placed: the corpus's own split and the group of every item, as in the table ``splits``.
    """

    examples: int
    validation_name: str
    posts: Mapping[str, Post] = field(repr=False)
    placed: Mapping[Item, tuple[str, str]] = field(repr=False)

    def split_of(self, example: Example) -> str:
        """Return the name that the corpus gives to an example's split."""
        return self.placed[example.item][0]

    @property
    def asked(self) -> tuple[Example, ...]:
        """The examples that models predict: those of dev and test."""
        return (*self.validation, *self.test)


def load(
    corpus: str,
    *,
    task: Task,
    subset: str | None,
    ensemble: str | None,
    params: Params,
    vault: Vault,
    root: Path = Path(),
    weighted: bool = False,
) -> Posts:
    """Return the posts with labels of the task as examples by split; records that were taken down are only counted.

    Args:
        corpus: reads ``snapshot/<corpus>/{split,gold,silver}`` and ``data/<corpus>/*/records.parquet`` below ``root``.
        subset: the labels of train: ``unanimous`` or ``consensus`` (silver of the ensemble), or ``gold`` (of people);
            ``None`` loads train without labels, for prediction only.
        ensemble: the ensemble whose silver labels are used; ignored for ``gold``.
        weighted: whether an example of train is weighted by the posterior of its silver labels (mean 1 over train).

    Returns:
        The examples; ``without`` counts by split the records without labels (of the subset), except prompt examples.
    """
    if params.corpora[corpus].content != "texts":
        raise BadParams(where=f"corpora.{corpus}.content", detail="only a corpus of texts has posts to train on")
    opened = SplitPosts.read(corpus, params=params, vault=vault, root=root)
    folder = root / "snapshot" / corpus
    placed = groups_apart(tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist(), corpus=corpus)
    named = {*params.split[corpus].ratios, *(split for split, _ in placed.values())}
    if (name := next((name for name in VALIDATIONS if named == {TRAIN, name, TEST}), None)) is None:
        detail = f"models need the splits {TRAIN}, {VALIDATIONS[0]}, {TEST}"
        raise BadParams(where=f"split.{corpus}.ratios", detail=detail)
    own = {TRAIN: TRAIN, name: VALIDATION, TEST: TEST}
    inside = {item: (own[split], group) for item, (split, group) in placed.items()}
    gold = tables.gold(folder, within=inside).get(task.key, {})
    # the prompt shows their answers
    shown = {item for item in tables.examples(folder) & gold.keys() if inside[item][0] == VALIDATION}
    labels = {item: task.seen(chosen) for item, chosen in gold.items() if item not in shown}
    posterior: dict[str, float] = {}
    if subset != GOLD:
        labels = {item: chosen for item, chosen in labels.items() if inside.get(item, ("",))[0] != TRAIN}
    if subset not in (None, GOLD):
        silver, posterior = _silver(
            corpus, subset=str(subset), ensemble=str(ensemble), task=task, root=root, weighted=weighted
        )
        labels |= {i: silver[i[0]] for i, (split, _) in inside.items() if split == TRAIN and i[0] in silver}
    # queried after the opening: a record taken down meanwhile opens as nothing and must not count as missing
    gone = vault.tombstoned({record_id for record_id, _ in inside})
    lost = sum(i[0] not in gone and i[0] not in opened.posts for i in inside.keys() & labels.keys())
    if lost:
        raise DataError("SchemaMismatch", table="records", detail=f"{lost} records of the split are missing")
    texts = {i: (opened.posts[i[0]].text, None) for i in inside if i[0] in opened.posts}
    loaded = material(task, placed=inside, gold=labels, opened=texts, gone=gone)
    examples = sum(item[0] not in gone for item in shown)
    values = {f.name: getattr(loaded, f.name) for f in fields(loaded)}
    if posterior:
        mean = sum(posterior.get(e.item[0], 1.0) for e in loaded.train) / max(1, len(loaded.train))
        values["train"] = tuple(replace(e, weight=posterior.get(e.item[0], 1.0) / mean) for e in loaded.train)
    values["without"] = {**loaded.without, VALIDATION: loaded.without[VALIDATION] - examples}
    return Posts(**values, examples=examples, validation_name=name, posts=opened.posts, placed=placed)


def _silver(
    corpus: str, *, subset: str, ensemble: str, task: Task, root: Path, weighted: bool
) -> tuple[dict[str, LabelSet], dict[str, float]]:
    """Return the labels, and if ``weighted`` their posterior, of the records on which the ensemble agrees enough."""
    if subset not in AGREEMENTS:
        raise BadParams(where="finetune.subsets", detail=f"there is no training subset '{subset}'")
    path = root / "snapshot" / corpus / "silver" / ensemble / "silver.parquet"
    if not path.is_file():
        raise ConfigError("NoSilver", corpus=corpus, ensemble=ensemble)
    columns = ["record_id", "category", "labels", "agreement", *(["posterior"] if weighted else [])]
    rows = [
        row
        for row in tables.read(path, name="silver", columns=columns).to_pylist()
        if row["category"] == task.key and row["labels"] is not None and row["agreement"] in AGREEMENTS[subset]
    ]
    posterior = {str(row["record_id"]): row["posterior"] for row in rows if row.get("posterior") is not None}
    return {str(row["record_id"]): task.seen(frozenset(row["labels"])) for row in rows}, posterior


def split_digest(corpus: str, *, root: Path) -> str:
    """Return a digest of a corpus's split: the SHA-256 of the lines ``record image split`` of all items.

    Compare results only if their splits have equal digests: results on different splits are not comparable.
    """
    rows = tables.read(root / "snapshot" / corpus / "split" / "splits.parquet", name="splits").to_pylist()
    return digest_of(f"{row['record_id']} {row['image']} {row['split']}" for row in rows)


def digest_of(lines: Iterable[str]) -> str:
    """Return the SHA-256 of the lines, sorted and each with a line end."""
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()
