"""Export an approved release: the files of its package unchanged, one Parquet file a split, card and Croissant.

Nothing is read but the package, whose files must have the digests in the register. So an export contains what was
approved, without what was removed since, and repeats with equal bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from crisis_corpus.integrity import sha256
from crisis_corpus.journal import canonical
from pipelines.core.config.settings import Settings
from pipelines.core.templates import render
from pipelines.release import release_store, release_tables, removal
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
from pipelines.release.release_store import PackageAltered, ReleaseEntry
from pipelines.store import table_files
from pipelines.store.vault.vault import Vault

PACKAGE, DATA = "package", "data"
JOINED = "|"
Row = Mapping[str, Any]


def run(name: str, *, repo: str, to: Path, settings: Settings, vault: Vault, now: datetime) -> dict[str, Any]:
    """Export a release into the folder ``to``, for the dataset repository ``repo``.

    Card and Croissant contain the address of ``repo``. ``to`` must be new or empty.
    """
    entry = ReleaseEntry.of(settings, name)
    with release_store.locked(settings), writing(to) as made:
        origin = current(entry, repo=checked_repo(repo), vault=vault, now=now)
        state = entry.state()
        facts = release_store.manifest_of(entry.package(state), name)
        if facts is None:
            raise PackageAltered(name=name, file=release_store.MANIFEST)
        texts = {file: _text(entry, state=state, file=file) for file in sorted(state["files"])}
        for file, text in {**texts, release_store.MANIFEST: entry.text(state, release_store.MANIFEST) or ""}.items():
            release_store.write(made / PACKAGE / file, text)
        tables = _tables(entry, state=state, facts=facts, texts=texts)
        for split, table in tables.items():
            table_files.write(table, made / DATA / f"{split}.parquet")
        release_store.write(made / LICENCE, texts["LICENSE.txt"])
        counts = {split: table.num_rows for split, table in tables.items()}
        shared: dict[str, Any] = {"facts": facts, "repo": repo, "removed": entry.removal()["number"]}
        shared["columns"] = next(iter(tables.values())).schema
        files = {split: made / DATA / f"{split}.parquet" for split in tables}
        release_store.write(
            made / CROISSANT, croissant(url=f"{settings.hub_url}/datasets/{repo}", files=files, **shared)
        )
        release_store.write(made / CARD, card_text(counts=counts, **shared))
        exported = finish(made, origin=origin)
    return {"folder": str(to.resolve()), "repo": repo, "files": len(exported.files) + 1, "rows": counts}


def current(entry: ReleaseEntry, *, repo: str, vault: Vault, now: datetime) -> ExportOrigin:
    """Return the origin that an export of a release has now."""
    state, name = entry.state(), entry.name
    what = f"Release '{name}'"
    if state["status"] == release_store.RETIRED:
        do = "Export the release that replaced it; `corpus release list` shows all."
        raise NotExportable(what=what, detail="it is retired, so that it is not handed out any more", do=do)
    if state["status"] != release_store.APPROVED:
        do = f"Let a person approve it: `corpus release approve {name} --who … --why …`."
        raise NotExportable(what=what, detail="it is a draft that no person has approved", do=do)
    if count := removal.overdue(entry, vault=vault, now=now):
        raise RemovalsDue(what=what, count=count)
    return ExportOrigin(kind="dataset", name=name, version=None, repo=repo, basis=basis(state))


def basis(state: Row) -> str:
    """Return the digest of a release's state: its status and the digests of its files."""
    return hashlib.sha256(canonical({"status": state["status"], "files": state["files"]}).encode()).hexdigest()


def _text(entry: ReleaseEntry, *, state: Mapping[str, Any], file: str) -> str:
    text = entry.text(state, file)
    if text is None or release_store.digest(text) != state["files"][file]:
        raise PackageAltered(name=entry.name, file=file)
    return text


def _tables(entry: ReleaseEntry, *, state: Row, facts: Row, texts: Mapping[str, str]) -> dict[str, pa.Table]:
    """Return the rows of a package by split, typed: labels are lists, null for a category without labels."""
    key = release_tables.key_columns(facts["content"])
    if facts["form"] == "annotations":
        placed = {tuple(row[column] for column in key): row["split"] for row in _rows(texts["splits.csv"])}
        rows = [(placed[tuple(row[column] for column in key)], row) for row in _rows(texts["annotations.csv"])]
    else:
        rows = [(split, row) for split in facts["splits"] for row in _rows(texts[f"{split}.csv"])]
    columns = [*key, *state["columns"]]
    allowed = entry.ids() - entry.withdrawn()
    if any(row["id"] not in allowed or list(row) != columns for _, row in rows):
        do = "Restore the package from a backup, then run `corpus release refresh`."
        raise NotExportable(what=f"Release '{entry.name}'", detail="its tables have other rows or columns", do=do)
    types = {"image": pa.int32()} | dict.fromkeys(facts["labels"], pa.list_(pa.string()))
    schema = pa.schema([(column, types.get(column, pa.string())) for column in columns])
    return {
        split: pa.Table.from_pylist([_typed(row, schema) for place, row in rows if place == split], schema=schema)
        for split in facts["splits"]
    }


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _typed(row: Mapping[str, str], schema: pa.Schema) -> dict[str, Any]:
    values: dict[str, Any] = dict(row)
    for field in schema:
        if pa.types.is_list(field.type):
            values[field.name] = values[field.name].split(JOINED) if values[field.name] else None
        elif pa.types.is_integer(field.type):
            values[field.name] = int(values[field.name])
    return values


TEMPLATE = Path(__file__).with_name("dataset_card.md.jinja")
MEANINGS = {
    "id": "the post's id, which only this release has",
    "image": "the picture's place in its gallery, from 0",
    "month": "when the post was made, generalised to month, quarter or year, or any time",
    "subreddit": "where it was posted, or other",
    "agreement": "gold: labelled by people; unanimous, consensus: by how many models of an ensemble",
    "votes": "JSON: how many annotators gave each label; empty if fewer than two answered, or if it is too rare",
}
# The Hub's classes of sizes, by the number of rows below which they end.
SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M"}
PROMPT = (
    "These labels are about posts by people in crisis. By requesting access you agree to the terms in LICENSE: "
    "research only; no attempt to identify or contact an author; and to get the current removal list before every use, "
    "and delete what is on it."
)
FIELDS = {
    "Name": "text",
    "Institution": "text",
    "Purpose of the research": "text",
    "I will not try to identify or contact an author": "checkbox",
    "I will delete posts that are on the removal list": "checkbox",
}


def card_text(
    *, facts: Mapping[str, Any], repo: str, removed: int, counts: Mapping[str, int], columns: pa.Schema
) -> str:
    """Return the text of ``README.md``.

    ``facts`` is the manifest of the release's package, ``removed`` the number of the release's removal list, and
    ``counts`` has the number of rows by split.
    """
    from huggingface_hub import DatasetCardData

    files, rows = [{"split": split, "path": f"data/{split}.parquet"} for split in counts], sum(counts.values())
    head = DatasetCardData(
        language="en",
        license="other",
        license_name=f"{facts['release']}-terms",
        license_link=LICENCE,
        pretty_name=facts["title"],
        size_categories=[next((name for limit, name in SIZES.items() if rows < limit), "1M<n<10M")],
        task_categories=["image-classification" if facts["content"] == "images" else "text-classification"],
        tags=["labels-only", "croissant"],
        configs=[{"config_name": "default", "data_files": files}],
        extra_gated_prompt=PROMPT,
        extra_gated_fields=FIELDS,
    )
    names = {"facts": facts, "repo": repo, "removed": removed, "counts": counts, "columns": columns, "licence": LICENCE}
    body = render(TEMPLATE, **names, summary=summary(facts), meaning=meaning)
    return f"---\n{head.to_yaml()}\n---\n\n{body}"


def summary(facts: Row) -> str:
    """Return what a release is, in two sentences."""
    return (
        f"Labels and splits of posts about crises: release {facts['release']} of the corpus {facts['corpus']}, "
        f"labelled with the scheme {facts['scheme']}. It contains ids of its own instead of posts, which are fetched "
        "from Reddit with a key."
    )


def meaning(column: str) -> str:
    """Return the content of a column in words."""
    return MEANINGS.get(column, f"the labels of the category {column}")


CROISSANT = "croissant.json"
VERSION = "http://mlcommons.org/croissant/1.1"
# Not registered, but what the Hub and mlcroissant call it.
FORMAT = "application/x-parquet"
# The terms of the specification's context (appendix 1), and those that mlcroissant warns of if they are not in it.
TERMS = (
    "annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "excludes", "extract", "field",
    "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5",
    "parentField", "path", "readLines", "recordSet", "references", "regex", "repeated", "replace", "samplingRate",
    "sdVersion", "separator", "source", "subField", "transform", "unArchive", "value",
)  # fmt: skip
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in TERMS},
}
# What a list of any length has as its shape.
ANY_LENGTH = "-1"


def croissant(*, facts: Row, repo: str, url: str, removed: int, columns: pa.Schema, files: Mapping[str, Path]) -> str:
    """Return the text of ``croissant.json``, the description of the tables for machines (Croissant 1.1, MLCommons).

    Each new removal list (``removed``) begins a new major version, as in SemVer for records that leave. ``files`` has
    by split the file of its table.
    """
    title, name, on = facts["title"], facts["release"], facts["approved_on"]
    made = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": VERSION,
        "name": name,
        "description": summary(facts),
        "url": url,
        "license": f"{url}/blob/main/{LICENCE}",
        "version": f"{1 + removed}.0.0",
        "datePublished": on,
        "creator": {"@type": "sc:Organization", "name": repo.partition("/")[0]},
        "citeAs": f"@misc{{{name}, title={{{title}}}, year={{{on[:4]}}}, url={{{url}}}}}",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": (place := f"{DATA}/{path.name}"),
                "name": place,
                "contentUrl": place,
                "contentSize": f"{path.stat().st_size} B",
                "encodingFormat": FORMAT,
                "sha256": sha256(path),
            }
            for path in files.values()
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": split,
                "name": split,
                "description": f"The items of the split {split}.",
                "field": [_field(column, split=split, path=f"{DATA}/{path.name}") for column in columns],
            }
            for split, path in files.items()
        ],
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _field(column: pa.Field, *, split: str, path: str) -> dict[str, Any]:
    listed = {"isArray": True, "arrayShape": ANY_LENGTH} if pa.types.is_list(column.type) else {}
    return {
        "@type": "cr:Field",
        "@id": f"{split}/{column.name}",
        "name": column.name,
        "description": meaning(column.name),
        "dataType": "cr:Int32" if pa.types.is_integer(column.type) else "sc:Text",
        "source": {"fileObject": {"@id": path}, "extract": {"column": column.name}},
        **listed,
    }
