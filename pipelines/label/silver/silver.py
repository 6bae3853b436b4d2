"""Run the stage ``silver``: aggregate an ensemble's votes into labels, score these on gold, queue records for review.

A record of train whose decided set no majority gave keeps its row without labels (CRADLE 5.1 discards it; agreement
statistics count it); in other splits the ensemble's fallback decides, if it has one (CRADLE 4.3). An ensemble of
offline members that is not better than its best member on dev is refused (SPEC 2.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.core.config.label import Ensemble, OfflineLabeller
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, LabellingError
from pipelines.core.taxonomy import Category, load
from pipelines.label.silver import review_queue, statistics
from pipelines.label.silver.aggregate import Decision, Panel
from pipelines.label.silver.ballots import LabelSet
from pipelines.label.silver.label_models import LabelModel
from pipelines.metrics import bootstrap, label_sets
from pipelines.metrics.label_tables import Distribution
from pipelines.store import tables
from pipelines.store.metrics_file import rounded, write_metrics
from pipelines.store.vault.vault import Vault


def table(panel: Panel, *, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Score every member of an ensemble and every aggregator of their votes on the records with gold.

    Returns:
        name -> ``kind`` (member or aggregate), ``n``, ``n_valid``, ``valid`` and ``all`` (see
        :func:`pipelines.metrics.label_sets.score`), ``interval`` (metric over all -> [low, high]) and, for aggregates,
        ``best_member`` with ``lead`` over it on exact match ({value, low, high, probability}). Empty without gold.
    """
    if not panel.gold:
        return {}
    labels = panel.category.names
    answers: dict[str, dict[str, LabelSet | None]] = {member: panel.votes_of(member) for member in panel.members}
    for aggregate in panel.possible:
        answers[aggregate] = {record: decision.labels for record, decision in panel.decide(aggregate).items()}
    drawing: dict[str, Any] = {"labels": labels, "groups": panel.groups, "resamples": resamples, "seed": seed}
    draws = {
        name: drawn
        for name, predicted in answers.items()
        if (drawn := bootstrap.draw(panel.gold, predicted=predicted, **drawing))
    }
    # a missing answer is wrong; the first name wins ties
    best = min(panel.members, key=lambda name: (-draws[name].values["exact"], name))
    rows = {}
    for name, given in answers.items():
        rows[name] = {
            "kind": "member" if name in panel.members else "aggregate",
            **label_sets.score(panel.gold, predicted=given, labels=labels),
            "interval": {key: [found.low, found.high] for key, found in draws[name].intervals().items()},
        }
        if name not in panel.members:
            rows[name] |= {"best_member": best, "lead": vars(draws[name].minus(draws[best])["exact"])}
    return rows


TRAIN, DEV, TEST = "train", "dev", "test"


@dataclass(frozen=True)
class Snapshot:
    """An ensemble's votes, and split and gold labels, of all records that were not taken down."""

    votes: pa.Table
    split: Mapping[str, str]
    group: Mapping[str, str]
    gold: Mapping[str, LabelSet]
    examples: Collection[str]

    @classmethod
    def read(cls, corpus: str, *, members: tuple[str, ...], category: Category, vault: Vault, root: Path) -> Snapshot:
        """Read the results of the stages ``votes``, ``split`` and ``gold``, without records that were taken down."""
        folder = root / "snapshot" / corpus
        splits = tables.read(folder / "split" / "splits.parquet", name="splits").to_pylist()
        gone = vault.tombstoned(sorted({row["record_id"] for row in splits}))
        splits = [row for row in splits if row["record_id"] not in gone]
        alive = {row["record_id"] for row in splits}
        files = {member: folder / "votes" / member / "votes.parquet" for member in sorted(set(members))}
        if missing := [member for member, file in files.items() if not file.exists()]:
            raise BadParams(where="votes.labellers", detail=f"there are no votes of {', '.join(missing)}")
        votes = tables.concat(list(files.values()), name="votes")
        here = [r in alive and c == category.key for r, c in columns(votes, "record_id", "category")]
        gold = tables.gold(folder).get(category.key, {})
        return cls(
            votes=votes.filter(pa.array(here, pa.bool_())),
            split={row["record_id"]: row["split"] for row in splits},
            group={row["record_id"]: row["group"] for row in splits},
            gold={record: labels for (record, _), labels in gold.items() if record in alive},
            examples=frozenset(record_id for record_id, _ in tables.examples(folder)),
        )

    def gold_of(self, split: str) -> dict[str, LabelSet]:
        """Return the gold labels by record on which a split is scored; prompt examples are left out."""
        return {r: s for r, s in self.gold.items() if self.split[r] == split and r not in self.examples}


def columns(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table as tuples of the named columns."""
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def run(
    corpus: str,
    *,
    ensemble: str,
    params: Params,
    vault: Vault,
    root: Path = Path(),
    injected: Collection[str] | None = None,
) -> dict[str, Any]:
    """Aggregate an ensemble's votes; write labels and review queue under ``snapshot/<corpus>/silver/<ensemble>``.

    ``injected`` are the records whose text addresses a model; if ``None``, the posts are decrypted and checked.

    Returns:
        The metrics: ``agreement`` and ``how`` (the deciding method) by split, ``agreement_paper`` (agreement as CRADLE
        defines it, and the records where it ``differs``), ``distributions`` (for CRADLE's tables), ``labellers``
        (outcomes, reasons, repaired, tokens, cost) and ``cost`` (US dollars), ``violations`` of the scheme's rules,
        ``refusals`` by gold label, ``queue``, ``comparison`` on dev (see
        :func:`pipelines.label.silver.silver.table`), ``test`` (scores), ``by_agreement``, and
        ``posterior`` (the mean probability of the labels beside the share that gold confirms).
    """
    if ensemble not in params.ensembles:
        raise BadParams(where="ensembles", detail=f"there is no ensemble '{ensemble}'")
    described = params.ensembles[ensemble]
    scheme = load(params.corpora[corpus].scheme, root=root)
    category = scheme.category()
    found = Snapshot.read(corpus, members=described.members, category=category, vault=vault, root=root)
    panel = Panel.of(
        found.votes,
        ensemble=described,
        k=params.silver.k,
        records=sorted(found.split),
        category=category,
        gold=found.gold_of(DEV),
        groups=found.group,
    )
    if described.aggregate not in panel.possible and found.votes.num_rows:
        raise BadParams(
            where=f"ensembles.{ensemble}.aggregate", detail=f"its members give no scores for {described.aggregate}"
        )
    comparison = table(panel, resamples=params.silver.resamples, seed=params.silver.seed)
    offline = all(isinstance(params.labellers[member], OfflineLabeller) for member in described.members)
    if offline:
        check_strength(comparison, ensemble=ensemble, described=described, least=params.silver.min_probability)
    decided = panel.decide(described.aggregate)
    decisions = settle(decided, split=found.split)
    model = panel.model_of(described.aggregate)
    read = set(found.split)
    if injected is None:
        injected, read = review_queue.injected_of(corpus, records=read, vault=vault, root=root)
    refused = refused_of(found.votes)
    folder = root / "snapshot" / corpus / "votes"
    others: dict[str, LabelSet] = {}
    if names := review_queue.offline_members(described, labellers=params.labellers, folder=folder):
        votes = tables.concat([folder / name / "votes.parquet" for name in names], name="votes")
        others = review_queue.offline_labels(votes, members=names, category=category)
    queued = review_queue.reasons(decisions, panel=panel, refused=refused, injected=injected, offline=others)
    place = root / "snapshot" / corpus / "silver" / ensemble
    _write(decisions, model=model, queued=queued, ensemble=ensemble, category=category, folder=place)
    test = found.gold_of(TEST)
    report: dict[str, Any] = {
        "ensemble": ensemble,
        "aggregate": described.aggregate,
        "members": list(described.members),
        "fallback": described.fallback,
        "offline": offline,
        "scheme": scheme.name,
        "records": len(decisions),
        "agreement": statistics.agreement(decisions, split=found.split),
        "agreement_paper": statistics.agreement_of_members(decided, panel=panel, split=found.split),
        "how": statistics.counted((found.split[record], decision.how) for record, decision in decisions.items()),
        "distributions": {name: d.plain() for name, d in _distributions(decisions, found=found).items()},
        "labellers": statistics.labellers(found.votes),
        "violations": statistics.violations(panel, decisions=decisions, gold=found.gold),
        "refusals": statistics.refusals(found.gold, refused=refused, members=described.members),
        "queue": {
            "records": len(queued),
            "unread": len(found.split.keys() - read),
            "reasons": {reason: sum(reason in given for given in queued.values()) for reason in review_queue.REASONS},
        },
        "comparison": comparison,
        "test": statistics.scores(panel, decisions=decisions, gold=test) if test else {},
        "posterior": {s: statistics.posterior(decisions, model=model, gold=found.gold_of(s)) for s in (DEV, TEST)},
        "by_agreement": {split: statistics.by_agreement(decisions, gold=found.gold_of(split)) for split in (DEV, TEST)},
    }
    report["cost"] = sum(labeller["cost"] for labeller in report["labellers"].values())
    return write_metrics(rounded(report), root / "metrics" / corpus / f"silver-{ensemble}.json")


def settle(decisions: Mapping[str, Decision], *, split: Mapping[str, str]) -> dict[str, Decision]:
    """Return the decisions, with those on train discarded that lack a majority or used the fallback (CRADLE 5.1)."""
    discarded = Decision(None, "none", "discarded")
    return {
        record: discarded
        if split[record] == TRAIN and (decision.agreement == "none" or decision.how == "fallback")
        else decision
        for record, decision in decisions.items()
    }


def check_strength(
    comparison: Mapping[str, Mapping[str, Any]], *, ensemble: str, described: Ensemble, least: float
) -> None:
    """Raise an error if an ensemble's exact match exceeds its best member's in too few resamples (ties count half)."""
    own = comparison.get(described.aggregate, {"best_member": "any member", "lead": {"probability": 0.0}})
    if not comparison or own["lead"]["probability"] < least:
        probability = own["lead"]["probability"]
        raise LabellingError("EnsembleTooWeak", ensemble=ensemble, member=own["best_member"], probability=probability)


def _distributions(decisions: Mapping[str, Decision], *, found: Snapshot) -> dict[str, Distribution]:
    """Return the distributions of the training subsets, and of all gold of dev and test, including examples."""
    train = {record for record, split in found.split.items() if split == TRAIN}
    people = {
        split: Distribution.of(labels for record, labels in found.gold.items() if found.split[record] == split)
        for split in (DEV, TEST)
    }
    return {**statistics.training_subsets(decisions, train=train), **people}


def _write(
    decisions: Mapping[str, Decision],
    *,
    model: LabelModel,
    queued: Mapping[str, tuple[str, ...]],
    ensemble: str,
    category: Category,
    folder: Path,
) -> None:
    rows = [
        {
            "record_id": record,
            "category": category.key,
            "ensemble": ensemble,
            "labels": None if decision.labels is None else sorted(decision.labels),
            "agreement": decision.agreement,
            "how": decision.how,
            "posterior": None if decision.labels is None else model.posterior(record, labels=decision.labels),
            "scores": model.scores(record),
        }
        for record, decision in decisions.items()
    ]
    waiting = [{"record_id": r, "ensemble": ensemble, "reasons": list(given)} for r, given in queued.items()]
    for name, table in (("silver", rows), ("queue", waiting)):
        made = pa.Table.from_pylist(table, schema=tables.SCHEMAS[name])
        tables.write(made, folder / f"{name}.parquet", name=name)


def refused_of(votes: pa.Table) -> dict[str, set[str]]:
    """Return for each record the labellers that refused to label it."""
    refused: dict[str, set[str]] = {}
    for record, labeller, outcome in columns(votes, "record_id", "labeller", "outcome"):
        if outcome == "refused":
            refused.setdefault(record, set()).add(labeller)
    return refused
