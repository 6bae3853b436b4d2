"""The stores of the corpus itself: vault, repository, rounds of annotation, and the objects of every version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends import BACKENDS, Backend, Queue
from pipelines.annotate.rounds import store as rounds
from pipelines.core.config.params import FILES, load
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError
from pipelines.store.vault import removals
from pipelines.takedown import rewrite
from pipelines.takedown.object_versions import Objects, remember, replaced
from pipelines.takedown.redaction import is_table
from pipelines.takedown.stores import REPOSITORY, VAULT, Case, Store
from pipelines.workspace.clone import Workspace, workspace


class Vault(Store):
    """Keys and Reddit names: without them all content is unreadable, and no source restores it."""

    name = VAULT
    holds = "content"
    erased = "key and Reddit name are deleted and overwritten, and the tombstone is written, in one transaction"
    keeps = (
        "the tombstone and the splits ever assigned to the id: without them the record could be collected again; "
        "who opened the record's content, and when, for the person whose post it was; "
        "how many ids each list of training records lost, by its digest"
    )
    needs = ()
    settings = ("vault_url",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the records that have a tombstone already, and those that have none yet."""
        known = len(case.vault.tombstoned(case.gone.ids))
        return {"fresh": len(case.gone.ids) - known, "known": known}

    def erase(self, case: Case) -> None:
        """Write the tombstones and destroy the keys."""
        if case.request:
            case.vault.destroy(case.gone.ids, reason=case.request.reason, now=case.now)


class Repository(Store):
    """The commits of the corpus; a table is an object, to which they point."""

    name = REPOSITORY
    holds = "ids"
    erased = (
        "tables of months, rounds and stages are rewritten without the rows, committed lines with the ids are removed, "
        "as one commit; no stage runs, but those that only measure what remains are due"
    )
    keeps = (
        "as git history is not rewritten: ids in lines that were committed by a user or an early import; digest and "
        "size of each table, which cannot be computed again without the record's key; the metrics of every commit, "
        "whose counts before and after can tell a record's label"
    )
    needs = (VAULT,)
    settings = ("repo",)
    outs = ("metrics/*",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the files of the newest commit by kind and corpus, and the lines of earlier commits."""
        with workspace(case.settings) as clone, Objects.opened(clone, read_only=case.dry_run) as objects:
            found = rewrite.look(clone, case.gone, objects=objects)
            return found | {"in_history": rewrite.in_history(clone, case.gone)}

    def erase(self, case: Case) -> None:
        """Commit the files without the records."""
        request = case.request
        if request is None:
            return
        commit, changed = rewrite.run(
            case.gone,
            settings=case.settings,
            note=lambda counts: request.note(REPOSITORY, counts, settings=case.settings),
            keep=lambda changes: removals.record(
                case.vault, [removals.Removal(*each, at=case.now) for left in changes for each in left.lists]
            ),
            say=lambda what: case.say(f"{REPOSITORY} {what}"),
        )
        request.commit = commit if changed or request.commit is None else request.commit
        case.say(f"{REPOSITORY} committed")


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


class StoredObjects(Store):
    """Cache and remote of DVC, and the stage results that name its objects."""

    name = "objects"
    holds = "content"
    erased = (
        "objects of **any** version that name one of the records are removed from cache and remote, with the stage "
        "results that name them, and so are files that killed processes left unfinished"
    )
    settings = ("cache", "remote", "remote_options")
    outs = ("data/*", "annotations/*", "snapshot/*")

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the objects, in total and by place, and the unfinished files."""
        with workspace(case.settings, folders=()) as clone, Objects.opened(clone, read_only=case.dry_run) as objects:
            named = objects.named(case.gone)
            return {"objects": len(named), **objects.places(named), "unfinished": len(objects.unfinished(now=case.now))}

    def erase(self, case: Case) -> None:
        """Store the objects of old versions without the records, and remove those with them."""
        with workspace(case.settings, folders=()) as clone, Objects.opened(clone) as objects:
            named, known = objects.named(case.gone), replaced(case.settings)
            fresh = [digest for digest in named if not (digest in known and objects.exists(known[digest][0]))]
            changes = {digest: objects.without(digest, case.gone) for digest in fresh}
            lists = [each for change in changes.values() for each in change.left.lists]
            removals.record(case.vault, [removals.Removal(*each, at=case.now) for each in lists])
            remember(changes, settings=case.settings)
            case.say("objects replaced")
            objects.remove([digest for digest in named if digest not in changes or changes[digest].digest != digest])
            for path in objects.unfinished(now=case.now):
                path.unlink(missing_ok=True)
            case.say("objects removed")


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
