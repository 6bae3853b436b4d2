"""Estimate what steps that ask providers would cost and what each receiver would get, before anything is sent.

All of them share one budget, ``votes.budget_usd``: votes, injection tests, rationales, prompted models and moderation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.errors import LabellingError, UnknownName
from pipelines.label import injection_test, votes
from pipelines.label.memes import rationales
from pipelines.llm.asking import HERE, PlannedRequests
from pipelines.moderation import moderation
from pipelines.predict import baselines, prompted
from pipelines.storage.answers import NANO, AnswerStore
from pipelines.vault.vault import Vault

# The steps that ask providers, by the content of a corpus.
IMAGES: Mapping[str, Callable[..., Iterator[PlannedRequests]]] = {
    "rationales": rationales.planned,
    "prompted": prompted.planned,
    "moderation": moderation.planned,
}
TEXTS: Mapping[str, Callable[..., Iterator[PlannedRequests]]] = {
    "votes": votes.planned,
    "injection_test": injection_test.planned,
    "baselines": baselines.planned,
    "moderation": moderation.planned,
}
SUMMED = ("records", "cached", "to_ask", "input_tokens", "output_tokens", "usd_expected", "usd_at_most")


class BudgetTooSmall(LabellingError):
    """The expected cost of the steps exceeds what is left of ``votes.budget_usd``; nothing was sent."""

    message = "{requests} requests would cost about {expected:.2f} US dollars; the budget has {left:.2f} left."
    remedy = (
        "Nothing was sent. In params.yaml, raise votes.budget_usd, lower sample.CORPUS.size, injection_test.size or "
        "moderation.items, or name fewer labellers, models and systems."
    )
    exit_code = 77


def run(
    corpus: str, *, params: Params, settings: Settings, vault: Vault, steps: Sequence[str] = (), root: Path = Path()
) -> dict[str, Any]:
    """Estimate the cost of the steps of a corpus that ask providers, and list who would receive what.

    Args:
        corpus: reads its split, gold and prompt examples.
        params: the labellers, models and systems that are asked, and the budget.
        settings: addresses, keys and the store of answers.
        vault: decrypts the items.
        steps: the names of the steps; without one, all that the corpus has.
        root: a clone of the corpus.

    Returns:
        ``steps`` (their names); ``estimates``: step -> name of a labeller, model or system -> the sums of
        :func:`pipelines.llm.costs.estimate`; ``leaves``: for each provider, ``provider``, ``to`` (its host), the
        requests, texts and pictures that it would receive, and its ``consent``; the sums ``usd_expected`` and
        ``usd_at_most``, ``budget_usd``, ``spent_usd``, and ``jobs`` of the step ``votes`` (see
        :func:`pipelines.label.votes.planned`).

    Raises:
        UnknownName: the corpus has no such step that asks providers.
        BudgetTooSmall: the expected cost exceeds the remaining budget.
    """
    known = IMAGES if params.corpora[corpus].content == "images" else TEXTS
    if unknown := [step for step in steps if step not in known]:
        raise UnknownName(kind="step", name=unknown[0], known=", ".join(known))
    chosen = [step for step in known if step in steps or not steps]
    found = [
        one for step in chosen for one in known[step](corpus, params=params, settings=settings, vault=vault, root=root)
    ]
    with AnswerStore.open(settings.answers_url) as answers:
        spent = sum(answers.spent()) / NANO
    expected = sum(one.cost["usd_expected"] for one in found)
    left = params.votes.budget_usd - spent
    if expected > max(left, 0.0):
        raise BudgetTooSmall(requests=sum(one.cost["to_ask"] for one in found), expected=expected, left=left)
    return {
        "steps": chosen,
        "estimates": {step: _by_name([one for one in found if one.step == step]) for step in chosen},
        "leaves": _leaving(found),
        "usd_expected": round(expected, 4),
        "usd_at_most": round(sum(one.cost["usd_at_most"] for one in found), 4),
        "budget_usd": params.votes.budget_usd,
        "spent_usd": round(spent, 6),
        "jobs": [job for one in found for job in one.cost.get("jobs", ())],
    }


def _by_name(found: Sequence[PlannedRequests]) -> dict[str, dict[str, Any]]:
    """Return the costs by name; several kinds of requests, tasks or runs of one name are summed."""
    names = dict.fromkeys(one.name for one in found)
    return {
        name: {key: round(sum(one.cost[key] for one in found if one.name == name), 6) for key in SUMMED}
        for name in names
    }


def _leaving(found: Sequence[PlannedRequests]) -> list[dict[str, Any]]:
    """Return what each provider would receive, those on this machine last."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for one in found:
        told = one.leaves
        row = rows.setdefault(
            (one.provider, told["to"]),
            {"provider": one.provider, "to": told["to"], "requests": 0, "texts": 0, "pictures": 0},
        )
        row |= {"consent": told["consent"], "requests": row["requests"] + one.cost["to_ask"]}
        row |= {kind: row[kind] + told[kind] for kind in ("texts", "pictures")}
    return sorted(rows.values(), key=lambda row: (row["to"] == HERE, row["provider"]))
