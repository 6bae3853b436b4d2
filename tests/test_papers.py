"""Parameters hold what the papers state; rows of docs/papers.md and docs/security.md name only what exists."""

from __future__ import annotations

import ast
import json
import re
import runpy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.core.config.params import load
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import tasks_of
from pipelines.models.kind import spec

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "papers.md"
COLUMNS = ["paper section", "statement", "parameter", "command"]
# The sections that a paper's table may cite, in their order. Sections 1 and 2 of both papers have nothing to implement.
SECTIONS = {
    "FigSIM": [
        "3.1", "3.2", "3.3", "4", "4.1", "4.2", "4.3", "4.4", "5", "5.1", "5.2", "5.3", "6", "7", "Limitations",
        "Ethics", "A", "B", "C", "D", "E.1", "E.2", "F",
    ],
    "CRADLE": [
        "3.1", "3.2", "3.3.1", "3.3.2", "3.3.3", "3.3.4", "3.3.5", "3.4", "4.1", "4.2", "4.3", "5.1", "5.2",
        "5.3", "6", "7", "Limitations", "Ethics", "A", "B.1", "B.2", "C", "D", "E", "F",
    ],
}  # fmt: skip
# The sections without a row: they repeat statements of others.
WITHOUT = {"FigSIM": {"6", "7"}, "CRADLE": set[str]()}
NONE = "–"


@dataclass(frozen=True)
class Row:
    """A row of the page; ``where`` names it in failures."""

    where: str
    paper: str
    cells: tuple[str, ...]

    def names(self, column: str) -> list[str]:
        """Return the names in a cell: each in backticks, separated by commas; a dash is none."""
        cell = self.cells[COLUMNS.index(column)]
        names = [] if cell == NONE else re.findall(r"`([^`]+)`", cell)
        expected = ", ".join(f"`{name}`" for name in names) or NONE
        assert cell == expected, f"{self.where}: the cell '{column}' is neither a dash nor names in backticks: {cell!r}"
        return names


def table_rows() -> list[Row]:
    found, paper = [], ""
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if line.startswith("## "):
            paper = line.removeprefix("## ")
        if line.startswith("|"):
            cells = tuple(cell.strip() for cell in line.strip().strip("|").split("|"))
            found.append(Row(f"docs/papers.md:{number} ({paper} {' '.join(cells[:2])[:60]})", paper, cells))
    return [row for row in found if row.cells != tuple(COLUMNS) and set("".join(row.cells)) != {"-"}]


ROWS = table_rows()


def resolved(profile: str | None = None) -> dict[str, Any]:
    """Return the parameters, the entries of models with the defaults of their kinds, and the tasks of each corpus."""
    params = load(ROOT, profile=profile)
    models = {name: spec(params, name).model_dump(mode="json") for name in params.models}
    tasks = {name: [*tasks_of(load_scheme(corpus.scheme, root=ROOT))] for name, corpus in params.corpora.items()}
    return params.model_dump(mode="json") | {"models": models, "tasks": tasks}


def has(values: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True


@pytest.mark.parametrize("paper", SECTIONS)
def test_rows_cite_every_section_of_the_papers_in_their_order(paper: str) -> None:
    cited = list(dict.fromkeys(row.cells[0] for row in ROWS if row.paper == paper and all(row.cells)))
    assert cited == [section for section in SECTIONS[paper] if section not in WITHOUT[paper]]


def test_every_parameter_is_in_params_yaml() -> None:
    params = resolved()
    wrong = [f"{row.where}: {name}" for row in ROWS for name in row.names("parameter") if not has(params, name)]
    assert not wrong, "params.yaml has no such key:\n" + "\n".join(wrong)


def test_every_command_exists() -> None:
    known = {" ".join(path) for path in dict(runpy.run_path(str(ROOT / "docs" / "reference.py"))["commands"]())}
    wrong = [f"{row.where}: {name}" for row in ROWS for name in row.names("command") if name not in known]
    assert not wrong, "no such command:\n" + "\n".join(wrong)


STATED = yaml.safe_load((Path(__file__).parent / "paper_values.yaml").read_text())
# a profile of a paper may add to params.yaml, never contradict the paper
PAPERS = [None, *(name for name in ("cradle", "figsim") if (ROOT / "profiles" / f"{name}.yaml").is_file())]
# Pool and queue of every task that needs one, and what happens without it.
GPU = ({"pool": "gpu", "queue": "gpu"}, "a worker without an accelerator would train, or two tasks would share one GPU")
PLACES: dict[str, tuple[dict[str, str], str]] = {
    **dict.fromkeys(("train", "predict__computed", "batch_predict"), GPU),
    **dict.fromkeys(("collect", "refresh", "sweep"), ({"pool": "reddit"}, "two tasks would spend one client's budget")),
    "images": ({"pool": "images"}, "more pictures would be decoded at once than there are cores"),
    "texts": ({"pool": "texts"}, "more shards would be checked at once than there are cores"),
    **dict.fromkeys(("publish", "champions", "takedown"), ({"pool": "publish"}, "commits would race, and be lost")),
}
ONE_SLOT = ("reddit", "publish", "openai", "anthropic", "google", "local", "azure", "guard")


def sorted_names(value: Any) -> Any:
    """Return a list of names sorted: the order of subreddits or ensemble members means nothing."""
    return sorted(value) if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value) else value


@pytest.mark.parametrize("profile", PAPERS)
def test_the_parameters_hold_what_the_papers_state(profile: str | None) -> None:
    params = resolved(profile)
    fitted = set(params["train"]["rows"]["memes"]["models"]) - {"m3h"}  # its own authors say how
    recipes = {f"models.{model}.{key}": stated for model in fitted for key, stated in STATED["recipe"].items()}
    differs = []
    for path, stated in (STATED["all"] | recipes | STATED.get(profile, {})).items():
        found: Any = params
        for key in path.split("."):
            found = found[key]
        if sorted_names(found) != sorted_names(stated["is"]):
            differs.append(f"{path} is {found!r}; {stated['source']} states {stated['is']!r}")
    assert not differs, (
        f"{'; '.join(differs)}. Restore the paper's value in params.yaml or profiles/{profile}.yaml and put yours into "
        "a profile of its own; if the transcription is wrong, correct tests/paper_values.yaml after reading the paper."
    )


def test_the_page_states_the_threshold_that_the_paper_leaves_open() -> None:
    threshold = resolved()["moderators"]["azure"]["flag_from"]
    assert f"Azure's threshold is not stated, here {threshold} of 7" in PAGE.read_text()


def test_expensive_tasks_keep_their_pool_and_queue() -> None:
    options = json.loads((ROOT / "profiles" / "tasks.json").read_text())
    for task, (place, reason) in PLACES.items():
        found = {key: options.get(task, {}).get(key) for key in place}
        assert found == place, f"profiles/tasks.json, {task}: restore {place}: {reason}"
    others = {t for t, o in options.items() if {"pool", "queue"} & set(o)} - set(PLACES)
    assert not others, f"tests/test_papers.py: add {sorted(others)} to PLACES, with the reason"


def test_what_must_not_run_twice_at_once_has_one_slot() -> None:
    pools = json.loads((ROOT / "profiles" / "pools.json").read_text())
    assert {place["pool"] for place, _ in PLACES.values()} <= set(pools)
    for name in ONE_SLOT:
        assert pools[name]["slots"] == 1, f"profiles/pools.json, {name}: {pools[name]['description']}"
    assert all(pool["description"] and not pool["include_deferred"] for pool in pools.values())


SECURITY = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "security.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| attack |")
]


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", SECURITY, ids=lambda row: row[0][:40])
def test_a_row_names_tests_that_exist(row: list[str]) -> None:
    attack, control, tests, remains = row
    assert attack and control and remains
    named = re.findall(r"`([^`]+)`", tests)
    assert named, "a control without a test is a claim"
    for name in named:
        file, _, function = name.partition("::")
        assert function in functions(file), name
