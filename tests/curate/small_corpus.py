"""A corpus on disk, as the earlier steps leave it, small enough to reason about."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.core.config.params import Params, load
from pipelines.store import tables
from tests.small_corpus import write_table

REPO = Path(__file__).parents[2]


def record_id(number: int) -> str:
    return f"{number:032x}"


def params(*, size: int = 1000, **split: object) -> Params:
    values = load(REPO)
    return values.model_copy(
        update={
            "sample": {"memes": values.sample["memes"].model_copy(update={"size": size})},
            "split": {"memes": values.split["memes"].model_copy(update={"proposals": 20_000, **split})},
        }
    )


def write(
    root: Path,
    authors: Sequence[int],
    *,
    pairs: Sequence[tuple[int, int]] = (),
    dropped: Sequence[int] = (),
    order: Sequence[int] | None = None,
    shard: int = 50,
) -> None:
    """Write one image per author number; ``pairs`` and ``dropped`` are positions, ``order`` that of the rows."""
    order = list(order if order is not None else range(len(authors)))
    for old in root.glob("data/**/*.parquet"):
        old.unlink()
    months: dict[str, list[int]] = {}
    for i in order:
        months.setdefault(f"2022-{1 + i % 3:02d}", []).append(i)
    for month, members in months.items():
        folder = root / "data" / "memes" / month
        (folder / "images").mkdir(parents=True, exist_ok=True)
        posts = [
            {
                "record_id": record_id(i),
                "author_id": f"{authors[i]:032x}",
                "created": datetime(2022, int(month[-2:]), 1 + i % 28, tzinfo=UTC),
                "kind": "gallery" if i % 5 == 0 else "image",
                "subreddit": "SuicideMeme",
            }
            for i in members
        ]
        pq.write_table(pa.Table.from_pylist(posts, schema=tables.SCHEMAS["records"]), folder / "records.parquet")
        for at in range(0, len(members), shard):
            images = [{"record_id": record_id(i), "image": 0, "words": i % 4} for i in members[at : at + shard]]
            shown = pa.Table.from_pylist(images, schema=tables.SCHEMAS["images"])
            pq.write_table(shown, folder / "images" / f"{at:03d}.parquet")
    folder = root / "snapshot" / "memes" / "dedupe"
    found = [
        {"record_id": record_id(a), "image": 0, "other_id": record_id(b), "other_image": 0, "word_difference": 0}
        for a, b in pairs
    ]
    write_table(folder / "pairs.parquet", found, name="pairs")
    drops = [{"record_id": record_id(i), "image": 0, "step": "dedupe", "reason": "near_duplicate"} for i in dropped]
    write_table(folder / "drops.parquet", drops, name="drops")
    label(root, {})


def label(root: Path, labels: Mapping[int, Mapping[str, Sequence[str]]], *, unfit: Sequence[int] = ()) -> None:
    """Write the result of the stage ``gold``: the labels of items by category, and the unfit items."""
    folder = root / "snapshot" / "memes" / "gold"
    rows = [
        {"record_id": record_id(i), "image": 0, "category": key, "labels": list(found), "how": "published"}
        for i, categories in labels.items()
        for key, found in categories.items()
    ]
    write_table(folder / "gold.parquet", rows, name="gold")
    drops = [{"record_id": record_id(i), "image": 0, "step": "gold", "reason": "unfit"} for i in unfit]
    write_table(folder / "drops.parquet", drops, name="drops")


def splits(root: Path) -> dict[int, str]:
    table = pq.read_table(root / "snapshot" / "memes" / "split" / "splits.parquet")
    names = zip(table["record_id"].to_pylist(), table["split"].to_pylist(), strict=True)
    return {int(record, 16): split for record, split in names}


def left_out(root: Path) -> list[int]:
    table = pq.read_table(root / "snapshot" / "memes" / "split" / "drops.parquet")
    return [int(record, 16) for record in table["record_id"].to_pylist()]
