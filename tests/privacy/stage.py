"""The stages of the small used corpus: ``python stage.py NAME CORPUS [LABELLER]``, each in a few lines."""

import hashlib
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.store import tables


def rows(pattern, *columns):
    return [
        row for path in sorted(Path().glob(pattern)) for row in pq.read_table(path, columns=list(columns)).to_pylist()
    ]


def write(path, made, name):
    tables.write(pa.Table.from_pylist(made, schema=tables.SCHEMAS[name]), Path(path), name=name)


def main(stage, corpus, labeller=None):
    ids = sorted(row["record_id"] for row in rows(f"data/{corpus}/*/records.parquet", "record_id"))
    out = f"snapshot/{corpus}/{stage}"
    # every third and the one after it are near-duplicates, and named after the first
    first = {ids[i]: ids[i - i % 3] for i in range(len(ids))}
    if stage == "dedupe":
        apart = {"hamming": 0, "word_difference": 0}
        pairs = [
            {"record_id": a, "image": 0, "other_id": b, "other_image": 0} | apart for b, a in first.items() if a != b
        ]
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
    elif stage == "quality":
        placed = rows(f"snapshot/{corpus}/split/splits.parquet", "record_id")
        Path(f"metrics/{corpus}/quality.json").write_text(json.dumps({"items": len(placed)}))
    elif stage == "votes":
        told = {"prompt": "p", "outcome": "vote", "reason": "", "repaired": False, "cost": 0.0}
        told |= {"labeller": labeller, "category": "labels", "labels": ["x"], "input_tokens": 1, "output_tokens": 1}
        made = [{"record_id": i, "image": 0} | told for i in ids]
        write(f"{out}/{labeller}/votes.parquet", made, "votes")
    elif stage == "silver":
        voted = sorted({row["record_id"] for row in rows(f"snapshot/{corpus}/votes/*/votes.parquet", "record_id")})
        told = {"category": "labels", "labels": ["x"], "ensemble": "e", "agreement": "unanimous", "how": "majority"}
        made = [{"record_id": i, "image": 0} | told for i in voted]
        write(f"{out}/silver.parquet", made, "silver")
        Path(f"{out}/named.json").write_text(json.dumps({"asked": voted, "names": len(voted)}))
    elif stage == "agreement":
        found = rows(f"annotations/{corpus}/*/assignments.parquet", "record_id")
        Path(out).mkdir(parents=True, exist_ok=True)
        Path(f"{out}/count.txt").write_text(str(len(found)))
    elif stage == "train":
        # a model of all records, or of those of test
        placed = rows(f"snapshot/{corpus}/split/splits.parquet", "record_id", "image", "group", "split")
        learnt = [row for row in placed if labeller == "all" or row["split"] == "test"]
        out = Path(f"snapshot/{corpus}/fits/{labeller}")
        out.mkdir(parents=True, exist_ok=True)
        write(out / "records.parquet", learnt, "splits")
        lines = "".join(f"{row['record_id']}\n" for row in sorted(learnt, key=lambda row: row["record_id"]))
        selected = {"records": len(learnt), "digest": hashlib.sha256(lines.encode()).hexdigest()}
        (out / "model.safetensors").write_text(f"weights of {labeller}: {selected}")
        (out / "tokenizer.json").write_text("the same for both")
        told = json.dumps({"train": selected, "selected": selected})
        (out / "model.json").write_text(told)
        Path(f"metrics/{corpus}").mkdir(parents=True, exist_ok=True)
        Path(f"metrics/{corpus}/train-{labeller}.json").write_text(told)
    Path("ran").mkdir(exist_ok=True)
    with Path("ran/stages").open("a") as file:
        file.write(f"{stage}@{corpus}\n")


main(*sys.argv[1:])
