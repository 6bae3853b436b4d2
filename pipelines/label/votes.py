"""Run the stage ``votes``: collect one labeller's answer for every record of the split, paying for each answer once.

A remote labeller's answers are first looked up in the sealed store of answers. Airflow's mapped tasks (``ask``, one per
shard) may fill the store before, and the stage itself sends only what is missing. The offline members are fitted on the
dev gold. Refused, malformed and failed answers are stored as rows too; only ``vote`` is ever counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.config.label import OfflineLabeller, RemoteLabeller
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.datasets.split_posts import SplitPosts
from pipelines.errors import TooManyFailed
from pipelines.label.labeller import Labeller
from pipelines.label.remote import Remote
from pipelines.llm.outcome import Answer, Outcome
from pipelines.llm.prompts import DEV, Prompt, PromptExample, build
from pipelines.progress import reporter
from pipelines.storage import tables
from pipelines.storage.metrics_file import write_metrics
from pipelines.vault.vault import Vault


def prompt_for(material: SplitPosts, labeller: RemoteLabeller, *, secret: bytes) -> Prompt:
    """Return the scheme's prompt with the examples marked in gold; ``secret`` keys their delimiters."""
    key = material.scheme.category().key
    shown = [r for r in material.examples if r in material.posts]
    examples = [PromptExample(r, material.posts[r], {key: tuple(sorted(material.gold[r]))}) for r in shown]
    return build(material.scheme, keys=[key], system=labeller.system, examples=examples, secret=secret)


def open_labeller(
    name: str, *, material: SplitPosts, params: Params, settings: Settings, vault: Vault, stack: ExitStack
) -> Labeller:
    """Return the labeller of a name, ready for use; ``stack`` closes its resources."""
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
    from pipelines.llm.prompts import register
    from pipelines.storage.answers import AnswerStore

    prompt = prompt_for(material, described, secret=settings.secret())
    if settings.mlflow_tracking_uri:
        register(prompt, tracking_uri=settings.mlflow_tracking_uri)
    return Remote(
        name,
        labeller=described,
        provider=params.providers[described.provider],
        endpoint=settings.endpoint(described.provider),
        votes=params.votes,
        prompt=prompt,
        scheme=material.scheme,
        answers=stack.enter_context(AnswerStore.open(settings.answers_url)),
        vault=vault,
        secret=settings.secret(),
    )


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
    """Send one shard to one labeller, so that the stage finds the answers stored.

    Returns:
        Counts by outcome; without ``wait``, ``batches``: the digests of the ids of the jobs that were submitted to a
        batch endpoint and recorded in the store of answers.
    """
    material = SplitPosts.read(corpus, params=params, vault=vault, root=root)
    posts = material.shards(size=params.votes.shard_size)[shard]
    with ExitStack() as stack:
        asked = open_labeller(labeller, material=material, params=params, settings=settings, vault=vault, stack=stack)
        done: dict[str, Any] = {"labeller": labeller, "shard": shard}
        if not wait:
            return done | {"batches": asked.hand_over(posts) if isinstance(asked, Remote) and asked.batches else []}
        answers = asked.label(posts, progress=reporter(labeller, total=len(posts)))
    return done | {"outcomes": _outcomes(answers)}


def run(
    corpus: str, *, labeller: str, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> dict[str, Any]:
    """Write ``snapshot/<corpus>/votes/<labeller>/votes.parquet`` and ``metrics/<corpus>/votes-<labeller>.json``.

    Returns:
        ``records``, ``stripped`` (form texts removed from the posts, SPEC 22), ``outcomes``, ``reasons`` (of outcomes
        other than a vote, and of repairs), ``repaired``, tokens and ``cost`` in US dollars.

    Raises:
        TooManyFailed: more than ``votes.max_failed`` of the answers failed; nothing was written.
        BudgetSpent: the budget is used up; every answer so far is kept.
    """
    material = SplitPosts.read(corpus, params=params, vault=vault, root=root)
    posts = list(material.posts.values())
    with ExitStack() as stack:
        found = open_labeller(
            labeller, material=material, params=params, settings=settings, vault=vault, stack=stack
        ).label(posts, progress=reporter(labeller, total=len(posts)))
    outcomes = _outcomes(found)
    if (failed := outcomes.get(Outcome.FAILED, 0)) > params.votes.max_failed * len(found):
        raise TooManyFailed(labeller=labeller, failed=failed, records=len(found))
    table = pa.Table.from_pylist([answer.row() for answer in found], schema=tables.SCHEMAS["votes"])
    tables.write(table, root / "snapshot" / corpus / "votes" / labeller / "votes.parquet", name="votes")
    metrics = {
        "records": len(posts),
        "stripped": sum(post.strips for post in posts),
        "outcomes": outcomes,
        "reasons": dict(sorted(Counter(a.reason for a in found if a.reason).items())),
        "repaired": sum(a.repaired for a in found),
        "input_tokens": sum(a.input_tokens for a in found),
        "output_tokens": sum(a.output_tokens for a in found),
        "cost": round(sum(a.cost for a in found), 6),
    }
    return write_metrics(metrics, root / "metrics" / corpus / f"votes-{labeller}.json")


def _outcomes(answers: Sequence[Answer]) -> dict[str, int]:
    return dict(sorted(Counter(str(a.outcome) for a in answers).items()))
