"""Run a corpus without Airflow: its months, the stages of its Dags in order, and the labels of its champions.

What ended is kept, so that a run which was killed continues: a published month is skipped unless what it is collected
with changed, a step of a month is found by the commit on which it worked, a stage's result by its inputs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.collect.month import Window
from pipelines.collect.sources.dump import Dump, dump_files, expected_digest
from pipelines.core.config.params import parse_all
from pipelines.core.config.settings import Settings
from pipelines.core.errors import CommitLost, ConfigError, DataError, SourceError, StepFailed
from pipelines.core.process import now, write_private
from pipelines.operate import tasks
from pipelines.store.vault import locks
from pipelines.workspace import dag_graph
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git
from pipelines.workspace.objects import ObjectIncomplete
from pipelines.workspace.profile import texts_at
from pipelines.workspace.publish import head
from pipelines.workspace.results import Token

# The id of the run, by which stages accept results.
RUN = "corpus run"
# Ours: Airflow may publish a month, or another person a round, now and then.
ATTEMPTS = 3
# The exit status of a stage that waits for labels (`errors.toml`).
WAITS = 79
DAGS = ("dataset", "label", "benchmark")
Doing = Callable[[str], AbstractContextManager[None]]


@contextmanager
def alone(settings: Settings, corpus: str) -> Iterator[None]:
    """Wait until no other process of this host runs the corpus."""
    name = f"run-{corpus}"
    with ExitStack() as stack:
        if not stack.enter_context(locks.of_host(settings, name, wait=False)):
            sys.stderr.write(f"Waiting for another `corpus run {corpus}` of this home.\n")
            stack.enter_context(locks.of_host(settings, name))
        yield


@dataclass
class CorpusRun:
    """A run of one corpus; ``doing`` is entered with the name of each step while it works.

    ``say`` gets what a person should know, such as the cost of the requests that follow.
    """

    settings: Settings
    corpus: str
    doing: Doing
    say: Callable[[str], None]
    to: str = "report"
    asked: set[str] = field(default_factory=set)

    @cached_property
    def graph(self) -> dict[str, Any]:
        """The resolved graph of the corpus branch, which Airflow reads, too."""
        dag_graph.refresh(self.settings)
        graph: dict[str, Any] = json.loads(dag_graph.file(self.settings.home).read_bytes())
        if self.corpus not in graph["corpora"]:
            raise ConfigError("UnknownName", kind="corpus", name=self.corpus, known=", ".join(graph["corpora"]))
        return graph

    @cached_property
    def upstream(self) -> dict[str, list[str]]:
        """The stages that each stage needs."""
        return {stage["name"]: stage["upstream"] for stage in self.graph["stages"]}

    def months(self, chosen: str | None) -> list[str]:
        """Return the months to collect: of ``first..last``, of no month if ``none``; by default those of the corpus."""
        if chosen == "none":
            return []
        described = self.graph["corpora"][self.corpus]
        first, _, last = (chosen or f"{described['first_month']}..{described['last_month'] or ''}").partition("..")
        window, end = Window.from_key(first), Window.from_key(last or (first if chosen else f"{now():%Y-%m}"))
        if end.start < window.start:
            raise ConfigError("BadPeriod", first=first, last=last)
        months = []
        while window.start <= end.start and window.end <= now():
            months.append(window.key)
            window = Window.from_key(f"{window.end:%Y-%m}")
        if chosen and window.start <= end.start:
            raise ConfigError("NotOver", month=window.key)
        published = [month for month in months if self._published(month)]
        other = [month for month in published if self._dumps_differ(month)]
        if other and not chosen:
            self.say(
                f"The dumps have changed since {', '.join(other)} was collected, which stays: "
                f"`corpus run {self.corpus} --months {other[0]}..{other[-1]}` collects it again."
            )
        return [month for month in months if month not in published or (chosen and month in other)]

    def _dumps_differ(self, month: str) -> bool:
        """Return whether a month was collected here from other dumps than there are now."""
        noted, there = self._noted().get(month), self._dumps(month)
        return bool(noted and there) and noted != there

    def _dumps(self, month: str) -> dict[str, list[Any]]:
        """Return checksum and size of the dumps of a month, by name; nothing if one is missing, or none is read."""
        described = self.graph["corpora"][self.corpus]
        sources = described["source"]
        if Dump.name not in ([sources] if isinstance(sources, str) else sources):
            return {}
        with suppress(SourceError):
            files = dump_files(self.settings.dumps, Window.from_key(month), subreddits=described["subreddits"])
            return {path.name: [expected_digest(path), path.stat().st_size] for path in files}
        return {}

    @property
    def _notes(self) -> Path:
        return self.settings.home / "run" / f"{self.corpus}-dumps.json"

    def _noted(self) -> dict[str, dict[str, list[Any]]]:
        """Return the dumps from which months were collected here."""
        noted: dict[str, dict[str, list[Any]]] = json.loads(self._notes.read_bytes()) if self._notes.exists() else {}
        return noted

    def _published(self, month: str) -> bool:
        """Return whether a month is published, and was collected with the present parameters."""
        folder = f"data/{self.corpus}/{month}"
        with history(self.settings) as repository:
            where = ("--git-dir", str(repository))
            if not git(*where, "ls-tree", BRANCH, f"{folder}/records.parquet.dvc"):
                return False
            commit = git(*where, "log", "-1", "--format=%H", BRANCH, "--", folder)
            then, today = (self._collected_with(texts_at(at, cwd=repository)) for at in (commit, BRANCH))
        return then == today

    def _collected_with(self, texts: Mapping[str, str]) -> list[Any]:
        values = parse_all(dict(texts))
        described = values["corpora"].get(self.corpus) or {}
        kept = {key: described.get(key) for key in ("content", "subreddits", "source", "languages")}
        return [kept, values["collect"], values[described["content"]] if described else None]

    def month(self, month: str) -> None:
        """Collect a month, and publish it; steps that a killed run has ended are not repeated."""
        state, dumps = _MonthState(self.settings, self.corpus, month), self._dumps(month)
        self._attempt(month, state)
        write_private(self._notes, json.dumps(self._noted() | {month: dumps}))

    def _attempt(self, month: str, state: _MonthState) -> None:
        for _ in range(ATTEMPTS):
            try:
                self._month(month, state)
                return
            except ObjectIncomplete:
                # removed meanwhile, as objects to which no commit refers are
                if not state.done:
                    raise
                state.forget()
            except CommitLost:
                pass
        self._month(month, state)

    def _month(self, month: str, state: _MonthState) -> None:
        collect, items, partition = self.graph["months"][self.corpus]

        def step(made: Mapping[str, Any], pointers: Mapping[str, str], shard: int = 0) -> dict[str, Any]:
            argv, out = ([word.format(month=month, shard=shard) for word in made[key]] for key in ("argv", "out"))
            key = " ".join(argv)
            if key not in state.done:
                number = f" {shard}" if made is items else ""
                with self.doing(f"{month} {argv[0]}{number}"):
                    state.add(key, tasks.step(argv, settings=self.settings, out=out, pointers=pointers))
            made_before: dict[str, Any] = state.done[key]
            return made_before

        collected = step(collect, {})
        first, shards = (collected["result"][key] for key in ("first", "shards"))
        pointers = dict(collected["pointers"])
        for shard in range(first, first + shards):
            pointers |= step(items, collected["pointers"], shard)["pointers"]
        joined = step(partition, pointers)
        folder = f"data/{self.corpus}/{month}/{items['argv'][0]}/"
        # an addition without items leaves no shard, so that nothing new makes no commit
        empty = joined["result"]["adds"] and not joined["result"]["items"]
        every = (pointers | joined["pointers"]).items()
        kept = {p: text for p, text in every if p.startswith("data/") and not (empty and p.startswith(folder))}
        with self.doing(f"{month} publish"):
            tasks.publish_month(self.corpus, month, settings=self.settings, pointers=kept, run=RUN)
        state.forget()

    def stages(self, dag: str) -> tuple[list[str], list[str]]:
        """Return the stages of a Dag up to the last one that is wanted, in order, and those that others have run."""
        found = self.graph["dags"][self.corpus][dag]
        names = dag_graph.ordered(self.upstream, targets=found["targets"])
        before = dag_graph.ordered(self.upstream, targets=found["below"])
        names = [name for name in names if name not in before]
        if self.to == "report":
            return names, found["below"]
        own = [name for name in self.own if name.partition("@")[0] == self.to]
        wanted = dag_graph.ordered(self.upstream, targets=own)
        return [name for name in names if name in wanted], found["below"]

    @cached_property
    def own(self) -> list[str]:
        """The stages of the corpus."""
        return [stage["name"] for stage in self.graph["stages"] if stage["corpus"] == self.corpus]

    def steps(self) -> list[str]:
        """Return the names that ``to`` may have."""
        return sorted({name.partition("@")[0] for name in self.own} - {"batch_predict"})

    def snapshot(self, names: Sequence[str], *, below: Sequence[str] = (), base: str | None = None) -> None:
        """Run stages in order on one commit, and publish their results; again if the branch moved meanwhile."""
        for attempt in range(ATTEMPTS if names else 0):
            try:
                if not self._snapshot(names, below=below, base=base or head(self.settings))["superseded"]:
                    return
            except CommitLost:
                if attempt == ATTEMPTS - 1:
                    raise
        if names:
            raise DataError("Overtaken", stage=names[-1], base=head(self.settings)[:12])

    def _snapshot(self, names: Sequence[str], *, below: Sequence[str], base: str) -> dict[str, Any]:
        at: dict[str, Any] = {"base": base, "run": RUN}
        tokens: list[Token] = []
        waits: StepFailed | None = None
        with tasks.stage_run(self.settings, **at, results=[]) as (clone, context):
            for name in names:
                self._ask_before(name, names, at=at, results=tokens)
                try:
                    with self.doing(name):
                        tokens.append(tasks.reproduce(name, context=context))
                        clone.take(context.receive(tokens[-1:]))
                except StepFailed as error:
                    # what has ended is published: people label items of the sample
                    if error.fields["returncode"] != WAITS or not tokens:
                        raise
                    waits = error
                    break
        last = str(tokens[-1]["stage"])
        published: dict[str, Any] = {"below": below, "results": tokens, "settings": self.settings, **at}
        with self.doing(f"publish {last}"):
            done = tasks.publish_stages(self.corpus, [last], **published)
        if waits and not done["superseded"]:
            raise waits
        return done

    def _ask_before(self, name: str, names: Sequence[str], *, at: Mapping[str, Any], results: Sequence[Any]) -> None:
        """Before the first stage that asks providers, say what all of these cost, and ask the labellers of votes."""
        steps = {stage.partition("@")[0] for stage in names}
        voting = {"votes", "injection_test"} & steps if "votes" in steps else set()
        asking = sorted(voting | set(self.graph["asking"][self.corpus]) & steps)
        if name.partition("@")[0] not in asking or self.asked.issuperset(asking):
            return
        self.asked.update(asking)
        argv = ["plan", "cost", self.corpus, *(word for step in asking for word in ("--step", step))]
        read = [token for token in results if token["stage"].partition("@")[0] in tasks.READ_TO_ASK]
        options: dict[str, Any] = {"settings": self.settings, **at, "results": read}
        planned = tasks.ask(self.corpus, argv, **options)
        for row in planned["leaves"]:
            self.say("{provider} ({to}): {requests} requests, {texts} texts, {pictures} pictures".format(**row))
        if planned["leaves"]:
            self.say(f"expected {planned['usd_expected']} US dollars, at most {planned['usd_at_most']}")
        for job in planned["jobs"]:
            words = ["label", self.corpus, "--labeller", job["labeller"], "--shard", str(job["shard"]), "--wait"]
            with self.doing(f"label {job['labeller']} {job['shard']}"):
                tasks.ask(self.corpus, words, **options)

    def _labelled(self) -> bool:
        """Return whether the newest commit has an item with gold."""
        with history(self.settings) as repository:
            counted = git("--git-dir", str(repository), "show", f"{BRANCH}:metrics/{self.corpus}/gold.json")
        return bool(json.loads(counted)["records"])

    def dags(self) -> bool:
        """Run the stages of each Dag, and publish them; return whether the rest waits for labels."""
        try:
            for dag in DAGS:
                names, below = self.stages(dag)
                if dag != DAGS[0] and names and not self._labelled():
                    return True
                self.snapshot(names, below=below)
        except StepFailed as error:
            if error.fields["returncode"] != WAITS:
                raise
            return True
        return False

    def scoring(self) -> bool:
        """Label every record with the champions; return whether there are any."""
        if not self.graph["batch_predict"].get(self.corpus):
            return False
        pinned = tasks.publish_champions(self.corpus, settings=self.settings)
        if pinned["champions"]:
            names = dag_graph.ordered(self.upstream, targets=[f"batch_predict@{self.corpus}"])
            self.snapshot(names, base=pinned["commit"])
        return bool(pinned["champions"])


class _MonthState:
    """The ended steps of a month on one commit: pointers, authenticated as those that Airflow keeps, and counts."""

    def __init__(self, settings: Settings, corpus: str, month: str) -> None:
        self.path: Path = settings.home / "run" / f"{corpus}-{month}.json"
        self.base = head(settings)
        self.done: dict[str, Any] = {}
        if self.path.exists() and (kept := json.loads(self.path.read_bytes()))["base"] == self.base:
            self.done = kept["done"]

    def add(self, key: str, made: Mapping[str, Any]) -> None:
        self.done[key] = made
        write_private(self.path, json.dumps({"base": self.base, "done": self.done}))

    def forget(self) -> None:
        self.done = {}
        self.path.unlink(missing_ok=True)
