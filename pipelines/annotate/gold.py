"""The stage ``gold``: the labels that people gave, checked against the scheme, and which of them serve as examples.

Gold is what every vote is measured against. A few records of dev stand in the prompt as examples (CRADLE B); they are
marked ``example``, because a labeller that was shown the answer cannot be scored on it.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.errors import BadParams
from pipelines.label.prompts import choose
from pipelines.params import Params, Settings
from pipelines.privacy.vault import Vault
from pipelines.store import tables
from pipelines.store.metrics import write_metrics
from pipelines.taxonomy import Category, load, tiers_of

HEADER = ["record_id", "category", "labels"]
EXAMPLE, PUBLISHED = "example", "published"
# CRADLE B: the examples of the prompt are records of dev.
DEV = "dev"

Labels = dict[tuple[str, str], frozenset[str]]


def run(corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()) -> dict[str, Any]:
    """Write ``snapshot/<corpus>/gold/gold.parquet`` for the records of ``gold.splits``, and its metrics.

    Returns:
        ``records`` by split, ``labels``, ``examples``, and ``without`` (records of those splits that have no gold).

    Raises:
        BadParams: the published file names an unknown category, an unknown label or a set that the scheme forbids.
    """
    splits = tables.read(root / "snapshot" / corpus / "split" / "splits.parquet", name="splits")
    part = {row["record_id"]: row["split"] for row in splits.to_pylist() if row["split"] in params.gold.splits}
    scheme = load(params.corpora[corpus].scheme)
    known: Labels = {}
    if params.gold.truth:
        known |= _truth(settings.sandbox / "truth_posts.json", vault=vault, category=scheme.category())
    if params.gold.published:
        known |= _published(root / params.gold.published)
    known = {key: labels for key, labels in known.items() if key[0] in part}
    for (_, key), labels in known.items():
        _check(labels, category=scheme.categories.get(key), where=params.gold.published or "truth")

    category = scheme.category()
    dev = {record: labels for (record, key), labels in known.items() if part[record] == DEV and key == category.key}
    examples = set(choose(dev, count=params.votes.examples, seed=params.votes.seed, category=category))
    rows = [
        {
            "record_id": record,
            "category": key,
            "labels": sorted(labels),
            "how": EXAMPLE if record in examples else PUBLISHED,
        }
        for (record, key), labels in known.items()
    ]
    table = pa.Table.from_pylist(rows, schema=tables.GOLD)
    tables.write(table, root / "snapshot" / corpus / "gold" / "gold.parquet", name="gold")
    labelled = {record for record, _ in known}
    metrics = {
        "records": dict(sorted(Counter(part[record] for record in labelled).items())),
        "labels": sum(len(labels) for labels in known.values()),
        "examples": len(examples),
        "without": len(part.keys() - labelled),
    }
    return write_metrics(metrics, root / "metrics" / corpus / "gold.json")


def _truth(path: Path, *, vault: Vault, category: Category) -> Labels:
    """Return what the sandbox's people would have answered."""
    posts: Iterable[Mapping[str, Any]] = json.loads(path.read_text())["posts"]
    return {(vault.record_id(p["fullname"]), category.key): frozenset(p["labels"]) for p in posts}


def _published(path: Path) -> Labels:
    """Read the CSV ``record_id,category,labels``, labels joined by ``|``.

    Raises:
        BadParams: no such file, another header, or a record twice.
    """
    where = f"gold.published ({path.name})"
    rows: Labels = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            if next(lines, None) != HEADER:
                raise BadParams(where=where, detail=f"its first line is not {','.join(HEADER)}")
            for number, line in enumerate(lines, start=2):
                if len(line) != len(HEADER) or (line[0], line[1]) in rows:
                    raise BadParams(where=f"{where} line {number}", detail="not three fields, or a record twice")
                rows[line[0], line[1]] = frozenset(label for label in line[2].split("|") if label)
    except (OSError, UnicodeDecodeError) as error:
        raise BadParams(where=where, detail=type(error).__name__) from None
    return rows


def _check(labels: frozenset[str], *, category: Category | None, where: str) -> None:
    if category is None:
        raise BadParams(where=f"gold ({where})", detail="it names a category that the scheme does not have")
    violations = category.check(labels, mode="strict", tiers=tiers_of("paper")).violations
    if violations:
        raise BadParams(where=f"gold ({where})", detail=f"a label set breaks {', '.join(sorted(set(violations)))}")
