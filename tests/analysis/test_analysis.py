"""The stage on the sandbox's items: what captions say by severity is found, and what no label decides is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import Params
from pipelines.evaluate.analysis import analysis
from pipelines.store.vault.vault import Vault
from tests.analysis import sandbox_items
from tests.contexts import context_of
from tests.refusals import refused
from tests.small_corpus import NOW


def metrics(root: Path, corpus: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "metrics" / corpus / "analysis.json").read_text())
    return found


def significant(found: dict[str, Any], factor: str) -> set[str]:
    return {name for name, test in found["factors"][factor].items() if test.get("significant")}


def check_memes(found: dict[str, Any]) -> None:
    # captions.py: plans are said at one severity, departures at several; no scene knows a label
    assert significant(found, "severity") >= {"default.planning", "default.departure"}
    assert not any(name.startswith("visual.") for factor in found["factors"] for name in significant(found, factor))
    planning = {(p["a"], p["b"]) for p in found["factors"]["severity"]["default.planning"]["pairs"] if p["significant"]}
    assert planning
    assert all("Suicide planning" in pair for pair in planning)


def test_memes_are_described_and_planted_differences_found(tmp_path: Path, vault: Vault) -> None:
    params = sandbox_items.memes(tmp_path, vault=vault, submissions=310, drawn=False)
    answer = analysis.run(context_of("memes", params=params, vault=vault, root=tmp_path))
    found = metrics(tmp_path, "memes")
    check_memes(found)
    assert answer["items"] == found["items"] == found["labels"]["severity"]["items"]
    assert 0 < found["units"] < found["items"]
    assert found["blocks"].keys() == {"visual", "text", "default"}
    assert answer["messages"].keys() == {"liwc", "nrc"}
    assert sum(found["labels"]["severity"]["labels"].values()) == found["items"]
    # FigSIM Figure 6 (a) to (c)
    assert [(p["rows"], p["columns"]) for p in found["pairs"]] == [
        ("figurative", "related"), ("severity", "related"), ("figurative", "severity")
    ]  # fmt: skip
    small = [n for p in found["pairs"] for cells in p["counts"].values() for n in cells.values() if n in range(1, 5)]
    assert not small


def test_posts_are_described_by_type(tmp_path: Path, vault: Vault) -> None:
    params = sandbox_items.posts(tmp_path, vault=vault, count=320)
    analysis.run(context_of("posts", params=with_lexicon(params, tmp_path), vault=vault, root=tmp_path))
    found = metrics(tmp_path, "posts")
    assert list(found["factors"]) == ["labels"]
    assert set(found["labels"]["labels"]["types"]) == set(found["order"]["types"]["labels"])
    assert sum(found["labels"]["labels"]["types"].values()) == sum(found["labels"]["labels"]["labels"].values())
    assert found["blocks"]["nrc"] == ["hue_of_sky", "joy"]
    assert "nrc.joy" in found["factors"]["labels"]
    [pair] = found["pairs"]
    assert (pair["rows"], pair["columns"]) == ("labels", "labels")
    text = (tmp_path / "metrics/posts/analysis.json").read_text()
    records = sorted(record for record, _ in analysis.read_gold("posts", root=tmp_path)[1])
    assert not any(record in text for record in records)
    analysis.run(context_of("posts", params=with_lexicon(params, tmp_path), vault=vault, root=tmp_path))
    assert (tmp_path / "metrics/posts/analysis.json").read_text() == text
    vault.destroy(records[:3], reason="request", now=NOW)
    assert analysis.run(context_of("posts", params=params, vault=vault, root=tmp_path))["items"] == found["items"] - 3
    assert metrics(tmp_path, "posts")["taken_down"] == 3


def with_lexicon(params: Params, root: Path) -> Params:
    (root / "nrc.txt").write_text("blue\thue_of_sky\t1\nblue\tjoy\t0\nlucky\tjoy\t1\nlucky\thue_of_sky\t0\n")
    values = params.model_dump()
    values["analysis"]["lexicons"]["nrc"]["path"] = str(root / "nrc.txt")
    return Params.model_validate(values)


def test_without_gold_the_next_step_is_named(tmp_path: Path, vault: Vault) -> None:
    params = sandbox_items.posts(tmp_path, vault=vault, count=160)
    (tmp_path / "snapshot/posts/gold/gold.parquet").unlink()
    with refused("NothingToAnalyse", match="dvc repro split@posts"):
        analysis.run(context_of("posts", params=params, vault=vault, root=tmp_path))


@pytest.mark.faults
def test_drawn_pictures_differ_by_no_label(tmp_path: Path, vault: Vault) -> None:
    params = sandbox_items.memes(tmp_path, vault=vault, submissions=310, drawn=True)
    analysis.run(context_of("memes", params=params, vault=vault, root=tmp_path))
    check_memes(metrics(tmp_path, "memes"))
