"""The stages' modules say what ``dvc.yaml`` and the rows depend on, so that a change of code is a change of result."""

from __future__ import annotations

import runpy
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.cli.stages import STAGES
from pipelines.core import rows
from pipelines.core.config.label import RemoteLabeller
from pipelines.core.config.params import Params, load

ROOT = Path(__file__).resolve().parents[1]
MADE = runpy.run_path(str(ROOT / "docs" / "stages.py"))
GRAPH: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PROFILES = {name: load(ROOT, profile=name) for name in ("figsim", "cradle")}
# The most modules that all rows of these stages depend on: each is a reason to train or predict everything again.
MOST_MODULES = {"train": 35, "predict": 45}


def test_the_committed_graph_is_that_of_the_modules() -> None:
    for path, text in MADE["texts"]().items():
        assert (ROOT / path).read_text() == text, f"{path}: run `make stages`"


def test_the_committed_rows_are_those_of_the_parameters() -> None:
    assert (ROOT / rows.FILE).read_text() == rows.text(load(ROOT), root=ROOT), "run `make stages`"


def test_the_versions_of_libraries_are_the_locked_ones() -> None:
    text = runpy.run_path(str(ROOT / "docs" / "libraries.py"))["text"]
    assert (ROOT / MADE["LIBRARIES"]).read_text() == text(), "run `make stages`"


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_has_the_name_of_its_module_its_command_and_its_section(name: str) -> None:
    stage = GRAPH[name].get("do", GRAPH[name])
    assert STAGES[name].rpartition(".")[2] == name
    assert stage["cmd"].startswith(f"python -m pipelines {name} ")
    keys = chain.from_iterable(
        [param] if isinstance(param, str) else next(iter(param.values())) for param in stage["params"]
    )
    # the entry of a model names the labeller of its remarks, and that of a labeller how it votes
    section = {"rationales": "models"}.get(name, name)
    assert {section, f"{section}s"} & {key.split(".")[0] for key in keys}


def test_what_keeps_a_published_split_depends_on_its_file_and_on_no_round() -> None:
    for name in ("dedupe", "sample"):
        deps = GRAPH[name]["do"]["deps"]
        assert "${item.published}" in deps and "annotations/${item.corpus}" not in deps, "a round would run it again"
    corpora = {name: rows.resolve(params, root=ROOT).corpora for name, params in PROFILES.items()}
    assert corpora["figsim"]["memes"].published == "annotations/memes/figsim/splits.csv"
    assert corpora["cradle"]["memes"].published == "data/memes"


@pytest.mark.parametrize("name", MOST_MODULES)
def test_all_rows_depend_on_few_modules(name: str) -> None:
    assert len(MADE["shared"](name)) <= MOST_MODULES[name], "move what one small function needs"


@cache
def rows_of(section: str) -> dict[str, tuple[Any, Any]]:
    """Return the rows of the papers' profiles by key, each with the parameters."""
    made = {name: rows.resolve(params, root=ROOT) for name, params in PROFILES.items()}
    return {key: (row, PROFILES[name]) for name, own in made.items() for key, row in getattr(own, section).items()}


def reached(edited: str) -> set[str]:
    """Return the rows and stages that an edit of a file makes run again."""

    def covers(deps: Iterable[str]) -> bool:
        return any(edited == dep or edited.startswith(f"{dep}/") for dep in deps)

    found = set()
    for name, entry in GRAPH.items():
        found |= {name} if covers(entry.get("do", entry)["deps"]) else set()
        if section := MADE["declared"](name).rows:
            found |= {f"{name}@{key}" for key, (row, _) in rows_of(section).items() if covers(getattr(row, "code", ()))}
    return found


def of_kind(*kinds: str) -> set[str]:
    """Return the rows whose models are of a kind."""
    return {
        f"{name}@{key}"
        for name, section in (("train", "fits"), ("predict", "answers"))
        for key, (row, params) in rows_of(section).items()
        if params.models[row.model].kind in kinds
    }


def test_an_edit_of_a_kind_reaches_its_own_rows_alone() -> None:
    for kind in ("text", "sft", "prompted"):
        assert reached(f"pipelines/models/kinds/{kind}/__init__.py") == of_kind(kind) | {"evaluate"} != {"evaluate"}
    # how classifiers are trained
    again = reached("pipelines/models/fitting/classifier.py")
    assert again >= of_kind("text", "image") and not again & (of_kind("sft", "encoder", "prompted") | {*STAGES})


def test_an_edit_of_shared_code_reaches_every_row() -> None:
    assert {"train", "predict"} <= reached("pipelines/datasets/items.py")
    assert {*STAGES} == reached("pipelines/store/metrics_file.py")
    assert not reached("pipelines/core/process.py")
    assert not reached("pipelines/cli/shared.py")


def test_an_edit_of_a_vendor_reaches_the_rows_that_ask_it() -> None:
    def asks(labeller: str | None, params: Params, *, vendor: str) -> bool:
        entry = params.labellers.get(labeller or "")
        return isinstance(entry, RemoteLabeller) and params.providers[entry.provider].api == vendor

    for vendor in ("openai", "anthropic"):
        again = {row for row in reached(f"pipelines/llm/vendors/{vendor}.py") if "@" in row}
        votes = {
            f"votes@{key}" for key, (row, params) in rows_of("votes").items() if asks(row.name, params, vendor=vendor)
        }
        answers = {
            f"predict@{key}"
            for key, (row, params) in rows_of("answers").items()
            if asks(params.models[row.model].labeller, params, vendor=vendor)
        }
        assert again == votes | answers and votes and answers


def test_no_stage_before_train_depends_on_how_models_are_asked() -> None:
    asking = {path for path in MADE["shared"]("train") if "/label/" in path or "/llm/" in path}
    assert asking <= {"pipelines/llm/own_prompts.py"}


def test_files_of_data_are_dependencies() -> None:
    for path in ("llm/vendors/openai.yaml", "label/attacks.yaml", "core/taxonomy/schemes/communities.yaml"):
        assert reached(f"pipelines/{path}"), path
