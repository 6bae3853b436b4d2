"""Pin the champions of a corpus: write which model versions the stage ``batch_predict`` runs to files in the clone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from crisis_corpus import trusted
from pipelines.core.config.base import Positive, Section
from pipelines.core.config.params import Params
from pipelines.core.errors import ConfigError
from pipelines.registry import drift
from pipelines.registry.journal import Journal
from pipelines.registry.versions import Registry
from pipelines.store.metrics_file import write_metrics


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
            pinned.append(pin(name, corpus=corpus, registry=registry, journal=journal, root=root))
    return pinned


def pin(name: str, *, corpus: str, registry: Registry, journal: Journal, root: Path = Path()) -> Pin:
    """Write the champion version of the model ``name`` to ``models/<corpus>/<name>.json`` of a clone; return the pin.

    The same champion gives equal bytes.
    """
    champion = trusted.find(name, None, registry=registry, journal=journal)
    version = champion.version.version
    test = drift.reference(journal, name=name, version=version)
    made = Pin(name=name, version=version, files=champion.files, test=test)
    write_metrics(made.model_dump(mode="json"), _folder(corpus, root=root) / f"{name}.json")
    return made


def read(corpus: str, *, root: Path) -> Iterator[Pin]:
    """Yield the pins (model versions to run) of a corpus in a clone, sorted by model."""
    for path in sorted(_folder(corpus, root=root).glob("*.json")):
        try:
            stored = Pin.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ConfigError("NotPinned", detail=f"{error.error_count()} entries of {path.name} are invalid") from None
        if stored.name != path.stem:
            raise ConfigError("NotPinned", detail=f"{path.name} names another model")
        yield stored


def _folder(corpus: str, *, root: Path) -> Path:
    return root / "models" / corpus
