"""Remove the weights of models that were trained on deleted records, when ``takedown.weights_days`` have passed.

The champion's alias is moved first, and weights are deleted last. A stale champion is replaced by the newest version
that is not stale and passes the promotion gate; it need not be better than the stale champion, which is deleted anyway.
Without such a version, the model has no champion, and subscribers get a notice. The stale versions are withdrawn, and
their files and versions deleted. Then the weights of fitted models leave every version of the corpus, cache and remote.
Each step may be repeated: what is due follows from the journal and from the vault's table ``removals``, so a killed run
is finished by the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from crisis_corpus.journal import standing
from crisis_corpus.versions import Version
from pipelines.core.config.operate import Takedown
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, DataError
from pipelines.core.process import silent
from pipelines.models.fitting import card, training_records
from pipelines.registry import lineage
from pipelines.registry.approved import SamePerson
from pipelines.registry.candidate import Context, registration
from pipelines.registry.promotion import promote
from pipelines.registry.promotion.promote import NotPromoted
from pipelines.store.vault import removals
from pipelines.store.vault.vault import Vault
from pipelines.takedown.object_versions import Objects, remove_folder
from pipelines.takedown.rewrite import LOCK, Pointers
from pipelines.workspace.clone import workspace
from pipelines.workspace.objects import TREE

WHO = "corpus takedown"


@dataclass(frozen=True)
class Expiry:
    """The weights that are due for removal.

    Args:
        context: registry and journal; ``None`` if none is configured.
        objects: the DVC objects with weights of fitted models that no other model uses.
        stages: the stages that name such models in the newest commit of the corpus branch.
        versions: the registered model versions.
    """

    settings: Settings
    context: Context | None
    objects: frozenset[str] = frozenset()
    stages: frozenset[str] = frozenset()
    versions: tuple[Version, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return how many versions, objects and stages are due."""
        return {name: len(getattr(self, name)) for name in ("versions", "objects", "stages")}

    def remove(
        self, *, opening: Callable[[str], AbstractContextManager[Context]], say: Callable[[str], None] = silent
    ) -> dict[str, int]:
        """Remove the weights; count the replaced champions and the models left without one.

        Args:
            opening: opens the context in which the gate judges a version of the named model.
            say: called after each action; tests kill the process there.
        """
        counts = {"moved": 0, "without_champion": 0}
        if self.context is not None:
            for version in self.versions:
                name, number = version.name, version.version
                if standing(self.context.journal, name).champion == number:
                    why = f"version {number} learnt from deleted records"
                    moved = _successor(name, context=self.context, opening=opening, why=why)
                    counts["moved" if moved else "without_champion"] += 1
                    say(f"{name}/{number} left")
                why = "its weights are deleted, because it was trained on records that were taken down"
                promote.withdraw(name, number, who=WHO, why=why, context=self.context)
                say(f"{name}/{number} withdrawn")
                _delete(version, context=self.context)
                say(f"{name}/{number} deleted")
        if self.stages:
            with workspace(self.settings) as clone, Objects.opened(clone) as objects:
                Pointers(clone.path, objects=objects).drop(self.stages)
                clone.commit(f"takedown: {len(self.stages)} models are trained again", paths=[LOCK])
            say("stages dropped")
        if self.objects:
            with workspace(self.settings) as clone, Objects.opened(clone) as objects:
                objects.remove(self.objects)
            say("objects removed")
        return counts


def due(*, settings: Settings, vault: Vault, terms: Takedown, now: datetime, context: Context | None) -> Expiry:
    """Return the weights of models whose deadline for removal has passed; nothing is changed."""
    before = now - timedelta(days=terms.weights_days)
    lists = {digest for digest, at in removals.begun(vault).items() if at <= before}
    trained = _trained(settings, lists=lists) if lists else (frozenset[str](), frozenset[str]())
    if context is None:
        return Expiry(settings, context, *trained)
    return Expiry(settings, context, *trained, tuple(_stale(context, now=now)))


def _stale(context: Context, *, now: datetime) -> list[Version]:
    stamp = now.astimezone(UTC).isoformat(timespec="seconds")
    stale = []
    for name in context.registry.names():
        until = standing(context.journal, name).stale
        stale += [v for v in context.registry.versions(name) if until.get(v.version, stamp + "~") <= stamp]
    return stale


def _successor(
    name: str, *, context: Context, opening: Callable[[str], AbstractContextManager[Context]], why: str
) -> bool:
    """Promote the newest version that is not stale and passes the gate; return whether there is one."""
    state = standing(context.journal, name)
    versions = [v for v in context.registry.versions(name) if v.version not in {*state.stale, *state.withdrawn}]
    for version in reversed([v for v in versions if registration(context.journal, v) is not None]):
        try:
            with opening(name) as own:
                promote.promote(name, version.version, who=WHO, why=why, context=own, compare=False)
            return True
        except (NotPromoted, SamePerson, ConfigError, DataError):
            # it failed the gate, cannot be judged, or needs two persons: the weights must go all the same
            continue
    return False


def _delete(version: Version, *, context: Context) -> None:
    if lineage.DIGESTED.fullmatch(version.digest):
        remove_folder(context.settings.home / "models" / version.digest)
    lineage.forget(version, settings=context.settings)
    context.registry.remove(version)


def _trained(settings: Settings, *, lists: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the objects with weights of models that were trained on these lists, and the stages that name them."""
    doomed, kept, folders = set[str](), set[str](), set[str]()
    with workspace(settings) as clone, Objects.opened(clone) as objects:
        for digest in (digest for digest in objects.digests() if digest.endswith(TREE)):
            entries = objects.tree(digest)
            if _lists(entries, objects=objects) & lists:
                # a fit that has predictions only needs no second fit
                if own := {file for name, file in entries.items() if name not in card.OWN}:
                    doomed |= {file for file in own if objects.exists(file)}
                    folders.add(digest)
            else:
                kept |= set(entries.values())
        stages = Pointers(clone.path, objects=objects).naming(folders)
    return frozenset(doomed - kept), frozenset(stages)


def _lists(entries: dict[str, str], *, objects: Objects) -> set[str]:
    listed = entries.get(card.CARD)
    if listed is None or training_records.FILE not in entries or not objects.exists(listed):
        return set()
    with objects.file(listed) as path:
        card_values = json.loads(path.read_bytes())
    return {part["digest"] for name in ("train", "selected") if (part := card_values.get(name))}
