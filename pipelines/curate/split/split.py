"""Split the sample into train, validation and test, balanced and without leaks.

FigSIM 5.1 splits 60:20:20, stratified on all annotation categories; until labels exist, the strata are those known
before (month, kind, subreddit, whether there is text). The vault stores the splits of published snapshots
under ``split.version``: they never change as the corpus grows, and only new units are placed (SPEC.md 2.1).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from pipelines.config.curate import Split
from pipelines.config.params import Params
from pipelines.curate.grouping.items import load
from pipelines.curate.grouping.split_groups import Units, leakage, resolve
from pipelines.curate.published_split import published
from pipelines.curate.split.stratify import Ints, certificate, label_pairs, stratify, unit_counts
from pipelines.errors import SplitConflict
from pipelines.storage import tables
from pipelines.storage.exclusions import write_exclusions
from pipelines.storage.metrics_file import write_metrics
from pipelines.storage.tables import Item, items_of
from pipelines.vault.vault import Vault

log = logging.getLogger(__name__)


def run(
    corpus: str,
    *,
    params: Params,
    vault: Vault,
    root: Path = Path(),
) -> dict[str, Any]:
    """Write the splits, the excluded items and the quality report of the split; return the report.

    Reads ``data/<corpus>`` and ``snapshot/<corpus>/{dedupe,sample}``.

    Raises:
        SplitConflict: earlier assignments or a published split leak or disagree; nothing is written.
    """
    folder, section = root / "snapshot" / corpus, params.split[corpus]
    everything = load(corpus, params=params, root=root)
    chosen = set(items_of(tables.read(folder / "sample" / "sample.parquet", name="sample")))
    sampled = np.array([item in chosen for item in everything.items], bool)
    ledger = vault.assignments(corpus, version=section.version)
    promised = _promised(ledger, published(section, root=root), corpus=corpus)
    assigned = _indices(everything.items, promised, section=section, corpus=corpus)

    units = resolve(everything.links, assigned=assigned)
    within = np.flatnonzero(sampled & ~units.excluded)
    strata: dict[str, list[str]] = {name: [everything.strata[name][i] for i in within] for name in section.strata}
    names, matrix = indicator(strata, rows=len(within))
    ratios = _ratios(section, items=len(within))
    split = np.full(len(sampled), -1, np.int64)
    split[within] = divide(units, within, matrix, ratios=ratios, section=section)
    leaks = leakage(everything.links, split=split)
    if leaks:
        raise SplitConflict(corpus=corpus, detail=f"{leaks} near-duplicate pairs or authors are in two splits")

    report = certificate(split[within], matrix, names=names, ratios=ratios, groups=units.unit[within])
    out = [everything.items[i] for i in np.flatnonzero(sampled & units.excluded)]
    report |= {"leakage": leaks, "excluded": len(out), "stratified_on": "strata"}
    order = list(section.ratios)
    rows = {everything.items[i]: order[split[i]] for i in within}
    log.info("split %s: %d of %d items were assigned before", corpus, len(rows.keys() & promised.keys()), len(rows))
    _write(rows, out, _group_names(everything.items, units, within), folder=folder / "split")
    return write_metrics(report, root / "metrics" / corpus / "split.json")


def remember(corpus: str, *, params: Params, vault: Vault, now: datetime, root: Path = Path()) -> None:
    """Store a published snapshot's splits permanently in the vault; unpublished splits are not binding.

    Raises:
        SplitConflict: a snapshot that was published earlier assigned an item to another split; nothing is stored.
    """
    splits = tables.read(root / "snapshot" / corpus / "split" / "splits.parquet", name="splits")
    rows = dict(zip(items_of(splits), splits["split"].to_pylist(), strict=True))
    vault.assign(corpus, version=params.split[corpus].version, rows=rows, now=now)


def divide(
    units: Units, within: Ints, matrix: sparse.csr_matrix, *, ratios: Mapping[str, float], section: Split
) -> Ints:
    """Return the split index of each item in ``within``; ``matrix`` contains their labels, one row per item."""
    if not len(within):
        return np.empty(0, np.int64)
    first, unit = np.unique(units.unit[within], return_index=True, return_inverse=True)[1:]
    found = stratify(
        np.bincount(unit),
        unit_counts(unit, matrix),
        ratios=ratios,
        seed=section.seed,
        proposals=section.proposals,
        pairs=unit_counts(unit, label_pairs(matrix)),
        assigned=units.held[within][first],
    )
    return found[unit]


def indicator(columns: Mapping[str, list[str]], *, rows: int) -> tuple[list[str], sparse.csr_matrix]:
    """Return one column name for each value of each stratum (such as ``kind=image``), and the item x column matrix."""
    cells = [(i, f"{stratum}={value}") for stratum, values in columns.items() for i, value in enumerate(values)]
    cells = sorted(set(cells))
    names = sorted({name for _, name in cells})
    column = {name: j for j, name in enumerate(names)}
    where = ([i for i, _ in cells], [column[name] for _, name in cells])
    return names, sparse.csr_matrix((np.ones(len(cells), np.int32), where), (rows, len(names)))


def _ratios(section: Split, *, items: int) -> Mapping[str, float]:
    """Return the paper's split sizes if they sum to this number of items, else the ratios."""
    sizes = section.sizes
    return sizes if sizes is not None and sum(sizes.values()) == items else section.ratios


def _promised(ledger: Mapping[Item, str], imported: Mapping[Item, str], *, corpus: str) -> dict[Item, str]:
    """Return the earlier assignments merged with a published split; refuse items that differ between them."""
    moved = sum(ledger.get(item, split) != split for item, split in imported.items())
    if moved:
        raise SplitConflict(
            corpus=corpus, detail=f"the published split assigns {moved} items to another split than before"
        )
    return {**ledger, **imported}


def _indices(items: list[Item], promised: Mapping[Item, str], *, section: Split, corpus: str) -> Ints:
    """Return the assigned split index of each item, or -1."""
    index = {name: i for i, name in enumerate(section.ratios)}
    unknown = set(promised.values()) - index.keys()
    if unknown:
        raise SplitConflict(
            corpus=corpus, detail=f"split.{corpus}.ratios lacks {sorted(unknown)}, to which items are assigned"
        )
    return np.array([index[promised[item]] if item in promised else -1 for item in items], np.int64)


def _write(rows: Mapping[Item, str], out: Sequence[Item], groups: Mapping[Item, str], *, folder: Path) -> None:
    """Write ``splits.parquet`` and ``drops.parquet``."""
    columns = {
        "record_id": [r for r, _ in rows],
        "image": [i for _, i in rows],
        "group": [groups[item] for item in rows],
        "split": list(rows.values()),
    }
    tables.write(pa.table(columns, schema=tables.SCHEMAS["splits"]), folder / "splits.parquet", name="splits")
    write_exclusions(dict.fromkeys(out, "bridges_splits"), folder / "drops.parquet", step="split")


def _group_names(items: list[Item], units: Units, within: Ints) -> dict[Item, str]:
    """Return each item's group name: its smallest member in the sample (``within`` is in the order of the items)."""
    name: dict[int, str] = {}
    for i in within.tolist():
        name.setdefault(int(units.unit[i]), f"{items[i][0]}/{items[i][1]}")
    return {items[i]: name[int(units.unit[i])] for i in within.tolist()}
