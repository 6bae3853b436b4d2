"""The stages of the small used corpus: ``python stage.py NAME CORPUS [LABELLER]``, each in a few lines."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.storage import tables


def rows(pattern, *columns):
    return [
        row for path in sorted(Path().glob(pattern)) for row in pq.read_table(path, columns=list(columns)).to_pylist()
    ]


def write(path, made, name):
    schema = tables.SCHEMAS[name]
    full = [dict.fromkeys(schema.names) | row for row in made]
    tables.write(pa.Table.from_pylist(full, schema=schema), Path(path), name=name)


def main(stage, corpus, labeller=None):
    ids = sorted(row["record_id"] for row in rows(f"data/{corpus}/*/posts.parquet", "record_id"))
    out = f"snapshot/{corpus}/{stage}"
    # every third and the one after it are near-duplicates, and named after the first
    first = {ids[i]: ids[i - i % 3] for i in range(len(ids))}
    if stage == "dedupe":
        pairs = [{"record_id": a, "image": 0, "other_id": b, "other_image": 0} for b, a in first.items() if a != b]
        made = [{"record_id": i, "image": 0, "cluster": f"{first[i]}#0", "keeper": i == first[i]} for i in ids]
        write(f"{out}/pairs.parquet", pairs, "pairs")
        write(f"{out}/clusters.parquet", made, "clusters")
        Path(f"metrics/{corpus}").mkdir(parents=True, exist_ok=True)
        Path(f"metrics/{corpus}/dedupe.json").write_text(json.dumps({"items": len(ids)}))
    elif stage == "split":
        parts = ["train", "validation", "test"]
        made = [
            {"record_id": i, "image": 0, "group": f"{first[i]}/0", "split": parts[n % 3]} for n, i in enumerate(ids)
        ]
        write(f"{out}/splits.parquet", made, "splits")
    elif stage == "votes":
        made = [{"record_id": i, "labeller": labeller, "category": "labels", "labels": ["x"]} for i in ids]
        write(f"{out}/{labeller}/votes.parquet", made, "votes")
    elif stage == "silver":
        voted = sorted({row["record_id"] for row in rows(f"snapshot/{corpus}/votes/*/votes.parquet", "record_id")})
        write(
            f"{out}/silver.parquet", [{"record_id": i, "category": "labels", "labels": ["x"]} for i in voted], "silver"
        )
        Path(f"{out}/named.json").write_text(json.dumps({"asked": voted, "names": len(voted)}))
    elif stage == "agreement":
        found = rows(f"annotations/{corpus}/*/assignments.parquet", "record_id")
        Path(out).mkdir(parents=True, exist_ok=True)
        Path(f"{out}/count.txt").write_text(str(len(found)))
    Path("ran").mkdir(exist_ok=True)
    with Path("ran/stages").open("a") as file:
        file.write(f"{stage}@{corpus}\n")


main(*sys.argv[1:])
