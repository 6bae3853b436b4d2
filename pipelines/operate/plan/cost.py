"""Compute what asking providers costs and what each receives, before anything is sent.

All steps that ask share one budget, ``votes.budget_usd``. :func:`run` counts the items of a corpus, less those with
stored answers; :func:`typical` counts items of usual length for a profile that has no corpus yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, LabellingError
from pipelines.core.taxonomy import Scheme
from pipelines.datasets.post import Post
from pipelines.evaluate.moderation import moderation
from pipelines.label import injection_test, rationales, votes
from pipelines.llm import budget
from pipelines.llm.asking import HERE, PlannedRequests
from pipelines.llm.prompts import PromptExample, build
from pipelines.llm.vendor import vendor_of
from pipelines.models import predict
from pipelines.operate.backfill import POST_CHARACTERS
from pipelines.store.answers import NANO, AnswerStore
from pipelines.store.stage import Context

# The steps that ask providers: each is the module of that name.
STEPS: Mapping[str, Callable[..., Iterator[PlannedRequests]]] = {
    step.__name__.rpartition(".")[2]: step.planned for step in (votes, injection_test, rationales, predict, moderation)
}
SUMMED = ("records", "cached", "to_ask", "input_tokens", "output_tokens", "usd_expected", "usd_at_most")
# What the size of a request counts as one picture, whatever is in it.
PICTURE = b"\x89PNG"


def run(ctx: Context, *, steps: Sequence[str] = ()) -> dict[str, Any]:
    """Return the cost of the steps of a corpus that ask providers (default: all), and who would receive what.

    Returns:
        ``steps`` (their names); ``estimates``: step -> name of a labeller, model or system -> the sums of
        :meth:`pipelines.llm.asking.Asking.estimate`; ``leaves``: for each provider, ``provider``, ``to`` (its host),
        the requests, texts and pictures that it would receive, and its ``consent``; the sums ``usd_expected`` and
        ``usd_at_most``, ``budget_usd``, ``spent_usd``, and ``jobs`` of the step ``votes`` (see
        :func:`pipelines.label.votes.planned`).
    """
    if unknown := [step for step in steps if step not in STEPS]:
        raise ConfigError("UnknownName", kind="step", name=unknown[0], known=", ".join(STEPS))
    chosen = [step for step in STEPS if step in steps or not steps]
    params = ctx.params
    planned = [requests for step in chosen for requests in STEPS[step](ctx)]
    spent = spent_usd(ctx.settings)
    expected = sum(requests.cost["usd_expected"] for requests in planned)
    left = params.votes.budget_usd - spent
    if expected > max(left, 0.0):
        asked = sum(each.cost["to_ask"] for each in planned)
        raise LabellingError("BudgetTooSmall", requests=asked, expected=expected, left=left)
    return {
        "steps": chosen,
        "estimates": {step: _by_name([each for each in planned if each.step == step]) for step in chosen},
        "leaves": _leaving(planned),
        "usd_expected": round(expected, 4),
        "usd_at_most": round(sum(requests.cost["usd_at_most"] for requests in planned), 4),
        "budget_usd": params.votes.budget_usd,
        "spent_usd": round(spent, 6),
        "jobs": [job for requests in planned for job in requests.cost.get("jobs", ())],
    }


def spent_usd(settings: Settings) -> float:
    """Return what was paid or is reserved for requests so far, in US dollars."""
    with AnswerStore.open(settings.answers_url) as answers:
        return sum(answers.spent()) / NANO


def _by_name(planned: Sequence[PlannedRequests]) -> dict[str, dict[str, Any]]:
    """Return the costs by name; several kinds of requests, tasks or runs of one name are summed."""
    names = dict.fromkeys(requests.name for requests in planned)
    return {
        name: {key: round(sum(each.cost[key] for each in planned if each.name == name), 6) for key in SUMMED}
        for name in names
    }


def _leaving(planned: Sequence[PlannedRequests]) -> list[dict[str, Any]]:
    """Return what each provider would receive, those on this machine last."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for requests in planned:
        leaves = requests.leaves
        nothing = {"provider": requests.provider, "to": leaves["to"], "requests": 0, "texts": 0, "pictures": 0}
        row = rows.setdefault((requests.provider, leaves["to"]), nothing)
        row |= {"consent": leaves["consent"], "requests": row["requests"] + requests.cost["to_ask"]}
        row |= {kind: row[kind] + leaves[kind] for kind in ("texts", "pictures")}
    return sorted(rows.values(), key=lambda row: (row["to"] == HERE, row["provider"]))


@dataclass(frozen=True)
class RequestPlan:
    """Requests of a row, the tokens that they read and write, and their expected and highest cost in US dollars."""

    requests: int = 0
    tokens: int = 0
    usd_expected: float = 0.0
    usd_at_most: float = 0.0


def typical(
    name: str,
    *,
    tasks: Sequence[str],
    items: int,
    scheme: Scheme,
    params: Params,
    examples: int = 0,
    most: int | None = None,
    picture: bool = False,
    explain: bool = False,
) -> RequestPlan:
    """Return the requests of a labeller for ``items`` items of usual length, one for each of the tasks.

    Prompts are the real ones, with ``examples`` examples; an item is a picture or a post of
    :data:`pipelines.operate.backfill.POST_CHARACTERS`. An answer has ``most`` tokens at most, by default
    ``votes.max_output_tokens``; with ``explain`` it is a rationale.
    """
    labeller = params.labellers[name]
    if not isinstance(labeller, RemoteLabeller):
        return RequestPlan()
    post = Post("", title="", body="" if picture else "a" * POST_CHARACTERS, images=(PICTURE,) if picture else ())
    vendor = vendor_of(labeller.provider, params=params)
    can, paid = vendor.capabilities(labeller.model), vendor.price(labeller, name=name)
    cap = (rationales.OUTPUT_TOKENS if explain else most or params.votes.max_output_tokens) * can.max_tokens_factor
    share = vendor.batch_share if params.votes.batch and can.batch else 1
    tokens, expected, at_most = 0, 0.0, 0.0
    for task in tasks:
        if explain:
            prompt = rationales.prompt_for(labeller, scheme=scheme, pictures=picture)
        else:
            shown = [PromptExample(str(i), post, {task: scheme.category(task).names[:1]}) for i in range(examples)]
            prompt = build(scheme, keys=[task], system=labeller.system, examples=shown)
        system, parts = prompt.render(post, delimiter="0" * 16)
        schema = prompt.schema if params.votes.constrained else {}
        size = budget.size(system, parts, schema=schema, cap=cap, factor=can.max_tokens_factor)
        tokens += items * (size.read + size.written)
        expected += round(share * items * budget.usd(paid, read=size.read, written=size.written), 2)
        at_most += round(items * budget.usd(paid, read=size.read_at_most, written=size.written_at_most), 2)
    return RequestPlan(items * len(tasks), tokens, round(expected, 2), round(at_most, 2))
