"""Fill, read and empty the queues of a round within the daily cap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipelines.annotate.backends.backend import AnnotationTask, AnnotatorAnswer, Backend, Item, Queue
from pipelines.annotate.form import Form
from pipelines.annotate.manifest import RoundManifest
from pipelines.config.settings import Settings

ADJUDICATION = "adjudication"


@dataclass(frozen=True)
class Wanted:
    """The full content that a queue should receive: its items with their positions in order, and the daily cap.

    ``form`` is called only if the queue still lacks items.
    """

    queue: Queue
    items: Mapping[Item, int]
    cap: int
    form: Callable[[], Form]


def of_annotators(manifest: RoundManifest) -> list[Queue]:
    """Return a queue for each annotator of a round."""
    return [Queue(f"{manifest.corpus}/{manifest.round}", annotator) for annotator in manifest.annotators]


def of_adjudicator(manifest: RoundManifest) -> Queue:
    """Return the queue of a round's adjudicator."""
    return Queue(f"{manifest.corpus}/{manifest.round}/{ADJUDICATION}", manifest.adjudicator)


def of_round(manifest: RoundManifest) -> list[Queue]:
    """Return all possible queues of a round."""
    return [*of_annotators(manifest), of_adjudicator(manifest)]


def people(manifests: Iterable[RoundManifest]) -> list[str]:
    """Return all annotators and adjudicators of these rounds."""
    return sorted({queue.annotator for manifest in manifests for queue in of_round(manifest)})


def open_backend(manifest: RoundManifest, *, settings: Settings, pseudonyms: Collection[str]) -> Backend:
    """Return the round's backend, ready for these people.

    Raises:
        BackendUnavailable: the backend does not answer or rejects the credentials.
    """
    if manifest.backend == "label_studio":
        from pipelines.annotate.backends.label_studio.label_studio import open_label_studio

        return open_label_studio(settings, pseudonyms=pseudonyms)
    if manifest.backend == "argilla":
        from pipelines.annotate.backends.argilla.argilla import open_argilla

        return open_argilla(settings, pseudonyms=pseudonyms)
    from pipelines.annotate.backends.files.files import open_files

    return open_files(settings)


def used_today(manifests: Iterable[RoundManifest], *, backend: Backend, now: datetime) -> Counter[str]:
    """Return each person's use of the daily cap over all queues of the given rounds.

    Items added or answered since midnight UTC count, and so do all waiting items: they may be answered today. The cap
    protects a person, so items of the person's other rounds count too. Queues that were purged today do not count.
    """
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    used: Counter[str] = Counter()
    for manifest in manifests:
        for queue in of_round(manifest):
            if held := backend.present(queue):
                done = {answer.item for answer in backend.answers(queue) if answer.answered < midnight}
                used[queue.annotator] += sum(at >= midnight or item not in done for item, at in held.items())
    return used


def fill(
    wanted: Sequence[Wanted],
    *,
    backend: Backend,
    used: Mapping[str, int],
    tasks: Callable[[Mapping[Item, int]], list[AnnotationTask]],
) -> dict[str, int]:
    """Fill each queue up to the daily cap; return the number of added items by person.

    ``tasks`` opens items (each with a position); it is called at most once, with all needed items.
    """
    chosen: list[tuple[Queue, dict[Item, int]]] = []
    for want in wanted:
        held = backend.present(want.queue)
        waiting = [(item, position) for item, position in want.items.items() if item not in held]
        if waiting:
            backend.prepare(want.queue, form=want.form())
            left = max(0, want.cap - used.get(want.queue.annotator, 0))
            chosen.append((want.queue, dict(waiting[:left])))
    needed = {item: position for _, items in chosen for item, position in items.items()}
    opened = {task.item: task for task in tasks(needed)} if needed else {}
    added: Counter[str] = Counter()
    for queue, items in chosen:
        fresh = [replace(opened[item], position=position) for item, position in items.items() if item in opened]
        if fresh:
            backend.add(queue, tasks=fresh)
        added[queue.annotator] += len(fresh)
    return dict(sorted(added.items()))


def remove_records(queues: Iterable[Queue], *, backend: Backend, gone: Collection[str]) -> int:
    """Remove all items of these records from the queues; return their number."""
    removed = 0
    for queue in queues:
        doomed = [item for item in backend.present(queue) if item[0] in gone]
        if doomed:
            backend.remove(queue, items=doomed)
        removed += len(doomed)
    return removed


def withdraw(queues: Iterable[Queue], *, backend: Backend) -> None:
    """Remove items that were neither answered nor skipped and are no longer needed."""
    for queue in queues:
        held = backend.present(queue)
        if left := held.keys() - {answer.item for answer in backend.answers(queue)} if held else set():
            backend.remove(queue, items=sorted(left))


def answers(queues: Iterable[Queue], *, backend: Backend, gone: Collection[str]) -> dict[str, list[AnnotatorAnswer]]:
    """Return the answers in the queues by person, without records that were taken down."""
    return {queue.annotator: [a for a in backend.answers(queue) if a.item[0] not in gone] for queue in queues}
