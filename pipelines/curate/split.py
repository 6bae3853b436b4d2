"""Split the sample into train, validation and test, balanced and without leaks.

FigSIM 5.1 splits 60:20:20, stratified on all annotation categories; an item without gold counts by what is known of it
(month, kind, subreddit, whether there is text). The vault stores the splits of published snapshots under
``split.version``: they never change as the corpus grows or is labelled, and only new units are placed (SPEC.md 2.1).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from pipelines.collect.read.shingles import alike, shingles
from pipelines.collect.read.words import words
from pipelines.core.config.collect import Dedupe, Split
from pipelines.core.config.params import Params
from pipelines.core.errors import DataError
from pipelines.curate.balance import Balance
from pipelines.curate.dedupe import image_pairs
from pipelines.curate.dedupe.captions import Captions
from pipelines.curate.dedupe.dedupe import open_texts, picture_columns, read_images
from pipelines.curate.dedupe.hamming_search import keepers, pair_blocks
from pipelines.curate.dedupe.text_pairs import text_kinds_and_pairs
from pipelines.curate.items import ITEM, CorpusItems, Links, among, load, published_split, read_items
from pipelines.curate.stratify import label_pairs, stratify
from pipelines.curate.units import leakage, leaking, resolve, separated_items, straddling
from pipelines.store import tables
from pipelines.store.exclusions import write_exclusions
from pipelines.store.metrics_file import read_metrics, write_metrics
from pipelines.store.stage import CONTENT, Context, Stage
from pipelines.store.tables import Item, items_of
from pipelines.store.vault.vault import Vault

# The random items with which kernels are compiled.
ITEMS, LABELS, RADIUS, LIMIT = 60, 4, 16, 3
# Ours: labels count as unused if their mean deviation is this many times that of a new version.
UNUSED = 2
# Wilson (1927): a share measured on fewer items has a 95 % interval of more than 10 points to each side (ours).
SURE = 93
log = logging.getLogger(__name__)


STAGE = Stage(
    reads=("annotations", "data", "dedupe", "gold", "sample"),
    params=("split.{corpus}", CONTENT, "dedupe", "texts", "gold.{corpus}.published", "gold.{corpus}.splits"),
)


def run(ctx: Context) -> dict[str, Any]:
    """Write the table ``splits``, the excluded items and the quality report of the split; return the report.

    Reads ``data/<corpus>`` and ``snapshot/<corpus>/{dedupe,sample,gold}``. An item that people found unfit is left out,
    unless it is assigned already.

    An earlier version of the search may have missed that two items of different splits are near-duplicates
    (``separated_pairs``). Neither may move: both stay assigned, and the one in the later split (in the order of
    ``ratios``) is withheld from the table, so that no model is tuned or tested on it.

    The items of a published split all keep their split, whatever leaks: those that do are in the table ``leaks``, and
    ``published`` of the report counts them. Ours that are linked to two splits are withheld.
    """
    corpus, params, vault, root = ctx.corpus, ctx.params, ctx.vault, ctx.root
    folder, section = root / "snapshot" / corpus, params.split[corpus]
    everything = load(corpus, params=params, root=root)
    chosen = set(items_of(tables.read(folder / "sample" / "sample.parquet", name="sample")))
    gold = tables.read(folder / "gold" / "gold.parquet", name="gold").to_pylist()
    ledger = vault.assignments(corpus, version=section.version)
    if not gold and not ledger and params.gold[corpus].published:
        # a split is permanent: one that is not balanced on the labels to come would stay
        raise DataError("NoLabels", corpus=corpus)
    imported = published_split(section, root=root)
    promised = _promised(ledger, imported, corpus=corpus)
    unfit = chosen & set(items_of(tables.read(folder / "gold" / "drops.parquet", name="drops")))
    sampled = among(everything.table, chosen - (unfit - promised.keys()))
    # found without the index of dedupe, so that a pair which that one missed is not separated
    near = near_pairs(corpus, chosen, params=params, vault=vault, root=root)
    links, missed = _with(near, everything)

    rows = np.flatnonzero(among(everything.table, chosen))
    balance = Balance.of(everything, gold, sampled=rows, section=section, labelled_in=params.gold[corpus].splits)
    assigned = _indices(everything, promised, section=section, corpus=corpus)
    begun = _indices(everything, imported, section=section, corpus=corpus)
    units = resolve(links, assigned=assigned)
    separated, later = separated_items(links, assigned=np.where(sampled, assigned, -1), imported=begun >= 0)
    withheld = np.isin(np.arange(len(assigned)), later)
    within = np.flatnonzero(sampled & ~units.excluded & ~withheld)
    split = balance.place(units, within)
    if leaks := leakage(links, split=split, imported=begun >= 0):
        # a split of ours separates none, and neither does one that is still imported
        detail = f"{leaks} near-duplicate pairs or authors are in two splits. A published split had them so, and no "
        detail += f"item moves: name its file again (`corpus params set split.{corpus}.published FILE --reason TEXT`)"
        raise DataError("SplitConflict", corpus=corpus, detail=detail)

    _require_useful(split[within], units.unit[within], section=section, corpus=corpus)

    report = balance.report(split, units, within)
    held = balance.labelled & (assigned >= 0) & (begun < 0)
    # below this no split could be enough better
    labels = report.get("labels")
    if held.any() and labels and _exceeds(labels["mean_deviation"], labels["bound_mean"]):
        fresh = resolve(links, assigned=begun)
        free = among(everything.table, chosen - (unfit - imported.keys())) & ~fresh.excluded
        other = balance.of_labels(balance.place(fresh, np.flatnonzero(free)))
        labels |= {"new_version": other, "unused": _exceeds(labels["mean_deviation"], other["mean_deviation"])}
    reasons = {"bridges_splits": sampled & units.excluded, "leaks": withheld}
    out = {item: reason for reason, which in reasons.items() for item in everything.items(np.flatnonzero(which))}
    report |= {"leakage": leaks, "missed_pairs": missed, "unfit": len(unfit - promised.keys())}
    report |= {"excluded": len(out) - len(later), "separated_pairs": separated, "withheld": len(later)}
    if separated:
        log.warning("split %s: %d near-duplicate pairs were assigned to two splits earlier", corpus, separated)
    order = list(section.ratios)
    placed = dict(zip(everything.items(within), (order[i] for i in split[within].tolist()), strict=True))
    log.info("split %s: %d of %d items were assigned before", corpus, len(placed.keys() & promised.keys()), len(placed))
    _write(placed, out, units.unit[within], folder=folder / "split")
    if section.published:
        report["published"] = _published(
            links, everything, split=split, unit=units.unit, begun=begun, folder=folder / "split"
        )
        report["published"]["splits"] = _members(imported, placed, ctx)
    return write_metrics(report, root / "metrics" / corpus / "split.json")


def _published(
    links: Links,
    everything: CorpusItems,
    *,
    split: image_pairs.Ints,
    unit: image_pairs.Ints,
    begun: image_pairs.Ints,
    folder: Path,
) -> dict[str, Any]:
    """Write the items of a published split (``begun`` is not -1) that leak; return what is in several of its splits."""
    leaky = leaking(links, split=split, unit=unit) & (begun >= 0)
    rows = everything.table.select(ITEM).filter(pa.array(leaky))
    tables.write(rows, folder / "leaks.parquet", name="leaks")
    pairs, authors = straddling(links, split=np.where(begun >= 0, split, -1))
    return {"near_duplicates": int(pairs.sum()), "authors": len(authors)}


def _members(imported: Mapping[Item, str], placed: Collection[Item], ctx: Context) -> dict[str, dict[str, int]]:
    """Count the members of each published split: ``placed`` (of these ``leaks``), ``deleted``, or not in the corpus.

    A deletion removes the line of an item; ``import.json`` beside the file has the numbers of lines that were imported.
    """
    section = ctx.params.split[ctx.corpus]
    gone = ctx.vault.tombstoned({record_id for record_id, _ in imported.keys() - placed})
    before = read_metrics(ctx.root / Path(section.published or "").with_name("import.json")).get("members", {})
    counts = {name: Counter[str](placed=0, leaks=0, deleted=0, missing=0) for name in section.ratios}
    for item, name in imported.items():
        counts[name]["placed" if item in placed else "deleted" if item[0] in gone else "missing"] += 1
    for name, count in counts.items():
        count["deleted"] += max(0, before.get(name, 0) - count.total())
        count["members"] = count.total()
    for item in tables.leaks(ctx.root / "snapshot" / ctx.corpus):
        counts[imported[item]]["leaks"] += 1
    return {name: dict(count) for name, count in counts.items()}


def remember(corpus: str, *, params: Params, vault: Vault, now: datetime, root: Path = Path()) -> None:
    """Store a published snapshot's splits permanently in the vault; unpublished splits are not binding."""
    splits = tables.read(root / "snapshot" / corpus / "split" / "splits.parquet", name="splits")
    rows = dict(zip(items_of(splits), splits["split"].to_pylist(), strict=True))
    vault.assign(corpus, version=params.split[corpus].version, rows=rows, now=now)


def _require_useful(split: image_pairs.Ints, unit: image_pairs.Ints, *, section: Split, corpus: str) -> None:
    """Refuse a split of ours that is empty or, but for the first, one group; warn of one that measures little.

    Intervals draw whole groups (SPEC 2.5), and of a single group every draw is the same.
    """
    if not len(split) or section.published:
        return
    items = np.bincount(split, minlength=len(section.ratios)).tolist()
    groups = [len(np.unique(unit[split == i])) for i in range(len(items))]
    largest = sorted(np.unique(unit, return_counts=True)[1].tolist(), reverse=True)
    if groups[0] < 1 or min(groups[1:], default=2) < 2:
        sizes = ", ".join(f"{name} {n}" for name, n in zip(section.ratios, items, strict=True))
        shown = ", ".join(map(str, largest[:5]))
        raise DataError("UselessSplit", corpus=corpus, sizes=sizes, groups=len(largest), largest=shown)
    for name, count in list(zip(section.ratios, items, strict=True))[1:]:
        if count < SURE:
            log.warning(
                "split %s: %s has %d items; a share of fewer than %d is known to no better than ±10 points",
                *(corpus, name, count, SURE),
            )


def _exceeds(deviation: float | None, other: float | None) -> bool:
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
        detail = f"the published split assigns {moved} items to another split than before"
        raise DataError("SplitConflict", corpus=corpus, detail=detail)
    return {**ledger, **imported}


def _indices(everything: CorpusItems, promised: Mapping[Item, str], *, section: Split, corpus: str) -> image_pairs.Ints:
    """Return the assigned split index of each item, or -1."""
    index = {name: i for i, name in enumerate(section.ratios)}
    unknown = set(promised.values()) - index.keys()
    if unknown:
        detail = f"split.{corpus}.ratios lacks {sorted(unknown)}, to which items are assigned"
        raise DataError("SplitConflict", corpus=corpus, detail=detail)
    indices = np.full(len(everything), -1, np.int64)
    for item, i in everything.at(promised).items():
        indices[i] = index[promised[item]]
    return indices


def _write(rows: Mapping[Item, str], out: Mapping[Item, str], units: image_pairs.Ints, *, folder: Path) -> None:
    """Write the tables; a group is named by its smallest member in the sample, as the ``rows`` are sorted."""
    _, first, number = np.unique(units, return_index=True, return_inverse=True)
    names = [f"{record_id}/{image}" for record_id, image in rows]
    columns = {
        "record_id": [r for r, _ in rows],
        "image": [i for _, i in rows],
        "group": [names[row] for row in first[number].tolist()],
        "split": list(rows.values()),
    }
    tables.write(pa.table(columns, schema=tables.SCHEMAS["splits"]), folder / "splits.parquet", name="splits")
    write_exclusions(out, folder / "drops.parquet", step="split")


# Hashes compared with all later ones at once; this only limits memory.
ROWS = 512


def near_pairs(
    corpus: str, wanted: Collection[Item], *, params: Params, vault: Vault, root: Path
) -> list[tuple[Item, Item]]:
    """Return the near-duplicate pairs among the wanted items, without items that were taken down."""
    if params.corpora[corpus].content == "images":
        live, _ = read_images(corpus, params=params, vault=vault, root=root, wanted=wanted)
        items, near = items_of(live), _of_pictures(picture_columns(live), params=params.dedupe)
    else:
        rows = read_items(corpus, params=params, columns=[], root=root)
        rows = rows.filter(pa.array(among(rows, wanted)))
        everything = [np.arange(rows.num_rows)]
        texts = open_texts(corpus, rows["record_id"], everything, vault=vault, root=root)(0)
        live = rows.filter(pa.array([text is not None for text in texts], pa.bool_()))
        runs = [shingles(words(text), size=params.texts.shingle_words) for text in texts if text is not None]
        items, near = items_of(live), alike(runs, threshold=params.dedupe.similarity)
    return [(items[left], items[right]) for left, right in near]


def _of_pictures(pictures: image_pairs.Pictures, *, params: Dedupe) -> Iterator[tuple[int, int]]:
    known = image_pairs.kinds(pictures)
    near = image_pairs.pairs_of_kinds(
        pictures, known, params=params, proposed=_every_pair(pictures, known, params=params)
    )
    pairs = image_pairs.pairs_of_items(near, known, listed=params.listed_copies)
    yield from zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)


def _every_pair(
    pictures: image_pairs.Pictures, known: image_pairs.PictureKinds, *, params: Dedupe
) -> Iterator[tuple[image_pairs.Ints, image_pairs.Ints]]:
    """Yield the pairs of hashed kinds within the largest radius of any rule, and all pairs with a mostly empty one."""
    hashed = np.flatnonzero(pictures.hashed[known.first])
    looks, energies = pictures.looks(known.first[hashed]), pictures.energies[known.first[hashed]]
    radius = image_pairs.widest_radius(params)
    for begin in range(0, len(hashed), ROWS):
        block = image_pairs.Looks(*(hashes[begin : begin + ROWS, None] for hashes in looks))
        rest = image_pairs.Looks(*(hashes[None, begin:] for hashes in looks))
        sparse = np.minimum(energies[begin : begin + ROWS, None], energies[None, begin:]) < image_pairs.PAPER
        row, column = np.nonzero(sparse | (image_pairs.looks_apart(block, rest) <= radius))
        later = column > row
        yield hashed[begin + row[later]], hashed[begin + column[later]]


def compile_kernels() -> None:
    """Compile the kernels of ``dedupe`` and ``split`` by running them on random items, unless the cache has them."""
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 1 << 20, ITEMS, dtype=np.uint64)
    blocks = list(pair_blocks(hashes, radius=RADIUS))
    left, right = (np.concatenate([block[side] for block in blocks]) for side in (0, 1))
    Captions(f"word{n % 7} and some other words {n % 5}" for n in range(ITEMS)).differences(left, right, limit=LIMIT)
    signatures = rng.integers(0, 3, (ITEMS, 16), dtype=np.uint32)
    texts = [f"word{n % 7} and some other words" for n in range(ITEMS)]
    text_kinds_and_pairs(
        signatures,
        np.arange(ITEMS),
        opened=lambda batches: lambda number: [texts[row] for row in batches[number]],
        similarity=0.5,
        shingle_words=2,
    )
    keepers(np.arange(ITEMS), left, right)
    labels = sparse.csr_matrix(rng.integers(0, 2, (ITEMS, LABELS)).astype(np.int32))
    sizes, ratios = np.ones(ITEMS, np.int64), {"train": 6, "dev": 2, "test": 2}
    held = np.full(ITEMS, -1, np.int64)
    stratify(sizes, labels, ratios=ratios, seed=1, proposals=1000, pairs=label_pairs(labels), assigned=held)
