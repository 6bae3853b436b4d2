"""Compute an ensemble's metrics in a category: agreement, refusals by gold label, scores; never with record ids."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipelines.label.aggregate import Decision, LabelModel, LabelSet, Panel, agree
from pipelines.metrics import label_sets
from pipelines.metrics.label_tables import Distribution
from pipelines.store.tables import Item

AGREEMENTS = ("unanimous", "consensus", "none")


def counted(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Return how often each second item of pairs occurs, by the first item."""
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for (key, value), count in sorted(Counter(pairs).items()):
        counts[key][value] = count
    return dict(counts)


def agreement(*decided: Mapping[Item, Decision], split: Mapping[Item, str]) -> dict[str, dict[str, int]]:
    """Count decisions by split and agreement: unanimous, consensus (a majority, not all) or none (CRADLE Table 5)."""
    found = counted((split[item], each.agreement) for decisions in decided for item, each in decisions.items())
    return {part: {name: counts.get(name, 0) for name in AGREEMENTS} for part, counts in found.items()}


def agreement_of_members(
    decisions: Mapping[Item, Decision], *, panel: Panel, split: Mapping[Item, str]
) -> dict[str, dict[str, int]]:
    """Count items by split and by how far an ensemble's members agree on any label set (CRADLE Table 5).

    ``differs`` counts the items where this is not the agreement on the decided labels. Of published labels, whose votes
    are unknown, it is the published agreement.
    """
    agreed: dict[Item, str] = {r: agree(panel.ballots.get(r, {}), members=panel.members)[0] for r in decisions}
    if not panel.members:
        agreed = {item: decision.agreement for item, decision in decisions.items()}
    pairs = [(split[r], agreed[r]) for r in decisions]
    pairs += [(split[r], "differs") for r, decision in decisions.items() if agreed[r] != decision.agreement]
    names = (*AGREEMENTS, "differs")
    return {part: {name: counts.get(name, 0) for name in names} for part, counts in counted(pairs).items()}


def posterior(
    decisions: Mapping[Item, Decision], *, model: LabelModel, gold: Mapping[Item, LabelSet]
) -> dict[str, float | int | None]:
    """Compare the probabilities of an ensemble's labels with gold: their ``mean``, and the share of ``exact`` sets."""
    pairs = [
        (p, decision.labels == gold[item])
        for item, decision in decisions.items()
        if item in gold and decision.labels is not None
        for p in [model.posterior(item, labels=decision.labels)]
        if p is not None
    ]
    n = len(pairs)
    mean, exact = (sum(part) / n if n else None for part in (zip(*pairs, strict=True) if n else ((), ())))
    return {"n": n, "mean": mean, "exact": exact}


def training_subsets(decisions: Mapping[Item, Decision], *, train: Collection[Item]) -> dict[str, Distribution]:
    """Return the label counts of the two training subsets of CRADLE 5.1: consensus, and unanimous (a part of it)."""
    kept = [(d.labels, d.agreement) for r, d in decisions.items() if r in train and d.labels is not None]
    return {
        "train_consensus": Distribution.of(labels for labels, agreed in kept if agreed != "none"),
        "train_unanimous": Distribution.of(labels for labels, agreed in kept if agreed == "unanimous"),
    }


def labellers(votes: pa.Table) -> dict[str, dict[str, Any]]:
    """Return for each labeller its answers by outcome, its repaired votes, its tokens, and its cost in US dollars."""
    sums = ("repaired", "input_tokens", "output_tokens")
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in votes.select(["labeller", "outcome", "reason", *sums, "cost"]).to_pylist():
        by_name[row["labeller"]].append(row)
    return {
        name: {
            "outcomes": dict(sorted(Counter(row["outcome"] for row in own).items())),
            "reasons": dict(sorted(Counter(row["reason"] for row in own if row["reason"]).items())),
            **{key: sum(row[key] or 0 for row in own) for key in sums},
            # sorted, so that the order of rows does not change the last bit
            "cost": sum(sorted(row["cost"] or 0.0 for row in own)),
        }
        for name, own in sorted(by_name.items())
    }


def refusals(
    gold: Mapping[Item, LabelSet], *, refused: Mapping[Item, Collection[str]], members: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Count by gold label the items that have it (``gold``), and how many of these each ensemble member refused.

    Providers' filters refuse some labels more than others (SPEC 1.5: sexual violence, not suicide), which a score over
    valid answers only would hide.
    """
    carrying = {"gold": Counter(label for labels in gold.values() for label in labels)}
    for member in members:
        carrying[member] = Counter(
            label for item, labels in gold.items() if member in refused.get(item, ()) for label in labels
        )
    return {
        label: {name: counts[label] for name, counts in carrying.items()}
        for label in sorted(carrying["gold"], key=lambda label: (-carrying["gold"][label], label))
    }


def violations(
    panel: Panel, *, decisions: Mapping[Item, Decision], gold: Mapping[Item, LabelSet]
) -> dict[str, dict[str, int]]:
    """Count the violations of each scheme rule, including soft ones, in gold, votes and ensemble labels.

    Rules that were applied before the vote always count 0. SPEC 23 requires the counts of the other rules, also for
    gold.
    """
    given: dict[str, Iterable[LabelSet | None]] = {"gold": gold.values()}
    given |= {member: panel.votes_of(member).values() for member in panel.members}
    given["ensemble"] = [decision.labels for decision in decisions.values()]
    return {name: label_sets.violations(sets, category=panel.category) for name, sets in given.items()}


def scores(
    panel: Panel, *, decisions: Mapping[Item, Decision], gold: Mapping[Item, LabelSet]
) -> dict[str, dict[str, Any]]:
    """Return the scores of an ensemble and its members on valid answers and on all items (CRADLE Tables 4, 12)."""
    answers: dict[str, Mapping[Item, LabelSet | None]] = {member: panel.votes_of(member) for member in panel.members}
    answers["ensemble"] = {item: decision.labels for item, decision in decisions.items()}
    labels = panel.category.names
    return {name: label_sets.score(gold, predicted=given, labels=labels) for name, given in answers.items()}


def by_agreement(decisions: Mapping[Item, Decision], *, gold: Mapping[Item, LabelSet]) -> dict[str, dict[str, int]]:
    """Count, by the members' agreement, the items with gold (``n``) and those labelled as in gold (``exact``)."""
    found = {}
    for name in AGREEMENTS:
        own = [(gold[r], decisions[r].labels) for r in gold if r in decisions and decisions[r].agreement == name]
        found[name] = {"n": len(own), "exact": sum(truth == labels for truth, labels in own)}
    return found
