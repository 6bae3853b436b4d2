"""Pin the champions of a corpus for the stage ``batch_predict``, and report those whose predictions have drifted.

A pin is a file in the clone that says which model version the stage runs; a champion is the version in use.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from crisis_corpus import trusted
from crisis_corpus.versions import NAMES
from pipelines.config.base import Positive, Section
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.errors import ConfigError
from pipelines.process import now
from pipelines.registry import drift
from pipelines.registry.journal import Journal
from pipelines.registry.versions import Registry
from pipelines.registry.webhook_delivery import Watch
from pipelines.storage.metrics_file import write_metrics
from pipelines.workspace.clone import workspace


class NotPinned(ConfigError):
    """A corpus has no valid file ``models/<corpus>/<name>.json`` that pins the version to run."""

    message = "The model version to run cannot be read from the files in models/: {detail}."
    remedy = (
        "Run `corpus task champions CORPUS` (memes or posts), which writes and commits these files for the current "
        "champions."
    )


class Pin(Section):
    """The content of ``models/<corpus>/<name>.json``: which version of a registered model to run.

    ``files`` is the digest of the version's files. ``test`` counts its predictions on the test set, with which drift
    compares later ones; it is ``None`` for a champion of an earlier release, until the gate compares a candidate with
    it.
    """

    name: str
    version: Positive
    files: str
    test: drift.Counts | None = None

    @property
    def model(self) -> str:
        """The pinned model as ``<name>/<version>``, its name in the table ``predictions``."""
        return f"{self.name}/{self.version}"


def champions(corpus: str, *, params: Params, registry: Registry, journal: Journal, root: Path = Path()) -> list[Pin]:
    """Replace the pins (model versions to run) of a corpus by one for each model that has a champion; return them.

    The models are those of the section ``batch_predict``; a champion is the version in use.
    """
    pinned = []
    for old in _folder(corpus, root=root).glob("*.json"):
        old.unlink()
    for name in params.batch_predict.get(corpus, ()):
        with suppress(trusted.NoChampion):
            pinned.append(pin(name, registry=registry, journal=journal, root=root))
    return pinned


def pin(name: str, *, registry: Registry, journal: Journal, root: Path = Path()) -> Pin:
    """Write the champion version of the model ``name`` to ``models/<corpus>/<name>.json`` of a clone; return the pin.

    The same champion gives equal bytes.
    """
    found = trusted.find(name, None, registry=registry, journal=journal)
    version = found.version.version
    test = drift.reference(journal, name=name, version=version)
    made = Pin(name=name, version=version, files=found.files, test=test)
    write_metrics(made.model_dump(mode="json"), _folder(NAMES[name][0], root=root) / f"{name}.json")
    return made


def read(corpus: str, *, root: Path) -> Iterator[Pin]:
    """Yield the pins (model versions to run) of a corpus in a clone, sorted by model."""
    for path in sorted(_folder(corpus, root=root).glob("*.json")):
        try:
            found = Pin.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise NotPinned(detail=f"{error.error_count()} entries of {path.name} are invalid") from None
        if found.name != path.stem:
            raise NotPinned(detail=f"{path.name} names another model")
        yield found


def _folder(corpus: str, *, root: Path) -> Path:
    return root / "models" / corpus


def report_drift(corpus: str, *, settings: Settings) -> dict[str, Any]:
    """Print the months whose predictions drifted, from the published ``batch_predict.json``, and send webhooks.

    A notice that was queued before is not queued again. Failed deliveries are retried by the Dag ``deliver``.

    Returns:
        ``drift``: by model, the drifted quantities by month; ``queued``: the number of new notices; and the counts of
        :meth:`pipelines.registry.webhook_delivery.Watch.deliver`, which sends the queued notices.
    """
    with workspace(settings) as clone:
        path = clone.path / "metrics" / corpus / "batch_predict.json"
        metrics = json.loads(path.read_bytes()) if path.is_file() else {}
    found = {name: model for name, model in metrics.items() if (model.get("drift") or {}).get("exceeded")}
    queued = 0
    with Journal.of(settings, clock=now) as journal:
        watch = Watch.open(journal, clock=now)
        for name, model in found.items():
            months = model["drift"]["exceeded"]
            for month, quantities in months.items():
                sys.stderr.write(f"drift: {name}/{model['version']} in {month}: {', '.join(quantities)}\n")
            queued += watch.drift(name, version=model["version"], months=months)
        delivered = watch.deliver()
    return {"drift": {name: model["drift"]["exceeded"] for name, model in found.items()}, "queued": queued, **delivered}
