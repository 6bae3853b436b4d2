"""A stage names the code it runs, so that a change of code is a change of result."""

from __future__ import annotations

import ast
import runpy
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.core import rows
from pipelines.core.config.params import load
from pipelines.models.kind import KINDS

ROOT = Path(__file__).resolve().parents[1]
GRAPH: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
STAGES = {name: stage.get("do", stage) for name, stage in GRAPH.items()}
OURS = ("crisis_corpus", "pipelines")
# What every stage uses and what never shapes a result: messages, the reading of values that DVC tracks itself
# (params), the vault (a record is there or it is not), how a database is opened, and the embedded deployment.
MODULES = ("errors", "parallel", "parts", "process", "progress", "telemetry", "timing")
CORE = [f"pipelines/core/{name}.py" for name in MODULES]
APART = [
    *("crisis_corpus/errors.py", "__init__.py", "pipelines/workspace/git.py", "pipelines/core/config/", *CORE),
    *("pipelines/store/vault/", "pipelines/operate/services/"),
]
# Libraries that compute no result: they check, store, encrypt, draw or send.
LIBRARIES_APART = {
    "anthropic", "cryptography", "datasets", "dvc", "filelock", "genai_prices", "google", "httpx2", "huggingface_hub",
    "matplotlib", "mlflow", "openai", "orjson", "pandas", "psutil", "pyarrow", "pydantic", "pydantic_ai", "rich",
    "safetensors", "sqlalchemy", "yaml", "zstandard",
}  # fmt: skip
# Stages whose results are the answers of vendors: a new version of a library is no reason to pay for others.
ASKING = {"rationales"}
LIBRARIES = "pipelines/libraries.yaml"
# What a row imports by a name that is made up as it runs: the package of its model's kind.
BY_KIND = "pipelines/models/kinds"
OF_STAGE = {
    "train": sorted(name for name in KINDS.names({}) if KINDS.get(name, {}).fitted),
    "predict": sorted(KINDS.names({})),
}
# The most modules that these stages may depend on: each one is a reason to train or predict again.
MOST_MODULES = {"train": 75, "predict": 110}
# Stage -> the section used instead of its own: the entry of a model names the labeller of its remarks.
SECTION = {"rationales": "models"}


@cache
def names_in(path: Path) -> set[str]:
    """Return the modules that a file imports, at any level, other than for type annotations."""
    names = set()
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Parts":
            package = ast.literal_eval(node.args[0])
            names |= {f"{package}.{part.stem}" for part in (ROOT / package.replace(".", "/")).glob("*.py")}
    return names


@cache
def imported(path: Path) -> set[Path]:
    """Return the files of this project that a file imports."""
    places = [ROOT / name.replace(".", "/") for name in names_in(path) if name.startswith(OURS)]
    return {file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists()}


def closure(*paths: Path) -> set[str]:
    found: set[Path] = set()
    waiting = set(paths)
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= imported(file) - found
    return {str(file.relative_to(ROOT)) for file in found}


def named(stage: dict[str, Any]) -> set[str]:
    deps = {d.replace("${item.code}", BY_KIND) for d in stage["deps"] if d.startswith((*OURS, "${item.code}"))}
    return {str(f.relative_to(ROOT)) for d in deps for f in [ROOT / d, *(ROOT / d).rglob("*.py")] if f.is_file()}


def modules(name: str) -> list[Path]:
    """Return the module of a stage, and those of the kinds of its rows."""
    [module] = [path for path in (ROOT / "pipelines").rglob(f"{name}.py") if "cli" not in path.parts]
    return [module, *(path for kind in OF_STAGE.get(name, ()) for path in (ROOT / BY_KIND / kind).rglob("*.py"))]


def needed(name: str) -> set[str]:
    """Return the modules that shape a stage's results."""
    return {file for file in closure(*modules(name)) if not any(part in file for part in APART)}


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_names_the_modules_it_runs(name: str) -> None:
    missing = needed(name) - named(STAGES[name])
    assert not missing, f"add to deps of {name} in dvc.yaml: {sorted(missing)}"


@pytest.mark.parametrize("name", MOST_MODULES)
def test_fine_tuning_and_its_predictions_depend_on_few_modules(name: str) -> None:
    assert len(needed(name)) <= MOST_MODULES[name], "move what one small function needs, or merge small neighbours"


@pytest.mark.parametrize("name", STAGES)
def test_a_package_among_the_deps_is_used_by_half(name: str) -> None:
    """A stage that names a package for one module of it would run again after unrelated edits."""
    imports = closure(*modules(name))
    for dep in STAGES[name]["deps"]:
        if dep.startswith(OURS) and not dep.endswith(".py"):
            files = {str(path.relative_to(ROOT)) for path in (ROOT / dep).rglob("*.py") if path.name != "__init__.py"}
            unused = sorted(files - imports)
            assert 2 * len(unused) <= len(files), f"{dep} of {name}: {unused} are not imported"


def libraries(name: str) -> set[str]:
    """Return the libraries that compute a stage's results, as its modules import them."""
    if name in ASKING:
        return set()
    tops = {module.partition(".")[0] for file in needed(name) for module in names_in(ROOT / file)}
    foreign = tops - {*sys.stdlib_module_names, *OURS, *LIBRARIES_APART}
    return {owners()[top][0].lower() for top in foreign}


owners = cache(metadata.packages_distributions)


def named_libraries(name: str) -> set[str]:
    return {name for param in STAGES[name]["params"] if isinstance(param, dict) for name in param.get(LIBRARIES, ())}


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_names_the_libraries_that_compute_its_results(name: str) -> None:
    assert named_libraries(name) == libraries(name), f"name under {LIBRARIES} of {name}: {sorted(libraries(name))}"


def test_the_versions_of_libraries_are_the_locked_ones() -> None:
    text = runpy.run_path(str(ROOT / "docs" / "libraries.py"))["text"]
    assert (ROOT / LIBRARIES).read_text() == text(), "run `make lock`"


def test_every_stage_has_a_revision() -> None:
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["revisions"].keys() == STAGES.keys()
    assert all(STAGES[name]["params"][0] == f"revisions.{name}" for name in STAGES)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_has_the_name_of_its_command_and_its_section(name: str) -> None:
    assert STAGES[name]["cmd"].startswith(f"python -m pipelines {name} ")
    params = STAGES[name]["params"]
    listed = [param.get("catalogue.yaml", ()) if isinstance(param, dict) else [param] for param in params]
    assert SECTION.get(name, name) in [key.split(".")[0] for keys in listed for key in keys]
    assert all(d for d in STAGES[name]["deps"]), "a stage without deps is never cached"


def test_querying_code_retrains_nothing() -> None:
    asking = {file for file in closure(*modules("train")) | named(STAGES["train"]) if "/label/" in file}
    assert not asking, "the stages rationales and predict ask; a change of how they do must not fit every model again"


def test_a_row_depends_on_its_own_kind_and_on_what_it_reads_alone() -> None:
    own = {"${item.labels}", "${item.reads}", "${item.code}"}
    assert {dep for dep in STAGES["train"]["deps"] if dep.startswith("${")} == own
    assert not any(dep.startswith(BY_KIND) or "rationales" in dep for dep in STAGES["train"]["deps"])


def test_the_committed_rows_are_those_of_the_parameters() -> None:
    assert (ROOT / rows.FILE).read_text() == rows.text(load(ROOT), root=ROOT), "run `make rows`"
