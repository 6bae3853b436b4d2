"""Collect gold labels from decisions of annotators and adjudicators, checked against the scheme.

Gold precedes the split, which is stratified on it, and is the reference for scoring votes; each label set has its
origin. An item that people found unfit gets no gold, and the split leaves it out. Labels are in the annotators' label
space; later steps map them to the models' label space (``Category.check(mode="repair", task=True)``).
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pyarrow as pa

from pipelines.annotate import manifest as manifests
from pipelines.annotate.manifest import RoundManifest
from pipelines.annotate.response_validation import UNFIT, Question, agreed, answered, labels_of, roster, unfit
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams
from pipelines.core.taxonomy import Scheme, load, tiers_of
from pipelines.curate.items import kept_items, published_split, read_csv, tracked
from pipelines.curate.items import load as linked_items
from pipelines.curate.units import resolve, target_sizes
from pipelines.store import tables
from pipelines.store.exclusions import write_exclusions
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import CONTENT, SCHEME, Context, Stage
from pipelines.store.tables import Item, Row, item_of
from pipelines.store.vault.vault import Vault

log = logging.getLogger(__name__)
HEADER = ["record_id", "image", "category", "labels"]
# Values of the column ``how``; within a round an adjudicator's decision overrides the annotators' agreement.
TRUTH, PUBLISHED, SINGLE, AGREED, ADJUDICATED = "truth", "published", "single", "agreed", "adjudicated"


@dataclass(frozen=True, slots=True)
class GoldLabel:
    """The gold label set of an item in one category, ``how`` it was decided (such as ``agreed``), and the round."""

    labels: frozenset[str]
    how: str
    round: str | None = None


@dataclass(frozen=True)
class GoldSource:
    """A source of gold labels: its name in error messages, its known labels, and its items that are still undecided."""

    where: str
    known: Mapping[Question, GoldLabel]
    round: str | None = None
    waiting: Collection[Item] = field(default_factory=frozenset)


STAGE = Stage(
    reads=("annotations", "data", "dedupe", "sample"),
    params=("gold.{corpus}", "sandbox", CONTENT, SCHEME, "split.{corpus}"),
)


def run(ctx: Context) -> dict[str, Any]:
    """Write the sampled items' tables ``gold`` and ``drops`` (unfit items) to ``snapshot/<corpus>/gold``, and metrics.

    Later sources override earlier ones: the sandbox's ground truth, the published file, then the rounds in the order of
    their opening. A round is used if its manifest sets ``gold`` and no decision has rejected it (``go_on: false``).
    Open rounds contribute too, but only settled labels: ``single`` (one annotator was assigned and answered),
    ``agreed`` (all assigned annotators gave the same answer) or ``adjudicated``.

    Returns:
        Counts: ``records`` (items with gold), ``labels``, ``unfit``, ``without`` (sampled items that have no gold and
        are not unfit), ``outside`` (items with labels that are not in the sample), ``how`` (rows by origin),
        ``pending`` (items of rounds that are not closed in which a category is unsettled), ``rounds`` (rows from each
        round).
    """
    corpus, params, settings, vault, root = ctx.corpus, ctx.params, ctx.settings, ctx.vault, ctx.root
    sample = set(tables.items_of(tables.read(root / "snapshot" / corpus / "sample" / "sample.parquet", name="sample")))
    scheme = load(params.corpora[corpus].scheme, root=root)
    section, sources = params.gold[corpus], []
    if section.truth:
        asked = asked_of(corpus, sample, params=params, vault=vault, root=root)
        path = settings.sandbox / f"truth_{params.corpora[corpus].content}.json"
        sources.append(GoldSource("truth", _truth(path, asked, scheme=scheme.name, vault=vault)))
    # labels that are not imported yet are none; the split waits for them
    if section.published and tracked(root / section.published):
        sources.append(GoldSource("published", _published(root / section.published, root=root)))
    counted = (m for m in manifests.opened(root, corpus) if m.gold and (m.decision is None or m.decision.go_on))
    sources += [_round(manifest, scheme=scheme, root=root) for manifest in counted]
    known, unfit = _merged(sources, sample=sample, scheme=scheme)
    outside = {item for source in sources for item, _ in source.known} - sample
    if outside:
        _warn(outside, corpus=corpus, params=params, root=root)
    rows = [
        {"record_id": record_id, "image": image, "category": key, **asdict(label), "labels": sorted(label.labels)}
        for ((record_id, image), key), label in known.items()
    ]
    folder = root / "snapshot" / corpus / "gold"
    tables.write(pa.Table.from_pylist(rows, schema=tables.SCHEMAS["gold"]), folder / "gold.parquet", name="gold")
    write_exclusions(dict.fromkeys(unfit, UNFIT), folder / "drops.parquet", step="gold")
    by_round = Counter(label.round for label in known.values())
    records = {item for item, _ in known}
    metrics = {
        "records": len(records),
        "labels": sum(len(label.labels) for label in known.values()),
        "unfit": len(unfit),
        "without": len(sample - records - unfit),
        "outside": len(outside),
        "how": dict(sorted(Counter(label.how for label in known.values()).items())),
        "pending": len({item for source in sources for item in source.waiting if item in sample}),
        "rounds": {source.round: by_round[source.round] for source in sources if source.round},
    }
    return write_metrics(metrics, root / "metrics" / corpus / "gold.json")


def _warn(outside: set[Item], *, corpus: str, params: Params, root: Path) -> None:
    """Say how many labels are unused because the sample, which is drawn at random, does not have their items."""
    kept = kept_items(corpus, params=params, root=root)
    if left := len(outside & set(tables.items_of(kept))):
        log.warning(
            "gold %s: %d labelled items are not in the sample of %d. `corpus params set sample.%s.size %d --reason "
            "all-labelled`, then `corpus run %s`, draws all items; no split moves.",
            *(corpus, left, params.sample[corpus].size, corpus, kept.num_rows, corpus),
        )


def _merged(
    sources: Sequence[GoldSource], *, sample: Collection[Item], scheme: Scheme
) -> tuple[dict[Question, GoldLabel], set[Item]]:
    """Return the labels of the sampled items, and the items that their last source found unfit."""
    known: dict[Question, GoldLabel] = {}
    unfit: set[Item] = set()
    for source in sources:
        sampled = {question: label for question, label in source.known.items() if question[0] in sample}
        rejected = {item for item, key in sampled if key == UNFIT}
        unfit = (unfit - {item for item, _ in sampled}) | rejected
        for (item, key), label in sampled.items():
            if key != UNFIT:
                known[item, key] = _checked(label, scheme=scheme, key=key, where=source.where)
    return {question: label for question, label in known.items() if question[0] not in unfit}, unfit


def settle(
    annotations: Sequence[Row], *, assignments: Sequence[Row], log: Sequence[Row], scheme: Scheme, name: str
) -> dict[Question, GoldLabel]:
    """Return a round's gold by item and category: the last adjudication, or the set on which all annotators agree.

    An item that all annotators, or then the adjudicator, found unfit has the only category ``UNFIT``; labels that the
    adjudicator gives later make it fit again.
    """
    answers, rejected = answered(annotations), unfit(annotations, assignments=assignments)
    known: dict[Question, GoldLabel] = {}
    for item, annotators in roster(assignments).items():
        how = AGREED if len(annotators) > 1 else SINGLE
        if item in rejected:
            known[item, UNFIT] = GoldLabel(frozenset(), how, name)
        for key in scheme.categories:
            labels = agreed(answers.get((item, key), {}), annotators=annotators)
            if labels is not None:
                known[item, key] = GoldLabel(labels, how, name)
    for row in sorted(log, key=lambda row: cast(datetime, row["decided"])):
        if row["category"] != UNFIT:
            known.pop((item_of(row), UNFIT), None)
        known[item_of(row), str(row["category"])] = GoldLabel(labels_of(row), ADJUDICATED, name)
    return known


def _round(manifest: RoundManifest, *, scheme: Scheme, root: Path) -> GoldSource:
    assignments, annotations, log = (
        manifests.rows(root, manifest, name) or [] for name in ("assignments", "annotations", "adjudications")
    )
    known = settle(annotations, assignments=assignments, log=log, scheme=scheme, name=manifest.round)
    settled = {item for item, _ in known if all((item, key) in known for key in scheme.categories)}
    settled |= {item for item, key in known if key == UNFIT}
    waiting = set() if manifest.status == "closed" else roster(assignments).keys() - settled
    return GoldSource(f"round {manifest.round}", known, round=manifest.round, waiting=waiting)


def _truth(path: Path, sample: Collection[Item], *, scheme: str, vault: Vault) -> dict[Question, GoldLabel]:
    """Return the sandbox's true labels of a scheme; every image of a submission has the submission's labels."""
    submissions = json.loads(path.read_text())["submissions"]
    truth = {vault.record_id(s["fullname"]): s["labels"].get(scheme) or {} for s in submissions}
    return {
        (item, key): GoldLabel(frozenset(labels), TRUTH)
        for item in sample
        for key, labels in truth.get(item[0], {}).items()
    }


def _published(path: Path, *, root: Path) -> dict[Question, GoldLabel]:
    """Return the labels of the CSV ``record_id,image,category,labels``, labels joined by ``|``.

    The category ``unfit``, without labels, marks an item that people found unfit.

    Raises:
        BadParams: the file is missing, its header differs, an image is not a number, or a category of an item repeats.
    """
    where = f"gold.published ({path.name})"
    known: dict[Question, GoldLabel] = {}
    for place, line in read_csv(path, root=root, header=HEADER, where=where):
        valid = len(line) == len(HEADER) and line[1].isascii() and line[1].isdigit()
        if not valid or (question := ((line[0], int(line[1])), line[2])) in known:
            detail = "the line is not four fields (image: a number), or repeats an item and category"
            raise BadParams(where=place, detail=detail)
        known[question] = GoldLabel(frozenset(label for label in line[3].split("|") if label), PUBLISHED)
    return known


def _checked(label: GoldLabel, *, scheme: Scheme, key: str, where: str) -> GoldLabel:
    """Return the label with its set normalized by the scheme: FigSIM's None becomes the empty set where it means it."""
    if key not in scheme.categories:
        raise BadParams(where=f"gold ({where})", detail="it has a category that the label scheme does not have")
    checked = scheme.categories[key].check(label.labels, mode="strict", tiers=tiers_of("paper"), task=False)
    if checked.violations:
        detail = f"a label set breaks the scheme's rules: {', '.join(sorted(set(checked.violations)))}"
        raise BadParams(where=f"gold ({where})", detail=detail)
    return replace(label, labels=checked.labels)


def asked_of(corpus: str, sample: Collection[Item], *, params: Params, vault: Vault, root: Path) -> set[Item]:
    """Return the sampled items that the sandbox's simulated annotators label: all, or as many as ``gold.splits`` hold.

    Items that are assigned to these splits come first, then whole groups of linked items, drawn at random.
    """
    within, section = params.gold[corpus].splits, params.split[corpus]
    if within is None:
        return set(sample)
    promised = {**vault.assignments(corpus, version=section.version), **published_split(section, root=root)}
    asked = {item for item, split in promised.items() if split in within and item in sample}
    sizes = dict(zip(section.ratios, target_sizes(len(sample), ratios=section.ratios), strict=True))
    room = sum(sizes[name] for name in within) - len(asked)
    everything = linked_items(corpus, params=params, root=root)
    units = resolve(everything.links, assigned=np.full(len(everything), -1, np.int64))
    groups = defaultdict(list)
    for item, i in everything.at(sample).items():
        groups[units.unit[i]].append(item)
    drawn = list(groups.values())
    Random(section.seed).shuffle(drawn)  # noqa: S311 (a draw that must repeat, not a secret)
    for group in drawn:
        if len(group) <= room and promised.keys().isdisjoint(group):
            asked.update(group)
            room -= len(group)
    return asked
