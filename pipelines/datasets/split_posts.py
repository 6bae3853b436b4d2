"""Decrypt the posts of all splits of a corpus, with the gold labels that exist."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.config.params import Params
from pipelines.datasets.example import NoGold
from pipelines.datasets.post import Post
from pipelines.storage import tables
from pipelines.storage.seal import open_posts
from pipelines.taxonomy import Scheme, load
from pipelines.vault.vault import Vault


@dataclass(frozen=True)
class SplitPosts:
    """The posts in the splits of a corpus, decrypted in memory, with their splits, groups and existing gold labels.

    ``examples`` are the ids of the records that prompts show as examples.
    """

    posts: dict[str, Post]
    split: dict[str, str]
    group: dict[str, str]
    gold: dict[str, frozenset[str]]
    examples: tuple[str, ...]
    scheme: Scheme

    @classmethod
    def read(cls, corpus: str, *, params: Params, vault: Vault, root: Path) -> SplitPosts:
        """Read the posts of all splits of a corpus in the order of their ids, without those that were taken down.

        Raises:
            NoGold: the split, the gold or the examples of the prompts are missing.
        """
        folder = root / "snapshot" / corpus
        if not all((folder / name).is_dir() for name in ("split", "gold", "few_shot")):
            raise NoGold(corpus=corpus)
        splits = tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist()
        split = {row["record_id"]: row["split"] for row in splits}
        months = sorted((root / "data" / corpus).glob("*/posts.parquet"))
        table = tables.concat(months, name="posts", columns=["record_id", "title", "body"])
        table = table.filter(pa.compute.is_in(table["record_id"], value_set=tables.strings(sorted(split))))
        posts = {
            record_id: Post(record_id=record_id, title=title, body=body)
            for record_id, title, body in open_posts(table, vault=vault)
        }
        gold = tables.read(folder / "gold" / "gold.parquet", name="gold").to_pylist()
        return cls(
            posts=dict(sorted(posts.items())),
            split=split,
            group={row["record_id"]: row["group"] for row in splits},
            gold={row["record_id"]: frozenset(row["labels"]) for row in gold if row["record_id"] in split},
            examples=tuple(sorted(record_id for record_id, _ in tables.examples(folder))),
            scheme=load(params.corpora[corpus].scheme, root=root),
        )

    def shards(self, *, size: int) -> list[list[Post]]:
        """Return the posts in shards of ``size``, in the order of their ids."""
        posts = list(self.posts.values())
        return [posts[i : i + size] for i in range(0, len(posts), size)]


def split_digest(corpus: str, *, root: Path) -> str:
    """Return a digest of a corpus's split: the SHA-256 of the lines ``record image split`` of all items.

    Compare results only if their splits have equal digests: results on different splits are not comparable.
    """
    rows = tables.read(root / "snapshot" / corpus / "split" / "splits.parquet", name="splits").to_pylist()
    return digest_of(f"{row['record_id']} {row['image']} {row['split']}" for row in rows)


def digest_of(lines: Iterable[str]) -> str:
    """Return the SHA-256 of the lines, sorted and each with a line end."""
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode()).hexdigest()
