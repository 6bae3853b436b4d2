"""Write an imported dataset into a clone of the corpus repository and commit it in one commit."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Mapping as Map
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.annotate.imports.mapping import Mapping
from pipelines.annotate.imports.rows import ImportEntry, Text
from pipelines.collect import admission, collect, partition, texts
from pipelines.collect.month import Window
from pipelines.collect.submission import Submission
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CommitLost, DataError
from pipelines.store import tables
from pipelines.store.exclusions import WHOLE, write_exclusions
from pipelines.store.metrics_file import write_metrics
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git

STEP = "import"
# Ours: another publisher may push first now and then, hardly three times in a row.
ATTEMPTS = 3
Items = Map[tuple[str, int], ImportEntry]


def publish(
    corpus: str,
    *,
    entries: Items,
    mapping: Mapping,
    record: Map[str, object],
    params: Params,
    settings: Settings,
    vault: Vault,
    now: datetime,
) -> dict[str, object]:
    """Commit labels, splits and texts of ``entries``, keyed by (record id, image); a repeated import makes no commit.

    ``record``, the report of the import, is committed as ``import.json`` with the digests of the texts' ``.dvc`` files.
    """

    def attempt() -> dict[str, object]:
        with workspace(settings) as clone:
            where = _DatasetFiles(clone, corpus=corpus, dataset=mapping.dataset)
            text_counts = _texts(where, entries=entries, mapping=mapping, params=params, vault=vault, now=now)
            written = {**_labels(where, entries=entries, mapping=mapping), "texts": text_counts}
            write_metrics({**record, **written, "pointers": where.pointers}, where.folder / "import.json")
            commit = clone.commit(f"import({corpus}): {mapping.dataset}", paths=["data", "annotations"])
            return {**written, "commit": commit or clone.head, "changed": commit is not None}

    for _ in range(ATTEMPTS - 1):
        with suppress(CommitLost):
            return attempt()
    return attempt()


class _DatasetFiles:
    """The files of a dataset in a clone.

    ``pointers`` (file to the digest of its pointer) are those of the dataset's last import and, after :meth:`replace`,
    those of this one. ``months`` are the months of these pointers that have not been changed since.
    """

    def __init__(self, clone: Workspace, *, corpus: str, dataset: str) -> None:
        self.clone, self.corpus, self.dataset = clone, corpus, dataset
        self.folder = clone.path / "annotations" / corpus / dataset
        self.data = clone.path / "data" / corpus
        if (self.folder / "manifest.yaml").exists():
            detail = "an annotation round has this name already"
            raise DataError("BadImport", file=dataset, mapping=dataset, detail=detail)
        before = self.folder / "import.json"
        self.pointers: dict[str, str] = json.loads(before.read_text())["pointers"] if before.exists() else {}
        months = {Path(name).relative_to("data", corpus).parts[0] for name in self.pointers}
        self.months = {month for month in months if self._there(month).items() <= self.pointers.items()}

    def _there(self, month: str) -> dict[str, str]:
        pointers = (self.data / month).rglob("*.dvc")
        return {str(p.relative_to(self.clone.path).with_suffix("")): _digest(p.read_text()) for p in pointers}

    def require_own(self, month: str) -> None:
        if month not in self.months and self._there(month):
            detail = f"month {month} of corpus {self.corpus} has posts from another source"
            raise DataError("BadImport", file=self.dataset, mapping=self.dataset, detail=detail)

    def collected(self) -> set[str]:
        pointers = [p for p in self.data.glob("*/posts.parquet.dvc") if p.parent.name not in self.months]
        names = [str(p.with_suffix("").relative_to(self.clone.path)) for p in pointers]
        self.clone.checkout(*names)
        posts = tables.concat([self.clone.path / name for name in names], name="posts", columns=["record_id"])
        return set(posts["record_id"].to_pylist())

    def replace(self, months: Sequence[str]) -> None:
        files = [path for month in months for path in (self.data / month).rglob("*.parquet")]
        pointers = self.clone.add(files)
        self.clone.check_remote(pointers)
        for stale in (p for month in {*months, *self.months} for p in (self.data / month).rglob("*.dvc")):
            stale.unlink()
        self.clone.place(pointers)
        self.pointers = {name: _digest(text) for name, text in sorted(pointers.items())}

    def replace_labels(self, files: Map[Path, Sequence[Sequence[str]]]) -> None:
        git("rm", "-r", "--quiet", "--ignore-unmatch", "--", f"{self.folder}/*.csv.dvc", cwd=self.clone.path)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path, rows in files.items():
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
        self.clone.check_remote(self.clone.add(list(files)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _texts(
    where: _DatasetFiles, *, entries: Items, mapping: Mapping, params: Params, vault: Vault, now: datetime
) -> dict[str, object]:
    with_text = {record_id: entry for (record_id, _), entry in entries.items() if entry.text is not None}
    here = where.collected() if any(entry.reddit for entry in with_text.values()) else set()
    months: dict[str, dict[str, Submission]] = {}
    for record_id, entry in with_text.items():
        if record_id not in here and entry.text is not None:
            post = _submission(entry, text=entry.text, mapping=mapping, record_id=record_id)
            months.setdefault(f"{post.created:%Y-%m}", {})[record_id] = post
    for month in sorted(months):
        where.require_own(month)
    if mapping.lengths is not None:
        params = params.model_copy(update={"texts": params.texts.model_copy(update=mapping.lengths.model_dump())})
    done = [_month(where, posts, month=m, params=params, vault=vault, now=now) for m, posts in sorted(months.items())]
    where.replace(sorted(months))
    dropped = Counter({"collected": len(with_text.keys() & here)})
    for counted in done:
        dropped.update(counted["dropped"])
    return {"kept": sum(n["items"] for n in done), "dropped": {why: n for why, n in sorted(dropped.items()) if n}}


def _month(
    where: _DatasetFiles, posts: Map[str, Submission], *, month: str, params: Params, vault: Vault, now: datetime
) -> dict[str, Any]:
    corpus, root, window = where.corpus, where.clone.path, Window.from_key(month)
    admitted = vault.admit([(r, post.fullname) for r, post in posts.items()], corpus=corpus, month=month, now=now)
    kinds = params.collect.scrub
    rows = [admission.row(post, record_id=r, vault=vault, kinds=kinds) for r, post in posts.items() if r in admitted]
    out = collect.nameless({r: collect.TOMBSTONED for r in posts if r not in admitted}, month=month)
    folder = collect.work(root, corpus=corpus, month=month)
    written = write_rows(rows, folder / "posts.parquet", name="posts", vault=vault)
    write_exclusions({(r, WHOLE): why for r, why in out.items()}, folder / "drops.parquet", step=STEP)
    for shard in range(max(1, -(-written // params.collect.shard_size))):
        texts.run(corpus, window=window, shard=shard, params=params, vault=vault, root=root)
    return partition.run(corpus, window=window, params=params, vault=vault, root=root)


def _submission(entry: ImportEntry, *, text: Text, mapping: Mapping, record_id: str) -> Submission:
    """Return the entry as a submission. A post without an author gets an author of its own, linked to no other post."""
    author = text.author
    if author is None or mapping.level == "user":
        # No Reddit name contains a slash, so the dataset's own names cannot collide with Reddit's.
        author = f"{mapping.dataset}/{author or record_id}"
    return Submission(
        fullname=entry.name,
        author=author,
        subreddit=text.subreddit,
        created=text.created,
        kind="text",
        title=text.title,
        body=text.body,
        media=(),
        nsfw=False,
        spoiler=False,
        source=f"import/{mapping.dataset}",
        source_digest=entry.digest,
    )


def _labels(where: _DatasetFiles, *, entries: Items, mapping: Mapping) -> dict[str, int]:
    """Push ``gold.csv``, ``silver.csv`` and ``splits.csv``, omitting empty files; return the number of items in each.

    They hold ids, so git has only pointers to them: a takedown cannot rewrite git's history.
    """
    models = {name for name, part in mapping.parts.items() if not part.human}
    labels: dict[str, list[list[str]]] = {"gold": [], "silver": []}
    splits: list[list[str]] = []
    for (record_id, image), entry in sorted(entries.items()):
        rows = labels["silver" if entry.parts & models else "gold"]
        for category, chosen in sorted(entry.answers.items()):
            rows.append([record_id, str(image), category, "|".join(sorted(chosen))])
        if entry.split is not None:
            splits.append([record_id, str(image), entry.split])
    files = {where.folder / f"{n}.csv": [["record_id", "image", "category", "labels"], *r] for n, r in labels.items()}
    files[where.folder / "splits.csv"] = [["record_id", "image", "split"], *splits]
    where.replace_labels({path: rows for path, rows in files.items() if rows[1:]})
    items = {name: len({(r[0], r[1]) for r in rows}) for name, rows in labels.items()}
    return {**items, "splits": len(splits)}
