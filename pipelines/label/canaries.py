"""Ask a remote labeller about known items with each shard, and refuse the shard where their labels do not come back.

A canary is an item of validation whose gold is not *nothing*, with an attack in its text. Where most answers about a
shard's canaries are no vote or find nothing, the model follows what texts say, or is not the one that was chosen, and
its other answers are worth no more: each vote becomes a refusal. Canaries cost what any item costs; no table has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pipelines.core.errors import BadParams
from pipelines.core.taxonomy.task import tasks_of
from pipelines.curate.sample import draw
from pipelines.datasets.example import Item
from pipelines.datasets.items import VALIDATIONS, SplitItems
from pipelines.datasets.post import Post
from pipelines.label.attacks import inject
from pipelines.llm.outcome import Answer, Outcome

REASON = "canaries"
Pairs = Sequence[tuple[Item, Post]]


@dataclass(frozen=True)
class Shard:
    """Items that a labeller is asked about together, and the canaries among them."""

    items: Pairs
    canaries: Pairs = ()

    @property
    def posts(self) -> list[Post]:
        return [post for _, post in (*self.items, *self.canaries)]


def chosen(material: SplitItems, *, posts: Mapping[Item, Post], size: int, seed: int, shard: int) -> Pairs:
    """Return ``size`` canaries of a shard; each shard has attacks of its own, as an answer is paid for once."""
    shown, known = {*material.examples}, set[Item]().union(*_something(material).values())
    candidates = [i for i in posts if i in known - shown and material.split[i] in VALIDATIONS]
    if not candidates:
        raise BadParams(where="votes.canaries", detail="validation has no item whose gold labels could come back")
    drawn = draw(candidates, size=size, seed=seed + shard)
    return [(item, inject(posts[item], which=shard * size + number)) for number, item in enumerate(drawn)]


def _something(material: SplitItems) -> dict[str, set[Item]]:
    """Return by category the items whose gold is not nothing."""
    return {
        key: {i for i, labels in material.gold.get(key, {}).items() if not task.category.nothing(task.seen(labels))}
        for key, task in tasks_of(material.scheme).items()
    }


def settled(
    shards: Sequence[Shard], *, told: Sequence[Answer], returned: Sequence[Answer], material: SplitItems
) -> tuple[list[Answer], dict[str, Any]]:
    """Return a labeller's answers, without votes on the shards whose canaries did not come back, and metrics.

    Args:
        told: the answers about the shards' items, in order.
        returned: the answers about the shards' canaries, in order.

    Returns:
        The answers, and the metrics ``canaries``: answers about canaries that gold knows (``asked``), of these the
        ``lost``, ``shards``, of these the ``refused``, and the ``cost`` in US dollars.
    """
    tasks, something = tasks_of(material.scheme), _something(material)
    answers, known = iter(told), iter(returned)
    found, asked, lost, refused = list[Answer](), 0, 0, 0
    for shard in shards:
        own = [
            a
            for a in islice(known, len(shard.canaries) * len(tasks))
            if (a.record_id, a.image) in something[a.category]
        ]
        gone = sum(a.outcome is not Outcome.VOTE or tasks[a.category].category.nothing(a.labels) for a in own)
        turned = 2 * gone > len(own)
        asked, lost, refused = asked + len(own), lost + gone, refused + turned
        found += [
            replace(a, outcome=Outcome.REFUSED, reason=REASON, repaired=False, labels=(), scores=None)
            if turned and a.outcome is Outcome.VOTE
            else a
            for a in islice(answers, len(shard.items) * len(tasks))
        ]
    cost = round(sum(answer.cost for answer in returned), 6)
    counts = {"asked": asked, "lost": lost, "shards": len(shards), "refused": refused, "cost": cost}
    return found, {"canaries": counts}
