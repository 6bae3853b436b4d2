"""The stores of what is published: registered models and releases."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.takedown import affected_models
from pipelines.takedown.stores import Case, Store


class Models(Store):
    """Registered versions, with the list of the records on which each was trained."""

    name = "models"
    holds = "ids"
    erased = (
        "versions that were trained on the records are marked `stale`, with a deadline, and their lists lose the ids; "
        "from `takedown.withdraw_share` on they are withdrawn; at the deadline the alias moves to a clean version or "
        "is removed, and the stale version is deleted"
    )
    keeps = "the version's weights until the deadline, as under weights; names and numbers of its runs"
    home = ("mlflow", "mlflow.sqlite*")
    settings = ("mlflow_tracking_uri",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count by version on how many of the records it was trained; ``unknown``: versions without readable list."""
        with case.registry() as context:
            if context is None:
                return {"no_registry": 1}
            return affected_models.look(case.gone, context=context, keep=not case.dry_run)

    def erase(self, case: Case) -> None:
        """Mark the versions, shorten their lists, withdraw those that lost too many."""
        with case.registry() as context:
            if context is None or case.request is None or case.terms is None:
                return
            affected_models.Marking(
                case.request, case.gone, context, case.terms, case.now, say=lambda what: case.say(f"models {what}")
            ).run()


class Releases(Store):
    """Published packages of labels and ids."""

    name = "releases"
    holds = "ids"
    erased = (
        "on the next day of the schedule `release.removal`, rows leave the packages, and their ids, which are the "
        "release's own, go to the removal lists (`run-pending`): at the time of a takedown they would reveal it"
    )
    keeps = (
        "until that day, labels and the address, which the release's key decrypts; then the release's own id on its "
        "removal list; copies that consumers have"
    )
    home = ("releases",)

    def count(self, case: Case) -> Mapping[str, int]:
        """Count the rows of releases about deleted records."""
        from pipelines.release import removal

        return {"rows": sum(removal.holding(case.gone.ids, settings=case.settings, vault=case.vault).values())}

    def erase(self, case: Case) -> None:
        """Queue the rows for the next day of removals."""
        from pipelines.release import removal

        removal.refresh(settings=case.settings, vault=case.vault, now=None)
