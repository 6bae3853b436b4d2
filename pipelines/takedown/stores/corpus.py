"""The stores of the corpus itself: vault, repository, and the objects of every version."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.store.vault import removals
from pipelines.takedown import rewrite
from pipelines.takedown.object_versions import Objects, remember, replaced
from pipelines.takedown.stores import REPOSITORY, VAULT, Case, Store
from pipelines.workspace.clone import workspace


class Vault(Store):
    """Keys and Reddit names: without them all content is unreadable, and no source restores it."""

    name = VAULT
    holds = "content"
    erased = "key and Reddit name are deleted and overwritten, and the tombstone is written, in one transaction"
    keeps = (
        "the tombstone and the splits ever assigned to the id: without them the record could be collected again; "
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
        "as one commit; no stage runs"
    )
    keeps = "ids in lines that were committed to git by a user or an early import: git history is not rewritten"
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
        with (
            workspace(case.settings, folders=()) as clone,
            Objects.opened(clone, read_only=case.dry_run) as objects,
        ):
            named = objects.named(case.gone)
            return {
                "objects": len(named),
                **objects.places(named),
                "unfinished": len(objects.unfinished(now=case.now)),
            }

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
