"""Register a model: package it, check its files, store them in MLflow, read them back and journal the version.

A model package is identified by the SHA-256 of its ``files.json``. The same package is always the same version, however
often it is registered and at whichever step an earlier attempt was killed. A version may be loaded only if the journal
has a row for its registration; files that were stored without such a row are not trusted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crisis_corpus import integrity
from crisis_corpus.integrity import NoPack, digest, listing, sha256, weights_of
from crisis_corpus.versions import DIGEST, UnknownVersion, Version, missing, translated
from pipelines.core.errors import RegistryError
from pipelines.core.process import now, silent
from pipelines.models.fitting import tracking
from pipelines.registry.candidate import Context, Pack, registration, scratch
from pipelines.registry.journal import Journal, JournalMoved, signed
from pipelines.registry.packaging import card
from pipelines.registry.versions import entry
from pipelines.store import approvals

if TYPE_CHECKING:
    from pipelines.core.config.models import Chosen

# Tag of runs and versions: the SHA-256 of the pack's files.json.
PACK = "pack"
EXPERIMENT = "{corpus}-registry"
# Artifact path of the files in a run, as in MLflow's own examples.
PLACE = "model"
Step = Literal["stored", "added", "recorded"]
Say = Callable[[Step], None]


class Unregistrable(RegistryError):
    """A model's files may not be registered, for example because one of them may be a pickle."""


def register(name: str, *, chosen: Chosen, context: Context, who: str, why: str) -> tuple[Version, bool]:
    """Package a trained model from the clone ``context.root`` and register it; return what :func:`put` returns."""
    from pipelines.registry.packaging.model import save
    from pipelines.registry.packaging.pack import pack

    signed(who, why)
    sources: dict[str, Any] = {"params": context.params, "vault": context.vault, "root": context.root}
    with scratch(context.settings) as folder:
        made = pack(name, chosen=chosen, to=folder / "pack", check_out=context.check_out, **sources)
        saved = save(made, to=folder / "model")
        return put(name, saved, context=context, who=who, why=why)


def put(name: str, folder: Path, *, context: Context, who: str, why: str, say: Say = silent) -> tuple[Version, bool]:
    """Register a saved MLflow model, whose folder contains a model package, as a version of the model ``name``.

    A registration that was killed after any step is finished by repeating the call. Simultaneous registrations of one
    model package make one version.

    Returns:
        The registered version, and whether this call recorded its registration (not an earlier one).

    Raises:
        BadParams: who or why is empty.
        UnknownModel: models cannot be registered under ``name``.
        Unregistrable: a file is or may be a pickle, a card is missing, or the model package differs from its
            ``files.json``.
        JournalBroken: the journal was altered.
        RegistryUnavailable: MLflow does not answer; TrackingUnavailable likewise.
    """
    signed(who, why)
    sources = approvals.sources_of(entry(name, params=context.params).corpus, params=context.params, root=context.root)
    approvals.require("register", sources, today=now().date())
    context.journal.verify(name)
    pack, mark = _looked_at(name, folder)
    version = _known(name, mark=mark, context=context)
    if version is not None and _recorded(version, journal=context.journal):
        return version, False
    if version is None:
        run_id, (files, outside) = _stored(name, folder, pack=pack, mark=mark, context=context)
    else:
        run_id = str(version.run_id)
        files, outside = _read_back(name, run_id=run_id, mark=mark, context=context)
    say("stored")
    if version is None:
        tags = {DIGEST: files, PACK: mark, "data_commit": pack.manifest.data_commit}
        source = f"{context.registry.client.get_run(run_id).info.artifact_uri}/{PLACE}"
        description = card.description((pack.folder / integrity.PAGE).read_text())
        added = context.registry.add(name, source=source, run_id=run_id, tags=tags, description=description)
        say("added")
        version = _known(name, mark=mark, context=context) or added
        if version.run_id != run_id:
            # a simultaneous registration of the same pack was first; its files are from another run
            run_id = str(version.run_id)
            files, outside = _read_back(name, run_id=run_id, mark=mark, context=context)
    if version.digest != files:
        detail = f"version {version.version} has other files"
        raise RegistryError("StoredOtherwise", name=name, run=run_id, detail=detail)
    metrics = {
        PACK: mark,
        "run": run_id,
        "kind": pack.manifest.kind,
        "task": pack.manifest.task,
        "inputs": pack.manifest.inputs,
        "data_commit": pack.manifest.data_commit,
        "split": pack.manifest.split_digest,
        "records": len(pack.records),
        # the pack lists its own files; these are the others, so that consumers can name any changed file
        "outside": outside,
        "weights": weights_of(listing(pack.folder)),
        "trained": pack.manifest.weights.model_dump() if pack.manifest.weights else None,
    }
    written = _record(version, context=context, who=who, why=why, metrics=metrics, files=version.digest)
    say("recorded")
    return version, written


def _looked_at(name: str, folder: Path) -> tuple[Pack, str]:
    """Check a folder; return its pack and the SHA-256 of the pack's ``files.json``."""
    faults = integrity.faults(folder, registered=digest(folder))
    wrong = [f"{check}: {reason}" for check, reasons in faults.items() for reason in reasons]
    if wrong:
        raise Unregistrable(name=name, detail="; ".join(wrong))
    try:
        pack = Pack.read(folder)
    except NoPack as error:
        raise Unregistrable(name=name, detail=str(error.fields["detail"])) from None
    return pack, sha256(pack.folder / integrity.FILES)


def _known(name: str, *, mark: str, context: Context) -> Version | None:
    """Return the version of a pack: the oldest, if there are several; delete later ones that are not on record.

    For a version that is on record, the pack in its row counts, not its tag alone.
    """
    first: Version | None = None
    for version in context.registry.versions(name):
        row = registration(context.journal, version)
        if version.tags.get(PACK) != mark or (row is not None and row.metrics.get(PACK) != mark):
            continue
        if first is None:
            first = version
        elif row is None:
            # a simultaneous registration of the same pack may have deleted it already
            with suppress(UnknownVersion), missing(name=name, version=version.version):
                context.registry.client.delete_model_version(name, str(version.version))
    return first


def _stored(
    name: str, folder: Path, *, pack: Pack, mark: str, context: Context
) -> tuple[str, tuple[str, dict[str, str]]]:
    """Upload the files to a run of the corpus's registry experiment, or find a run that has them.

    Returns the run's id and the result of :func:`_read_back`.
    """
    corpus = entry(name, params=context.params).corpus
    client, experiment = context.registry.client, EXPERIMENT.format(corpus=corpus)
    with translated():
        place = client.get_experiment_by_name(experiment)
        wanted = f"tags.{PACK} = '{mark}' AND tags.name = '{name}' AND attributes.status = 'FINISHED'"
        known = client.search_runs([place.experiment_id], wanted) if place else []
    if known:
        run_id = str(known[0].info.run_id)
        return run_id, _read_back(name, run_id=run_id, mark=mark, context=context)
    # an unfinished run is never continued: two savings of one pack differ (MLflow writes the time), and a simultaneous
    # registration of the same pack would read files that are being written
    key = f"{name}-{secrets.token_hex(8)}"
    tags = {PACK: mark, "name": name, "data_commit": pack.manifest.data_commit}
    title = f"{name} of {pack.manifest.data_commit[:12]}, files {mark[:8]}"
    with tracking.run(context.settings, experiment=experiment, key=key, params={}, tags=tags, name=title) as log:
        with translated():
            client.log_artifacts(log.run_id, str(folder), PLACE)
        run_id = str(log.run_id)
        read_back = _read_back(name, run_id=run_id, mark=mark, context=context)
        if read_back[0] != digest(folder):
            raise RegistryError("StoredOtherwise", name=name, run=run_id, detail="their digest is different")
    return run_id, read_back


def _read_back(name: str, *, run_id: str, mark: str, context: Context) -> tuple[str, dict[str, str]]:
    """Return the digest of the files in MLflow, and the SHA-256 of each file outside the pack."""
    with scratch(context.settings) as folder:
        with translated():
            stored = Path(context.registry.client.download_artifacts(run_id, PLACE, str(folder)))
        try:
            pack, read_mark = _looked_at(name, stored)
        except Unregistrable as error:
            raise RegistryError("StoredOtherwise", name=name, run=run_id, detail=error.fields["detail"]) from None
        if read_mark != mark:
            raise RegistryError("StoredOtherwise", name=name, run=run_id, detail="they are the files of another model")
        inside = f"{pack.folder.relative_to(stored).as_posix()}/"
        outside = {path: value for path, value in listing(stored).items() if not path.startswith(inside)}
        return digest(stored), outside


def _recorded(version: Version, *, journal: Journal) -> bool:
    """Return whether the journal has the registration of a version; refuse one with other files."""
    row = registration(journal, version)
    if row is not None and row.files != version.digest:
        raise RegistryError("NumberTaken", name=version.name, version=version.version)
    return row is not None


def _record(version: Version, *, context: Context, **decision: Any) -> bool:
    """Write the row of a registration unless it exists; return whether it was written."""
    journal, number = context.journal, version.version
    while True:
        head = journal.last(version.name)
        if _recorded(version, journal=journal):
            return False
        after = head.number if head else 0
        with suppress(JournalMoved):
            journal.append(version.name, event="registered", to_version=number, after=after, **decision)
            return True
