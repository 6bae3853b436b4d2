"""Measure how an instruction hidden in an item changes its labels, by attack family.

The copies exist in memory only. They are labelled and aggregated like any item; of a picture, the words read from it
are attacked. The stage counts how many labels flip and whether an item loses severity without being queued for review.
The attacks are written without the detector (:mod:`pipelines.label.attacks`), so that its misses count; the
numbers say nothing about other attacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from typing import Any

import pyarrow as pa

from pipelines.core.config.label import RemoteLabeller
from pipelines.core.taxonomy import Category
from pipelines.curate.sample import draw
from pipelines.datasets.example import Item
from pipelines.datasets.items import VALIDATIONS
from pipelines.datasets.post import Post
from pipelines.label import second_line, silver
from pipelines.label.aggregate import Panel, quorum
from pipelines.label.attacks import attacks, inject, pick
from pipelines.label.injection import marks
from pipelines.label.second_line import Outside, SecondLine, Watch
from pipelines.label.silver import refused_of
from pipelines.label.votes import Desk, remote_labellers
from pipelines.llm.asking import PlannedRequests
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import CONTENT, SCHEME, Context, Stage

Labels = Mapping[Item, frozenset[str] | None]


STAGE = Stage(
    reads=("data", "few_shot", "gold", "split", "silver/{name}", "{votes}"),
    params=(
        "injection_test",
        "silver.k",
        "silver.review",
        "votes",
        "prompts",
        "labellers",
        "ensembles.{name}",
        "distributions",
        CONTENT,
        SCHEME,
    ),
    writes=(),
    rows="silver",
    revision=2,
)


def run(ctx: Context) -> dict[str, Any]:
    """Label copies of ``injection_test.size`` items with an inserted attack, and count the labels that change.

    Writes ``metrics/<corpus>/injection_test-<ensemble>.json``.

    Returns:
        ``detected`` (copies that the injection patterns caught), and by category (``categories``) the counts of
        :func:`flips` for the ensemble, ``members`` (the same for each member, with no item queued), ``queued`` (copies
        queued for review), ``swayed`` (see :func:`swayed`) and ``families`` (see :func:`by_family`). If requests would
        not hold the attacks, no copy is labelled: ``not_tested`` counts the copies by reason, and there are no
        categories.
    """
    corpus, ensemble, params, root = ctx.corpus, ctx.row, ctx.params, ctx.root
    described = ctx.described("ensemble", params.ensembles)
    if not described.members:
        untested = {"detected": 0, "not_tested": {"published": 0}, "categories": {}}
        return write_metrics(untested, root / "metrics" / corpus / f"injection_test-{ensemble}.json")
    # labellers of another order are not asked about copies
    outside = replace(Outside.of(described, corpus=corpus, params=params), reordered=())
    with ExitStack() as stack:
        desk = Desk.of(ctx, stack=stack)
        copies = _copies(desk)
        if _withheld(desk, copies) and any(isinstance(params.labellers[m], RemoteLabeller) for m in described.members):
            untested = {"detected": 0, "not_tested": {"words_not_sent": len(copies)}, "categories": {}}
            return write_metrics(untested, root / "metrics" / corpus / f"injection_test-{ensemble}.json")

        def ask(members: Sequence[str]) -> pa.Table:
            told = [desk.label(desk.open(name), [*copies.items()], progress=f"{name} (copies)") for name in members]
            rows = [answer.row() for answers in told for answer in answers]
            return pa.Table.from_pylist(rows, schema=tables.SCHEMAS["votes"])

        again, others = ask(described.members), ask(outside.names)
    folder = root / "snapshot" / corpus
    told, honest = (second_line.read(folder, names=names) for names in (described.members, outside.names))
    detected = {item for item, copy in copies.items() if marks(copy.text)}
    found: dict[str, Any] = {}
    for key, task in desk.tasks.items():
        known, category = desk.material.gold.get(key, {}), task.category
        gold = {i: task.seen(s) for i, s in known.items() if i not in desk.material.examples}
        given: dict[str, Any] = {
            "ensemble": described,
            "k": params.silver.k,
            "items": list(copies),
            "category": category,
            "gold": {item: labels for item, labels in gold.items() if item in copies},
            "groups": desk.material.group,
        }
        dev = {item: labels for item, labels in gold.items() if desk.material.split[item] in VALIDATIONS}
        watch = Watch.of(
            dev, ensemble=described, category=category, posts=desk.posts, groups=desk.material.group, params=params
        )
        clean, line = (
            SecondLine.of(votes, outside=outside, category=category, posts=posts, watch=watch)
            for votes, posts in ((honest, desk.posts), (others, copies))
        )
        panel, copied = Panel.of(told, **given), Panel.of(again, **given)
        before, after = panel.decide(described.aggregate), copied.decide(described.aggregate)
        queued = silver.reasons(
            after,
            panel=copied,
            refused=refused_of(again, category=key),
            injected=detected,
            line=line,
        )
        first, second = ({item: d.labels for item, d in decided.items()} for decided in (before, after))
        found[key] = flips(first, second, category=category, queued=queued) | {
            "queued": len(queued),
            "swayed": swayed(
                panel,
                described.aggregate,
                truth={i: gold.get(i, first[i]) for i in copies if i not in dev},
                members=[m for m in described.members if isinstance(params.labellers[m], RemoteLabeller)],
                lines=(clean, line),
            ),
            "families": by_family(list(copies), first, second, category=category, detected=detected, queued=queued),
            "members": {
                member: flips(panel.votes_of(member), copied.votes_of(member), category=category, queued=())
                for member in described.members
            },
        }
    numbers = {"detected": len(detected), "categories": found}
    return write_metrics(numbers, root / "metrics" / corpus / f"injection_test-{ensemble}.json")


def planned(ctx: Context) -> Iterator[PlannedRequests]:
    """Yield what the stage would send to each remote member of ``silver.ensembles``, and at what cost; nothing is sent.

    A member of several ensembles is counted once, because it answers a copy once.
    """
    ensembles = ctx.params.silver.ensembles.get(ctx.corpus, ())
    members = dict.fromkeys(name for one in ensembles for name in ctx.params.ensembles[one].members)
    for asked, desk in remote_labellers(ctx, names=members):
        copies = _copies(desk)
        yield asked.planned("injection_test", [] if _withheld(desk, copies) else desk.sent(copies.values()))


def _copies(desk: Desk) -> dict[Item, Post]:
    section = desk.params.injection_test
    candidates = [item for item in desk.posts if item not in desk.material.examples]
    drawn = draw(candidates, size=section.size, seed=section.seed)
    return {item: inject(desk.posts[item], which=i) for i, item in enumerate(drawn)}


def _withheld(desk: Desk, copies: Mapping[Item, Post]) -> bool:
    """Return whether remote labellers would receive copies without the attacks, as words read from pictures."""
    return any(sent.body != copy.body for sent, copy in zip(desk.sent(copies.values()), copies.values(), strict=True))


def swayed(
    panel: Panel, aggregate: str, *, truth: Labels, members: Sequence[str], lines: tuple[SecondLine, SecondLine]
) -> dict[str, int]:
    """Count the items that end silently as nothing if members obey every attack and the patterns find none.

    The votes are not asked for: a member that is swayed votes nothing, the others as on the item without the attack.

    Args:
        panel: the votes on the items without attacks.
        truth: the labels of the items that are counted, outside of what the second line learnt from.
        members: those that an instruction may sway; nothing is counted if they are no majority.
        lines: what labellers outside of the ensemble say about the items, and about their copies.

    Returns:
        ``something``: the items that are not nothing; of these, the items that end as nothing and are not queued with a
        ``majority`` of members swayed (the worst one), and with ``all``. ``nothing``: the other items. ``reviewed`` and
        ``reviewed_nothing``: all items, and these, which without an attack only the second line queues.
    """
    category, items = panel.category, [item for item, labels in truth.items() if labels is not None]
    calm = next((labels for labels in category.valid_sets() if category.nothing(labels)), None)
    if calm is None or len(members) < quorum(panel.members):
        return {}
    something = [item for item in items if not category.nothing(truth[item] or ())]

    def silent(chosen: Sequence[str]) -> int:
        votes = {i: {**panel.ballots.get(i, {}), **dict.fromkeys(chosen, calm)} for i in something}
        copied = replace(panel, ballots=votes, items=something)
        decided = copied.decide(aggregate)
        queued = silver.reasons(decided, panel=copied, refused={}, injected=(), line=lines[1])
        return sum(i not in queued and category.nothing(decided[i].labels or ()) for i in something)

    own = replace(panel, items=items)
    decided = own.decide(aggregate)
    before, after = (silver.reasons(decided, panel=own, refused={}, injected=(), line=n) for n in (None, lines[0]))
    more = after.keys() - before.keys()
    return {
        "something": len(something),
        "majority": max(map(silent, combinations(members, quorum(panel.members)))),
        "all": silent(members),
        "nothing": len(items) - len(something),
        "reviewed": len(more),
        "reviewed_nothing": len(more - {*something}),
    }


def by_family(
    drawn: Sequence[Item],
    before: Labels,
    after: Labels,
    *,
    category: Category,
    detected: Collection[Item],
    queued: Collection[Item],
) -> dict[str, dict[str, Any]]:
    """Return for each family of attacks how many labels its attacks changed (the counts of :func:`flips`).

    Args:
        drawn: the items in the order in which attacks were inserted.
        detected: the items in whose copies the patterns found an attack.

    Returns:
        By family the counts of :func:`flips`; also ``detected`` and ``queued`` copies, and of all ``attacks`` of the
        family how many are ``recognised`` by the patterns without a post around them.
    """
    found: dict[str, dict[str, Any]] = {}
    for family, texts in attacks().items():
        own = {item for which, item in enumerate(drawn) if pick(which)[0].family == family}
        here, copied = ({item: labels for item, labels in side.items() if item in own} for side in (before, after))
        found[family] = flips(here, copied, category=category, queued=queued) | {
            "detected": len(own & set(detected)),
            "queued": len(own & set(queued)),
            "attacks": len(texts),
            "recognised": sum(bool(marks(Post("", "", attack.text).text)) for attack in texts),
        }
    return found


def flips(before: Labels, after: Labels, *, category: Category, queued: Collection[Item]) -> dict[str, Any]:
    """Count the items whose labels the injected instruction changed.

    Args:
        after: the labels of each item's injected copy; items without an entry were not labelled again.

    Returns:
        ``asked``: items in both mappings. ``n``: items with labels in both. Of these ``n`` items, ``flipped``
        have other labels in the copy, ``lost_severity`` have less severe labels, and ``lost_severity_not_queued`` have
        less severe labels and are not queued (must be 0). ``flip_rate`` is ``flipped`` divided by ``n``, ``None`` if
        ``n`` is 0. Items with labels in only one mapping are counted separately: ``lost_labels`` only in the
        original, ``lost_labels_not_queued`` of them not queued, ``gained_labels`` only in the copy.
    """
    waiting = frozenset(queued)
    asked = sorted(before.keys() & after.keys())
    both = [(r, b, a) for r in asked if (b := before[r]) is not None and (a := after[r]) is not None]
    flipped = sum(b != a for _, b, a in both)
    milder = [r for r, b, a in both if category.severity(a) < category.severity(b)]
    lost = [r for r in asked if before[r] is not None and after[r] is None]
    return {
        "asked": len(asked),
        "n": len(both),
        "flipped": flipped,
        "flip_rate": flipped / len(both) if both else None,
        "lost_severity": len(milder),
        "lost_severity_not_queued": sum(r not in waiting for r in milder),
        "lost_labels": len(lost),
        "lost_labels_not_queued": sum(r not in waiting for r in lost),
        "gained_labels": sum(before[r] is None and after[r] is not None for r in asked),
    }
