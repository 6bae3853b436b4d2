"""Choose the posts of dev whose labels the prompts show (stage ``few_shot``; CRADLE B).

A labeller that was shown an answer must not be scored on it: later steps leave these records of dev out of the scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.config.params import Params
from pipelines.llm.prompting.prompts import DEV, choose
from pipelines.storage import tables
from pipelines.storage.metrics_file import write_metrics
from pipelines.taxonomy import load


def run(corpus: str, *, params: Params, root: Path = Path()) -> dict[str, Any]:
    """Choose the prompts' examples; write them to ``snapshot/<corpus>/few_shot/examples.parquet``, and metrics.

    A scheme with several categories has no such prompt, and the table is empty;
    :mod:`pipelines.label.memes.meme_examples` draws the examples of prompted models.

    Returns:
        Counts: ``examples`` chosen, and ``gold``: the items with gold by split.
    """
    folder, scheme = root / "snapshot" / corpus, load(params.corpora[corpus].scheme, root=root)
    gold = tables.read(folder / "gold" / "gold.parquet", name="gold").to_pylist()
    splits = tables.read(folder / "split" / "splits.parquet", name="splits")
    split = dict(zip(tables.items_of(splits), splits["split"].to_pylist(), strict=True))
    labels = {(row["record_id"], row["image"]): frozenset(row["labels"]) for row in gold}
    chosen: list[str] = []
    if len(scheme.categories) == 1:
        dev = {item[0]: found for item, found in labels.items() if split.get(item) == DEV}
        section = params.few_shot
        chosen = choose(dev, count=section.examples, seed=section.seed, category=scheme.category())
    table = pa.table({"record_id": chosen, "image": [0] * len(chosen)}, schema=tables.SCHEMAS["examples"])
    tables.write(table, folder / "few_shot" / "examples.parquet", name="examples")
    placed = [split[item] for item in labels if item in split]
    counts = {name: placed.count(name) for name in sorted(set(placed))}
    return write_metrics({"examples": len(chosen), "gold": counts}, root / "metrics" / corpus / "few_shot.json")
