"""Predict every record of a corpus that was not taken down, with the champion models.

A champion is the version of a registered model that is in use. It is read from ``models/<corpus>/<name>.json`` in the
clone: a stage's inputs are files, and an MLflow alias is not a file. Predictions are kept with the digests of version,
partition and content, so that only new records are predicted, also in a partition that a takedown rewrote.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from crisis_corpus import client, trusted
from crisis_corpus import journal as journals
from crisis_corpus.integrity import sha256
from crisis_corpus.versions import UnknownModel
from pipelines.core.config.base import Positive, Section
from pipelines.core.config.models import Drift
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, RegistryError
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.models.kinds.registered.version import RegistryModel
from pipelines.models.prediction import VOTE
from pipelines.registry import drift
from pipelines.registry.journal import Journal
from pipelines.registry.packaging.inputs import FILES, SOURCES, TYPES
from pipelines.registry.versions import Registry, entry
from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.seal import open_column
from pipelines.store.stage import SCHEME, Context, Stage
from pipelines.store.vault.vault import Vault


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
    for old in _pins_folder(corpus, root=root).glob("*.json"):
        old.unlink()
    for name in params.batch_predict.get(corpus, ()):
        with suppress(trusted.NoChampion, UnknownModel):
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
    write_metrics(made.model_dump(mode="json"), _pins_folder(corpus, root=root) / f"{name}.json")
    return made


def pinned_versions(corpus: str, *, root: Path) -> Iterator[Pin]:
    """Yield the pins (model versions to run) of a corpus in a clone, sorted by model."""
    for path in sorted(_pins_folder(corpus, root=root).glob("*.json")):
        try:
            stored = Pin.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ConfigError("NotPinned", detail=f"{error.error_count()} entries of {path.name} are invalid") from None
        if stored.name != path.stem:
            raise ConfigError("NotPinned", detail=f"{path.name} names another model")
        yield stored


def _pins_folder(corpus: str, *, root: Path) -> Path:
    return root / "models" / corpus


# Ours: records whose content is in memory together, some 100 MB of large pictures.
TOGETHER = 256
TABLE = "predictions"
KEPT = "kept_predictions"

Known = Mapping[tuple[str, int, bytes], dict[str, Any]]
Json = dict[str, Any]


@dataclass(frozen=True)
class _PinnedModel:
    """One version that predicts one corpus."""

    pin: Pin
    task: Task
    inputs: tuple[str, ...]
    model: RegistryModel
    vault: Vault

    @property
    def table(self) -> str:
        """The table of the corpus with all columns that the model reads."""
        names = {SOURCES[column][0] for column in self.inputs}
        if len(names) != 1:
            detail = f"it reads {', '.join(self.inputs) or 'nothing'}, which no single table of the corpus has"
            raise RegistryError("CannotScore", uri=f"models:/{self.pin.model}", detail=detail)
        return names.pop()


STAGE = Stage(
    reads=("data", "models"), params=("batch_predict.{corpus}", "drift", "registry", SCHEME), writes=("scoring",)
)


def run(ctx: Context) -> Json:
    """Predict all records of a corpus that were not taken down, with every model that is pinned (``pins.py``).

    Args:
        corpus: reads ``models/<corpus>/*.json`` and ``data/<corpus>`` below ``root``; writes
            ``snapshot/<corpus>/scoring/<name>.parquet`` (the table ``predictions``; ``model`` is ``<name>/<version>``)
            and ``metrics/<corpus>/batch_predict.json``.

    Returns:
        By model name: ``version``, ``files`` (digest of the version's files), ``records``, ``items`` and ``taken_down``
        (counts), ``outcomes``, ``labels`` and ``alerts`` (items by label), and ``drift`` (the months compared with the
        model's test, and those whose predictions differ more than ``params`` allows).
    """
    corpus, params, settings, vault, root = ctx.corpus, ctx.params, ctx.settings, ctx.vault, ctx.root
    champions = list(pinned_versions(corpus, root=root))
    if not champions:
        raise ConfigError("NotPinned", detail=f"no model of {corpus} is pinned")
    folder = root / "data" / corpus
    inputs = {month: drift.inputs_of(paths) for month, paths in _months(folder, drift.INPUTS).items()}
    scheme = scheme_of(params.corpora[corpus].scheme, root=root)
    metrics = {}
    for champion in champions:
        task = task_of(scheme, entry(champion.name, params=params).task)
        asked = _pinned(champion, task=task, settings=settings, vault=vault)
        months = _months(folder, [FILES[asked.table]])
        predictions = _all(asked, months, kept=settings.home / "scored" / champion.name)
        # checked last: cached predictions, or ones made a moment ago, may be of records taken down since
        gone = vault.tombstoned({r for paths in months.values() for r in _record_ids(paths).to_pylist()})
        predictions = tables.without(predictions, gone)
        tables.write(predictions, root / "snapshot" / corpus / "scoring" / f"{champion.name}.parquet", name=TABLE)
        metrics[champion.name] = _counts(predictions, asked=asked, gone=len(gone))
        metrics[champion.name]["drift"] = _drift(predictions, asked=asked, inputs=inputs, bounds=params.drift)
    return write_metrics(metrics, root / "metrics" / corpus / "batch_predict.json")


def _pinned(pinned: Pin, *, task: Task, settings: Settings, vault: Vault) -> _PinnedModel:
    """Check that the pinned version may be run, and return it as a model of the task."""
    addresses = {"tracking_uri": settings.mlflow_tracking_uri, "journal_url": settings.journal_url}
    with journals.opened(settings.journal_url) as journal:
        known = trusted.find(pinned.name, pinned.version, registry=Registry.open(settings), journal=journal)
    if known.files != pinned.files:
        raise RegistryError(
            "CannotScore", uri=known.version.uri, detail="the files of this version differ from those that models/ pins"
        )
    model = RegistryModel(
        task,
        lambda: client.load(pinned.model, cache=settings.home / "models", **addresses),
        partial(RegistryError, "CannotScore", uri=f"models:/{pinned.model}"),
    )
    return _PinnedModel(pinned, task, tuple(known.registered.metrics.get("inputs", ())), model, vault)


def _months(folder: Path, patterns: Iterable[str]) -> dict[str, list[Path]]:
    months: dict[str, list[Path]] = {}
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        months.setdefault(path.relative_to(folder).parts[0], []).append(path)
    return months


def _record_ids(paths: Iterable[Path]) -> pa.ChunkedArray:
    return pa.concat_tables(pq.read_table(path, columns=["record_id"]) for path in paths)["record_id"]


def _all(asked: _PinnedModel, months: Mapping[str, Sequence[Path]], *, kept: Path) -> pa.Table:
    """Return the predictions of all partitions; only records without a kept prediction are predicted."""
    kept.mkdir(parents=True, exist_ok=True)
    version = hashlib.sha256(f"{asked.pin.model} {asked.pin.files}".encode()).hexdigest()
    places = {month: kept / f"{version}.{_key(paths)}" for month, paths in months.items()}
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # of this version and of partitions that were rewritten since, as a takedown does
        earlier = [path for path in kept.glob(f"{version}.*") if path not in places.values()]
        for month, paths in months.items():
            if not places[month].is_file():
                known = _known(earlier, paths=paths)
                rows = [row for path in paths for row in _said(asked, path, known=known)]
                half = kept / "half"
                tables.write_rows(rows, half, name=KEPT)
                half.replace(places[month])
        for path in {*kept.iterdir()} - {*places.values()}:
            path.unlink(missing_ok=True)
        return tables.concat([*places.values()], name=TABLE, columns=tables.SCHEMAS[TABLE].names)


def _known(earlier: Sequence[Path], *, paths: Sequence[Path]) -> Known:
    """Return the predictions of the records of a partition that are kept in these files, by item and content."""
    known: dict[tuple[str, int, bytes], Json] = {}
    if earlier:
        ids = _record_ids(paths)
        for path in earlier:
            table = tables.read(path, name=KEPT)
            for row in table.filter(pc.is_in(table["record_id"], value_set=ids.combine_chunks())).to_pylist():
                known[row["record_id"], row["image"], row["content"]] = row
    return known


def _key(paths: Sequence[Path]) -> str:
    lines = [f"{sha256(path)} {path.name}" for path in paths]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _said(asked: _PinnedModel, path: Path, *, known: Known) -> Iterator[Json]:
    """Predict the records of a file in batches, without those that were taken down or are ``known``."""
    name, columns = asked.table, [SOURCES[column][1] for column in asked.inputs]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=TOGETHER, columns=tables.with_bound(name, columns)):
            table = pa.Table.from_batches([batch])
            ids = table["record_id"].to_pylist()
            images = table["image"].to_pylist() if "image" in table.column_names else [0] * len(ids)
            items = list(zip(zip(ids, images, strict=True), _contents(table, columns=columns), strict=True))
            keys = [(*item, content) for item, content in items]
            fresh = [i for i, key in enumerate(keys) if key not in known]
            new = table.take(pa.array(fresh, pa.int64()))
            opened = [open_column(new, name=name, column=c, vault=asked.vault) for c in columns]
            # checked after opening: a record that is taken down meanwhile opens as empty, and must not be predicted
            gone = asked.vault.tombstoned(set(ids))
            yield from (known[key] for key in keys if key in known and key[0] not in gone)
            live = [at for at, i in enumerate(fresh) if ids[i] not in gone]
            sent = [dict(zip(asked.inputs, _cells(asked, [cells[at] for cells in opened]), strict=True)) for at in live]
            for at, said in zip(live, asked.model.predict(sent) if sent else (), strict=True):
                item, content = items[fresh[at]]
                about = {"task": asked.task.key, "model": asked.pin.model, "seed": None, "split": None}
                yield said.row(item, **about) | {"content": content}


def _cells(asked: _PinnedModel, opened: Sequence[bytes | None]) -> Iterator[bytes | str | None]:
    """Yield a row of input; an empty text means that there are no words: without one, a model would run OCR again."""
    for column, cell in zip(asked.inputs, opened, strict=True):
        yield cell if TYPES[column] == "binary" else (cell or b"").decode()


def _contents(table: pa.Table, *, columns: Sequence[str]) -> list[bytes]:
    """Return a digest of each row's encrypted content."""
    digests = [hashlib.sha256() for _ in range(len(table))]
    for column in columns:
        for digest, cell in zip(digests, table[column].to_pylist(), strict=True):
            digest.update(b"none " if cell is None else b"%d " % len(cell))
            digest.update(cell or b"")
    return [digest.digest() for digest in digests]


def _counts(predictions: pa.Table, *, asked: _PinnedModel, gone: int) -> Json:
    named = {
        key: Counter(label for row in predictions[key].to_pylist() for label in row or ())
        for key in ("labels", "alerts")
    }
    return {
        "version": asked.pin.version,
        "files": asked.pin.files,
        "records": len(set(predictions["record_id"].to_pylist())),
        "items": predictions.num_rows,
        "taken_down": gone,
        "outcomes": dict(Counter(predictions["outcome"].to_pylist())),
        **{key: {label: counts[label] for label in asked.task.labels} for key, counts in named.items()},
    }


def _drift(
    predictions: pa.Table, *, asked: _PinnedModel, inputs: Mapping[str, drift.Inputs], bounds: Drift
) -> Json | None:
    """Compare the predictions of each month with those of the test; ``None`` if the pin has no counts of the test.

    Returns:
        ``test``: the items of the test; ``months``: how many were compared; ``exceeded``: by month, the quantities that
        have drifted; ``newest``: the newest month, and its comparison (:func:`pipelines.registry.drift.compare`).
    """
    if (test := asked.pin.test) is None:
        return None
    rows = {(row["record_id"], row["image"]): row for row in predictions.to_pylist() if row["outcome"] == VOTE}
    made: Json = {"test": test.answered, "months": 0, "exceeded": {}, "newest": None}
    for month, known in sorted(inputs.items()):
        answers = [(item, rows[item]["labels"], tuple(rows[item]["scores"])) for item in known if item in rows]
        if answers:
            counts = drift.count(answers, task=asked.task, alerting=test.alerting, inputs=known)
            compared = drift.compare(test, counts, bounds=bounds)
            made["months"] += 1
            made["newest"] = {"month": month} | compared
            if compared["exceeded"]:
                made["exceeded"][month] = compared["exceeded"]
    return made
