"""Choose the posts of dev whose labels the prompts show (stage ``few_shot``; CRADLE B).

A labeller that was shown an answer must not be scored on it: later steps leave these records of dev out of the scores.
With ``few_shot.among: disagreement`` they are posts to which two annotators of a round gave different label sets, as
the paper's examples are.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.annotate.forms import manifest
from pipelines.annotate.response_validation import answered
from pipelines.core.config.params import Params
from pipelines.core.errors import DataError
from pipelines.core.taxonomy import load
from pipelines.llm.prompting.prompts import DEV, choose
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics


def run(corpus: str, *, params: Params, root: Path = Path()) -> dict[str, Any]:
    """Choose the prompts' examples; write them to ``snapshot/<corpus>/few_shot/examples.parquet``, and metrics.

    A scheme with several categories has no such prompt, and the table is empty;
    :mod:`pipelines.label.memes.meme_labels` draws the examples of prompted models.

    Returns:
        Counts: ``examples`` chosen, ``gold``: the items with gold by split, and if examples must be disputed,
        ``disputed``: the posts of dev with gold on which annotators disagreed.
    """
    folder, scheme = root / "snapshot" / corpus, load(params.corpora[corpus].scheme, root=root)
    split = {item: name for item, (name, _) in tables.splits(folder).items()}
    gold = tables.gold(folder, within=split)
    chosen: list[str] = []
    dev: dict[str, frozenset[str]] = {}
    differing = disputed(corpus, root=root) if params.few_shot.among == "disagreement" else None
    if len(scheme.categories) == 1:
        labels = gold.get(scheme.category().key, {})
        dev = {item[0]: found for item, found in labels.items() if split[item] == DEV}
        section = params.few_shot
        if differing is not None:
            dev = {record_id: found for record_id, found in dev.items() if record_id in differing}
            if len(dev) < section.examples:
                raise DataError("TooFewDisputed", corpus=corpus, found=len(dev), examples=section.examples)
        chosen = choose(dev, count=section.examples, seed=section.seed, category=scheme.category())
    table = pa.table({"record_id": chosen, "image": [0] * len(chosen)}, schema=tables.SCHEMAS["examples"])
    tables.write(table, folder / "few_shot" / "examples.parquet", name="examples")
    counts = dict(sorted(Counter(split[item] for item in set().union(*gold.values())).items()))
    metrics = {"examples": len(chosen), "gold": counts} | ({} if differing is None else {"disputed": len(dev)})
    return write_metrics(metrics, root / "metrics" / corpus / "few_shot.json")


def disputed(corpus: str, *, root: Path) -> set[str]:
    """Return the ids of the records to which two annotators of one round gave different label sets."""
    found: set[str] = set()
    for stored in manifest.opened(root, corpus):
        given = answered(manifest.rows(root, stored, "annotations") or [])
        found |= {item[0] for (item, _), sets in given.items() if len(set(sets.values())) > 1}
    return found
