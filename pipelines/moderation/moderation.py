"""Run the stage ``moderation``: ask moderation systems about the items with gold, and compare what they flag.

FigSIM 4.4: flag rates by severity (Table 2), and the mean score of self-harm by severity and figurative language
(Figure 3). Which categories a scheme has in their place: :class:`AuditedItems`. An item without a verdict (refused,
malformed, failed) is in no rate: it is counted beside them. Answers are first looked up in the
encrypted store of answers, so a killed stage and a later snapshot request only missing ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.llm.asking import PlannedRequests
from pipelines.llm.outcome import Outcome, check_failures
from pipelines.moderation.audit_figures import Audit
from pipelines.moderation.channels import AuditedItems, Judged, System, read
from pipelines.moderation.moderator import moderator_of
from pipelines.store import tables
from pipelines.store.answers import AnswerStore
from pipelines.store.metrics_file import write_metrics
from pipelines.store.vault.vault import Vault


def run(corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()) -> dict[str, Any]:
    """Audit ``moderation.systems``; write ``snapshot/<corpus>/moderation/moderation.parquet`` and metrics.

    Without a system, nothing is decrypted or sent, and the table is empty.

    Returns:
        ``by`` (the category of the levels), ``beside`` (by the presence of what scores are given too), ``levels``,
        ``least`` (smaller cells are hidden), ``items``, ``groups`` and
        ``taken_down``; ``systems``: the kind, model, input and ``scale`` of each with its ``requests``, ``cost`` in US
        dollars and figures (see :meth:`pipelines.moderation.audit_figures.Audit.system`); ``pairs`` (see its method
        ``pairs``).
    """
    names = params.moderation.of(corpus)
    metrics: dict[str, Any] = {"items": 0, "systems": {}, "pairs": []}
    rows: list[dict[str, Any]] = []
    if names:
        audited = read(corpus, params=params, vault=vault, root=root)
        judged = _judged(names, audited=audited, params=params, settings=settings, vault=vault)
        rows = [row for name, judgement in judged.items() for row in _rows(name, judgement=judgement, audited=audited)]
        metrics = _metrics(audited, judged=judged, params=params)
    table = pa.Table.from_pylist(rows, schema=tables.SCHEMAS["moderation"])
    tables.write(table, root / "snapshot" / corpus / "moderation" / "moderation.parquet", name="moderation")
    return write_metrics(metrics, root / "metrics" / corpus / "moderation.json")


def planned(
    corpus: str, *, params: Params, settings: Settings, vault: Vault, root: Path = Path()
) -> Iterator[PlannedRequests]:
    """Yield what the stage would send to each system, the receiver, and the cost; nothing is sent."""
    names = params.moderation.of(corpus)
    if not names:
        return
    items = list(read(corpus, params=params, vault=vault, root=root).items.values())
    with AnswerStore.open(settings.answers_url) as answers:
        for name in names:
            yield from System(name, params=params, settings=settings, answers=answers, vault=vault).plan(items)


def _judged(
    names: tuple[str, ...], *, audited: AuditedItems, params: Params, settings: Settings, vault: Vault
) -> dict[str, Judged]:
    items = list(audited.items.values())
    judged: dict[str, Judged] = {}
    with AnswerStore.open(settings.answers_url) as answers:
        for name in names:
            judged[name] = System(name, params=params, settings=settings, answers=answers, vault=vault).judge(items)
    # after all systems, so that the answers of every system are kept if one fails
    for name, judgement in judged.items():
        check_failures([verdict.outcome for verdict in judgement.verdicts], labeller=name, most=params.votes.max_failed)
    return judged


def _rows(name: str, *, judgement: Judged, audited: AuditedItems) -> Iterator[dict[str, Any]]:
    for (record_id, image), verdict in zip(audited.items, judgement.verdicts, strict=True):
        said = asdict(verdict) | {"outcome": str(verdict.outcome)}
        if verdict.outcome is not Outcome.VOTE:
            said["categories"] = None
        yield {"record_id": record_id, "image": image, "system": name} | said


def _metrics(audited: AuditedItems, *, judged: dict[str, Judged], params: Params) -> dict[str, Any]:
    audit = Audit(audited, params=params.moderation, least=params.analysis.least)
    systems = {}
    for name, judgement in judged.items():
        systems[name] = (
            moderator_of(name, params=params).described()
            | {"requests": judgement.requests, "cost": judgement.cost}
            | audit.system(judgement.verdicts)
        )
    return {
        "by": audited.by.key,
        "beside": audited.scheme.compared_by(audited.beside.key) if audited.beside else "",
        "least": params.analysis.least,
        "levels": audit.levels,
        "items": len(audited.items),
        "groups": len({*audited.groups.values()}),
        "taken_down": audited.taken_down,
        "systems": systems,
        "pairs": audit.pairs({name: judgement.verdicts for name, judgement in judged.items()}),
    }
