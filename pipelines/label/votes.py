"""Run the stage ``votes``: collect one labeller's answer for every record of the split, paying for each answer once.

A remote labeller's answers are first looked up in the encrypted store of answers. Airflow's mapped tasks (:func:`ask`,
one per shard) may fill the store in advance; the stage requests only missing answers. Offline labellers are fitted on
the gold of dev. Refused, malformed and failed answers become rows too, but only the outcome ``vote`` counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines.core.config.label import OfflineLabeller, RemoteLabeller
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.progress import reporter
from pipelines.datasets.posts import SplitPosts
from pipelines.label.remote import Remote
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import check_failures, counted, spent
from pipelines.llm.prompting.post_prompt import prompt_for
from pipelines.llm.prompting.prompts import DEV, register
from pipelines.store import tables
from pipelines.store.answers import AnswerStore
from pipelines.store.metrics_file import write_metrics
from pipelines.store.vault.vault import Vault

if TYPE_CHECKING:
    from pipelines.label.offline.fit import Offline


def open_labeller(
    name: str, *, material: SplitPosts, params: Params, settings: Settings, vault: Vault, stack: ExitStack
) -> Remote | Offline:
    """Create the labeller ``name`` of params.yaml: connect a remote one, or fit an offline one; ``stack`` closes it."""
    described = params.labellers[name]
    if isinstance(described, OfflineLabeller):
        from pipelines.label.offline.fit import fit

        dev = [r for r in material.gold if material.split[r] == DEV and r in material.posts]
        return fit(
            name,
            labeller=described,
            gold=[(material.posts[r], material.gold[r]) for r in dev],
            category=material.scheme.category(),
            votes=params.votes,
            groups=[material.group[r] for r in dev],
        )
    prompt = prompt_for(material, system=described.system, secret=settings.secret())
    register(prompt, tracking_uri=settings.mlflow_tracking_uri)
    answers = stack.enter_context(AnswerStore.open(settings.answers_url))
    given: dict[str, Any] = {"prompt": prompt, "scheme": material.scheme, "answers": answers, "vault": vault}
    return Remote.of(name, labeller=described, params=params, settings=settings, **given)


def remote_labellers(
    corpus: str, *, names: Iterable[str], params: Params, settings: Settings, vault: Vault, root: Path
) -> Iterator[tuple[Remote, SplitPosts]]:
    """Yield each remote labeller of ``names`` with the corpus's posts, which are not read if there is none."""
    remote = [name for name in names if isinstance(params.labellers[name], RemoteLabeller)]
    if not remote:
        return
    material = SplitPosts.read(corpus, params=params, vault=vault, root=root)
    with ExitStack() as stack:
        for name in remote:
            asked = open_labeller(name, material=material, params=params, settings=settings, vault=vault, stack=stack)
            if isinstance(asked, Remote):
                yield asked, material


def ask(
    corpus: str,
    *,
    labeller: str,
    shard: int,
    params: Params,
    settings: Settings,
    vault: Vault,
    wait: bool = True,
    root: Path = Path(),
) -> dict[str, Any]:
    """Request one labeller's answers for one shard of posts, and store them for the stage ``votes``.

    Returns:
        Counts of the answers by outcome; without ``wait``, ``batches``: the digests of the ids of the batch jobs
        submitted to a batch endpoint and recorded in the store of answers.
    """
    material = SplitPosts.read(corpus, params=params, vault=vault, root=root)
    posts = material.shards(size=params.votes.shard_size)[shard]
    with ExitStack() as stack:
        asked = open_labeller(labeller, material=material, params=params, settings=settings, vault=vault, stack=stack)
        done: dict[str, Any] = {"labeller": labeller, "shard": shard}
        if not wait:
            return done | {"batches": asked.hand_over(posts) if isinstance(asked, Remote) and asked.batches else []}
        answers = asked.label(posts, progress=reporter(labeller, total=len(posts)))
    return done | {"outcomes": counted(answer.outcome for answer in answers)}


def planned(
    corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> Iterator[PlannedRequests]:
    """Yield what each remote labeller of ``votes.labellers`` would be sent, and at what cost; nothing is sent.

    ``jobs`` of a cost are the shards with unanswered records: one {labeller, provider, shard, batch} each (``batch``:
    whether a batch endpoint is used).
    """
    places: dict[str, Any] = {"params": params, "settings": settings, "vault": vault, "root": root}
    for asked, material in remote_labellers(corpus, names=params.votes.labellers, **places):
        planned = asked.planned("votes", list(material.posts.values()))
        job = {"labeller": asked.name, "provider": asked.receiver, "batch": asked.batches}
        shards = enumerate(material.shards(size=params.votes.shard_size))
        jobs = [job | {"shard": i} for i, shard in shards if asked.unanswered(shard)]
        yield replace(planned, cost={**planned.cost, "jobs": jobs})


def run(
    corpus: str, *, labeller: str, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> dict[str, Any]:
    """Label a corpus; write ``snapshot/<corpus>/votes/<labeller>/votes.parquet`` and metrics.

    Returns:
        ``records``, ``stripped`` (form texts removed from the posts, SPEC 22), ``outcomes``, ``reasons`` (of outcomes
        other than a vote, and of repairs), ``repaired``, tokens and ``cost`` in US dollars; of a remote labeller,
        ``prompt``: see :attr:`pipelines.llm.prompting.prompts.Prompt.origin`.

    Raises:
        BudgetSpent: the budget is used up; every answer so far is kept.
    """
    material = SplitPosts.read(corpus, params=params, vault=vault, root=root)
    posts = list(material.posts.values())
    with ExitStack() as stack:
        asked = open_labeller(labeller, material=material, params=params, settings=settings, vault=vault, stack=stack)
        found = asked.label(posts, progress=reporter(labeller, total=len(posts)))
        prompt = {"prompt": asked.prompt.origin} if isinstance(asked, Remote) else {}
    outcomes = [answer.outcome for answer in found]
    check_failures(outcomes, labeller=labeller, most=params.votes.max_failed)
    table = pa.Table.from_pylist([answer.row() for answer in found], schema=tables.SCHEMAS["votes"])
    tables.write(table, root / "snapshot" / corpus / "votes" / labeller / "votes.parquet", name="votes")
    metrics = {
        "records": len(posts),
        "stripped": sum(post.strips for post in posts),
        "outcomes": counted(outcomes),
        **spent(found),
        **prompt,
    }
    return write_metrics(metrics, root / "metrics" / corpus / f"votes-{labeller}.json")
