"""Estimate what a backfill (the collection of past months) takes: runs, requests, time, cost, disk space and Dags.

Posts per month, the share that is kept and bytes per post come from the months that the corpus has; where it has none,
from the assumptions of :data:`DEFAULTS`. Every number that was not counted is listed with its origin.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.collect.month import Window
from pipelines.collect.read.engine import ENGINES
from pipelines.collect.sources import Monthly, entry_of, source_of
from pipelines.core.config.collect import Corpus
from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import Scheme
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import tasks_of
from pipelines.datasets.post import Post
from pipelines.llm import budget
from pipelines.llm.model_facts import PriceUnknown
from pipelines.llm.prompts import build
from pipelines.llm.vendor import vendor_of
from pipelines.operate.services.airflow_api import named
from pipelines.store.metrics_file import read_metrics
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import local_path
from pipelines.workspace.inventory import read_pointer

# Ours, guesses for a corpus without a single month: posts of a subreddit a month, the share that is kept, bytes of one
# kept record in the cache.
DEFAULTS = {"images": (300, 0.6, 200_000), "texts": (3000, 0.7, 3_000)}
# Of collect.shard_size in params.yaml: 2,000 pictures are about an hour of work on one core.
IMAGES_PER_HOUR = 2000
# Ours: a post of about 200 words.
POST_CHARACTERS = 1100
GB = 10**9
# The cache and one remote.
PLACES = 2
PICTURES = f"{IMAGES_PER_HOUR:,} pictures an hour on one core are fetched, read and fingerprinted"
ALWAYS = (
    "disk space is that of DVC's cache and one remote, without the results of stages and older versions",
    "each month triggers a run of the dataset's Dag, which is skipped if a later month is published when it begins",
)
# By whether ensembles label the corpus: asset -> the Dags that it wakes, with the asset that each emits (tests/dags).
CONSUMERS: Mapping[bool, Mapping[str, Mapping[str, str | None]]] = {
    False: {"{0}": {"dataset": "{0}/dataset"}, "{0}/dataset": {"scoring": None}, "gold/{0}": {"benchmark": None}},
    True: {
        "{0}": {"dataset": "{0}/dataset"},
        "{0}/dataset": {"label": "silver/{0}", "scoring": None},
        "silver/{0}": {"benchmark": None},
    },
}


@dataclass(frozen=True)
class History:
    """What the corpus branch has of a corpus: months, their bytes, submissions and kept posts, and the sample size."""

    months: frozenset[str] = frozenset()
    size: int = 0
    submissions: int = 0
    kept: int = 0
    sampled: int = 0


def plan(settings: Settings, *, corpus: str, first: str, last: str, root: Path) -> dict[str, Any]:
    """Return the estimate of a backfill of the months ``first`` to ``last``; nothing is started.

    Returns:
        ``runs`` (months), ``existing`` (months that the corpus has), ``source``, ``requests`` and ``hours`` at the
        source's rate, ``item_hours`` (pictures, on one core), ``submissions``, ``kept``, ``labelling`` by labeller,
        ``usd_expected`` (``None`` if a price is unknown), ``budget_usd``, ``ocr_usd`` (of the OCR engine, which that
        budget does not limit), ``disk_gb``, ``wakes`` (triggered Dags, in the order in which they run), and
        ``assumptions``.
    """
    months = months_of(first, last)
    params, scheme, history = _history(settings, corpus=corpus, root=root)
    described, existing = params.corpora[corpus], sorted(history.months & set(months))
    posts, kept_each, size, assumed = _each(history, described)
    kept, added = round(kept_each * len(months)), round(kept_each * (len(months) - len(existing)))
    requests, hours, asked = _requests(params, corpus=corpus, submissions=posts, months=len(months))
    labelling, notes = _labelling(params, scheme, corpus=corpus, added=added, sampled=history.sampled)
    usd = [cost["usd_expected"] for cost in labelling.values()]
    pictures = described.content == "images"
    labelled = bool(params.silver.ensembles.get(corpus))
    wakes = [dag for dag in woken(labelled) if dag != "scoring" or params.batch_predict.get(corpus)]
    return {
        "corpus": corpus,
        "runs": len(months),
        "existing": existing,
        "source": ", ".join(described.sources),
        "requests": requests,
        "hours": hours,
        "item_hours": round(kept / IMAGES_PER_HOUR, 1) if pictures else 0.0,
        "submissions": round(posts * len(months)),
        "kept": kept,
        "labelling": labelling,
        "usd_expected": None if None in usd else round(sum(usd), 2),
        "budget_usd": params.votes.budget_usd,
        "ocr_usd": reading_usd(params, pictures=added) if pictures else 0.0,
        "disk_gb": round(PLACES * size * len(months) / GB, 3),
        "wakes": [named(f"{corpus}_{dag}") for dag in wakes],
        "assumptions": [assumed, *asked, *([PICTURES] if pictures else []), *notes, *ALWAYS],
    }


def _each(history: History, described: Corpus) -> tuple[float, float, float, str]:
    """Return the submissions, kept posts and bytes of an average month, and where these come from."""
    if history.kept:
        months = len(history.months)
        note = f"posts and bytes of a month: the mean of {months} published months"
        return history.submissions / months, history.kept / months, history.size / months, note
    posts, share, size = DEFAULTS[described.content]
    submissions = posts * len(described.subreddits)
    note = (
        f"{posts:,} submissions per subreddit and month, {share:.0%} of them kept, {size:,} bytes for each: a "
        "guess, because no dataset is published yet; collect one month first for a better estimate"
    )
    return submissions, submissions * share, submissions * share * size, note


def reading_usd(params: Params, *, pictures: int) -> float:
    """Return what the OCR engine costs for so many pictures, in US dollars; nothing, if it runs on this machine."""
    engine = ENGINES.get(params.images.ocr.engine, params.distributions)
    return round(pictures * engine.usd_per_1000 / 1000, 2)


def assumed_kept(described: Corpus, *, months: int) -> int:
    """Return how many posts of so many months are kept, by the guess for a corpus without a month."""
    posts, share, _ = DEFAULTS[described.content]
    return round(posts * share * len(described.subreddits) * months)


def woken(labelled: bool, asset: str = "{0}") -> list[str]:
    """Return the Dags that an Airflow asset triggers, directly or through Dags that need no person's decision."""
    dags: list[str] = []
    for dag, emitted in CONSUMERS[labelled].get(asset, {}).items():
        dags += [dag, *(woken(labelled, emitted) if emitted else [])]
    return dags


def months_of(first: str, last: str) -> list[str]:
    window, end = Window.from_key(first), Window.from_key(last)
    if end.start < window.start:
        raise ConfigError("BadPeriod", first=first, last=last)
    months = [window.key]
    while months[-1] != end.key:
        window = Window.from_key(f"{window.end:%Y-%m}")
        months.append(window.key)
    return months


def _requests(params: Params, *, corpus: str, submissions: float, months: int) -> tuple[int, float, list[str]]:
    """Return requests to the source, hours at its rate, and notes; ``submissions``: of one month."""
    described = params.corpora[corpus]
    classes = {name: source_of(name, params) for name in described.sources}
    # earlier months come from a source that has them, if there is one
    name = next((name for name, source in classes.items() if issubclass(source, Monthly)), described.sources[0])
    source = classes[name]
    each, notes = source.estimate(entry_of(name, params), posts=submissions, subreddits=len(described.subreddits))
    if not source.rate:
        return 0, 0.0, notes
    requests = months * each
    return requests, round(requests / source.rate / 60, 2), [*notes, f"{source.rate} requests a minute to {name}"]


def _labelling(
    params: Params, scheme: Scheme, *, corpus: str, added: int, sampled: int
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return records, tokens and expected cost by remote labeller, and notes.

    Labellers are asked about the records of the sample only, so more months fill the sample and no more.
    """
    if not params.votes.labellers.get(corpus) or corpus not in params.sample:
        return {}, [
            "no model labels the corpus, people do; requests of the benchmark's prompted models are not counted"
        ]
    records = min(added, max(0, params.sample[corpus].size - sampled))
    labelling: dict[str, dict[str, Any]] = {}
    votes = params.votes
    for name in votes.labellers[corpus]:
        labeller = params.labellers[name]
        if not isinstance(labeller, RemoteLabeller):
            continue
        vendor = vendor_of(labeller.provider, params=params)
        can = vendor.capabilities(labeller.model)
        prompt = build(scheme, keys=[*tasks_of(scheme)], system=labeller.system, mode=votes.mode)
        system, parts = prompt.render(Post("", "", "x" * POST_CHARACTERS), delimiter="0" * 16)
        cap = votes.max_output_tokens * can.max_tokens_factor
        size = budget.size(system, parts, schema=prompt.schema, cap=cap, factor=can.max_tokens_factor)
        read = size.read + params.few_shot.examples.get(corpus, 0) * budget.tokens(POST_CHARACTERS)
        try:
            known = vendor.price(labeller, name=name)
            share = vendor.batch_share if votes.batch and can.batch else 1.0
            usd = round(records * share * budget.usd(known, read=read, written=size.written), 2)
        except PriceUnknown:
            usd = None
        labelling[name] = {"records": records, "input_tokens": read, "output_tokens": size.written, "usd_expected": usd}
    notes = [
        f"labellers label the sample only (sample.{corpus}.size = {params.sample[corpus].size:,}, "
        f"of which {sampled:,} are drawn): {records:,} new records",
        f"a post has {POST_CHARACTERS:,} characters, and a token {budget.CHARACTERS_PER_TOKEN} characters",
    ]
    return labelling, notes if labelling else [*notes, f"votes.labellers.{corpus} names no remote labeller"]


def _history(settings: Settings, *, corpus: str, root: Path) -> tuple[Params, Scheme, History]:
    """Return parameters and scheme in force and what the corpus branch has; without a repository, the checkout's."""
    if (path := local_path(settings.repo)) and not path.exists():
        return *_in_force(root, corpus=corpus, profile=os.environ.get("CORPUS_PROFILE") or None), History()
    with workspace(settings) as clone:
        pointers, folder = sorted((clone.path / "data" / corpus).rglob("*.dvc")), clone.path / "metrics" / corpus
        collect = read_metrics(folder / "quality.json").get("collect", {})
        return *_in_force(clone.path, corpus=corpus), History(
            months=frozenset(path.relative_to(clone.path).parts[2] for path in pointers),
            size=sum(read_pointer(path.read_text()).size for path in pointers),
            submissions=collect.get("submissions", 0),
            kept=collect.get("kept", 0),
            sampled=read_metrics(folder / "sample.json").get("taken", 0),
        )


def _in_force(root: Path, *, corpus: str, profile: str | None = None) -> tuple[Params, Scheme]:
    params = load(root, profile=profile)
    if corpus not in params.corpora:
        raise ConfigError("UnknownName", kind="corpus", name=corpus, known=", ".join(params.corpora))
    return params, load_scheme(params.corpora[corpus].scheme, root=root)


def lines(made: Mapping[str, Any]) -> Iterator[str]:
    """Yield the estimate that :func:`plan` returned as text."""
    cost = "unknown, because a price is" if made["usd_expected"] is None else f"{made['usd_expected']:,.2f} US dollars"
    paid = f", {made['ocr_usd']:,.2f} US dollars for OCR" if made["ocr_usd"] else ""
    texts = {
        "runs": f"{made['runs']} of {named(made['corpus'])}_collect ({len(made['existing'])} of these months exist)",
        "requests": f"{made['requests']:,} to {made['source']}, {made['hours']:,} h at its rate",
        "pictures": f"{made['item_hours']:,} h on one core{paid}" if made["item_hours"] else "none",
        "records": f"{made['submissions']:,} submissions, {made['kept']:,} kept",
        "labelling": f"{cost} expected, votes.budget_usd is {made['budget_usd']:,.2f}",
        "disk": f"{made['disk_gb']:,} GB",
        "wakes": ", ".join(made["wakes"]) or "no Dag",
    }
    yield from (f"{name:10} {text}" for name, text in texts.items())
    yield from ("assumptions", *(f"  - {text}" for text in made["assumptions"]))
