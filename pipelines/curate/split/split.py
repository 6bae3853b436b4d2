"""Split the sample into train, validation and test, balanced and without leaks (the stage ``split``).

FigSIM 5.1 splits 60:20:20, stratified on all annotation categories; an item without gold counts by what is known of it
(month, kind, subreddit, whether there is text). The vault stores the splits of published snapshots under
``split.version``: they never change as the corpus grows or is labelled, and only new units are placed (SPEC.md 2.1).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config.curate import Split
from pipelines.config.params import Params
from pipelines.curate.dedupe import exhaustive_search
from pipelines.curate.grouping.items import CorpusItems, Links, among, load
from pipelines.curate.grouping.published_split import published
from pipelines.curate.grouping.split_groups import leakage, resolve, separated_pairs
from pipelines.curate.split.balance import Balance
from pipelines.curate.split.stratify import Ints
from pipelines.errors import SplitConflict
from pipelines.storage import tables
from pipelines.storage.exclusions import write_exclusions
from pipelines.storage.metrics_file import write_metrics
from pipelines.storage.tables import Item, items_of
from pipelines.vault.vault import Vault

# Ours: labels count as unused if their mean deviation is this many times that of a new version.
UNUSED = 2
log = logging.getLogger(__name__)


def run(
    corpus: str,
    *,
    params: Params,
    vault: Vault,
    root: Path = Path(),
) -> dict[str, Any]:
    """Write the table ``splits``, the excluded items and the quality report of the split; return the report.

    Reads ``data/<corpus>`` and ``snapshot/<corpus>/{dedupe,sample,gold}``. An item that people found unfit is left out,
    unless it is assigned already.

    An earlier version of the search may have missed that two items of different splits are near-duplicates. Neither may
    move: both stay assigned, and the one in the later split (in the order of ``ratios``) is withheld from the table, so
    that no model is tuned or tested on it.

    Returns:
        The certificate and the deviations of the labels (:meth:`pipelines.curate.split.balance.Balance.report`),
        ``leakage``, ``missed_pairs`` (near-duplicates in the sample that dedupe did not list), ``excluded``, ``unfit``,
        ``separated_pairs`` (near-duplicates assigned earlier to different splits) and ``withheld`` (items, for those).

    Raises:
        SplitConflict: a published split leaks or disagrees with earlier assignments, or an author is assigned to two
            splits; nothing is written.
    """
    folder, section = root / "snapshot" / corpus, params.split[corpus]
    everything = load(corpus, params=params, root=root)
    chosen = set(items_of(tables.read(folder / "sample" / "sample.parquet", name="sample")))
    imported = published(section, root=root)
    ledger = vault.assignments(corpus, version=section.version)
    promised = _promised(ledger, imported, corpus=corpus)
    unfit = chosen & set(items_of(tables.read(folder / "gold" / "drops.parquet", name="drops")))
    sampled = among(everything.table, chosen - (unfit - promised.keys()))
    # found without the index of dedupe, so that a pair which that one missed is not separated
    near = exhaustive_search.pairs(corpus, chosen, params=params, vault=vault, root=root)
    links, missed = _with(near, everything)

    gold = tables.read(folder / "gold" / "gold.parquet", name="gold").to_pylist()
    rows = np.flatnonzero(among(everything.table, chosen))
    balance = Balance.of(everything, gold, sampled=rows, section=section, labelled_in=params.gold[corpus].splits)
    assigned = _indices(everything, promised, section=section, corpus=corpus)
    units = resolve(links, assigned=assigned)
    earlier = np.where(sampled & among(everything.table, ledger.keys()), assigned, -1)
    separated, later = separated_pairs(links, assigned=earlier)
    withheld = np.isin(np.arange(len(assigned)), later)
    within = np.flatnonzero(sampled & ~units.excluded & ~withheld)
    split = balance.place(units, within)
    leaks = leakage(links, split=split)
    if leaks:
        where = f"; if they are in {section.published}, remove one item of each there" if imported else ""
        raise SplitConflict(corpus=corpus, detail=f"{leaks} near-duplicate pairs or authors are in two splits{where}")

    report = balance.report(split, units, within)
    begun = _indices(everything, imported, section=section, corpus=corpus)
    held = balance.labelled & (assigned >= 0) & (begun < 0)
    # below this no split could be enough better
    of = report.get("labels")
    if held.any() and of and _exceeds(of["mean_deviation"], of["bound_mean"]):
        fresh = resolve(links, assigned=begun)
        free = among(everything.table, chosen - (unfit - imported.keys())) & ~fresh.excluded
        other = balance.of_labels(balance.place(fresh, np.flatnonzero(free)))
        of |= {"new_version": other, "unused": _exceeds(of["mean_deviation"], other["mean_deviation"])}
    reasons = {"bridges_splits": sampled & units.excluded, "leaks": withheld}
    out = {item: reason for reason, which in reasons.items() for item in everything.items(np.flatnonzero(which))}
    report |= {"leakage": leaks, "missed_pairs": missed, "unfit": len(unfit - promised.keys())}
    report |= {"excluded": len(out) - len(later), "separated_pairs": separated, "withheld": len(later)}
    if separated:
        log.warning("split %s: %d near-duplicate pairs were assigned to two splits earlier", corpus, separated)
    order, items = list(section.ratios), everything.items(within)
    placed = {item: order[i] for item, i in zip(items, split[within].tolist(), strict=True)}
    log.info("split %s: %d of %d items were assigned before", corpus, len(placed.keys() & promised.keys()), len(placed))
    _write(placed, out, _group_names(items, units.unit[within]), folder=folder / "split")
    return write_metrics(report, root / "metrics" / corpus / "split.json")


def remember(corpus: str, *, params: Params, vault: Vault, now: datetime, root: Path = Path()) -> None:
    """Store a published snapshot's splits permanently in the vault; unpublished splits are not binding.

    Raises:
        SplitConflict: a snapshot that was published earlier assigned an item to another split; nothing is stored.
    """
    splits = tables.read(root / "snapshot" / corpus / "split" / "splits.parquet", name="splits")
    rows = dict(zip(items_of(splits), splits["split"].to_pylist(), strict=True))
    vault.assign(corpus, version=params.split[corpus].version, rows=rows, now=now)


def _exceeds(deviation: float | None, other: float | None) -> bool:
    """Return whether a deviation is more than :data:`UNUSED` times another; ``None`` was not measured."""
    return deviation is not None and other is not None and deviation > UNUSED * other


def _with(near: Collection[tuple[Item, Item]], everything: CorpusItems) -> tuple[Links, int]:
    """Return the links of the corpus with these near-duplicate pairs added, and the number of added pairs."""
    at = everything.at({item for pair in near for item in pair})
    left, right, author = everything.links.left, everything.links.right, everything.links.author
    one, other = np.array([(at[one], at[other]) for one, other in near], np.int64).reshape(-1, 2).T
    known = np.minimum(left, right) << 32 | np.maximum(left, right)
    added = ~np.isin(np.minimum(one, other) << 32 | np.maximum(one, other), known)
    more = one[added], other[added]
    return Links(np.concatenate([left, more[0]]), np.concatenate([right, more[1]]), author), int(added.sum())


def _promised(ledger: Mapping[Item, str], imported: Mapping[Item, str], *, corpus: str) -> dict[Item, str]:
    """Return the earlier assignments merged with a published split; refuse items that differ between them."""
    moved = sum(ledger.get(item, split) != split for item, split in imported.items())
    if moved:
        raise SplitConflict(
            corpus=corpus, detail=f"the published split assigns {moved} items to another split than before"
        )
    return {**ledger, **imported}


def _indices(everything: CorpusItems, promised: Mapping[Item, str], *, section: Split, corpus: str) -> Ints:
    """Return the assigned split index of each item, or -1."""
    index = {name: i for i, name in enumerate(section.ratios)}
    unknown = set(promised.values()) - index.keys()
    if unknown:
        raise SplitConflict(
            corpus=corpus, detail=f"split.{corpus}.ratios lacks {sorted(unknown)}, to which items are assigned"
        )
    found = np.full(len(everything), -1, np.int64)
    for item, i in everything.at(promised).items():
        found[i] = index[promised[item]]
    return found


def _write(rows: Mapping[Item, str], out: Mapping[Item, str], groups: Mapping[Item, str], *, folder: Path) -> None:
    """Write ``splits.parquet`` and ``drops.parquet``."""
    columns = {
        "record_id": [r for r, _ in rows],
        "image": [i for _, i in rows],
        "group": [groups[item] for item in rows],
        "split": list(rows.values()),
    }
    tables.write(pa.table(columns, schema=tables.SCHEMAS["splits"]), folder / "splits.parquet", name="splits")
    write_exclusions(out, folder / "drops.parquet", step="split")


def _group_names(items: list[Item], units: Ints) -> dict[Item, str]:
    """Return each sampled item's group name: its smallest member in the sample (the items are sorted)."""
    name: dict[int, str] = {}
    for (record_id, image), unit in zip(items, units.tolist(), strict=True):
        name.setdefault(unit, f"{record_id}/{image}")
    return {item: name[unit] for item, unit in zip(items, units.tolist(), strict=True)}
