"""From a version to its records and back, from what MLflow has."""

from __future__ import annotations

import shutil

import pytest

from crisis_corpus import integrity
from crisis_corpus.integrity import NoPack
from crisis_corpus.versions import DIGEST
from pipelines.promotion.holdout import split_digest
from pipelines.registry import lineage
from pipelines.registry.candidate import Context
from tests.registry.small_registry import NAME, add, trained


def test_a_version_leads_to_commit_split_and_records(context: Context) -> None:
    version = add(context, knows=6)
    found = lineage.of_version(version, registry=context.registry, settings=context.settings)
    assert sorted(found.records) == trained(context.root)
    summary = found.summary()
    assert summary["split"] == split_digest("memes", root=context.root)
    assert (summary["data_commit"], summary["records"], summary["votes"]) == ("c" * 40, 36, None)
    told = f"{found!r} {summary}"
    assert not any(record in told for record in found.records)


def test_records_lead_to_versions_also_when_the_weights_are_gone(context: Context) -> None:
    ids = trained(context.root)
    first, second = add(context, knows=6, records=ids[:3]), add(context, knows=6, records=ids[2:5])
    given = {"registry": context.registry, "settings": context.settings}
    found = lineage.versions_of([*ids[:4], "f" * 32], **given)
    assert {r: [v.version for v in held] for r, held in found.versions.items()} == {
        ids[0]: [1], ids[1]: [1], ids[2]: [1, 2], ids[3]: [2],
    }  # fmt: skip
    assert found.unknown == ()
    assert ids[0] not in repr(found)
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
