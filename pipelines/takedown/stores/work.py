"""The stores of work beside the corpus: rounds, answers, posts that wait for their month, and folders of each host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends import BACKENDS, Backend, Queue
from pipelines.annotate.rounds import store as rounds
from pipelines.collect.refresh_store import RefreshStore
from pipelines.core.config.params import FILES, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.store.answers import AnswerStore
from pipelines.takedown.object_versions import remove_folder
from pipelines.takedown.redaction import is_table
from pipelines.takedown.stores import Case, Store
from pipelines.workspace.clone import Workspace
from pipelines.workspace.scratch import in_use


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
            case.settings, lambda queue, backend: rounds.remove_records([queue], backend=backend, gone=case.gone.ids)
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
            people = rounds.people(going)
            if going:
                backend = rounds.open_backend(going[0], params=params, settings=settings, pseudonyms=people)
                total += sum(each(queue, backend) for manifest in going for queue in rounds.queues_of(manifest))
        return total

    return rounds.on_tip(settings, work, folders=["annotations"])


class Answers(Store):
    """Sealed answers of labellers, and batches that providers still work on."""

    name = "answers"
    holds = "content"
    erased = "rows are deleted, the record is removed from pending batches, the file is rewritten"
    settings = ("answers_url",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the answers about deleted records, and their places in pending batches."""
        with AnswerStore.existing(case.settings.answers_url) as store:
            return {"rows": store.naming(case.gone.ids) if store else 0}

    def erase(self, case: Case) -> None:
        """Delete the rows; a provider's later answer about a record that left its batch is discarded unread."""
        with AnswerStore.existing(case.settings.answers_url) as store:
            if store:
                store.remove(case.gone.ids)


class Refresh(Store):
    """What was seen of listings: posts that wait for their month, and ids of published ones."""

    name = "refresh"
    holds = "content"
    erased = "rows of posts that wait for their month, and ids of published ones, are deleted, the file is rewritten"
    settings = ("refresh_url",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the rows of deleted records."""
        with RefreshStore.existing(case.settings.refresh_url) as store:
            return {"rows": store.count(case.gone.ids) if store else 0}

    def erase(self, case: Case) -> None:
        """Delete the rows of deleted records."""
        with RefreshStore.existing(case.settings.refresh_url) as store:
            if store:
                store.remove(case.gone.ids)


class Resume(Store):
    """Pages of a live source that is not read to its end."""

    name = "resume"
    holds = "content"
    erased = "emptied, because pages are sealed under a key of the project and have no record ids"
    per_host = True
    home = ("resume",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the files."""
        return {"files": len(_inside(case.settings.home / "resume"))}

    def erase(self, case: Case) -> None:
        """Remove the files: a retry fetches them again."""
        for path in _inside(case.settings.home / "resume"):
            path.unlink(missing_ok=True)


class Checkpoints(Store):
    """Models in training."""

    name = "train"
    holds = "content"
    erased = "checkpoints of the corpus are removed, because their weights may remember the record"
    per_host = True
    home = ("train",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the fits of the corpora that a deleted record was in."""
        return {"fits": sum(len(_inside(folder)) for folder in self._folders(case))}

    def erase(self, case: Case) -> None:
        """Remove the fits; what is trained on an earlier commit cannot be published after a takedown anyway."""
        for folder in self._folders(case):
            remove_folder(folder)

    def _folders(self, case: Case) -> list[Path]:
        return [folder for folder in _inside(case.settings.home / "train") if case.touches(folder.name)]


class Scratch(Store):
    """Temporary clones; what their processes push of deleted records is found by the next takedown or sweep."""

    name = "scratch"
    holds = "content"
    erased = "clones of ended processes are removed; clones in use are counted and are removed with their task"
    per_host = True
    home = ("scratch",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the clones of ended processes, and those whose process runs, on any host."""
        used = [in_use(folder) for folder in _inside(case.settings.home / "scratch")]
        return {"clones": used.count(False), "running": used.count(True)}

    def erase(self, case: Case) -> None:
        """Remove the clones of ended processes."""
        for folder in _inside(case.settings.home / "scratch"):
            if not in_use(folder):
                remove_folder(folder)


class Copies(Store):
    """Lists of ids and verified copies of registered versions, and predictions that need not be made again."""

    name = "lineage"
    holds = "ids"
    erased = "copies of id lists and of verified versions, and rows of kept predictions are removed"
    per_host = True
    home = ("registry", "scored", "models")

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the copies that name a deleted record, or that cannot be read."""
        return {"copies": len(self._found(case))}

    def erase(self, case: Case) -> None:
        """Remove the copies; of predictions only the rows, or all others would be predicted again."""
        for copy in self._found(case):
            if copy.is_dir():
                remove_folder(copy)
                continue
            half = copy.with_name(f".{copy.name}")
            try:
                case.gone.without(copy, half)
                half.replace(copy)
            except (FileNotFoundError, pa.ArrowException):
                # replaced by the stage meanwhile, or left half-written by a killed process
                copy.unlink(missing_ok=True)

    def _found(self, case: Case) -> list[Path]:
        home = case.settings.home
        copies = [*_inside(home / "registry"), *_inside(home / "models"), *_files(home / "scored")]
        return [c for c in copies if any(_names(case, file) for file in (_files(c) if c.is_dir() else [c]))]


def _names(case: Case, file: Path) -> bool:
    try:
        return bool(case.gone.within(file))
    except pa.ArrowException:
        # half-written: what it names is unknown
        return True


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
