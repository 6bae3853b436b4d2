"""Estimate the cost of labelling a corpus before anything is sent, and list the shards of posts by labeller."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pipelines.config.label import RemoteLabeller
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.datasets.posts import SplitPosts
from pipelines.errors import LabellingError
from pipelines.label.remote import Remote
from pipelines.label.votes import open_labeller
from pipelines.vault.vault import Vault


class BudgetTooSmall(LabellingError):
    """The expected cost of labelling exceeds what is left of ``votes.budget_usd``; nothing was sent."""

    message = "Labelling {records} records would cost about {expected:.2f} US dollars; the budget has {left:.2f} left."
    remedy = "Nothing was sent. In params.yaml, raise votes.budget_usd, or lower sample.CORPUS.size."
    exit_code = 77


def run(corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()) -> dict[str, Any]:
    """Estimate the cost of every remote labeller in ``votes.labellers``, and list the shards that it has to label.

    Returns:
        ``estimates`` by labeller (see :func:`pipelines.llm.costs.estimate`), their sums ``usd_expected`` and
        ``usd_at_most``, ``budget_usd``, ``spent_usd``, and ``jobs``: one {labeller, provider, shard, batch} for each
        labeller and shard with unanswered records (``batch``: whether a batch endpoint is used).

    Raises:
        BudgetTooSmall: the expected cost exceeds the remaining budget.
    """
    material = SplitPosts.read(corpus, params=params, vault=vault, root=root)
    shards = material.shards(size=params.votes.shard_size)
    estimates: dict[str, dict[str, Any]] = {}
    jobs: list[dict[str, Any]] = []
    spent = 0.0
    with ExitStack() as stack:
        for name in params.votes.labellers:
            described = params.labellers[name]
            if not isinstance(described, RemoteLabeller):
                continue
            asked = open_labeller(name, material=material, params=params, settings=settings, vault=vault, stack=stack)
            if isinstance(asked, Remote):
                estimates[name] = asked.estimate(list(material.posts.values()))
                spent = asked.spent()
                jobs += [
                    {"labeller": name, "provider": described.provider, "shard": i, "batch": asked.batches}
                    for i, shard in enumerate(shards)
                    if asked.unanswered(shard)
                ]
    expected = sum(e["usd_expected"] for e in estimates.values())
    left = params.votes.budget_usd - spent
    if jobs and expected > left:
        records = sum(e["to_ask"] for e in estimates.values())
        raise BudgetTooSmall(records=records, expected=expected, left=left)
    return {
        "estimates": estimates,
        "usd_expected": round(expected, 4),
        "usd_at_most": round(sum(e["usd_at_most"] for e in estimates.values()), 4),
        "budget_usd": params.votes.budget_usd,
        "spent_usd": round(spent, 6),
        "jobs": jobs,
    }
