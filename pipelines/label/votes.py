"""Collect one labeller's answer about every item of the split, paying for each answer once.

A remote labeller is asked for all predicted categories of the scheme in one request. Its answers are first looked up in
the encrypted store of answers. Airflow's mapped tasks (:func:`ask`, one per shard) may fill the store in advance; the
stage requests only missing answers. Offline labellers are fitted on the gold of validation, each category apart.
Refused, malformed and failed answers become rows too, but only the outcome ``vote`` counts. Each shard has canaries of
its own (:mod:`pipelines.label.canaries`); where these do not come back, its answers become refusals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipelines.core.config.collect import Sources
from pipelines.core.config.label import OfflineLabeller, RemoteLabeller
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.process import reporter
from pipelines.core.taxonomy.task import Task, tasks_of
from pipelines.curate.sample import draw
from pipelines.datasets.example import Item
from pipelines.datasets.items import CONTENTS, VALIDATIONS, SplitItems
from pipelines.datasets.post import Post
from pipelines.label import canaries
from pipelines.label.canaries import Pairs, Shard
from pipelines.label.remote import Remote, described
from pipelines.llm import own_prompts
from pipelines.llm import prompt_examples as examples
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import Answer, check_failures, counted, spent
from pipelines.llm.pictures import Picture, picture
from pipelines.llm.prompts import build, register
from pipelines.store import approvals, tables
from pipelines.store.answers import AnswerStore
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import ASKED, Context, Stage
from pipelines.store.vault.vault import Vault

if TYPE_CHECKING:
    from pipelines.label.offline import Offline


@dataclass(frozen=True)
class Desk:
    """The items of a corpus as labellers read them, and what opening a labeller needs; ``stack`` closes it."""

    material: SplitItems
    posts: Mapping[Item, Post]
    pictures: bool
    params: Params
    settings: Settings
    vault: Vault
    sources: Sources
    stack: ExitStack

    @classmethod
    def of(cls, ctx: Context, *, stack: ExitStack) -> Desk:
        """Read the items of all splits of a corpus."""
        material = SplitItems.read(ctx.corpus, params=ctx.params, vault=ctx.vault, root=ctx.root)
        pictures = "image" in CONTENTS[ctx.params.corpora[ctx.corpus].content].inputs
        posts = {i: picture(post, words=True) for i, post in material.posts.items()} if pictures else material.posts
        sources = approvals.sources_of(ctx.corpus, params=ctx.params, root=ctx.root)
        return cls(material, posts, pictures, ctx.params, ctx.settings, ctx.vault, sources, stack)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The categories that labellers are asked for, in one request."""
        return tasks_of(self.material.scheme)

    def shards(self, name: str) -> list[Shard]:
        """Return what a labeller is asked about, in shards of ``votes.shard_size`` of the items, in their order."""
        labeller, section = self.params.labellers[name], self.params.votes
        shards = self.material.shards(size=section.shard_size)
        if isinstance(labeller, OfflineLabeller):
            return [Shard([(item, self.posts[item]) for item in shard]) for shard in shards]
        size = len(self.posts) if labeller.sample is None else labeller.sample
        drawn = {*draw(self.posts, size=size, seed=section.seed)}

        def known(shard: int) -> Pairs:
            if not section.canaries:
                return ()
            size, seed = section.canaries, section.seed
            return canaries.chosen(self.material, posts=self.posts, size=size, seed=seed, shard=shard)

        return [
            Shard([(item, self.posts[item]) for item in shard if item in drawn], known(number))
            for number, shard in enumerate(shards)
            if drawn.intersection(shard)
        ]

    def sent(self, posts: Iterable[Post]) -> list[Post]:
        """Return items as remote labellers receive them: in mode ``paper``, pictures without the words read there."""
        if self.params.votes.mode == "improved":
            return list(posts)
        return [replace(post, body="") if isinstance(post, Picture) else post for post in posts]

    def open(self, name: str) -> list[Remote | Offline]:
        """Connect a remote labeller of ``params.labellers``, or fit an offline one for each category."""
        labeller = self.params.labellers[name]
        if not isinstance(labeller, OfflineLabeller):
            return [self.remote(name)]
        return [self._fit(name, labeller=labeller, task=task) for task in self.tasks.values()]

    def remote(self, name: str) -> Remote:
        """Connect a remote labeller; its prompt shows the examples that the stage ``few_shot`` chose."""
        material, params = self.material, self.params
        labeller = described(name, params=params, pictures=self.pictures)
        turned = labeller.order == "reversed"
        shown = {item: self.posts[item] for item in material.examples if item in self.posts}
        chosen = examples.chosen(
            material, keys=[*self.tasks], posts=dict(zip(shown, self.sent(shown.values()), strict=True))
        )
        prompt = build(
            material.scheme.turned() if turned else material.scheme,
            keys=[*self.tasks][:: -1 if turned else 1],
            system=labeller.system,
            examples=chosen,
            secret=self.settings.secret(),
            mode=params.votes.mode,
            own=own_prompts.read(params.prompts, root=material.root),
        )
        register(prompt, tracking_uri=self.settings.mlflow_tracking_uri)
        answers = self.stack.enter_context(AnswerStore.open(self.settings.answers_url))
        given: dict[str, Any] = {"prompt": prompt, "scheme": material.scheme, "answers": answers, "vault": self.vault}
        given["sources"] = self.sources
        return Remote.of(name, params=params, settings=self.settings, pictures=self.pictures, **given)

    def _fit(self, name: str, *, labeller: OfflineLabeller, task: Task) -> Offline:
        from pipelines.label.offline import fit

        gold = {
            item: task.seen(labels)
            for item, labels in self.material.gold.get(task.key, {}).items()
            if self.material.split[item] in VALIDATIONS and item in self.posts
        }
        return fit(
            name,
            labeller=labeller,
            gold=[(self.posts[item], labels) for item, labels in gold.items()],
            category=task.category,
            votes=self.params.votes,
            groups=[self.material.group[item] for item in gold],
        )

    def label(self, asked: Sequence[Remote | Offline], items: Pairs, *, progress: str) -> list[Answer]:
        """Return an answer for each item and category; offline labellers read the words of a picture."""
        found: list[Answer] = []
        posts = [post for _, post in items]
        for labeller in asked:
            sent = self.sent(posts) if isinstance(labeller, Remote) else posts
            answers = labeller.label(sent, progress=reporter(progress, total=len(posts)))
            each = len(answers) // max(1, len(posts))
            numbers = (image for (_, image), _ in items for _ in range(each))
            found += [replace(answer, image=image) for answer, image in zip(answers, numbers, strict=True)]
        return found


def remote_labellers(ctx: Context, *, names: Iterable[str]) -> Iterator[tuple[Remote, Desk]]:
    """Yield each remote labeller of ``names`` with the corpus's items, which are not read if there is none."""
    remote = [name for name in names if isinstance(ctx.params.labellers[name], RemoteLabeller)]
    if remote:
        with ExitStack() as stack:
            desk = Desk.of(ctx, stack=stack)
            for name in remote:
                yield desk.remote(name), desk


def ask(ctx: Context, *, shard: int, wait: bool = True) -> dict[str, Any]:
    """Request the answers of one labeller (``ctx.row``) for one shard of items; store them for the stage ``votes``.

    Returns:
        Counts of the answers by outcome; without ``wait``, ``batches``: the digests of the ids of the batch jobs
        submitted to a batch endpoint and recorded in the store of answers.
    """
    ctx.described("labeller", ctx.params.labellers)
    done: dict[str, Any] = {"labeller": ctx.row, "shard": shard}
    with ExitStack() as stack:
        desk = Desk.of(ctx, stack=stack)
        asked, own = desk.open(ctx.row), desk.shards(ctx.row)[shard]
        if not wait:
            batching = [one for one in asked if isinstance(one, Remote) and one.batches]
            return done | {"batches": [job for one in batching for job in one.hand_over(desk.sent(own.posts))]}
        answers = desk.label(asked, [*own.items, *own.canaries], progress=ctx.row)
    return done | {"outcomes": counted(answer.outcome for answer in answers)}


def planned(ctx: Context) -> Iterator[PlannedRequests]:
    """Yield what each remote labeller of ``votes.labellers`` would be sent, and at what cost; nothing is sent.

    ``jobs`` of a cost are the shards with unanswered items: one {labeller, provider, shard, batch} each (``batch``:
    whether a batch endpoint is used). Canaries have a cost of their own.
    """
    for asked, desk in remote_labellers(ctx, names=ctx.params.votes.labellers.get(ctx.corpus, ())):
        shards = desk.shards(asked.name)
        planned = asked.planned("votes", desk.sent(post for shard in shards for _, post in shard.items))
        job = {"labeller": asked.name, "provider": asked.receiver, "batch": asked.batches}
        jobs = [job | {"shard": i} for i, shard in enumerate(shards) if asked.unanswered(desk.sent(shard.posts))]
        yield replace(planned, cost={**planned.cost, "jobs": jobs})
        if known := [post for shard in shards for _, post in shard.canaries]:
            yield asked.planned("votes", desk.sent(known), name=f"{asked.name}, canaries")


STAGE = Stage(
    reads=("data", "few_shot", "gold", "split"),
    params=("labellers.{name}", "votes.min_positives", "votes.canaries", "votes.shard_size", *ASKED),
    rows="votes",
)


def run(ctx: Context) -> dict[str, Any]:
    """Label a corpus; write ``snapshot/<corpus>/votes/<labeller>/votes.parquet`` and metrics.

    Returns:
        ``records`` (items), ``stripped`` (form texts removed from the posts, SPEC 22), ``outcomes`` and ``reasons`` (of
        outcomes other than a vote, and of repairs; of each item and category), ``repaired``, tokens and ``cost`` in US
        dollars; of a remote labeller, ``prompt``: see :attr:`pipelines.llm.prompts.Prompt.origin`; with canaries,
        ``canaries``: see :func:`pipelines.label.canaries.settled`.

    Raises:
        BudgetSpent: the budget is used up; every answer so far is kept.
    """
    corpus, labeller, root = ctx.corpus, ctx.row, ctx.root
    ctx.described("labeller", ctx.params.labellers)
    with ExitStack() as stack:
        desk = Desk.of(ctx, stack=stack)
        shards, asked = desk.shards(labeller), desk.open(labeller)
        items = [pair for shard in shards for pair in shard.items]
        known = [pair for shard in shards for pair in shard.canaries]
        prompts = [one.prompt for one in asked if isinstance(one, Remote)]
        answers = desk.label(asked, [*items, *known], progress=labeller)
    told, returned = answers[: len(items) * len(desk.tasks)], answers[len(items) * len(desk.tasks) :]
    check_failures([answer.outcome for answer in told], labeller=labeller, most=ctx.params.votes.max_failed)
    # a canary that is asked again must not change what a run decided
    check_failures([answer.outcome for answer in returned], labeller=labeller, most=0)
    found, checked = (
        canaries.settled(shards, told=told, returned=returned, material=desk.material) if known else (told, {})
    )
    path = root / "snapshot" / corpus / "votes" / labeller / "votes.parquet"
    tables.write_rows([answer.row() for answer in found], path, name="votes")
    metrics = {
        "records": len(items),
        "stripped": sum(post.strips for _, post in items),
        "outcomes": counted(answer.outcome for answer in found),
        **spent(found),
        **({"prompt": prompts[0].origin} if prompts else {}),
        **checked,
    }
    return write_metrics(metrics, root / "metrics" / corpus / f"votes-{labeller}.json")
