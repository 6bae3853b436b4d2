"""Name, read and empty the annotators' queues of a round, and count what they use of the daily cap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from pipelines.annotate.backend import AnnotatorAnswer, Queue
from pipelines.annotate.backends import BACKENDS, Backend
from pipelines.annotate.forms.manifest import RoundManifest
from pipelines.core.config.base import fitted
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings

ADJUDICATION = "adjudication"


def of_annotators(manifest: RoundManifest) -> list[Queue]:
    """Return the queues of an annotation round's annotators, one for each."""
    return [Queue(f"{manifest.corpus}/{manifest.round}", annotator) for annotator in manifest.annotators]


def of_adjudicator(manifest: RoundManifest) -> Queue:
    """Return the queue of an annotation round's adjudicator."""
    return Queue(f"{manifest.corpus}/{manifest.round}/{ADJUDICATION}", manifest.adjudicator)


def of_round(manifest: RoundManifest) -> list[Queue]:
    """Return the queues of an annotation round's annotators and of its adjudicator."""
    return [*of_annotators(manifest), of_adjudicator(manifest)]


def people(manifests: Iterable[RoundManifest]) -> list[str]:
    """Return the pseudonyms of all annotators and adjudicators of these annotation rounds, sorted."""
    return sorted({queue.annotator for manifest in manifests for queue in of_round(manifest)})


def open_backend(
    manifest: RoundManifest, *, params: Params | None, settings: Settings, pseudonyms: Collection[str]
) -> Backend:
    """Connect to the annotation backend that a round's manifest names, with access for these pseudonyms."""
    name, given = manifest.backend, params.round.backends if params else {}
    backend = BACKENDS.get(name, params.distributions if params else {})
    fit = fitted(backend.Parameters, given.get(name, {}), key=f"round.backends.{name}")
    return backend.open(settings, params=fit, pseudonyms=pseudonyms)


def used_today(manifests: Iterable[RoundManifest], *, backend: Backend, now: datetime) -> Counter[str]:
    """Count how many items of their daily cap the annotators have used, over all queues of the given rounds."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    used: Counter[str] = Counter()
    for manifest in manifests:
        for queue in of_round(manifest):
            if held := backend.present(queue):
                done = {answer.item for answer in backend.answers(queue) if answer.answered < midnight}
                used[queue.annotator] += sum(at >= midnight or item not in done for item, at in held.items())
    return used


def remove_records(queues: Iterable[Queue], *, backend: Backend, gone: Collection[str]) -> int:
    """Remove all items of the records in ``gone`` from annotators' queues; return the number of removed items."""
    removed = 0
    for queue in queues:
        doomed = [item for item in backend.present(queue) if item[0] in gone]
        if doomed:
            backend.remove(queue, items=doomed)
        removed += len(doomed)
    return removed


def withdraw(queues: Iterable[Queue], *, backend: Backend) -> None:
    """Remove all items that were neither answered nor skipped from annotators' queues."""
    for queue in queues:
        held = backend.present(queue)
        if left := held.keys() - {answer.item for answer in backend.answers(queue)} if held else set():
            backend.remove(queue, items=sorted(left))


def answers(queues: Iterable[Queue], *, backend: Backend, gone: Collection[str]) -> dict[str, list[AnnotatorAnswer]]:
    """Return the answers in the queues by annotator, without answers to the taken-down records in ``gone``."""
    return {queue.annotator: [a for a in backend.answers(queue) if a.item[0] not in gone] for queue in queues}
