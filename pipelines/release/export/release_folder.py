"""Export an approved release: the files of its package unchanged, one Parquet file a split, card and Croissant.

Nothing is read but the package, whose files must have the digests in the register. So an export contains what was
approved, without what was removed since, and repeats with equal bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crisis_corpus.integrity import sha256
from crisis_corpus.journal import canonical
from pipelines.core.config.settings import Settings
from pipelines.release import removal
from pipelines.release.export import dataset_card
from pipelines.release.export.folder import (
    CARD,
    LICENCE,
    ExportOrigin,
    NotExportable,
    RemovalsDue,
    checked_repo,
    finish,
    writing,
)
from pipelines.release.release_store import (
    APPROVED,
    MANIFEST,
    RETIRED,
    PackageAltered,
    ReleaseEntry,
    digest,
    locked,
    manifest_of,
    write,
)
from pipelines.store.vault.vault import Vault

PACKAGE, DATA = "package", "data"
JOINED = "|"
Row = Mapping[str, Any]


def run(name: str, *, repo: str, to: Path, settings: Settings, vault: Vault, now: datetime) -> dict[str, Any]:
    """Export a release into the folder ``to``, for the dataset repository ``repo``.

    Card and Croissant contain the address of ``repo``. ``to`` must be new or empty.
    """
    entry = ReleaseEntry.of(settings, name)
    with locked(settings), writing(to) as made:
        origin = current(entry, repo=checked_repo(repo), vault=vault, now=now)
        state = entry.state()
        facts = manifest_of(entry.package(state), name)
        if facts is None:
            raise PackageAltered(name=name, file=MANIFEST)
        texts = {file: _text(entry, state=state, file=file) for file in sorted(state["files"])}
        for file, text in {**texts, MANIFEST: entry.text(state, MANIFEST) or ""}.items():
            write(made / PACKAGE / file, text)
        tables = _tables(entry, state=state, facts=facts, texts=texts)
        (made / DATA).mkdir()
        for split, table in tables.items():
            pq.write_table(table, made / DATA / f"{split}.parquet")
        write(made / LICENCE, texts["LICENSE.txt"])
        counts = {split: table.num_rows for split, table in tables.items()}
        url = f"{settings.hub_url}/datasets/{repo}"
        shared: dict[str, Any] = {"facts": facts, "repo": repo, "removed": entry.removal()["number"]}
        shared["columns"] = next(iter(tables.values())).schema
        files = {split: made / DATA / f"{split}.parquet" for split in tables}
        listed = {split: (f"{DATA}/{path.name}", path.stat().st_size, sha256(path)) for split, path in files.items()}
        write(made / dataset_card.FILE, dataset_card.croissant(url=url, files=listed, **shared))
        write(made / CARD, dataset_card.text(counts=counts, **shared))
        exported = finish(made, origin=origin)
    return {"folder": str(to.resolve()), "repo": repo, "files": len(exported.files) + 1, "rows": counts}


def current(entry: ReleaseEntry, *, repo: str, vault: Vault, now: datetime) -> ExportOrigin:
    """Return the origin that an export of a release has now."""
    state, name = entry.state(), entry.name
    what = f"Release '{name}'"
    if state["status"] == RETIRED:
        do = "Export the release that replaced it; `corpus release list` shows all."
        raise NotExportable(what=what, detail="it is retired, so that it is not handed out any more", do=do)
    if state["status"] != APPROVED:
        do = f"Let a person approve it: `corpus release approve {name} --who … --why …`."
        raise NotExportable(what=what, detail="it is a draft that no person has approved", do=do)
    if count := removal.overdue(entry, vault=vault, now=now):
        raise RemovalsDue(what=what, count=count)
    return ExportOrigin(kind="dataset", name=name, version=None, repo=repo, basis=basis(state))


def basis(state: Mapping[str, Any]) -> str:
    """Return the digest of a release's state: its status and the digests of its files."""
    return hashlib.sha256(canonical({"status": state["status"], "files": state["files"]}).encode()).hexdigest()


def _text(entry: ReleaseEntry, *, state: Mapping[str, Any], file: str) -> str:
    text = entry.text(state, file)
    if text is None or digest(text) != state["files"][file]:
        raise PackageAltered(name=entry.name, file=file)
    return text


def _tables(entry: ReleaseEntry, *, state: Row, facts: Row, texts: Mapping[str, str]) -> dict[str, pa.Table]:
    """Return the rows of a package by split, typed: labels are lists, null for a category without labels."""
    if facts["form"] == "figsim":
        placed = {(row["id"], row["image"]): row["split"] for row in _rows(texts["splits.csv"])}
        rows = [(placed[row["id"], row["image"]], row) for row in _rows(texts["annotations.csv"])]
        columns = ["id", "image", *state["columns"]]
    else:
        rows = [(split, row) for split in facts["splits"] for row in _rows(texts[f"{split}.csv"])]
        columns = ["id", *state["columns"]]
    allowed = entry.ids() - entry.withdrawn()
    if any(row["id"] not in allowed or list(row) != columns for _, row in rows):
        do = "Restore the package from a backup, then run `corpus release refresh`."
        raise NotExportable(what=f"Release '{entry.name}'", detail="its tables have other rows or columns", do=do)
    schema = pa.schema([(column, _type(column, labels=facts["labels"])) for column in columns])
    return {
        split: pa.Table.from_pylist(
            [_typed(row, schema=schema) for placed_in, row in rows if placed_in == split], schema=schema
        )
        for split in facts["splits"]
    }


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _type(column: str, *, labels: Sequence[str]) -> pa.DataType:
    if column == "image":
        return pa.int32()
    return pa.list_(pa.string()) if column in labels else pa.string()


def _typed(row: Mapping[str, str], *, schema: pa.Schema) -> dict[str, Any]:
    return {field.name: _cell(row[field.name], kind=field.type) for field in schema}


def _cell(text: str, *, kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return text.split(JOINED) if text else None
    return int(text) if pa.types.is_integer(kind) else text
