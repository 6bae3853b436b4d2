"""Remove deleted records from the newest commit of the corpus (months, rounds, tables of all stages), in one commit.

No data is checked out and no stage is run: objects are rewritten without the rows, and the commit names the new
objects. Files that name none of the records keep their digest. If another process pushes first, the rewrite starts
over on its commit; a process that pushes later is rejected by the push checks, because the branch changed.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pipelines.core.config.settings import Settings
from pipelines.core.errors import CommitLost
from pipelines.takedown.object_versions import Change, Objects, remember, replaced
from pipelines.takedown.pointers import Pointers, mend
from pipelines.takedown.redaction import Gone, Left
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git

# Ours: attempts when other publishers move the branch first.
ATTEMPTS = 5
# Prefix of a corpus among the counts: its models that were trained on one of the records.
MODELS_OF = "models_of_"
Note = Callable[[dict[str, int]], None]
Keep = Callable[[Sequence[Left]], None]
Say = Callable[[str], None]


def run(gone: Gone, *, settings: Settings, note: Note, keep: Keep, say: Say) -> tuple[str, bool]:
    """Remove deleted records from all files to which the newest commit of the corpus branch refers.

    Returns the corpus branch's newest commit, and whether it is new.

    Args:
        note: called with the counts before anything is committed, so that a repetition does not lose them.
        keep: called with the changes of each file before anything is committed, to record which lists of training
            records shrink.
        say: called with ``replaced`` when the new objects are in cache and remote but no commit names them yet.
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
        written = pointers.move(changes, had=had, retrain=retrain)
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
        counts.update([path.partition("/")[0], f"of_{Path(path).parts[1]}"])
    # one object may have several paths
    for change in filter(None, changes.values()):
        counts.update(rows=change.left.rows, renamed=change.left.renamed)
    return dict(counts)
