"""Synchronize an annotation round between the corpus repository and the queues of its annotation backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.annotate import manifest as manifests
from pipelines.annotate import response_validation
from pipelines.annotate.backends import AnnotationTask, Item, Queue
from pipelines.annotate.form import Form, build_form
from pipelines.annotate.manifest import RoundManifest
from pipelines.annotate.rounds import opening, store
from pipelines.annotate.rounds.adjudicate import AdjudicationCase, cases, read_decisions
from pipelines.annotate.rounds.adjudicate import rejected as unfit_of
from pipelines.annotate.rounds.store import RoundSite, StoredRound
from pipelines.core.config.params import Params
from pipelines.core.errors import AnnotationError
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.guideline import digest, guideline
from pipelines.datasets.items import open_images, opened_posts
from pipelines.datasets.post import media_type
from pipelines.store.tables import Row, item_of
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace


def task_list(
    corpus: str,
    *,
    items: Mapping[Item, int],
    cases: Mapping[Item, AdjudicationCase] | None,
    params: Params,
    vault: Vault,
    root: Path,
) -> list[AnnotationTask]:
    """Decrypt ``items`` (item to position in a queue) as annotation tasks, in the order of their positions.

    The task of a meme has only the picture (FigSIM 3.3: annotators see the meme); the task of a post has title and
    body. With ``cases``, a task also has the disputed categories and the conflicting answers. Records that were taken
    down and items without content below ``root`` are left out.
    """
    contents: Iterator[tuple[Item, dict[str, Any]]]
    if params.corpora[corpus].content == "images":
        pictures = open_images(root / "data" / corpus, items=items, vault=vault)
        contents = (
            (item, {"image": image, "media_type": media_type(image) or "application/octet-stream"})
            for item, (_, image) in pictures
            if image is not None
        )
    else:
        ids = {record_id for record_id, image in items if image == 0}
        posts = opened_posts(corpus, ids=ids, vault=vault, root=root)
        contents = (((record_id, 0), {"text": {"title": title, "body": body}}) for record_id, title, body in posts)
    tasks = []
    for item, content in contents:
        if case := (cases or {}).get(item):
            content |= {"sides": case.sides, "disputed": case.categories}
        tasks.append(AnnotationTask(item, items[item], **content))
    return sorted(tasks, key=lambda task: task.position)


@dataclass(frozen=True)
class Pulled:
    """The answers in an annotation round's queues, merged with the stored tables of the round.

    ``answered`` counts finished items by person, including skipped ones; ``skipped`` those of all people together.
    ``cases`` are the items that the adjudicator has not decided yet. ``rejected`` has, by person, each cell of a file
    that was not taken.
    """

    round: StoredRound
    answered: dict[str, int]
    skipped: int
    problems: dict[str, dict[str, int]]
    cases: list[AdjudicationCase]
    rejected: dict[str, list[str]]

    def write(self, vault: Vault) -> list[Path]:
        """Write the tables ``annotations`` and ``adjudications`` to the clone; return the paths of changed files."""
        folder = self.round.folder
        written = store.write(folder, self.round.annotations, name="annotations", vault=vault)
        return written + store.write(folder, self.round.decisions, name="adjudications", vault=vault)

    @property
    def summary(self) -> dict[str, object]:
        """What the `corpus round` commands print: the round's status, and counts of answers and decisions."""
        return round_fields(self.round.manifest) | {
            "answered": self.answered,
            "skipped": self.skipped,
            "decided": len({(item_of(row), row["category"]) for row in self.round.decisions}),
            "cases": len(self.cases),
            "problems": self.problems,
            "rejected": self.rejected,
        }


class RoundContext:
    """A round's backend and label scheme; ``going`` are the manifests of all open rounds on the same backend."""

    def __init__(self, site: RoundSite, stored: StoredRound) -> None:
        manifest, root = stored.manifest, stored.clone.path
        every = [m for corpus in stored.params.corpora for m in manifests.opened(root, corpus)]
        self.site, self.scheme = site, load_scheme(manifest.scheme, root=root)
        self.going = [m for m in every if m.status != "closed" and m.backend == manifest.backend]
        people = store.people([*self.going, manifest])
        self.backend = site.backend or store.open_backend(
            manifest, params=stored.params, settings=site.settings, pseudonyms=people
        )

    def check_guideline(self, stored: StoredRound) -> None:
        """Check that the annotation guideline is still the one with which the round was opened."""
        manifest = stored.manifest
        now = guideline(self.scheme, content=stored.params.corpora[manifest.corpus].content)
        if digest(now) != manifest.guideline:
            raise wrong(manifest, detail="its guideline changed since it was opened; close it and open another round")

    def addresses(self, stored: StoredRound) -> dict[str, str]:
        """Return where each person with a queue in this round works."""
        queues = [queue for queue in store.queues_of(stored.manifest) if self.backend.present(queue)]
        return {queue.annotator: self.backend.address(queue) for queue in queues}

    def take_out(self, stored: StoredRound) -> int:
        """Remove the records that were taken down from all queues of the round; return the number of removed items."""
        return store.remove_records(store.queues_of(stored.manifest), backend=self.backend, gone=stored.gone)

    def look(self, stored: StoredRound) -> Pulled:
        """Read the round's queues and merge their answers with the stored tables; change neither.

        While a round is open, the annotators' answers are read. During adjudication the adjudicator's decisions are
        read instead; the annotators' answers no longer change, because the adjudicator was shown them.
        """
        return self._decisions(stored) if stored.manifest.status == "adjudicating" else self._answers(stored)

    def asked(self, stored: StoredRound) -> list[AdjudicationCase]:
        """Return all cases (items with disputed answers) that this round's adjudicator received, decided or not."""
        manifest = stored.manifest
        if manifest.draw == "disagreement":
            # gold changes with each decision; the cases stay those of the commit that the items were drawn from
            with workspace(self.site.settings, revision=manifest.base) as clone:
                items = stored.of(manifest.adjudicator)
                return opening.review(clone, plan=manifest, corpus=manifest.corpus, items=items)[0]
        return cases(stored.annotations, assignments=stored.assigned, scheme=self.scheme, seed=manifest.seed)

    def pending(self, stored: StoredRound, *, asked: Sequence[AdjudicationCase]) -> list[AdjudicationCase]:
        """Return the cases in ``asked`` that are not completely decided, each with its undecided categories."""
        decided, out = {(item_of(row), str(row["category"])) for row in stored.decisions}, unfit_of(stored.decisions)
        asked = [case for case in asked if case.item not in out]
        left = [replace(c, categories=tuple(k for k in c.categories if (c.item, k) not in decided)) for c in asked]
        return [case for case in left if case.categories]

    def fill(self, stored: StoredRound, *, pending: Sequence[AdjudicationCase]) -> dict[str, int]:
        """Add items to the annotators' queues, or during adjudication to the adjudicator's, up to the daily cap.

        Returns:
            The number of items added for each person with unfilled items.
        """
        opening.permit(stored.manifest.corpus, params=stored.params, root=stored.clone.path, now=self.site.now)
        by_item = {case.item: case for case in pending} if stored.manifest.status == "adjudicating" else None
        wanted = self._annotators(stored) if by_item is None else self._adjudicator(stored, by_item=by_item)
        used = store.used_today(self.going, backend=self.backend, now=self.site.now)
        chosen: list[tuple[Queue, dict[Item, int]]] = []
        for queue, items in wanted.items():
            held = self.backend.present(queue)
            if waiting := [(item, position) for item, position in items.items() if item not in held]:
                self.backend.prepare(queue, form=self._form(stored))
                left = max(0, stored.manifest.daily_cap - used[queue.annotator])
                chosen.append((queue, dict(waiting[:left])))
        shown = self._tasks(stored, {item: at for _, items in chosen for item, at in items.items()}, by_item=by_item)
        added: Counter[str] = Counter()
        for queue, items in chosen:
            fresh = [replace(shown[item], position=position) for item, position in items.items() if item in shown]
            if fresh:
                self.backend.add(queue, tasks=fresh)
            added[queue.annotator] += len(fresh)
        return dict(sorted(added.items()))

    def _tasks(
        self, stored: StoredRound, items: Mapping[Item, int], *, by_item: Mapping[Item, AdjudicationCase] | None
    ) -> dict[Item, AnnotationTask]:
        if not items:
            return {}
        corpus, params, clone = stored.manifest.corpus, stored.params, stored.clone
        clone.checkout_months(corpus, "images" if params.corpora[corpus].content == "images" else "records.parquet")
        vault = self.site.vault
        tasks = task_list(corpus, items=items, cases=by_item, params=params, vault=vault, root=clone.path)
        return {task.item: task for task in tasks}

    def _annotators(self, stored: StoredRound) -> dict[Queue, dict[Item, int]]:
        done = {(row["annotator"], item_of(row)) for row in stored.annotations}
        return {
            queue: {i: at for i, at in stored.of(queue.annotator).items() if (queue.annotator, i) not in done}
            for queue in store.annotator_queues(stored.manifest)
        }

    def _adjudicator(
        self, stored: StoredRound, *, by_item: Mapping[Item, AdjudicationCase]
    ) -> dict[Queue, dict[Item, int]]:
        store.withdraw_unanswered(store.annotator_queues(stored.manifest), backend=self.backend)
        # a review has its own order; an adjudication uses the items' order, which reveals nothing about annotators
        order = stored.of(stored.manifest.adjudicator) or {item: at for at, item in enumerate(sorted(by_item))}
        return {store.adjudicator_queue(stored.manifest): {item: at for item, at in order.items() if item in by_item}}

    def _form(self, stored: StoredRound) -> Form:
        manifest, asking = stored.manifest, stored.params.round
        return build_form(
            self.scheme,
            title=f"{self.scheme.title} · {manifest.round}",
            content=stored.params.corpora[manifest.corpus].content,
            warning=asking.warning,
            contacts=asking.contacts,
            adjudication=manifest.status == "adjudicating",
        )

    def _answers(self, stored: StoredRound) -> Pulled:
        own = store.annotator_queues(stored.manifest)
        held = {queue.annotator: self.backend.present(queue).keys() for queue in own}
        # keep stored answers whose items are missing from the queue: a backend that lost its data deletes nothing
        kept = [row for row in stored.annotations if item_of(row) not in held[str(row["annotator"])]]
        done = {(row["annotator"], item_of(row)) for row in kept}
        read = response_validation.read(
            store.queued_answers(own, backend=self.backend, gone=stored.gone),
            assignments=[row for row in stored.assigned if (row["annotator"], item_of(row)) not in done],
            scheme=self.scheme,
            manifest=stored.manifest,
            accounts=self.backend.accounts,
        )
        now = replace(stored, annotations=[*kept, *read.rows])
        answered, skipped = _counts(kept)
        people = {q.annotator: answered[q.annotator] + read.answered.get(q.annotator, 0) for q in own}
        return Pulled(now, people, skipped + read.skipped, read.problems, self.asked(now), read.rejected)

    def _decisions(self, stored: StoredRound) -> Pulled:
        queue, asked = store.adjudicator_queue(stored.manifest), self.asked(stored)
        answers = store.queued_answers([queue], backend=self.backend, gone=stored.gone)[queue.annotator]
        read = read_decisions(
            answers, cases=asked, known=stored.decisions, scheme=self.scheme, manifest=stored.manifest
        )
        now = replace(stored, decisions=list(read.rows))
        answered, skipped = _counts(stored.annotations)
        problems = {queue.annotator: read.problems} if read.problems else {}
        rejected = {queue.annotator: read.rejected} if read.rejected else {}
        pending = self.pending(now, asked=asked)
        return Pulled(now, dict(sorted(answered.items())), skipped, problems, pending, rejected)


def round_fields(manifest: RoundManifest) -> dict[str, object]:
    """Return the fields that every `corpus round` command prints: corpus, round, status, phase and size."""
    return {name: getattr(manifest, name) for name in ("corpus", "round", "status", "phase", "size")}


def wrong(manifest: RoundManifest, *, detail: str) -> AnnotationError:
    """Return the error for a command that the status of its annotation round does not permit."""
    return AnnotationError(
        "RoundState", corpus=manifest.corpus, name=manifest.round, status=manifest.status, detail=detail
    )


def _counts(rows: Sequence[Row]) -> tuple[Counter[str], int]:
    items = {(str(row["annotator"]), item_of(row), row["outcome"] == response_validation.SKIPPED) for row in rows}
    return Counter(annotator for annotator, _, _ in items), sum(skipped for _, _, skipped in items)
