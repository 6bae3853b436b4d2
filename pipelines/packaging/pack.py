"""Package a trained model as a self-contained folder, the model package (called ``pack`` in the code).

A model package holds weights (safetensors), the base model's configuration and tokenizer, the label scheme, thresholds
and calibration, ``model.json`` (:class:`pipelines.packaging.model_described.Described`), ``records.parquet`` (the ids
of the records that the model was trained or selected on), the card, and ``files.json``, which has the SHA-256 of all
other files and is written last. It contains no neighbours, texts or images of the corpus.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crisis_corpus import integrity
from crisis_corpus.integrity import listing
from pipelines.config.models import Chosen
from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.packaging import pack_memes, pack_posts
from pipelines.packaging.model_described import SCHEME, Described
from pipelines.packaging.refusals import NothingToPack, refuse_degenerate
from pipelines.registry.versions import subject
from pipelines.taxonomy.loader import path_of
from pipelines.vault.vault import Vault


def pack(name: str, *, chosen: Chosen, params: Params, settings: Settings, vault: Vault, root: Path, to: Path) -> Path:
    """Write the package of a trained model to the folder ``to``, which must be new or empty; return ``to``.

    Args:
        to: the folder of the model package.
    """
    corpus, category = subject(name, params=params)
    to.mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {"chosen": chosen, "params": params, "vault": vault, "root": root, "to": to}
    if params.corpora[corpus].content == "texts":
        described, records = pack_posts.filled(name, corpus=corpus, category=category, **given)
    else:
        described, records = pack_memes.filled(name, corpus=corpus, category=category, settings=settings, **given)
    return finish(to, described=described, records=records, root=root)


def finish(to: Path, *, described: Described, records: Collection[str], root: Path) -> Path:
    """Complete the model package in ``to``: description, record ids, scheme, card and, last, its list of files.

    Returns ``to``.
    """
    from pipelines.packaging import card

    refuse_degenerate(to, name=described.name)
    described.write(to)
    shutil.copy(path_of(described.scheme, root=root), to / SCHEME)
    pq.write_table(pa.table({"record_id": pa.array(sorted(set(records)), pa.string())}), to / integrity.RECORDS)
    card.write(to, described=described, measured=measured(described, root=root))
    (to / integrity.FILES).write_text(json.dumps(listing(to), indent=1, sort_keys=True) + "\n")
    return to


def measured(described: Described, *, root: Path) -> dict[str, object]:
    """Return the part of ``metrics/<corpus>/evaluate.json`` about the described model's task."""
    path = root / "metrics" / described.corpus / "evaluate.json"
    if not path.is_file():
        raise NothingToPack(name=described.name, detail=f"the stage evaluate@{described.corpus} has not run")
    found = json.loads(path.read_bytes())
    task = found["tasks"].get(described.task, {})
    if described.measured_as not in task.get("models", {}):
        detail = f"the stage evaluate@{described.corpus} has no metrics of '{described.measured_as}'"
        raise NothingToPack(name=described.name, detail=detail)
    return {**task, "sampling": found["sampling"], "split": found["split"]}
