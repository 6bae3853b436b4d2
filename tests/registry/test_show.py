"""What people are shown of the registry, above all when something is wrong with it."""

from __future__ import annotations

import io
import json
import shutil
from typing import Any

import pytest
from rich.console import Console

from crisis_corpus import integrity
from crisis_corpus.integrity import NoPack
from crisis_corpus.versions import CHAMPION, DIGEST, UnknownModel
from pipelines.registry import lineage, show
from pipelines.registry.candidate import Context
from pipelines.registry.promotion.holdout import split_digest
from pipelines.registry.promotion.promote import NotPromoted, promote, withdraw
from tests.registry.small_registry import NAME, add, altered, trained

WHO: dict[str, Any] = {"who": "tester", "why": "a [bold] test"}


def told(context: Context) -> dict[str, Any]:
    (model,) = show.gather(NAME, registry=context.registry, journal=context.journal)
    return json.loads(json.dumps(model))


def test_versions_decisions_and_their_figures(context: Context) -> None:
    assert show.gather(None, registry=context.registry, journal=context.journal) == []
    add(context, knows=4)
    promote(NAME, 1, **WHO, context=context)
    add(context, knows=2)
    with pytest.raises(NotPromoted):
        promote(NAME, 2, **WHO, context=context)
    model = told(context)
    assert (model["champion"], model["aliases"]["champion"], model["faults"], model["open"]) == (1, 1, [], None)
    assert [(v["version"], v["is"]) for v in model["versions"]] == [(1, ["champion"]), (2, [])]
    assert model["versions"][0]["data_commit"] == "c" * 40
    events = [row["event"] for row in model["journal"]]
    assert events == ["registered", "looked", "gated", "intended", "promoted", "registered", "looked", "refused"]
    refused = model["journal"][-1]
    assert [*refused["figures"]["macro_f1"]] == ["other"] and "p" not in refused["figures"]["look"]
    assert refused["reasons"][0].startswith("better: its macro-F1") and refused["figures"]["test"] == 72
    text = io.StringIO()
    show.render([model], console=Console(file=text, width=200))
    page = text.getvalue()
    assert "version 1 is champion" in page and "a [bold] test" in page and "better: its macro-F1" in page
    summary = {"name": NAME, "champion": 1, "journal": 8, "event": "promoted", "at": "", "who": "tester"}
    assert show.summary(context.journal)[0] | {"at": ""} == summary


def test_withdrawn_open_and_astray_versions_are_shown(context: Context) -> None:
    add(context, knows=4)
    add(context, knows=6, journal=False)
    promote(NAME, 1, **WHO, context=context)
    withdraw(NAME, 1, **WHO, context=context)
    assert told(context)["versions"][0]["is"] == ["withdrawn"]
    assert told(context)["faults"] == ["the journal has no registration of version 2"]
    context.registry.point(NAME, CHAMPION, 2)
    assert "the alias points to 2, but no version is champion in the journal" in told(context)["faults"]
    context.journal.append(NAME, event="intended", to_version=1, metrics={"leads_to": "promoted"}, **WHO)
    assert told(context)["open"] == len(context.journal.rows(NAME))
    assert "a move is open" in told(context)["faults"][0]


def test_a_broken_journal_is_shown_and_said_to_be_broken(context: Context) -> None:
    add(context, knows=4)
    altered(context.journal, "UPDATE journal SET why = 'another'")
    model = told(context)
    assert "was altered at row 1" in model["faults"][0] and model["journal"][0]["why"] == "another"


def test_an_unknown_model_is_no_empty_one(context: Context) -> None:
    with pytest.raises(UnknownModel):
        show.gather("other", registry=context.registry, journal=context.journal)


def test_a_version_leads_to_commit_split_and_records(context: Context) -> None:
    version = add(context, knows=6)
    found = lineage.of_version(version, registry=context.registry, settings=context.settings)
    assert sorted(found.records) == trained(context.root)
    summary = found.summary()
    assert summary["split"] == split_digest("memes", root=context.root)
    assert (summary["data_commit"], summary["records"], summary["votes"]) == ("c" * 40, 36, None)
    told = f"{found!r} {summary}"
    assert not any(record in told for record in found.records)
    shown = show.records_of(NAME, 1, registry=context.registry, settings=context.settings)
    assert shown["record_ids"] == trained(context.root) and shown["data_commit"] == "c" * 40


def test_records_lead_to_versions_also_when_the_weights_are_gone(context: Context) -> None:
    ids = trained(context.root)
    first, second = add(context, knows=6, records=ids[:3]), add(context, knows=6, records=ids[2:5])
    given = {"registry": context.registry, "settings": context.settings}
    found = lineage.versions_of([*ids[:4], "f" * 32], **given)
    held = {record_id: [v.version for v in versions] for record_id, versions in found.versions.items()}
    assert held == dict(zip(ids[:4], ([1], [1], [1, 2], [2]), strict=True))
    assert found.unknown == ()
    assert ids[0] not in repr(found)
    shown = {ids[0]: [f"models:/{NAME}/1"], ids[5]: []}
    assert show.versions_of([ids[0], ids[5]], **given) == {"records": shown, "unknown": []}
    # the copy of ids is all that is needed, until it is forgotten
    shutil.rmtree(first.source)
    assert lineage.versions_of(ids[:1], **given) == lineage.versions_of(ids[:1], **given)
    assert lineage.versions_of(ids[:1], **given).versions[ids[0]] == (first,)
    lineage.forget(first, settings=context.settings)
    assert [v.version for v in lineage.versions_of(ids[:1], **given).unknown] == [1]
    assert second.version == 2


def test_a_version_that_does_not_say_is_named(context: Context) -> None:
    version = add(context, knows=6, change=lambda pack: (pack / integrity.RECORDS).unlink())
    given = {"registry": context.registry, "settings": context.settings}
    with pytest.raises(NoPack, match=r"records\.parquet is missing"):
        lineage.of_version(version, **given)
    assert lineage.versions_of(trained(context.root), **given) == lineage.Holders({}, (version,))


def test_a_digest_that_is_none_names_no_folder(context: Context) -> None:
    version = add(context, knows=6)
    context.registry.tag(version, {DIGEST: "../../elsewhere"})
    found = lineage.of_version(context.registry.version(NAME, 1), registry=context.registry, settings=context.settings)
    assert len(found.records) == 36
    assert not (context.settings.home / "registry").exists()
    assert not list((context.settings.home / "scratch").iterdir())
