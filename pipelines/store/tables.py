"""Define the typed Parquet tables that the steps exchange, and read and write them.

A field marked ``sealed`` holds encrypted content; only :mod:`pipelines.store.seal` encrypts or decrypts it. Rows are
sorted by the schema's key and written in a fixed format (:mod:`table_files`), so that the same rows give the same
bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.core.errors import DataError
from pipelines.store import table_files

SEALED = {b"sealed": b"1"}
UTC = pa.timestamp("us", tz="UTC")


def _sealed(name: str) -> pa.Field:
    # plain binary columns over 2 GiB cannot be sorted
    return pa.field(name, pa.large_binary(), metadata=SEALED)


def _schema(key: str, *fields: pa.Field | tuple[str, pa.DataType]) -> pa.Schema:
    columns = [f if isinstance(f, pa.Field) else pa.field(*f) for f in fields]
    return pa.schema(columns, metadata={b"key": key.encode()})


def _all(kind: pa.DataType, *names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in names]


Item = tuple[str, int]
"""A record and the number of its image; a text is image 0."""
RECORD, IMAGE = ("record_id", pa.string()), ("image", pa.int16())
LABELS = ("labels", pa.list_(pa.string()))

SCHEMAS: dict[str, pa.Schema] = {
    "records": _schema(
        "record_id",
        RECORD,
        *_all(pa.string(), "author_id", "subreddit"),
        ("created", UTC),
        ("kind", pa.string()),
        *map(_sealed, ("title", "body", "media")),
        *_all(pa.bool_(), "nsfw", "spoiler"),
        *_all(pa.string(), "source", "source_digest", "scrubbed"),
    ),
    "images": _schema(
        "record_id,image",
        RECORD,
        IMAGE,
        ("sha256", pa.string()),
        *_all(pa.int32(), "width", "height"),
        *map(_sealed, ("bytes", "text")),
        ("words", pa.int32()),
        ("ocr_engine", pa.string()),
        ("ocr_confidence", pa.float32()),
        ("language", pa.string()),
        *_all(pa.uint64(), "fingerprint", "inner_fingerprint", "outer_fingerprint"),
        ("fingerprint_id", pa.string()),
        *_all(pa.float32(), "energy", "text_area"),
    ),
    # The items of a text corpus, one row per post; an image corpus has ``images`` instead.
    "texts": _schema("record_id", RECORD, ("words", pa.int32()), ("language", pa.string()), _sealed("signature")),
    "drops": _schema("record_id,image,step", RECORD, IMAGE, ("step", pa.string()), ("reason", pa.string())),
    # What no source could show of a month: of each subreddit, the times of creation from ``start`` to before ``end``.
    "gaps": _schema("subreddit,start", ("subreddit", pa.string()), ("start", UTC), ("end", UTC)),
    "pairs": _schema(
        "record_id,image,other_id,other_image",
        RECORD,
        IMAGE,
        ("other_id", pa.string()),
        *_all(pa.int16(), "other_image", "hamming", "word_difference"),
    ),
    "clusters": _schema(
        "record_id,image",
        RECORD,
        IMAGE,
        ("cluster", pa.string()),
        ("keeper", pa.bool_()),
        *_all(pa.int16(), "hamming", "word_difference"),
    ),
    "sample": _schema("record_id,image", RECORD, IMAGE),
    "splits": _schema("record_id,image", RECORD, IMAGE, ("group", pa.string()), ("split", pa.string())),
    # The items assigned to each annotator in an annotation round.
    "assignments": _schema(
        "record_id,image,annotator",
        RECORD,
        IMAGE,
        *_all(pa.string(), "annotator", "round"),
        ("batch", pa.int16()),
        ("position", pa.int32()),
    ),
    # One annotator's answer to one question; a skip has no labels and is not counted in any figure by annotator.
    "annotations": _schema(
        "record_id,image,annotator,category",
        RECORD,
        IMAGE,
        *_all(pa.string(), "annotator", "category", "round"),
        ("batch", pa.int16()),
        *_all(pa.string(), "guideline", "outcome"),
        LABELS,
        ("seconds", pa.float32()),
        ("answered", UTC),
        _sealed("note"),
    ),
    # The log of decisions: rows are added and never changed; the last one is valid.
    "adjudications": _schema(
        "record_id,image,category,decided",
        RECORD,
        IMAGE,
        ("category", pa.string()),
        ("decided", UTC),
        *_all(pa.string(), "round", "guideline", "adjudicator"),
        LABELS,
        ("sides", pa.int16()),
        _sealed("rationale"),
    ),
    # What an item of a pilot shows, and the note on its discussion (FigSIM A).
    "descriptions": _schema(
        "record_id,image",
        *(RECORD, IMAGE, *_all(pa.string(), "round", "author", "approved_by")),
        *(*_all(UTC, "described", "approved"), _sealed("description"), _sealed("note")),
    ),
    "gold": _schema(
        "record_id,image,category", RECORD, IMAGE, ("category", pa.string()), LABELS, *_all(pa.string(), "how", "round")
    ),
    # The items whose gold labels the prompts show; no model is scored on them.
    "examples": _schema("record_id,image", RECORD, IMAGE),
    "votes": _schema(
        "record_id,image,labeller,category",
        RECORD,
        IMAGE,
        *_all(pa.string(), "labeller", "category", "prompt", "outcome", "reason"),
        ("repaired", pa.bool_()),
        LABELS,
        ("scores", pa.list_(pa.float32())),
        *_all(pa.int32(), "input_tokens", "output_tokens"),
        ("cost", pa.float64()),
    ),
    "silver": _schema(
        "record_id,image,category",
        RECORD,
        IMAGE,
        *_all(pa.string(), "category", "ensemble"),
        LABELS,
        *_all(pa.string(), "agreement", "how"),
        # probabilities of the label set, and of each label in the scheme's order (label/silver/aggregate.py)
        ("posterior", pa.float32()),
        ("scores", pa.list_(pa.float32())),
    ),
    "queue": _schema(
        "record_id,image,category",
        RECORD,
        IMAGE,
        *_all(pa.string(), "category", "ensemble"),
        ("reasons", pa.list_(pa.string())),
    ),
    # A run's prediction for one item and task; ``scores`` are probabilities in the task's order of labels.
    "predictions": _schema(
        "record_id,image,task,model,seed",
        RECORD,
        IMAGE,
        *_all(pa.string(), "task", "model"),
        ("seed", pa.int32()),
        *_all(pa.string(), "split", "outcome"),
        ("scores", pa.list_(pa.float32())),
        LABELS,
        ("alerts", pa.list_(pa.string())),
    ),
    # What a moderation system says about an item; only the outcome vote has flags, ``score`` is that of self-harm.
    "moderation": _schema(
        "record_id,image,system",
        *(RECORD, IMAGE, *_all(pa.string(), "system", "outcome", "reason"), ("categories", LABELS[1])),
        *(*_all(pa.bool_(), "partial", "self_harm", "overall"), ("score", pa.float32())),
    ),
    # A labeller's remarks on an item, as JSON; null if the outcome is not a vote.
    "rationales": _schema(
        "record_id,image,labeller", RECORD, IMAGE, *_all(pa.string(), "labeller", "outcome"), _sealed("remarks")
    ),
    # The training items of a model of kind knn; an embedding is content.
    "neighbours": _schema("record_id,image", RECORD, IMAGE, LABELS, _sealed("vector")),
}

# Rows of a row group on average, at most (ours: some MB, which a takedown rewrites).
GROUP_ROWS = 2**14
IMAGES_GROUP_ROWS = 2**8

# Columns that change with the content of a row: content is bound to them, so that an older value does not open.
VERSION = {
    "records": ("source_digest",),
    "images": ("sha256",),
    "annotations": ("round", "answered"),
    "adjudications": ("round",),
    "descriptions": ("round", "described"),
    "rationales": ("outcome",),
}


def key_of(schema: pa.Schema) -> list[str]:
    """Return the key columns, by which tables of this schema are sorted."""
    names: str = schema.metadata[b"key"].decode()
    return names.split(",")


def bound_columns(name: str) -> list[str]:
    """Return the plain columns to which a row's encrypted content is bound: the key, then those of :data:`VERSION`."""
    return [*key_of(SCHEMAS[name]), *VERSION.get(name, ())]


def with_bound(name: str, columns: list[str]) -> list[str]:
    """Return these columns of the table ``name`` and, if one holds content, the columns needed to decrypt it."""
    if set(columns).isdisjoint(sealed_columns(SCHEMAS[name])):
        return columns
    return list(dict.fromkeys([*columns, *bound_columns(name)]))


def sealed_columns(schema: pa.Schema) -> list[str]:
    """Return the names of a schema's columns with content (text or pictures of posts), which are stored encrypted."""
    return [f.name for f in schema if f.metadata and b"sealed" in f.metadata]


def write(table: pa.Table, path: Path, *, name: str) -> None:
    """Write ``table``, whose content must be encrypted already, as table ``name``: sorted and in a fixed format."""
    schema = SCHEMAS[name]
    if set(table.column_names) != set(schema.names):
        detail = f"missing or unknown columns {sorted(set(table.column_names) ^ set(schema.names))}"
        raise DataError("SchemaMismatch", table=name, detail=detail)
    try:
        table = table_files.in_order(table.select(schema.names).cast(schema), key=key_of(schema))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise DataError("SchemaMismatch", table=name, detail=type(error).__name__) from None
    groups = group_count(len(table), name=name)
    table_files.write(table, path, sealed=sealed_columns(schema), groups=groups)


def group_count(rows: int, *, name: str) -> int:
    """Return the number of row groups, by record id, of the table ``name`` with this number of rows."""
    if key_of(SCHEMAS[name])[0] != "record_id":
        return 1
    return table_files.group_count(rows, at_most=IMAGES_GROUP_ROWS if name == "images" else GROUP_ROWS)


def read(path: Path, *, name: str, columns: list[str] | None = None) -> pa.Table:
    """Read columns of the table ``name`` from a file, without decryption.

    The columns that are needed to decrypt a requested column are read, too. A table that need not be in memory as a
    whole is read with :func:`batches`.
    """
    wanted = with_bound(name, columns or SCHEMAS[name].names)
    require_columns(pq.read_schema(path), name=name, columns=wanted)
    return pq.read_table(path, columns=columns and wanted)


def require_columns(schema: pa.Schema, *, name: str, columns: list[str]) -> None:
    """Raise :class:`SchemaMismatch` if a file of the table ``name`` lacks one of these columns."""
    if missing := set(columns) - set(schema.names):
        raise DataError("SchemaMismatch", table=name, detail=f"missing columns {sorted(missing)}")


def concat(paths: list[Path], *, name: str, columns: list[str] | None = None) -> pa.Table:
    """Concatenate files of the table ``name``; without files, return an empty table with its schema."""
    schema = SCHEMAS[name]
    empty = pa.schema([schema.field(c) for c in with_bound(name, columns or schema.names)]).empty_table()
    parts = [empty, *(read(path, name=name, columns=columns) for path in sorted(paths))]
    return pa.concat_tables(part.replace_schema_metadata(None) for part in parts)


def items_of(table: pa.Table) -> list[Item]:
    """Return the item (record id, image number) of each row of a table."""
    return list(zip(table["record_id"].to_pylist(), table["image"].to_pylist(), strict=True))


def examples(snapshot: Path) -> frozenset[Item]:
    """Return the items that prompts show as few-shot examples, from the result of the stage ``few_shot``."""
    return frozenset(items_of(read(snapshot / "few_shot" / "examples.parquet", name="examples")))


def splits(snapshot: Path) -> dict[Item, tuple[str, str]]:
    """Return the split and the group of each item, from the result of the stage ``split``."""
    rows = read(snapshot / "split" / "splits.parquet", name="splits").to_pylist()
    return {(row["record_id"], row["image"]): (row["split"], row["group"]) for row in rows}


def gold(snapshot: Path, *, within: Collection[Item] | None = None) -> dict[str, dict[Item, frozenset[str]]]:
    """Return the gold labels by category and item (of ``within``), from the result of the stage ``gold``."""
    labels: dict[str, dict[Item, frozenset[str]]] = {}
    for row in read(snapshot / "gold" / "gold.parquet", name="gold").to_pylist():
        item = (row["record_id"], row["image"])
        if within is None or item in within:
            labels.setdefault(row["category"], {})[item] = frozenset(row["labels"])
    return labels


def strings(values: list[str]) -> pa.Array:
    """Convert a list of strings, which may be empty, to an Arrow string array."""
    return pa.array(values, type=pa.string())


# Rows of a batch; those of small columns take a few MB.
BATCH = 2**14


def batches(path: Path, *, name: str, columns: list[str] | None = None, size: int | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a table in their order, at most ``size`` (:data:`BATCH`) at a time, as :func:`read`."""
    wanted = with_bound(name, columns or SCHEMAS[name].names)
    # buffering ahead would hold whole row groups
    with pq.ParquetFile(path, pre_buffer=False) as file:
        require_columns(file.schema_arrow, name=name, columns=wanted)
        for batch in file.iter_batches(size or BATCH, columns=wanted):
            yield pa.Table.from_batches([batch]).select(wanted)


def part(path: Path, *, name: str, columns: list[str], start: int, count: int) -> pa.Table:
    """Read ``count`` rows from row ``start`` on, without holding the others."""
    wanted = with_bound(name, columns)
    parts, at = [pa.schema([SCHEMAS[name].field(column) for column in wanted]).empty_table()], 0
    for batch in batches(path, name=name, columns=columns):
        rows = batch.slice(max(0, start - at), max(0, start + count - max(start, at)))
        parts.append(rows.replace_schema_metadata(None))
        at += len(batch)
        if at >= start + count:
            break
    return pa.concat_tables(parts)
