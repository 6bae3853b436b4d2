"""The stage of the corpus of ``test_labels_after_takedown``: gold from the labels of an import, and their counts."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa

from pipelines.store import tables

text = Path("annotations/posts/set/gold.csv").read_text().partition("# ")[0]
lines = [line.split(",") for line in text.splitlines()[1:]]
same = {"image": 0, "category": "labels", "how": "truth", "round": None}
rows = [{"record_id": line[0], "labels": [line[3]]} | same for line in lines]
path = Path("snapshot/posts/gold/gold.parquet")
tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["gold"]), path, name="gold")
Path("metrics/posts").mkdir(parents=True, exist_ok=True)
Path("metrics/posts/gold.json").write_text(json.dumps({"labels": Counter(line[3] for line in lines)}))
