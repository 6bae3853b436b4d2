"""Choose the items of validation whose labels the prompts show (CRADLE B).

A labeller that was shown an answer must not be scored on it: later steps leave these items out of the scores and of
validation. With ``few_shot.among: disagreement`` they are items to which two annotators of a round gave different label
sets, as the paper's examples are.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pipelines.annotate import manifest
from pipelines.annotate.response_validation import answered
from pipelines.core.errors import DataError
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import tasks_of
from pipelines.datasets.items import VALIDATIONS
from pipelines.llm.prompts import choose
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import SCHEME, Context, Stage
from pipelines.store.tables import Item

STAGE = Stage(reads=("annotations", "gold", "split"), params=("few_shot", SCHEME))


def run(ctx: Context) -> dict[str, Any]:
    """Choose the prompts' examples; write them to ``snapshot/<corpus>/few_shot/examples.parquet``, and metrics.

    An example has gold in every category that models predict.

    Returns:
        Counts: ``examples`` chosen, ``gold``: the items with gold by split, and if examples must be disputed,
        ``disputed``: the items of validation with gold on which annotators disagreed.
    """
    corpus, params, root = ctx.corpus, ctx.params, ctx.root
    folder, section = root / "snapshot" / corpus, params.few_shot
    tasks = tasks_of(load(params.corpora[corpus].scheme, root=root))
    split = {item: name for item, (name, _) in tables.splits(folder).items()}
    gold = tables.gold(folder, within=split)
    count = section.examples.get(corpus, 0)
    whole = set.intersection(*(set(gold.get(key, {})) for key in tasks))
    given = {
        item: {key: task.seen(gold[key][item]) for key, task in tasks.items()}
        for item in whole
        if split[item] in VALIDATIONS
    }
    if disputing := section.among == "disagreement":
        differing = disputed(corpus, root=root)
        given = {item: sets for item, sets in given.items() if item in differing}
        if len(given) < count:
            raise DataError("TooFewDisputed", corpus=corpus, found=len(given), examples=count)
    chosen = choose(given, count=count, seed=section.seed)
    rows = [{"record_id": record_id, "image": image} for record_id, image in chosen]
    tables.write_rows(rows, folder / "few_shot" / "examples.parquet", name="examples")
    counts = dict(sorted(Counter(split[item] for item in set().union(*gold.values())).items()))
    metrics = {"examples": len(chosen), "gold": counts} | ({"disputed": len(given)} if disputing else {})
    return write_metrics(metrics, root / "metrics" / corpus / "few_shot.json")


def disputed(corpus: str, *, root: Path) -> set[Item]:
    """Return the items to which two annotators of one round gave different label sets."""
    found: set[Item] = set()
    for stored in manifest.opened(root, corpus):
        given = answered(manifest.rows(root, stored, "annotations") or [])
        found |= {item for (item, _), sets in given.items() if len(set(sets.values())) > 1}
    return found
