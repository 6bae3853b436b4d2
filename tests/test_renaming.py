"""Under other names of corpora, schemes, categories and labels, rows and graph are equal but for the names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.core import rows
from pipelines.core.config.added_corpora import complete
from pipelines.core.config.params import Params, overlay, parse, validate
from pipelines.core.taxonomy import Category, load
from pipelines.core.taxonomy.task import tasks_of
from pipelines.workspace import dag_graph
from tests.renamed import CORPORA, ROOT, SCHEMES, Names, parameters

NAMES = Names()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the renamed schemes, and the profile that names them."""
    folder = tmp_path_factory.mktemp("renamed")
    (folder / "schemes").mkdir()
    for name in SCHEMES:
        (folder / "schemes" / f"{SCHEMES[name]}.yaml").write_text(yaml.safe_dump(NAMES.scheme(name), sort_keys=False))
    (folder / "renamed.yaml").write_text(yaml.safe_dump(NAMES.profile(sandboxed()), sort_keys=False))
    return folder


def sandboxed() -> dict[str, Any]:
    """Return the parameters under the sandbox's profile, which has labellers of every kind and registered models."""
    profile = parse((ROOT / "profiles" / "sandbox.yaml").read_text(), where="sandbox")
    return complete(overlay(parameters(), profile))


def renamed(root: Path) -> Params:
    profile = parse((root / "renamed.yaml").read_text(), where="renamed")
    return validate(complete(overlay(parameters(), profile)), where="renamed")


def test_the_renamed_profile_has_no_old_name(root: Path) -> None:
    params = renamed(root)
    assert [*params.corpora] == [*CORPORA.values()]
    sections = params.model_dump(
        mode="json", exclude={"models", "ensembles", "labellers", "round", "report", "sandbox", "release"}
    )
    words = set(words_of(sections))
    assert words.isdisjoint({*CORPORA, *SCHEMES, "figurative", "severity", "related"})


def words_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = [*value.values()]
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict | list):
            yield from words_of(each)
        elif isinstance(each, str):
            yield each


def test_the_rows_are_equal_but_for_the_names(root: Path) -> None:
    usual = rows.resolve(validate(sandboxed(), where="usual"), root=ROOT).model_dump(mode="json")
    found = NAMES.back(rows.resolve(renamed(root), root=root).model_dump(mode="json"))
    for section, entries in usual.items():
        assert found[section] == entries and entries


def test_the_graph_is_equal_but_for_the_names(root: Path) -> None:
    texts = {name: (ROOT / name).read_text() for name in dag_graph.SOURCES}
    with chdir(ROOT):
        usual = dag_graph.resolve(texts | {"profile": (ROOT / "profiles" / "sandbox.yaml").read_text()})
    with chdir(root):
        found = dag_graph.resolve(texts | {"profile": (root / "renamed.yaml").read_text()})
    assert in_order(NAMES.back(found)) == in_order(usual)


def in_order(graph: dict[str, Any]) -> dict[str, Any]:
    stages = [stage | {"upstream": sorted(stage["upstream"])} for stage in graph["stages"]]
    graph["stages"] = sorted(stages, key=lambda stage: str(stage["name"]))
    graph["protocols"] = sorted(graph["protocols"])
    return dict(json.loads(json.dumps(graph)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_schemes_check_and_rank_the_same_sets(scheme: str, root: Path) -> None:
    old, new = load(scheme), load(SCHEMES[scheme], root=root)
    for before, after in zip(old.categories.values(), new.categories.values(), strict=True):
        assert [NAMES.labels[name] for name in before.names] == [*after.names]
        assert sets(before) == [frozenset(map(NAMES.back, each)) for each in after.valid_sets(most=3)]
        for labels in before.valid_sets(most=2):
            assert before.severity(labels) == after.severity(NAMES.labels[name] for name in labels)
    assert [*tasks_of(old)] == [NAMES.back(key) for key in tasks_of(new)]


def sets(category: Category) -> list[frozenset[str]]:
    return category.valid_sets(most=3)
