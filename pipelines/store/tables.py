"""Define the contracts of the Parquet tables that the steps exchange, and read and write these.

Only :mod:`pipelines.store.seal` encrypts or decrypts a sealed column. Rows are checked against the contract, sorted by
its key and written in a fixed format (:mod:`table_files`), so that the same rows give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crisis_corpus.formats import require
from pipelines.core.errors import DataError
from pipelines.core.formats import version
from pipelines.store import table_files
from pipelines.store.table_files import Column, Contract

UTC = pa.timestamp("us", tz="UTC")
Item = tuple[str, int]
"""A record and the number of its image; a text is image 0."""
Row = Mapping[str, object]
# Of the column ``split``.
TRAIN = "train"
# The files of a fit that are no part of the model: its card, records and, without weights, predictions and their cost.
FIT = CARD, RECORDS, PREDICTIONS, SPENT = ("model.json", "records.parquet", "predictions.parquet", "spent.json")


def _all(kind: pa.DataType, *names: str, **rules: Any) -> tuple[Column, ...]:
    return tuple(Column(name, kind, **rules) for name in names)


def _contract(about: str, key: str, *columns: tuple[Column, ...]) -> Contract:
    return Contract(about, tuple(key.split()), tuple(chain(*columns)))


_texts = partial(_all, pa.string())
_labels = partial(_all, pa.list_(pa.string()))
_times = partial(_all, UTC)
_flags = partial(_all, pa.bool_())
_counts = partial(_all, pa.int32(), accepted_range=(0, None))
_few = partial(_all, pa.int16(), accepted_range=(0, None))
_shares = partial(_all, pa.float32(), accepted_range=(0, 1))
_amounts = partial(_all, pa.float32(), accepted_range=(0, None))
_scores = partial(_all, pa.list_(pa.float32()), accepted_range=(0, 1), about="probability by label, as in the scheme")
# plain binary columns over 2 GiB cannot be sorted
_sealed = partial(_all, pa.large_binary(), sealed=True)
RECORD = _texts("record_id")
ITEM = RECORD + _few("image")
OUTCOMES = ("vote", "abstained", "refused", "malformed", "failed")
OUTCOME = _texts("outcome", accepted_values=OUTCOMES)
REASONS = (
    "no_majority",
    "severity_dissent",
    "refused_by_most",
    "injection",
    "offline_dissent",
    "order_dissent",
    "unlike_nothing",
)


def _distances(*, nullable: bool = False) -> tuple[Column, ...]:
    bits = _all(pa.int16(), "hamming", nullable=nullable, accepted_range=(0, 64), about="differing bits")
    return bits + _few("word_difference", nullable=nullable, about="differing words")


CONTRACTS: dict[str, Contract] = {
    "records": _contract(
        "The posts of a month.",
        "record_id",
        RECORD,
        _texts("author_id", "subreddit"),
        _times("created"),
        _texts("kind", accepted_values=("text", "image", "gallery", "album", "video", "link")),
        _sealed("title", "body", "media"),
        _flags("nsfw", "spoiler"),
        _texts("source") + _texts("source_digest", empty=True),
        _texts("scrubbed", about="number of removals by kind, as JSON"),
    ),
    "images": _contract(
        "The pictures of a month, and the words read in them.",
        "record_id image",
        ITEM,
        _texts("sha256"),
        _all(pa.int32(), "width", "height", accepted_range=(1, None), about="pixels"),
        _sealed("bytes", "text"),
        _counts("words"),
        _texts("ocr_engine"),
        _shares("ocr_confidence"),
        _texts("language"),
        _all(pa.uint64(), "fingerprint", "inner_fingerprint", "outer_fingerprint", nullable=True),
        _texts("fingerprint_id"),
        _amounts("energy", about="grey levels"),
        _shares("text_area", nullable=True, about="unknown if a publisher read the text"),
    ),
    "texts": _contract(
        "The items of a text corpus, one a post; an image corpus has `images` instead.",
        "record_id",
        RECORD + _counts("words") + _texts("language") + _sealed("signature"),
    ),
    "drops": _contract(
        "What a step left out, and why; image -1 is a whole post.",
        "record_id image step",
        RECORD + _all(pa.int16(), "image", accepted_range=(-1, None)),
        _texts("step", "reason"),
    ),
    "gaps": _contract(
        "What no source could show of a month: of each subreddit, the times from `start` to before `end`.",
        "subreddit start",
        _texts("subreddit") + _times("start", "end"),
    ),
    "pairs": _contract(
        "Near-duplicates.",
        "record_id image other_id other_image",
        ITEM + _texts("other_id") + _few("other_image") + _distances(),
    ),
    "clusters": _contract(
        "Each item that a chain of pairs connects to another, and its distance to the kept item that it repeats.",
        "record_id image",
        ITEM + _texts("cluster", about="the earliest item") + _flags("keeper") + _distances(nullable=True),
    ),
    "sample": _contract("The items to label.", "record_id image", ITEM),
    "splits": _contract(
        "The split of each item; items of a group are never in two splits.",
        "record_id image",
        ITEM + _texts("group", "split"),
    ),
    "leaks": _contract(
        "The items of a published split that share a near-duplicate or an author with an item of an earlier split.",
        "record_id image",
        ITEM,
    ),
    "pack_records": _contract("The records on which a packed model was trained.", "record_id", RECORD),
    "assignments": _contract(
        "The items assigned to each annotator in an annotation round.",
        "record_id image annotator",
        ITEM + _texts("annotator", "round") + _few("batch") + _counts("position"),
    ),
    "annotations": _contract(
        "An annotator's answer to each question; a skip has no labels and counts in no figure by annotator.",
        "record_id image annotator category",
        ITEM + _texts("annotator", "category", "round") + _few("batch") + _texts("guideline"),
        _texts("outcome", accepted_values=("answered", "skipped", "unfit", "ambiguous")),
        _labels("labels", nullable=True) + _amounts("seconds", nullable=True) + _times("answered"),
        _sealed("note", nullable=True),
    ),
    "adjudications": _contract(
        "The log of decisions: rows are added and never changed, and the last one is valid.",
        "record_id image category decided",
        ITEM + _texts("category") + _times("decided") + _texts("round", "guideline", "adjudicator"),
        _labels("labels") + _few("sides") + _sealed("rationale"),
    ),
    "descriptions": _contract(
        "What an item of a pilot shows, and the note on its discussion.",
        "record_id image",
        ITEM + _texts("round", "author") + _texts("approved_by", nullable=True),
        _times("described") + _times("approved", nullable=True) + _sealed("description", "note"),
    ),
    "gold": _contract(
        "The labels that people decided.",
        "record_id image category",
        ITEM + _texts("category") + _labels("labels"),
        _texts("how", accepted_values=("truth", "published", "single", "agreed", "adjudicated")),
        _texts("round", nullable=True),
    ),
    "examples": _contract(
        "The items whose gold labels the prompts show; no model is scored on them.", "record_id image", ITEM
    ),
    "votes": _contract(
        "A labeller's answers; only the outcome `vote` has labels.",
        "record_id image labeller category",
        ITEM + _texts("labeller", "category", "prompt") + OUTCOME + _texts("reason", empty=True),
        _flags("repaired") + _labels("labels") + _scores("scores", nullable=True),
        _counts("input_tokens", "output_tokens"),
        _all(pa.float64(), "cost", accepted_range=(0, None), about="US dollars"),
    ),
    "silver": _contract(
        "An ensemble's decisions; an undecided item has no labels.",
        "record_id image category",
        ITEM + _texts("category", "ensemble") + _labels("labels", nullable=True),
        _texts("agreement", accepted_values=("unanimous", "consensus", "none")) + _texts("how"),
        _shares("posterior", nullable=True, about="probability of the labels") + _scores("scores", nullable=True),
    ),
    "queue": _contract(
        "The items that people should review.",
        "record_id image category",
        ITEM + _texts("category", "ensemble") + _labels("reasons", accepted_values=REASONS),
    ),
    "predictions": _contract(
        "A run's predictions by item and task; only the outcome `vote` has labels.",
        "record_id image task model seed",
        ITEM + _texts("task", "model") + _all(pa.int32(), "seed", nullable=True) + _texts("split", nullable=True),
        OUTCOME + _scores("scores") + _labels("labels", "alerts"),
    ),
    "moderation": _contract(
        "What a moderation system says about each item; only the outcome `vote` has flags.",
        "record_id image system",
        ITEM + _texts("system") + OUTCOME + _texts("reason", empty=True) + _labels("categories", nullable=True),
        _flags("partial") + _flags("self_harm", "overall", nullable=True),
        _amounts("score", nullable=True, about="of self-harm, on the system's own scale"),
    ),
    "rationales": _contract(
        "A labeller's remarks on each item, as JSON; only the outcome `vote` has any.",
        "record_id image labeller",
        ITEM + _texts("labeller") + OUTCOME + _sealed("remarks", nullable=True),
    ),
    "neighbours": _contract(
        "The training items of a model of kind knn; an embedding is content.",
        "record_id image",
        ITEM + _labels("labels") + _sealed("vector"),
    ),
}
CONTRACTS["kept_predictions"] = _contract(
    "Predictions of a registered version, kept with the digest of the encrypted content that was predicted.",
    "record_id image task model seed",
    CONTRACTS["predictions"].columns + _all(pa.binary(32), "content"),
)
SCHEMAS: dict[str, pa.Schema] = {name: contract.schema for name, contract in CONTRACTS.items()}

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
    """Write ``table``, whose content must be encrypted already, as table ``name``: checked, sorted, in a fixed format.

    Nothing is written, and an existing file stays, if a row violates the contract.
    """
    schema = SCHEMAS[name]
    if set(table.column_names) != set(schema.names):
        detail = f"missing or unknown columns {sorted(set(table.column_names) ^ set(schema.names))}"
        raise DataError("SchemaMismatch", table=name, detail=detail)
    try:
        table = table_files.in_order(table.select(schema.names).cast(schema), key=key_of(schema))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise DataError("SchemaMismatch", table=name, detail=type(error).__name__) from None
    CONTRACTS[name].require(table, name=name)
    groups = group_count(len(table), name=name)
    table_files.write(table, path, sealed=sealed_columns(schema), groups=groups)


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path, *, name: str) -> None:
    """Write rows without content; :mod:`pipelines.store.seal` writes those with content."""
    write(pa.Table.from_pylist(rows, schema=SCHEMAS[name]), path, name=name)


def group_count(rows: int, *, name: str) -> int:
    """Return the number of row groups, by record id, of the table ``name`` with this number of rows."""
    if key_of(SCHEMAS[name])[0] != "record_id":
        return 1
    return table_files.group_count(rows, at_most=IMAGES_GROUP_ROWS if name == "images" else GROUP_ROWS)


def read(path: Path, *, name: str, columns: list[str] | None = None) -> pa.Table:
    """Read columns of the table ``name`` from a file, without decryption.

    The columns that are needed to decrypt a requested column are read, too; :func:`present` says which may be missing,
    and are null then. A table that need not be in memory as a
    whole is read with :func:`batches`.
    """
    wanted = with_bound(name, columns or SCHEMAS[name].names)
    there = present(pq.read_schema(path), name=name, columns=wanted)
    return _whole(pq.read_table(path, columns=there), name=name, columns=wanted)


def present(schema: pa.Schema, *, name: str, columns: list[str]) -> list[str]:
    """Return which of these columns a file of the table ``name`` has; one that a later release added may be missing.

    Raises:
        UnknownFormat: the file, or a sealed column, was written in a format that this release does not read.
        DataError: ``SchemaMismatch``: a column is missing that may not be null.
    """
    there = [column for column in columns if column in schema.names]
    nullable = {column.name for column in CONTRACTS[name].columns if column.nullable}
    if missing := set(columns) - set(there) - nullable:
        raise DataError("SchemaMismatch", table=name, detail=f"missing columns {sorted(missing)}")
    _require("table", schema.metadata, b"format")
    for column in set(there) & set(sealed_columns(schema)):
        _require("sealed", schema.field(column).metadata, b"sealed")
    return there


def _require(name: str, metadata: Mapping[bytes, bytes] | None, key: bytes) -> None:
    stated = (metadata or {}).get(key, b"")
    require(int(stated) if stated.isdigit() else None, name=name, known=version(name))


def _whole(table: pa.Table, *, name: str, columns: list[str]) -> pa.Table:
    """Return a part of the table ``name`` with these columns; one that it lacks is null."""
    for field in map(SCHEMAS[name].field, columns):
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(columns)


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


def leaks(snapshot: Path) -> frozenset[Item]:
    """Return the items of a published split that leak, from the result of the stage ``split``; ours never do."""
    path = snapshot / "split" / "leaks.parquet"
    return frozenset(items_of(read(path, name="leaks"))) if path.is_file() else frozenset()


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


def without(table: pa.Table, record_ids: Collection[str]) -> pa.Table:
    """Return the rows that are about other records."""
    return table.filter(pc.invert(pc.is_in(table["record_id"], value_set=strings(sorted(record_ids)))))


# Rows of a batch; those of small columns take a few MB.
BATCH = 2**14


def batches(path: Path, *, name: str, columns: list[str] | None = None, size: int | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a table in their order, at most ``size`` (:data:`BATCH`) at a time, as :func:`read`."""
    wanted = with_bound(name, columns or SCHEMAS[name].names)
    # buffering ahead would hold whole row groups
    with pq.ParquetFile(path, pre_buffer=False) as file:
        there = present(file.schema_arrow, name=name, columns=wanted)
        for batch in file.iter_batches(size or BATCH, columns=there):
            yield _whole(pa.Table.from_batches([batch]), name=name, columns=wanted)


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


def item_of(row: Row) -> Item:
    """Return the item of a row."""
    return str(row["record_id"]), cast(int, row["image"])


def listed(record_ids: Collection[str] | pa.ChunkedArray) -> tuple[int, str]:
    """Return the number of distinct record ids, and the SHA-256 of these, sorted, one id per line."""
    known = record_ids.combine_chunks() if isinstance(record_ids, pa.ChunkedArray) else strings(list(record_ids))
    if not pc.all(pc.less(known.slice(0, max(0, len(known) - 1)), known.slice(1))).as_py():
        known = pc.unique(known)
        known = known.take(pc.sort_indices(known))
    lines = pc.binary_join_element_wise(known, "", "\n")
    # the texts of an array that was just computed follow one another
    text = lines.buffers()[2] if len(lines) else None
    return len(known), hashlib.sha256(text or b"").hexdigest()
