"""The stores of work between the corpus's commits: answers, posts that wait for their month, folders of each host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from pipelines.collect.refresh_store import RefreshStore
from pipelines.store.answers import AnswerStore
from pipelines.takedown.object_versions import remove_folder
from pipelines.takedown.stores import Case, Store
from pipelines.workspace.scratch import in_use


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
        with RefreshStore.existing(case.settings.refresh_url) as store:
            return {"rows": store.count(case.gone.ids) if store else 0}

    def erase(self, case: Case) -> None:
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
