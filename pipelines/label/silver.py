"""Aggregate an ensemble's votes into labels, score these on gold, queue items for review.

Each category that models predict is decided apart. An item of train whose decided set no majority gave keeps its row
without labels (CRADLE 5.1 discards it; agreement statistics count it); in other splits the ensemble's fallback decides,
if it has one (CRADLE 4.3). An ensemble of offline members that is not better than its best member on validation is
refused (SPEC 2.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.core.config.label import Ensemble, OfflineLabeller
from pipelines.core.config.params import Params
from pipelines.core.errors import BadParams, LabellingError
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import Task, tasks_of
from pipelines.datasets.example import TEST, TRAIN
from pipelines.datasets.items import VALIDATIONS, opened
from pipelines.datasets.post import Post
from pipelines.label import published_labels, second_line
from pipelines.label import silver_statistics as statistics
from pipelines.label.aggregate import UNDECIDED, Decision, LabelModel, LabelSet, Panel, quorum
from pipelines.label.injection import marks
from pipelines.label.second_line import Outside, SecondLine, Watch
from pipelines.metrics import bootstrap, label_sets
from pipelines.metrics.label_tables import Distribution
from pipelines.store import tables
from pipelines.store.metrics_file import rounded, write_metrics
from pipelines.store.stage import CONTENT, SCHEME, Context, Stage
from pipelines.store.tables import Item
from pipelines.store.vault.vault import Vault


def table(panel: Panel, *, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Score every member of an ensemble and every aggregator of their votes on the items with gold.

    Returns:
        name -> ``kind`` (member or aggregate), ``n``, ``n_valid``, ``valid`` and ``all`` (see
        :func:`pipelines.metrics.label_sets.score`), ``interval`` (metric over all -> [low, high]) and, for aggregates,
        ``best_member`` with ``lead`` over it on exact match ({value, low, high, probability}). Empty without gold.
    """
    if not panel.gold:
        return {}
    labels = panel.category.names
    answers: dict[str, dict[Item, LabelSet | None]] = {member: panel.votes_of(member) for member in panel.members}
    for aggregate in panel.possible:
        answers[aggregate] = {item: decision.labels for item, decision in panel.decide(aggregate).items()}
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


@dataclass(frozen=True)
class Snapshot:
    """An ensemble's votes, and split and gold labels by category, of all items that were not taken down."""

    votes: pa.Table
    split: Mapping[Item, str]
    group: Mapping[Item, str]
    gold: Mapping[str, Mapping[Item, LabelSet]]
    examples: Collection[Item]

    @classmethod
    def read(cls, corpus: str, *, members: tuple[str, ...], vault: Vault, root: Path) -> Snapshot:
        """Read the results of the stages ``votes``, ``split`` and ``gold``, without records that were taken down."""
        folder = root / "snapshot" / corpus
        placed = tables.splits(folder)
        gone = vault.tombstoned(sorted({record_id for record_id, _ in placed}))
        placed = {item: where for item, where in placed.items() if item[0] not in gone}
        votes = second_line.read(folder, names=members)
        return cls(
            votes=votes.filter(pa.array([item in placed for item in tables.items_of(votes)], pa.bool_())),
            split={item: split for item, (split, _) in placed.items()},
            group={item: group for item, (_, group) in placed.items()},
            gold=tables.gold(folder, within=placed),
            examples=tables.examples(folder),
        )

    @property
    def validation(self) -> str:
        return next((name for name in VALIDATIONS if name in self.split.values()), VALIDATIONS[0])

    def gold_of(self, split: str, *, task: Task) -> dict[Item, LabelSet]:
        """Return the gold labels of one split in the task's labels, without the items that the prompt shows."""
        return {
            item: task.seen(labels)
            for item, labels in self.gold.get(task.key, {}).items()
            if self.split[item] == split and item not in self.examples
        }


STAGE = Stage(
    reads=("annotations", "data", "few_shot", "gold", "split", "{votes}"),
    params=(
        "silver.k",
        "silver.resamples",
        "silver.min_probability",
        "silver.review",
        "silver.seed",
        "votes.labellers",
        "labellers",
        "ensembles.{name}",
        CONTENT,
        SCHEME,
    ),
    rows="silver",
    revision=2,
)


def run(ctx: Context, *, injected: Collection[Item] | None = None) -> dict[str, Any]:
    """Aggregate an ensemble's votes; write labels and review queue under ``snapshot/<corpus>/silver/<ensemble>``.

    ``injected`` are the items whose text addresses a model; if ``None``, the items are decrypted and checked.

    Returns:
        The metrics: ``records`` (items), ``labellers`` (outcomes, reasons, repaired, tokens, cost), ``cost`` (US
        dollars), ``queue``, ``agreement`` by split, summed over categories, and by category (``categories``):
        ``agreement`` and ``how`` (the deciding method) by split, ``agreement_paper`` (agreement as CRADLE defines it,
        and the items where it ``differs``), ``distributions`` (for CRADLE's tables), ``violations`` of the scheme's
        rules, ``refusals`` by gold label, ``comparison`` on validation (see
        :func:`pipelines.label.silver.table`), ``test`` (scores), ``by_agreement``, and ``posterior`` (the mean
        probability of the labels beside the share that gold confirms).
    """
    corpus, ensemble, params, vault, root = ctx.corpus, ctx.row, ctx.params, ctx.vault, ctx.root
    described = ctx.described("ensemble", params.ensembles)
    scheme = load(params.corpora[corpus].scheme, root=root)
    found = Snapshot.read(corpus, members=described.members, vault=vault, root=root)
    offline = described.published is None and all(
        isinstance(params.labellers[member], OfflineLabeller) for member in described.members
    )
    told = published_labels.read(described.published, corpus=corpus, root=root) if described.published else {}
    if told.keys() - tasks_of(scheme).keys():
        detail = f"{scheme.name} has no category {', '.join(sorted(told.keys() - tasks_of(scheme).keys()))} to predict"
        raise BadParams(where=f"ensembles.{ensemble}.published", detail=detail)
    voted = {
        key: Voted.read(
            published_labels.decided(told.get(key, {}), task=task, scheme=scheme, within=found.split),
            found,
            task=task,
            ensemble=described,
        )
        if described.published
        else Voted.of(found, task=task, name=ensemble, params=params, offline=offline)
        for key, task in tasks_of(scheme).items()
    }
    items = found.split.keys()
    posts: Mapping[Item, Post] = {}
    unread = 0
    if injected is None:
        posts, _ = opened(corpus, content=params.corpora[corpus].content, items=items, vault=vault, root=root)
        unread = len(items - posts.keys())
        injected = {item for item, post in posts.items() if marks(post.text)}
    outside = Outside.of(described, corpus=corpus, params=params)
    others = second_line.read(root / "snapshot" / corpus, names=outside.names)
    lines = {}
    for key, one in voted.items():
        gold = found.gold_of(found.validation, task=one.task)
        watch = Watch.of(
            gold, ensemble=described, category=one.task.category, posts=posts, groups=found.group, params=params
        )
        lines[key] = SecondLine.of(others, outside=outside, category=one.task.category, posts=posts, watch=watch)
    queued = {
        key: reasons(one.decisions, panel=one.panel, refused=one.refused, injected=injected, line=lines[key])
        for key, one in voted.items()
    }
    rows = {
        "silver": [row for one in voted.values() for row in one.rows(ensemble)],
        "queue": [
            {"record_id": item[0], "image": item[1], "category": key, "ensemble": ensemble, "reasons": list(given)}
            for key, waiting in queued.items()
            for item, given in waiting.items()
        ],
    }
    for name, made in rows.items():
        place = root / "snapshot" / corpus / "silver" / ensemble / f"{name}.parquet"
        tables.write_rows(made, place, name=name)
    entries = {(item, reason) for waiting in queued.values() for item, given in waiting.items() for reason in given}
    counts = Counter(reason for _, reason in entries)
    labellers = statistics.labellers(found.votes)
    categories = {key: one.report(found, members=described.members) for key, one in voted.items()}
    for key, line in lines.items():
        categories[key] |= {"second_line": dict(line.watch.figures)} if line.watch else {}
    report: dict[str, Any] = {
        "ensemble": ensemble,
        "aggregate": described.aggregate,
        "members": list(described.members),
        "fallback": described.fallback,
        "offline": offline,
        "scheme": scheme.name,
        "records": len(items),
        "agreement": statistics.agreement(*(one.decisions for one in voted.values()), split=found.split),
        "labellers": labellers,
        "queue": {
            "records": len({item for item, _ in entries}),
            "unread": unread,
            "reasons": {reason: counts[reason] for reason in tables.REASONS},
        },
        "categories": categories,
        "cost": sum(labeller["cost"] for labeller in labellers.values()),
    }
    return write_metrics(rounded(report), root / "metrics" / corpus / f"silver-{ensemble}.json")


@dataclass(frozen=True)
class Voted:
    """What an ensemble decided in one category, with its scores on validation (``comparison``).

    ``decided`` are the decisions before those on train that lack a majority are discarded (``decisions``).
    """

    task: Task
    panel: Panel
    comparison: Mapping[str, Mapping[str, Any]]
    decided: Mapping[Item, Decision]
    decisions: Mapping[Item, Decision]
    model: LabelModel
    refused: Mapping[Item, Collection[str]]

    @classmethod
    def of(cls, found: Snapshot, *, task: Task, name: str, params: Params, offline: bool) -> Voted:
        """Aggregate the votes of the ensemble ``name`` in the task's category."""
        described, section = params.ensembles[name], params.silver
        panel = Panel.of(
            found.votes,
            ensemble=described,
            k=section.k,
            items=sorted(found.split),
            category=task.category,
            gold=found.gold_of(found.validation, task=task),
            groups=found.group,
        )
        if described.aggregate not in panel.possible and found.votes.num_rows:
            raise BadParams(
                where=f"ensembles.{name}.aggregate", detail=f"its members give no scores for {described.aggregate}"
            )
        comparison = table(panel, resamples=section.resamples, seed=section.seed)
        if offline:
            least, aggregate = section.min_probability, described.aggregate
            check_strength(comparison, ensemble=name, category=task.key, aggregate=aggregate, least=least)
        decided = panel.decide(described.aggregate)
        return cls(
            task=task,
            panel=panel,
            comparison=comparison,
            decided=decided,
            decisions=settle(decided, split=found.split),
            model=panel.model_of(described.aggregate),
            refused=refused_of(found.votes, category=task.key),
        )

    @classmethod
    def read(cls, decided: Mapping[Item, Decision], found: Snapshot, *, task: Task, ensemble: Ensemble) -> Voted:
        """Take the labels that others published as the decisions; an item without any has none."""
        panel = Panel.of(found.votes, ensemble=ensemble, items=list(decided), category=task.category)
        model = LabelModel((), task.category, [], np.zeros((0, 0)))
        return cls(task, panel, {}, decided, settle(decided, split=found.split), model, {})

    def rows(self, ensemble: str) -> Iterator[dict[str, Any]]:
        for item, decision in self.decisions.items():
            yield {
                "record_id": item[0],
                "image": item[1],
                "category": self.task.key,
                "ensemble": ensemble,
                "labels": None if decision.labels is None else sorted(decision.labels),
                "agreement": decision.agreement,
                "how": decision.how,
                "posterior": None if decision.labels is None else self.model.posterior(item, labels=decision.labels),
                "scores": self.model.scores(item),
            }

    def report(self, found: Snapshot, *, members: tuple[str, ...]) -> dict[str, Any]:
        """Return the metrics of the category; see :func:`run`."""
        decisions, gold = self.decisions, found.gold.get(self.task.key, {})
        scored = {split: found.gold_of(split, task=self.task) for split in (found.validation, TEST)}
        # the distributions of the training subsets, and of all gold, including examples
        train = {item for item, split in found.split.items() if split == TRAIN}
        distributions = statistics.training_subsets(decisions, train=train) | {
            split: Distribution.of(labels for item, labels in gold.items() if found.split[item] == split)
            for split in scored
        }
        return {
            "agreement": statistics.agreement(decisions, split=found.split),
            "agreement_paper": statistics.agreement_of_members(self.decided, panel=self.panel, split=found.split),
            "how": statistics.counted((found.split[item], decision.how) for item, decision in decisions.items()),
            "distributions": {name: each.plain() for name, each in distributions.items()},
            "violations": statistics.violations(self.panel, decisions=decisions, gold=gold),
            "refusals": statistics.refusals(gold, refused=self.refused, members=members),
            "comparison": self.comparison,
            "test": statistics.scores(self.panel, decisions=decisions, gold=scored[TEST])
            if scored[TEST] and (self.panel.members or scored[TEST].keys() & decisions.keys())
            else {},
            "posterior": {
                split: statistics.posterior(decisions, model=self.model, gold=each) for split, each in scored.items()
            },
            "by_agreement": {split: statistics.by_agreement(decisions, gold=each) for split, each in scored.items()},
        }


def settle(decisions: Mapping[Item, Decision], *, split: Mapping[Item, str]) -> dict[Item, Decision]:
    """Return the decisions, with those on train discarded that lack a majority or used the fallback (CRADLE 5.1)."""
    return {
        item: UNDECIDED
        if split[item] == TRAIN and (decision.agreement == "none" or decision.how == "fallback")
        else decision
        for item, decision in decisions.items()
    }


def check_strength(
    comparison: Mapping[str, Mapping[str, Any]], *, ensemble: str, category: str, aggregate: str, least: float
) -> None:
    """Raise an error if an ensemble's exact match exceeds its best member's in too few resamples (ties count half)."""
    own = comparison.get(aggregate, {"best_member": "any member", "lead": {"probability": 0.0}})
    if not comparison or own["lead"]["probability"] < least:
        found = {"member": own["best_member"], "probability": own["lead"]["probability"]}
        raise LabellingError("EnsembleTooWeak", ensemble=ensemble, category=category, **found)


def refused_of(votes: pa.Table, *, category: str) -> dict[Item, set[str]]:
    """Return for each item the labellers that refused to label it."""
    refused: dict[Item, set[str]] = {}
    for row in votes.select(["record_id", "image", "labeller", "category", "outcome"]).to_pylist():
        if row["outcome"] == "refused" and row["category"] == category:
            refused.setdefault((row["record_id"], row["image"]), set()).add(row["labeller"])
    return refused


def reasons(
    decisions: Mapping[Item, Decision],
    *,
    panel: Panel,
    refused: Mapping[Item, Collection[str]],
    injected: Collection[Item],
    line: SecondLine | None = None,
) -> dict[Item, tuple[str, ...]]:
    """Return the items that people should review in a category, each with its reasons (:data:`tables.REASONS`).

    ``no_majority``: no label set has a majority; ``severity_dissent``: a valid vote is more severe than the silver
    labels; ``injection``: the text may have influenced the votes; others: see
    :meth:`pipelines.label.second_line.SecondLine.reasons`.
    """
    queue, members, category = {}, set(panel.members), panel.category
    for item, decision in sorted(decisions.items()):
        severity = category.severity(decision.labels or frozenset())
        votes = [labels for member, labels in panel.ballots.get(item, {}).items() if member in members]
        found = {
            "no_majority": decision.agreement == "none",
            "severity_dissent": any(category.severity(labels) > severity for labels in votes),
            "refused_by_most": len(set(refused.get(item, ())) & members) >= quorum(panel.members),
            "injection": item in injected,
            **(line.reasons(item, decision.labels) if line else {}),
        }
        if any(found.values()):
            queue[item] = tuple(reason for reason in tables.REASONS if found.get(reason))
    return queue
