"""Plan a paper's profile before anything starts: what runs for every row, what it needs, and what is missing here.

Nothing is sent, downloaded or computed on a GPU. The parameters are those of the corpus if it was created with the
profile, else the profile's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.errors import UnknownName
from pipelines.profile_plan import hardware, missing_needs
from pipelines.profile_plan.missing_needs import Gap
from pipelines.profile_plan.paper_rows import CORPORA, Planning, RowPlan, paper_rows
from pipelines.storage.answers import NANO, AnswerStore
from pipelines.taxonomy import load as load_scheme

# Who gives access to a paper's dataset (FigSIM, Ethics; CRADLE, 7), and the mapping that imports it.
DATASETS = {
    "figsim": (
        "FigSIM's annotations and splits, for approved researchers, academic and not commercial: "
        "github.com/LiuliuChen/FigSIM",
        "corpus import memes FILE --mapping figsim",
    ),
    "cradle": (
        "CRADLE Bench's posts, labels and splits: huggingface.co/datasets/SungJoo/Cradle-Bench",
        "corpus import posts FILES --mapping cradle",
    ),
}
ASSUMED = (
    "memory and disk of fine-tuning are those of `corpus plan finetune`; other rows: parameters times bytes, and 6 GB",
    "hours are of one run after another, on GPUs of about an A100's speed; a server's are its own use",
    "an item is a post of 1,100 characters or one picture; `corpus estimate CORPUS` counts the corpus once it is split",
    "prices are those of `corpus estimate`; servers of your own cost nothing",
)


def paper_of(profile: str) -> str:
    """Return the paper that a profile reproduces: the first word of its name, such as ``cradle`` of ``cradle-2027``.

    Raises:
        UnknownName: the name does not begin with a paper's.
    """
    paper = profile.partition("-")[0]
    if paper not in CORPORA:
        raise UnknownName(kind="paper", name=paper, known=", ".join(CORPORA))
    return paper


def plan(
    profile: str, *, params: Params, settings: Settings, root: Path, today: date, published: frozenset[str] | None
) -> dict[str, Any]:
    """Return the plan of a paper's profile.

    Args:
        profile: its name, which begins with the paper's.
        params: the parameters with the profile.
        settings: addresses, keys, and the store of answers.
        root: the folder with the project's ``schemes``.
        today: the day, for retirements and consents.
        published: the files that the corpus branch tracks; ``None`` if there is no corpus repository.

    Returns:
        ``profile``, ``paper``, ``corpus``, ``date``; ``rows`` (22 or 15) and ``besides`` (what the paper's other tables
        need), each with ``row``, ``entry``, ``weights``, ``runs``, ``requests`` (:class:`RequestPlan`), ``hardware``
        (:class:`HardwareNeed`), ``missing`` (``what``, ``command``), ``notes`` and ``runnable``; ``missing`` of all
        rows together; ``needs``: ``keys`` and ``servers`` (variables), ``consents`` (providers), ``datasets``,
        ``approvals`` (sources), ``gpu_memory_gb`` (the most of one row), ``disk_gb``, ``hours``, ``usd_expected``,
        ``usd_at_most`` and ``budget_usd``; ``runnable`` (number of rows), and ``assumed``.

    Raises:
        UnknownName: the name does not begin with a paper's.
        PriceUnknown: the price of a labeller's model is not known.
    """
    paper = paper_of(profile)
    scheme = load_scheme(params.corpora[CORPORA[paper]].scheme, root=root)
    planning = Planning(paper, params, settings, scheme, today, tuple(hardware.available()))
    rows = [planning.plan(row) for row in paper_rows(paper)]
    besides = list(planning.besides())
    needs = _needs(planning, rows=[*rows, *besides])
    shared = list(_shared(planning, profile=profile, published=published))
    shared += _budget(settings, wanted=needs["usd_expected"], budget=params.votes.budget_usd)
    told = [_told(row, shared=shared) for row in rows]
    return {
        "profile": profile,
        "paper": paper,
        "corpus": planning.corpus,
        "date": today.isoformat(),
        "rows": told,
        "besides": [_told(row, shared=shared) for row in besides],
        "missing": [asdict(one) for one in shared],
        "needs": needs,
        "runnable": sum(row["runnable"] for row in told),
        "assumed": list(ASSUMED),
    }


def _told(row: RowPlan, *, shared: Sequence[Gap]) -> dict[str, Any]:
    return asdict(row) | {"runnable": not row.missing and not shared}


def _shared(planning: Planning, *, profile: str, published: frozenset[str] | None) -> Iterator[Gap]:
    """Yield what all rows lack: the repository, the dataset, approvals, and the engine that reads pictures."""
    params, corpus = planning.params, planning.corpus
    if published is None:
        yield Gap("the corpus repository", f"corpus init --profile {profile}")
    gold = params.gold[corpus]
    if not gold.truth and gold.published and f"{gold.published}.dvc" not in (published or ()):
        what, command = DATASETS[planning.paper]
        yield Gap(f"access to {what}", command)
    yield from missing_needs.approvals(corpus, params=params)
    if params.corpora[corpus].content == "images":
        yield from missing_needs.ocr(params=params, today=planning.today)


def _budget(settings: Settings, *, wanted: float, budget: float) -> Iterator[Gap]:
    # the store is not created by looking at it
    spent = 0.0
    if not settings.answers_url.startswith("sqlite:///") or Path(settings.answers_url[10:]).exists():
        with AnswerStore.open(settings.answers_url) as answers:
            spent = sum(answers.spent()) / NANO
    if wanted > budget - spent:
        told = f"a budget of {wanted:.2f} US dollars; votes.budget_usd has {max(0.0, budget - spent):.2f} left"
        yield Gap(told, missing_needs.put("votes.budget_usd", f"{spent + wanted:.0f}"))


def _needs(planning: Planning, *, rows: Sequence[RowPlan]) -> dict[str, Any]:
    """Return what all rows together need, whether it is there or not."""
    params = planning.params
    labellers = {getattr(params.models.get(row.entry), "labeller", None) for row in rows} - {None}
    asked = {getattr(params.labellers.get(str(name)), "provider", None) for name in labellers} - {None}
    asked |= {params.moderators[row.entry].provider for row in rows if row.entry in params.moderators}
    providers = sorted(str(name) for name in asked)
    azure = {name for name in providers if params.providers[name].api == "azure"}
    own = {name for name in providers if missing_needs.own_server(name, params=params)}
    needs = [row.hardware for row in rows]
    dataset, command = DATASETS[planning.paper]
    return {
        "keys": [f"{missing_needs.variable(name)}_KEY" for name in providers if name not in own],
        "servers": [f"{missing_needs.variable(name)}_URL" for name in providers if name in own | azure],
        "consents": providers + ([params.images.ocr.engine] if params.images.ocr.engine in params.consents else []),
        "datasets": [{"dataset": dataset, "import": command}],
        "approvals": list(params.corpora[planning.corpus].sources),
        "gpu_memory_gb": max(need.memory_gb or 0.0 for need in needs),
        "gpus": max(need.gpus or 0 for need in needs),
        "of_gb": planning.of_gb,
        "disk_gb": round(sum({row.weights: row.hardware.disk_gb or 0.0 for row in rows}.values()), 1),
        "hours": round(sum(need.hours or 0.0 for need in needs), 1),
        "unknown_sizes": sorted(row.entry for row in rows if row.hardware.memory_gb is None),
        "requests": sum(row.requests.requests for row in rows),
        "usd_expected": round(sum(row.requests.usd_expected for row in rows), 2),
        "usd_at_most": round(sum(row.requests.usd_at_most for row in rows), 2),
        "budget_usd": params.votes.budget_usd,
    }
