"""Remove deleted records from the newest commit of the corpus (months, rounds, tables of all stages), in one commit.

No data is checked out and no stage is run: objects are rewritten without the rows, and the commit names the new
objects. Files that name none of the records keep their digest. If another process pushes first, the rewrite starts
over on its commit; a process that pushes later is rejected by the push checks, because the branch changed.

The digests of stage dependencies are computed from names and digests alone. A dependency whose recorded digest did not
match its files before is left unchanged: that stage was already out of date and runs at the next ``dvc repro``. The
stages that trained a model on a removed record, and those that write only metrics, which count removed rows, run again,
too: their dependencies keep the recorded digests.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.core.config.settings import Settings
from pipelines.core.errors import CommitLost, ConfigError, GitFailed
from pipelines.store import tables
from pipelines.takedown.object_versions import Change, Objects, remember, replaced
from pipelines.takedown.redaction import Gone, Left
from pipelines.workspace import trust
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.inventory import read_outs, read_yaml
from pipelines.workspace.objects import TREE, digest_of, tree_digest

LOCK = "dvc.lock"
# It writes only metrics, too, but would ask providers again.
ASKS = "injection_test"
# by old digest
Changes = Mapping[str, Change]


class Pointers:
    """The references of a checkout at ``root`` to DVC objects, in ``.dvc`` files and ``dvc.lock``."""

    def __init__(self, root: Path, *, objects: Objects) -> None:
        self._root = root
        self._objects = objects
        self._trees: dict[str, dict[str, str]] = {}

    def files(self) -> dict[str, str]:
        """Return the digest of every file that DVC stores for this checkout, by path."""
        digests: dict[str, str] = {}
        for path, out in self._outs():
            if out["md5"].endswith(TREE):
                digests |= {f"{path}/{name}": digest for name, digest in self._tree(out["md5"]).items()}
            else:
                digests[path] = out["md5"]
        return digests

    @staticmethod
    def in_git(root: Path) -> set[str]:
        """Return the paths of a checkout that git tracks."""
        return set(git("ls-files", "-z", cwd=root).split("\0")) - {""}

    def move(
        self, changes: Changes, *, had: Mapping[str, bytes] | None = None, again: Collection[str] = ()
    ) -> list[str]:
        """Replace old objects by new ones in every ``.dvc`` file and ``dvc.lock``; return the paths that changed.

        ``had``: the previous content of files in git that the caller has changed. ``again``: stages whose
        dependencies keep the recorded digests, so that they run again.
        """
        if not changes and not had:
            return []
        before, texts = self.files(), {path: (self._root / path).read_bytes() for path in self._pointers}
        texts |= had or {}
        written = [path for path in self._pointers if self._move_pointer(path, changes)]
        imports = self._move_imports(written, texts=texts)
        written += imports
        texts |= imports
        lock = self._lock()
        for stage in lock.values():
            for out in stage.get("outs", []):
                if out["path"] not in self._tracked:
                    self._move_out(out, changes)
        after = {path: _now(digest, changes) for path, digest in before.items()}
        for stage in (stage for name, stage in lock.items() if name not in again):
            for dep in stage.get("deps", []):
                self._move_dep(dep, before=before, after=after, texts=texts, changes=changes)
        if lock and self._save_lock(lock):
            written.append(LOCK)
        return written

    def naming(self, trees: Collection[str]) -> set[str]:
        """Return the stages of ``dvc.lock`` with an output folder that is one of these objects (``trees``)."""
        lock = self._lock().items()
        return {name for name, stage in lock if any(out.get("md5") in trees for out in stage.get("outs", []))}

    def drop(self, stages: Collection[str]) -> None:
        """Remove stages from ``dvc.lock``, so that the next ``dvc repro`` runs them."""
        self._save_lock({name: stage for name, stage in self._lock().items() if name not in stages})

    def trained_on(self, lists: Collection[str]) -> dict[str, str]:
        """Return the stages whose model has one of these objects as its list of training records: stage -> corpus."""
        stages = {}
        for name, stage in self._lock().items():
            for out in (out for out in stage.get("outs", []) if out.get("md5", "").endswith(TREE)):
                if self._tree(out["md5"]).get(tables.RECORDS) in lists:
                    stages[name] = Path(out["path"]).parts[1]
        return stages

    def measuring(self) -> set[str]:
        """Return the stages that write only metrics, which are in git, and send no requests."""
        return {
            name
            for name, stage in self._lock().items()
            if name.partition("@")[0] != ASKS and self._tracked.issuperset(out["path"] for out in stage.get("outs", []))
        }

    @cached_property
    def _tracked(self) -> set[str]:
        return self.in_git(self._root)

    @cached_property
    def _pointers(self) -> list[str]:
        return sorted(path for path in self._tracked if path.endswith(".dvc"))

    def _lock(self) -> dict[str, Any]:
        path = self._root / LOCK
        stages: dict[str, Any] = read_yaml(path.read_text())["stages"] if path.exists() else {}
        return stages

    def _outs(self) -> list[tuple[str, dict[str, Any]]]:
        outs = [(str(Path(path).parent / out["path"]), out) for path in self._pointers for out in self._read(path)]
        for stage in self._lock().values():
            # metrics are stored in git
            outs += [(o["path"], o) for o in stage.get("outs", []) if o["path"] not in self._tracked and "md5" in o]
        return outs

    def _read(self, pointer: str) -> list[dict[str, Any]]:
        return read_outs((self._root / pointer).read_text())

    def _tree(self, digest: str) -> dict[str, str]:
        if digest not in self._trees:
            self._trees[digest] = self._objects.tree(digest) if self._objects.exists(digest) else {}
        return self._trees[digest]

    def _move_pointer(self, path: str, changes: Changes) -> bool:
        outs = self._read(path)
        moved = [self._move_out(out, changes) for out in outs]
        if not any(moved):
            return False
        _dump(self._root / path, read_yaml((self._root / path).read_text()) | {"outs": outs})
        return True

    def _move_imports(self, moved: Sequence[str], *, texts: Mapping[str, bytes]) -> dict[str, bytes]:
        """Update the pointer digests in ``import.json`` of imported datasets; return the previous content by path.

        By these digests, a later import of the dataset recognises a month as its own.
        """
        had = {}
        marks = {_mark(texts[path]): _mark((self._root / path).read_bytes()) for path in moved}
        for path in (p for p in self._tracked if marks and fnmatch(p, "annotations/*/*/import.json")):
            old = fresh = (self._root / path).read_bytes()
            for before, after in marks.items():
                fresh = fresh.replace(before, after)
            if fresh != old:
                (self._root / path).write_bytes(fresh)
                had[path] = old
        return had

    def _move_out(self, out: dict[str, Any], changes: Changes) -> bool:
        """Update one entry to the new object; return whether the entry changed."""
        digest = out.get("md5", "")
        if not digest.endswith(TREE):
            if digest in changes:
                out |= {"md5": changes[digest].digest, "size": changes[digest].size}
            return digest in changes
        entries = self._tree(digest)
        moved = {name: _now(md5, changes) for name, md5 in entries.items()}
        if moved == entries:
            return False
        out["md5"] = self._objects.put_tree(moved)
        out["size"] += sum(_growth(md5, changes) for md5 in entries.values())
        return True

    def _move_dep(
        self,
        dep: dict[str, Any],
        *,
        before: Mapping[str, str],
        after: Mapping[str, str],
        texts: Mapping[str, bytes],
        changes: Changes,
    ) -> None:
        path, digest = dep["path"], dep.get("md5", "")
        if not digest.endswith(TREE):
            if before.get(path) == digest and digest in changes:
                dep |= {"md5": changes[digest].digest, "size": changes[digest].size}
            return
        below = f"{path}/"
        inside = {p.removeprefix(below): p for p in before if p.startswith(below)}
        # the digest of a folder includes its files in git, pointers too
        git_has = {p.removeprefix(below): (self._root / p).read_bytes() for p in self._tracked if p.startswith(below)}
        git_had = {name: texts.get(f"{below}{name}", data) for name, data in git_has.items()}
        if git_had == git_has and not any(before[p] in changes for p in inside.values()):
            return
        old = {n: digest_of(data) for n, data in git_had.items()} | {n: before[p] for n, p in inside.items()}
        if tree_digest(old) != digest:
            return
        new = {n: digest_of(data) for n, data in git_has.items()} | {n: after[p] for n, p in inside.items()}
        dep["md5"] = tree_digest(new)
        dep["size"] += sum(_growth(before[p], changes) for p in inside.values())
        dep["size"] += sum(len(git_has[name]) - len(git_had[name]) for name in git_has)

    def _save_lock(self, stages: dict[str, Any]) -> bool:
        path = self._root / LOCK
        content = read_yaml(path.read_text())
        if content["stages"] == stages:
            return False
        _dump(path, content | {"stages": stages})
        return True


def check_out_version(folder: Path, *, revision: str, settings: Settings) -> list[str]:
    """Check out an older commit in a clone, and make its pointers name the objects that replaced its own.

    Returns the files that changed; see :func:`mend`.
    """
    try:
        git("checkout", "--quiet", "--detach", revision, cwd=folder)
    except GitFailed:
        raise ConfigError("UnknownName", kind="commit", name=revision, known="those of branch corpus") from None
    trust.require_commit(settings, cwd=folder)
    with workspace(settings) as clone, Objects.opened(clone) as objects:
        return mend(folder, settings=settings, objects=objects)


def mend(root: Path, *, settings: Settings, objects: Objects) -> list[str]:
    """Make a checkout of an old commit name the objects that replaced its own, so that ``dvc checkout`` works.

    The files lack only the records that were taken down since. Nothing is committed. Returns the files that changed.
    """
    known = replaced(settings)
    changes = {
        old: Change(new, size, objects.size(new), Left()) for old, (new, size) in known.items() if objects.exists(new)
    }
    return Pointers(root, objects=objects).move(changes)


def _now(digest: str, changes: Changes) -> str:
    return changes[digest].digest if digest in changes else digest


def _growth(digest: str, changes: Changes) -> int:
    return changes[digest].size - changes[digest].before if digest in changes else 0


def _mark(pointer: bytes) -> bytes:
    # the same digest as in annotate.import_commit
    return hashlib.sha256(pointer).hexdigest()[:16].encode()


def _dump(path: Path, content: dict[str, Any]) -> None:
    from dvc.utils.serialize import dump_yaml

    # in DVC's own format, so that DVC's next change makes a minimal diff
    dump_yaml(str(path), json.loads(json.dumps(content)))


# Ours: attempts when other publishers move the branch first.
ATTEMPTS = 5
# Prefixes of a corpus among the counts: its files with one of the records, and its models that were trained on one.
FILES_OF, MODELS_OF = "of_", "models_of_"
Note = Callable[[dict[str, int]], None]
Keep = Callable[[Sequence[Left]], None]
Say = Callable[[str], None]


def run(gone: Gone, *, settings: Settings, note: Note, keep: Keep, say: Say) -> tuple[str, bool]:
    """Remove deleted records from all files to which the newest commit of the corpus branch refers.

    Returns the corpus branch's newest commit, and whether it is new. ``note`` gets the counts before anything is
    committed, so that a repetition does not lose them, and ``keep`` the changes of each file, to record which lists of
    training records shrink. ``say`` is called when the new objects are in cache and remote but no commit names them
    yet.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(CommitLost), workspace(settings) as clone:
            return _once(clone, gone, note=note, keep=keep, say=say)
    with workspace(settings) as clone:
        return _once(clone, gone, note=note, keep=keep, say=say)


def look(clone: Workspace, gone: Gone, *, objects: Objects) -> dict[str, int]:
    """Count, by kind and corpus, the files of a clone's commit that contain a deleted record; write nothing."""
    files = Pointers(clone.path, objects=objects).files()
    there = {digest for digest in files.values() if objects.exists(digest)}
    named = dict.fromkeys(objects.named(gone, among=there))
    return _counts(files, named) | {"texts": len(lines_without(clone, gone))}


def _once(clone: Workspace, gone: Gone, *, note: Note, keep: Keep, say: Say) -> tuple[str, bool]:
    with Objects.opened(clone) as objects:
        pointers = Pointers(clone.path, objects=objects)
        files = pointers.files()
        there = {digest for digest in files.values() if objects.exists(digest)}
        changes = {digest: objects.without(digest, gone) for digest in objects.named(gone, among=there)}
        texts = lines_without(clone, gone)
        counts = _counts(files, changes) | {"texts": len(texts), "absent": len(set(files.values()) - there)}
        retrain = pointers.trained_on({digest for digest, change in changes.items() if change.left.lists})
        counts |= {"models": len(retrain)} | Counter(f"{MODELS_OF}{corpus}" for corpus in retrain.values())
        note(counts)
        keep([change.left for change in changes.values()])
        for path, (_, fresh) in texts.items():
            (clone.path / path).write_bytes(fresh)
        had = {path: old for path, (old, _) in texts.items()}
        remember(changes, settings=clone.settings)
        written = pointers.move(changes, had=had, again=retrain.keys() | pointers.measuring())
        say("replaced")
    total = sum(change.left.rows for change in changes.values())
    message = f"takedown: {total} rows of {len(changes)} tables"
    paths = [*written, *texts]
    commit = clone.commit(message, paths=paths) if paths else None
    return commit or clone.head, commit is not None


def left_out(clone: Workspace, below: str, *, gone: Gone) -> int:
    """Remove deleted records from the tables in the folder ``below`` that a clone is about to commit; count the rows.

    So a commit does not bring back records that were taken down after the tables were made. The objects with those
    records are removed by the next takedown or revisit: until this commit the corpus branch may name them.
    """
    git("add", "--all", "--", below, cwd=clone.path)
    with Objects.opened(clone) as objects:
        pointers, known = Pointers(clone.path, objects=objects), replaced(clone.settings)

        def mine() -> set[str]:
            return {digest for path, digest in pointers.files().items() if path.startswith(f"{below}/")}

        if not mine().isdisjoint(known):
            mend(clone.path, settings=clone.settings, objects=objects)
        named = objects.named(gone, among={digest for digest in mine() if objects.exists(digest)})
        changes = {digest: objects.without(digest, gone) for digest in named}
        remember(changes, settings=clone.settings)
        pointers.move(changes)
    return sum(change.left.rows for change in changes.values())


def lines_without(clone: Workspace, gone: Gone) -> dict[str, tuple[bytes, bytes]]:
    """Return the files in git that contain a deleted record: path -> (current content, content without it).

    Imports of published datasets store labels and splits as lines with ids.
    """
    files = {}
    for path in sorted(Pointers.in_git(clone.path)):
        file = clone.path / path
        if path.startswith(("data/", "annotations/", "metrics/", "models/")) and file.is_file() and gone.within(file):
            old = file.read_bytes()
            files[path] = old, gone.out_of(old, name=path)
    return files


def in_history(clone: Workspace, gone: Gone) -> int:
    """Count the git objects in a clone's history that contain a deleted record; the history is not rewritten."""
    argv = ["git", "cat-file", "--batch-all-objects", "--batch", "--unordered"]
    with subprocess.Popen(argv, cwd=clone.path, stdout=subprocess.PIPE) as process:
        count, stream = 0, process.stdout
        while stream is not None and (head := stream.readline()):
            count += gone.named_in(stream.read(int(head.split()[2])))
            stream.read(1)
    return count


def _counts(files: Mapping[str, str], changes: Mapping[str, Change | None]) -> dict[str, int]:
    counts = Counter({"data": 0, "annotations": 0, "snapshot": 0, "rows": 0, "renamed": 0})
    for path in (path for path, digest in files.items() if digest in changes):
        counts.update([path.partition("/")[0], f"{FILES_OF}{Path(path).parts[1]}"])
    # one object may have several paths
    for change in filter(None, changes.values()):
        counts.update(rows=change.left.rows, renamed=change.left.renamed)
    return dict(counts)
