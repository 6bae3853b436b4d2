"""The stores of annotation: queues, and files that people supplied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends import BACKENDS, Backend, Queue
from pipelines.annotate.rounds import store
from pipelines.core.config.params import FILES, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.takedown.redaction import is_table
from pipelines.takedown.stores import Case, Store
from pipelines.workspace.clone import Workspace


class Annotation(Store):
    """Queues of open rounds, and files that people supplied."""

    name = "annotation"
    holds = "content"
    erased = "items are removed from the queues of every open round, lines from supplied files"
    settings = ("annotation_files", "label_studio")

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the items in queues, and the supplied files that name a deleted record."""
        items = _rounds(
            case.settings, lambda queue, backend: sum(item[0] in case.gone.ids for item in backend.present(queue))
        )
        return {"items": items, "files": len(_supplied(case))}

    def erase(self, case: Case) -> None:
        """Remove the items and lines."""
        for path in _supplied(case):
            made = path.with_name(f".{path.name}.new")
            if is_table(path):
                case.gone.without(path, made)
            else:
                made.write_bytes(case.gone.out_of(path.read_bytes(), name=path.name))
            made.replace(path)
        _rounds(
            case.settings, lambda queue, backend: store.remove_records([queue], backend=backend, gone=case.gone.ids)
        )


def _supplied(case: Case) -> list[Path]:
    folder = case.settings.annotation_files
    of_queues = {path.parent for path in folder.rglob("form.json")}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if of_queues.isdisjoint(path.parents) and case.gone.within(path)]


def _rounds(settings: Settings, each: Callable[[Queue, Backend], int]) -> int:
    """Return the sum over every queue of every round that is open, or whose backend keeps content without a server.

    A round is emptied when it closes. If closing was interrupted, the folders of ``files`` still hold items.
    """

    def work(clone: Workspace) -> int:
        names = {path.parents[1].name for path in clone.path.glob(f"annotations/*/*/{manifests.FILE}")}
        every = [manifest for corpus in sorted(names) for manifest in manifests.opened(clone.path, corpus)]
        if not every:
            return 0
        # a deletion needs no parameters for backends of this project
        total, params = 0, load(clone.path, parts=False) if (clone.path / FILES[0]).is_file() else None
        allowed = params.distributions if params else {}
        for kind in sorted({manifest.backend for manifest in every}):
            of_kind = [m for m in every if m.backend == kind]
            going = [m for m in of_kind if m.status != "closed"]
            # a backend that is gone is refused only if one of its rounds is open
            with suppress(ConfigError):
                going = of_kind if BACKENDS.get(kind, allowed).keeps else going
            people = store.people(going)
            if going:
                backend = store.open_backend(going[0], params=params, settings=settings, pseudonyms=people)
                total += sum(each(queue, backend) for manifest in going for queue in store.queues_of(manifest))
        return total

    return store.on_tip(settings, work, folders=["annotations"])
