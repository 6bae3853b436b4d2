"""The queues of a round: whose they are, what the day's cap lets in, and what has to leave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipelines.annotate.backends.backend import Answer, Backend, Item, Queue, Task
from pipelines.annotate.form import Form
from pipelines.annotate.manifest import Manifest
from pipelines.annotate.rounds.assignment import release
from pipelines.config.settings import Settings

ADJUDICATION = "adjudication"


@dataclass(frozen=True)
class Wanted:
    """What a queue is to be given at last, each item with its position in order, and how many a day at the most.

    ``form`` is called where the queue is still to be given something.
    """

    queue: Queue
    items: Mapping[Item, int]
    cap: int
    form: Callable[[], Form]


def of_annotators(manifest: Manifest) -> list[Queue]:
    """Return a queue for each annotator of a round."""
    return [Queue(f"{manifest.corpus}/{manifest.round}", annotator) for annotator in manifest.annotators]


def of_adjudicator(manifest: Manifest) -> Queue:
    """Return the queue of a round's adjudicator."""
    return Queue(f"{manifest.corpus}/{manifest.round}/{ADJUDICATION}", manifest.adjudicator)


def of_round(manifest: Manifest) -> list[Queue]:
    """Return every queue that a round can have."""
    return [*of_annotators(manifest), of_adjudicator(manifest)]


def people(manifests: Iterable[Manifest]) -> list[str]:
    """Return everybody who takes part in these rounds, annotators and adjudicators."""
    return sorted({queue.annotator for manifest in manifests for queue in of_round(manifest)})


def open_backend(manifest: Manifest, *, settings: Settings, pseudonyms: Collection[str]) -> Backend:
    """Return the place where a round was opened, ready for these people.

    Raises:
        BackendUnavailable: it does not answer or rejects the credentials.
    """
    if manifest.backend == "label_studio":
        from pipelines.annotate.backends.label_studio.label_studio import open_label_studio

        return open_label_studio(settings, pseudonyms=pseudonyms)
    if manifest.backend == "argilla":
        from pipelines.annotate.backends.argilla.argilla import open_argilla

        return open_argilla(settings, pseudonyms=pseudonyms)
    from pipelines.annotate.backends.files.files import open_files

    return open_files(settings)


def used_today(manifests: Iterable[Manifest], *, backend: Backend, now: datetime) -> Counter[str]:
    """Return how much of the day's cap each person has used, over all queues of all rounds given.

    What came in or was answered since midnight UTC counts, and so does what still waits, whenever it came in: all of
    it may be answered today. The cap protects a person, not a round, so it counts what somebody has in other rounds
    too. Queues that were purged today count no more.
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
    tasks: Callable[[Mapping[Item, int]], list[Task]],
) -> dict[str, int]:
    """Put into each queue what the day has room for; return how many items came in by person.

    ``tasks`` opens items (each with a position); it is called once, with everything that is needed, and not at all
    where nothing is.
    """
    chosen: list[tuple[Queue, dict[Item, int]]] = []
    for want in wanted:
        held = backend.present(want.queue)
        waiting = [(item, position) for item, position in want.items.items() if item not in held]
        if waiting:
            backend.prepare(want.queue, form=want.form())
            released = release(waiting, used=used.get(want.queue.annotator, 0), cap=want.cap)
            chosen.append((want.queue, dict(released)))
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
    """Take out every item of these records; return how many there were."""
    removed = 0
    for queue in queues:
        doomed = [item for item in backend.present(queue) if item[0] in gone]
        if doomed:
            backend.remove(queue, items=doomed)
        removed += len(doomed)
    return removed


def withdraw(queues: Iterable[Queue], *, backend: Backend) -> int:
    """Take out what nobody answered or skipped: it is nobody's any more, and need not weigh on anyone."""
    removed = 0
    for queue in queues:
        held = backend.present(queue)
        left = held.keys() - {answer.item for answer in backend.answers(queue)} if held else set()
        if left:
            backend.remove(queue, items=sorted(left))
        removed += len(left)
    return removed


def answers(queues: Iterable[Queue], *, backend: Backend, gone: Collection[str]) -> dict[str, list[Answer]]:
    """Return what the queues hold by person, without the records that were taken down."""
    return {queue.annotator: [a for a in backend.answers(queue) if a.item[0] not in gone] for queue in queues}
