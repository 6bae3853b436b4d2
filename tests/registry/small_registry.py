"""A registry of models that know some words of the small corpus of memes: the more words, the better they are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crisis_corpus import integrity
from crisis_corpus.integrity import digest, listing
from crisis_corpus.versions import DIGEST, Version
from pipelines.core.config.models import Promote
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.registry import transitions
from pipelines.registry.candidate import Context
from pipelines.registry.journal import Journal
from pipelines.registry.promotion.holdout import Frozen, open_test, split_digest
from pipelines.registry.promotion.promote import Moved, promote
from pipelines.registry.versions import Registry
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests import mlflow_database
from tests.built_once import built_once
from tests.train import small_memes

REPO = Path(__file__).resolve().parents[2]
SECRET = bytes.fromhex("7a" * 64)
NAME, TASK = "meme-severity", "severity"
WHO: dict[str, Any] = {"who": "tester", "why": "a test"}
GRAVEST = "Suicide attempt/death"
# what models see of either
MERGED = dict.fromkeys(("Suicide attempts", "Suicide death"), GRAVEST)
# a level of .1 for each of nine looks, at the whole test: it has 36 groups
TERMS = Promote(
    alpha=0.9, looks=9, parts=1, refresh=0, baselines=(), severe=3, tolerance=0.2, undecided="ask",
    recall_floors={NAME: {GRAVEST: 0.5}},
)  # fmt: skip
SIZES = {"train": 24, "validation": 12, "test": 72}
PLANNED = json.dumps({"intended": "tests", "prohibited": "everything else"})


def built() -> Path:
    """Return a folder of what takes long: a saved model and a corpus."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    return built_once("registry", _make)


def _make(folder: Path) -> None:
    from mlflow import pyfunc

    pack = folder / "pack"
    pack.mkdir()
    (pack / integrity.FILES).write_text("{}")
    script = str(Path(__file__).with_name("rule_model.py"))
    pyfunc.save_model(str(folder / "model"), python_model=script, artifacts={"pack": str(pack)}, pip_requirements=[])
    corpus = folder / "corpus"
    corpus.mkdir()
    with vault_of(corpus) as vault:
        small_memes.write(corpus, vault=vault, sizes=SIZES, shows="text")


def begin(home: Path) -> None:
    """Copy what was built into a folder of its own."""
    shutil.copytree(built() / "corpus", home)
    mlflow_database.place(home)
    shutil.copytree(built() / "model", home / "saved")


def vault_of(home: Path) -> Vault:
    return Vault.open(f"sqlite:///{home}/vault.sqlite", secret=SECRET)


@contextmanager
def opened(home: Path, **terms: Any) -> Iterator[Context]:
    """Open everything, as a command does, with changes to ``TERMS``; also in another process."""
    os.environ["CORPUS_HOME"], os.environ["MLFLOW_TRACKING_URI"] = str(home), f"sqlite:///{home}/mlflow.sqlite"
    settings = Settings.from_env()
    params = load_params(REPO)
    with vault_of(home) as vault, Journal.of(settings, clock=_now) as journal:
        changed = TERMS.model_copy(update=terms)
        yield Context(Registry.open(settings), journal, params, changed, settings, vault, home)


def _now() -> datetime:
    return datetime(2023, 1, 2, tzinfo=UTC)


def severity_test(context: Context) -> Frozen:
    return open_test("memes", category=TASK, params=context.params, vault=context.vault, root=context.root)


def trained(home: Path) -> list[str]:
    """Return the records of train and validation, in order."""
    rows = tables.read(home / "snapshot" / "memes" / "split" / "splits.parquet", name="splits").to_pylist()
    return sorted(row["record_id"] for row in rows if row["split"] != "test")


def add(
    context: Context,
    *,
    knows: int,
    after: Callable[[Path], object] | None = None,
    journal: bool = True,
    **given: Any,
) -> Version:
    """Register one more version, which :func:`saved` makes with ``given``.

    ``after`` alters its folder when it is registered; ``journal``: whether its registration is on record.
    """
    number = len(context.registry.versions(NAME)) + 1
    folder = saved(context, to=context.root / "versions" / str(number), knows=knows, **given)
    found = digest(folder)
    tags = {DIGEST: found, "data_commit": "c" * 40}
    version = context.registry.add(NAME, source=str(folder), run_id=None, tags=tags)
    if journal:
        given = {"event": "registered", "who": "corpus register", "why": "a test"}
        given["metrics"] = {"inputs": ["image", "text"]}
        context.journal.append(NAME, to_version=version.version, files=found, **given)
    if after:
        after(folder)
    return version


def saved(
    context: Context,
    *,
    to: Path,
    knows: int,
    records: Collection[str] | None = None,
    labels: Sequence[str] | None = None,
    abstains: Sequence[str] = (),
    change: Callable[[Path], object] | None = None,
) -> Path:
    """Save a model that knows so many of the severities in the folder ``to``.

    Args:
        knows: of six; the gravest are learnt first.
        records: its training records; by default all of train and validation.
        labels: what ``model.json`` says; by default the task's.
        abstains: words at which it abstains.
        change: alters its folder; ``files.json`` is written after it.
    """
    shutil.copytree(context.root / "saved", to)
    pack = integrity.place(to)
    ids = sorted(trained(context.root) if records is None else records)
    known = {word: MERGED.get(label, label) for label, word in list(small_memes.WORDS[TASK].items())[6 - knows :]}
    described: dict[str, Any] = {
        "format": 1,
        "kind": "rule",
        "task": TASK,
        "labels": list(labels or _labels(context)),
        "inputs": ["image", "text"],
        "scheme_digest": "5" * 64,
        "data_commit": "c" * 40,
        "split_digest": split_digest("memes", root=context.root),
        "train": {"records": len(ids), "digest": "7" * 64},
    }
    (pack / integrity.MODEL).write_text(json.dumps(described))
    rules = {"words": known, "default": ["Suicide planning"], "abstains": list(abstains)}
    (pack / "words.json").write_text(json.dumps(rules))
    (pack / integrity.CARD).write_text(PLANNED)
    (pack / integrity.PAGE).write_text("# A model for tests\n")
    pq.write_table(pa.table({"record_id": pa.array(ids, pa.string())}), pack / integrity.RECORDS)
    if change:
        change(pack)
    with suppress(FileNotFoundError):
        (pack / integrity.FILES).unlink()
    (pack / integrity.FILES).write_text(json.dumps(listing(pack)))
    return to


def _labels(context: Context) -> Sequence[str]:
    from pipelines.core.taxonomy import load
    from pipelines.core.taxonomy.task import task_of

    return task_of(load(context.params.corpora["memes"].scheme), TASK).labels


def altered(journal: Journal, statement: str) -> None:
    """Do to a journal what the owner of its database can: take the guard away first."""
    with journal.engine.writing() as connection:
        for drop in ("UPDATE", "DELETE", "INSERT") if journal.engine.backend == "sqlite" else ():
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS journal_{drop}")
        if journal.engine.backend == "postgresql":
            connection.exec_driver_sql("DROP TRIGGER IF EXISTS journal_refuse ON journal")
        connection.exec_driver_sql(statement)


def events(context: Context) -> list[tuple[str, int | None, int | None]]:
    """Return what the journal says: event, from, to."""
    return [(row.event, row.from_version, row.to_version) for row in context.journal.rows(NAME)]


def take_down(context: Context, ids: Collection[str]) -> None:
    context.vault.destroy(ids, reason="test", now=datetime(2023, 2, 1, tzinfo=UTC))


def promoted(context: Context, *, knows: int) -> Moved:
    """Register one more version, and promote it through the gate."""
    return promote(NAME, add(context, knows=knows).version, **WHO, context=context)


def champion(context: Context, version: int, *, before: int | None = None, name: str = NAME) -> None:
    """Make a version champion as a move does, without asking the gate, which takes seconds."""
    files = context.registry.version(name, version).digest
    move = transitions.Move(name, "promoted", before, before, version, "tester", "a test", {}, files)
    intention = transitions.intend(move, journal=context.journal)
    transitions.finish(intention, registry=context.registry, journal=context.journal, say=lambda _: None)
