"""Write an imported dataset into a clone of the corpus repository and commit it in one commit."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from pipelines.annotate.imports.mapping import DatasetMapping
from pipelines.annotate.imports.rows import ImportEntry, Picture, Text
from pipelines.collect import admission, collect, images, partition, texts
from pipelines.collect.month import Window
from pipelines.collect.submission import Submission
from pipelines.core import formats
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
HEADERS = {
    "gold": ["record_id", "image", "category", "labels"],
    "silver": ["record_id", "image", "category", "labels"],
    "splits": ["record_id", "image", "split"],
}


@dataclass(frozen=True)
class Import:
    """An import of a dataset's ``entries``, keyed by (record id, image), into a corpus; ``pictures`` is a folder."""

    corpus: str
    entries: Mapping[tuple[str, int], ImportEntry]
    mapping: DatasetMapping
    params: Params
    settings: Settings
    vault: Vault
    now: datetime
    pictures: Path = Path()

    @property
    def content(self) -> str:
        """What the corpus has: texts or images."""
        return self.params.corpora[self.corpus].content

    def publish(self, record: Mapping[str, object]) -> dict[str, object]:
        """Commit labels, splits and texts; a repeated import makes no commit.

        ``record``, the report of the import, is committed as ``import.json`` with the digests of the texts' ``.dvc``
        files.
        """
        for _ in range(ATTEMPTS - 1):
            with suppress(CommitLost):
                return self._attempt(record)
        return self._attempt(record)

    def _attempt(self, record: Mapping[str, object]) -> dict[str, object]:
        with workspace(self.settings) as clone:
            where = _DatasetFiles(clone, corpus=self.corpus, dataset=self.mapping.dataset)
            content = self._posts(where)
            written = {**self._labels(where), self.content: content}
            where.report({**record, **written})
            commit = clone.commit(f"import({self.corpus}): {self.mapping.dataset}", paths=["data", "annotations"])
            return {**written, "commit": commit or clone.head, "changed": commit is not None}

    def _posts(self, where: _DatasetFiles) -> dict[str, object]:
        """Import texts or pictures month by month through the same steps as collected posts; return counts."""
        items: dict[str, dict[int, ImportEntry]] = defaultdict(dict)
        for (record_id, image), entry in self.entries.items():
            if entry.text is not None:
                items[record_id][image] = entry
        reddit = any(entry.reddit for found in items.values() for entry in found.values())
        here = where.collected() if reddit else set()
        months: dict[str, dict[str, Submission]] = defaultdict(dict)
        for record_id, found in items.items():
            if record_id not in here:
                post = self._submission(found, record_id=record_id)
                months[f"{post.created:%Y-%m}"][record_id] = post
        for month in sorted(months):
            where.require_own(month)
        done = [self._month(where.clone.path, posts, month=month) for month, posts in sorted(months.items())]
        where.replace(sorted(months))
        dropped = Counter({"collected": len(items.keys() & here)})
        for counted in done:
            dropped.update(counted["dropped"])
        return {"kept": sum(n["items"] for n in done), "dropped": {why: n for why, n in sorted(dropped.items()) if n}}

    def _month(self, root: Path, posts: Mapping[str, Submission], *, month: str) -> dict[str, Any]:
        """Admit, seal and filter the posts of one month and write its tables; return the counts."""
        corpus, vault, params, window = self.corpus, self.vault, self.params, Window.from_key(month)
        if self.mapping.lengths is not None:
            lengths = params.texts.model_copy(update=self.mapping.lengths.model_dump())
            params = params.model_copy(update={"texts": lengths})
        names = [(record_id, post.fullname) for record_id, post in posts.items()]
        admitted = vault.admit(names, corpus=corpus, month=month, now=self.now)
        kinds = params.collect.scrub
        rows = [
            admission.row(post, record_id=r, vault=vault, kinds=kinds) for r, post in posts.items() if r in admitted
        ]
        out = collect.nameless({r: collect.TOMBSTONED for r in posts if r not in admitted}, month=month)
        folder = collect.work(root, corpus=corpus, month=month)
        written = write_rows(rows, folder / "records.parquet", name="records", vault=vault)
        write_exclusions({(r, WHOLE): why for r, why in out.items()}, folder / "drops.parquet", step=STEP)
        for shard in range(max(1, -(-written // params.collect.shard_size))):
            place: dict[str, Any] = {"window": window, "shard": shard, "params": params, "vault": vault, "root": root}
            if self.content == "images":
                images.run(corpus, given=self._given(), **place)
            else:
                texts.run(corpus, **place)
        return partition.run(corpus, window=window, params=params, vault=vault, root=root)

    def _submission(self, found: Mapping[int, ImportEntry], *, record_id: str) -> Submission:
        """Return the items of a post. A post without an author gets one of its own, linked to no other post."""
        entry = found[min(found)]
        text, dataset = cast("Text", entry.text), self.mapping.dataset
        author = text.author
        if author is None or self.mapping.level == "user":
            # No Reddit name contains a slash, so the dataset's own names cannot collide with Reddit's.
            author = f"{dataset}/{author or record_id}"
        pictures = self.content == "images"
        media = [(_address(found[i]),) if i in found else () for i in range(max(found) + 1)] if pictures else []
        return Submission(
            fullname=entry.name,
            author=author,
            subreddit=text.subreddit,
            created=text.created,
            kind=("gallery" if len(media) > 1 else "image") if pictures else "text",
            title=text.title,
            body="" if pictures else text.body,
            media=tuple(media),
            nsfw=False,
            spoiler=False,
            source=f"import/{dataset}",
            source_digest=entry.digest,
        )

    def _given(self) -> images.GivenPictures:
        """Return the pictures by the addresses that :meth:`_submission` gives them, and the publisher's texts."""
        by_address = {_address(entry): entry for entry in self.entries.values() if entry.picture}
        texts = {address: entry.text.body for address, entry in by_address.items() if entry.text}

        def read(address: str) -> bytes | str:
            entry = by_address.get(address)
            if entry is None or entry.picture is None:
                return "no_picture"
            if (data := entry.picture.data) is not None:
                return data
            path = picture_file(entry.picture, folder=self.pictures)
            if path is None:
                return "no_picture_file"
            return path.read_bytes() if path.stat().st_size <= self.params.images.fetch.max_bytes else "too_large"

        return images.GivenPictures(f"published/{self.mapping.dataset}", read, texts)

    def _labels(self, where: _DatasetFiles) -> dict[str, int]:
        """Push ``gold.csv``, ``silver.csv`` and ``splits.csv``, omitting empty files; return the number of items.

        They hold ids, so git has only pointers to them: a takedown cannot rewrite git's history.
        """
        models = {name for name, part in self.mapping.parts.items() if not part.human}
        files: dict[str, list[list[str]]] = {"gold": [], "silver": [], "splits": []}
        for (record_id, image), entry in sorted(self.entries.items()):
            rows = files["silver" if entry.parts & models else "gold"]
            for category, chosen in sorted(entry.answers.items()):
                rows.append([record_id, str(image), category, "|".join(sorted(chosen))])
            if entry.split is not None:
                files["splits"].append([record_id, str(image), entry.split])
        where.replace_labels({name: [HEADERS[name], *rows] for name, rows in files.items() if rows})
        return {name: len({(row[0], row[1]) for row in rows}) for name, rows in files.items()}


def _address(entry: ImportEntry) -> str:
    """Return by what a picture of a dataset is known: its own record and number."""
    return f"import:{entry.name}/{entry.image}"


def picture_file(picture: Picture, *, folder: Path) -> Path | None:
    """Return the file of a picture in a folder, by its path there or its bare name; links do not lead out of it."""
    root = folder.resolve()
    for name in (picture.name, Path(picture.name).name):
        path = (root / name).resolve()
        if path.is_relative_to(root) and path.is_file():
            return path
    return None


REPORT = "import.json"


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
        before = self.folder / REPORT
        self.pointers: dict[str, str] = (
            formats.opened("import", json.loads(before.read_text()))["pointers"] if before.exists() else {}
        )
        months = {Path(name).relative_to("data", corpus).parts[0] for name in self.pointers}
        self.months = {month for month in months if self._there(month).items() <= self.pointers.items()}

    def report(self, facts: Mapping[str, object]) -> None:
        """Write the report of an import, with the digests of the pointers by which a later one knows its months."""
        write_metrics(formats.stamped("import", {**facts, "pointers": self.pointers}), self.folder / REPORT)

    def _there(self, month: str) -> dict[str, str]:
        pointers = (self.data / month).rglob("*.dvc")
        return {str(p.relative_to(self.clone.path).with_suffix("")): _digest(p.read_text()) for p in pointers}

    def require_own(self, month: str) -> None:
        if month not in self.months and self._there(month):
            detail = f"month {month} of corpus {self.corpus} has posts from another source"
            raise DataError("BadImport", file=self.dataset, mapping=self.dataset, detail=detail)

    def collected(self) -> set[str]:
        """Return the records of the corpus that were collected from other sources."""
        pointers = [p for p in self.data.glob("*/records.parquet.dvc") if p.parent.name not in self.months]
        names = [str(p.with_suffix("").relative_to(self.clone.path)) for p in pointers]
        self.clone.checkout(*names)
        posts = tables.concat([self.clone.path / name for name in names], name="records", columns=["record_id"])
        return set(posts["record_id"].to_pylist())

    def replace(self, months: Sequence[str]) -> None:
        """Push the data of these months and delete the ``.dvc`` files that earlier imports wrote."""
        files = [path for month in months for path in (self.data / month).rglob("*.parquet")]
        pointers = self.clone.add(files)
        self.clone.check_remote(pointers)
        for stale in (p for month in {*months, *self.months} for p in (self.data / month).rglob("*.dvc")):
            stale.unlink()
        self.clone.place(pointers)
        self.pointers = {name: _digest(text) for name, text in sorted(pointers.items())}

    def replace_labels(self, files: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """Push these CSV files (the first row is the header), and delete those that earlier imports wrote."""
        git("rm", "-r", "--quiet", "--ignore-unmatch", "--", f"{self.folder}/*.csv.dvc", cwd=self.clone.path)
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = [self.folder / f"{name}.csv" for name in files]
        for path in paths:
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(files[path.stem])
        self.clone.check_remote(self.clone.add(paths))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
