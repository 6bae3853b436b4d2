"""Report the status of annotation rounds: counts, and the addresses of the annotators' queues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from pipelines.annotate.backends.backend import Backend
from pipelines.annotate.forms import manifest as manifests
from pipelines.annotate.forms import protocol
from pipelines.annotate.forms.manifest import RoundManifest
from pipelines.annotate.response_validation import Row
from pipelines.annotate.rounds import queues, store
from pipelines.annotate.rounds.desk import RoundContext, told
from pipelines.config.params import load
from pipelines.config.settings import Settings
from pipelines.vault.vault import Vault
from pipelines.workspace.clone import Workspace, workspace

Result = dict[str, object]


def status(
    corpus: str,
    name: str | None,
    *,
    settings: Settings,
    vault: Vault,
    now: datetime,
    backend: Backend | None = None,
) -> Result:
    """Return the status of a corpus's annotation rounds, or the details of one round, without changing anything."""
    with workspace(settings) as clone:
        if name is None:
            return _all(clone, corpus=corpus)
        found = store.read(clone, corpus=corpus, name=name, vault=vault)
        result = told(found.manifest) | {"assigned": loads(found.assigned)} | _decision(found.manifest)
        if found.manifest.status != "closed":
            desk = RoundContext.of(found, settings=settings, vault=vault, now=now, backend=backend)
            own = [queue for queue in queues.of_round(found.manifest) if desk.backend.present(queue)]
            result |= desk.look(found).told
            result["given"] = {queue.annotator: len(desk.backend.present(queue)) for queue in own}
            result["address"] = {queue.annotator: desk.backend.address(queue) for queue in own}
        return result | _agreement(clone, corpus=corpus, name=name)


def _all(clone: Workspace, *, corpus: str) -> Result:
    opened = manifests.opened(clone.path, corpus)
    params = load(clone.path)
    planned = protocol.load(params.round.protocol[corpus]).rounds if corpus in params.round.protocol else ()
    known = {manifest.round for manifest in opened}
    return {
        "corpus": corpus,
        "rounds": [told(manifest) | _decision(manifest) for manifest in opened],
        "planned": [p.name for p in planned if p.name not in known],
    }


def _decision(manifest: RoundManifest) -> Result:
    decided = manifest.decision
    return {"decision": {"go_on": decided.go_on, "reason": decided.reason} if decided else None}


def _agreement(clone: Workspace, *, corpus: str, name: str) -> Result:
    path = clone.path / "metrics" / corpus / "agreement.json"
    found = json.loads(path.read_text())["rounds"].get(name) if path.exists() else None
    if found is None:
        return {}
    kappas = {key: figures["kappa"]["value"] for key, figures in found["categories"].items()}
    return {"agreement": {"kappa": kappas, "sufficient": found["sufficient"]}}


def loads(assigned: Iterable[Row]) -> dict[str, int]:
    """Count the items assigned to each annotator, from rows of the table ``assignments``."""
    return dict(sorted(Counter(str(row["annotator"]) for row in assigned).items()))
