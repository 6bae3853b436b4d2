"""Write dvc.yaml and pipelines/stages.yaml from the stages' declarations and imports (``make stages``).

A stage depends on the modules of this project that it imports, at any level and depth, on the files of data beside
them, and on the versions of the libraries that they import. What a row reaches by the name of its model's kind, or of
its labeller's vendor, is a dependency of that row alone; ``rows.yaml`` names it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import yaml

from pipelines.cli.stages import STAGES, summary
from pipelines.core import formats, rows
from pipelines.core.config.params import CATALOGUE, FILES
from pipelines.llm import vendor
from pipelines.models import kind
from pipelines.store.stage import PUBLISHED, SCHEME, Stage

ROOT = Path(__file__).resolve().parents[1]
GRAPH, CODE, LIBRARIES = "dvc.yaml", "pipelines/stages.yaml", "pipelines/libraries.yaml"
OURS = ("crisis_corpus", "pipelines")
KINDS, VENDORS = "pipelines.models.kinds", "pipelines.llm.vendors"
REGISTRIES: dict[str, Any] = {KINDS: kind.KINDS, VENDORS: vendor.VENDORS}
PARTS = tuple(name.replace(".", "/") for name in REGISTRIES)
# Sections of rows.yaml -> what of a row is found by a name: the kind of its model, the vendor of its labeller.
BY_ROW = {"votes": (VENDORS,), "fits": (KINDS,), "answers": (KINDS, VENDORS)}
# What every stage uses and what never shapes a result: messages, the reading of values that DVC tracks itself
# (params), the vault (a record is there or it is not), how a database is opened, and the embedded deployment.
MODULES = ("errors", "formats", "parallel", "parts", "process", "telemetry")
APART = (
    "crisis_corpus/errors.py",
    "crisis_corpus/formats.py",
    "pipelines/workspace/git.py",
    "pipelines/core/config/",
    "pipelines/store/vault/",
    "pipelines/store/stage.py",
    "pipelines/operate/services/",
    *(f"pipelines/core/{name}.py" for name in MODULES),
)
# Libraries that compute no result: they check, store, encrypt, draw or send.
LIBRARIES_APART = {
    "anthropic",
    "cryptography",
    "datasets",
    "dvc",
    "filelock",
    "genai_prices",
    "google",
    "httpx2",
    "huggingface_hub",
    "matplotlib",
    "mlflow",
    "openai",
    "orjson",
    "pandas",
    "psutil",
    "pyarrow",
    "pydantic",
    "pydantic_ai",
    "rich",
    "safetensors",
    "sqlalchemy",
    "yaml",
    "zstandard",
}
BY_CORPUS, WHOLE = ("data", "annotations", "models"), ("papers", "schemes", "corpora")
HEAD = (
    "# Written by `make stages` from the stages' modules (STAGE, their imports); task options: profiles/tasks.json.\n"
)
SHOWN = """\
metrics: [metrics/all-corpora/summary]  # what `dvc metrics show` prints; a file that a stage did not write is an error
plots:
  - metrics/all-corpora/scores: {template: bars, x: macro_f1, y: model, x_label: Macro-F1 on test, y_label: Model}
  - metrics/all-corpora/labels: {template: bars, x: f1, y: label, x_label: F1 of the best model, y_label: Label}
vars: [rows.yaml]
"""


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax of a file."""
    return ast.parse(path.read_text())


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, at any level, other than for annotations; ``…*`` for a registry's."""
    names, annotations = set(), set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            annotations |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree(path)):
        if id(node) in annotations:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called, text = ast.unparse(node.func), node.args[0].value
            names |= {"Parts": {f"{text}.*"}, "import_module": {text}, "later": {f"pipelines.models.{text}"}}.get(
                called, set()
            )
    return frozenset(names)


@cache
def files_of(name: str) -> frozenset[Path]:
    """Return the files of this project that an import of a name reads."""
    place = ROOT / name.removesuffix(".*").replace(".", "/")
    if name.endswith(".*"):
        return frozenset(place.rglob("*.py"))
    return frozenset(file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


def closure(paths: Iterable[Path], *, without: Iterable[str] = ()) -> set[Path]:
    """Return the modules that modules import; the parts of registries ``without`` are not followed."""
    found: set[Path] = set()
    waiting = set(paths)
    while waiting:
        found.add(file := waiting.pop())
        names = {name for name in names_in(file) if name.startswith(OURS)} - {f"{each}.*" for each in without}
        waiting |= set().union(*map(files_of, names)) - found
    return found


def data_of(modules: set[Path]) -> Iterator[Path]:
    """Yield the files and folders of data beside modules that one of them names."""
    texts: dict[Path, str] = {}
    for module in modules:
        texts[module.parent] = texts.get(module.parent, "") + module.read_text()
    for folder, text in texts.items():
        for path in folder.iterdir():
            # compiled modules are all that a folder which was moved leaves behind
            data = not any(path.rglob("*.py*")) if path.is_dir() else path.suffix != ".py"
            if data and (path.name in text or path.with_suffix(".py") in modules):
                yield path


def shaping(modules: set[Path]) -> set[str]:
    """Return the paths that shape a result: of modules that hold code, and of the data beside them."""
    names = {path: str(path.relative_to(ROOT)) for path in modules}
    holding = {path for path in modules if not names[path].startswith(APART) and not _empty(path)}
    return {names[path] for path in holding} | {str(path.relative_to(ROOT)) for path in data_of(holding)}


def _empty(module: Path) -> bool:
    if module.name != "__init__.py":
        return False
    return all(isinstance(node, (ast.Expr, ast.Import, ast.ImportFrom)) for node in tree(module).body)


def folded(paths: set[str]) -> list[str]:
    """Return paths with a folder in the place of its files, if more than half of its modules are among them."""
    kept = set(paths)
    above = {str(parent) for path in paths for parent in Path(path).parents} - {".", "pipelines"}
    for folder in sorted(above, reverse=True):
        own = shaping({*(ROOT / folder).rglob("*.py")})
        inside = {path for path in own & paths if path.endswith(".py")}
        apart = any(path.startswith(f"{folder}/") for path in (*APART, *PARTS))
        if not apart and len(inside) > 1 and 2 * len(inside) > sum(path.endswith(".py") for path in own):
            kept = {path for path in kept if not path.startswith(f"{folder}/")} | {folder}
    return sorted(kept)


def module(name: str) -> Path:
    """Return the file of a module."""
    return (ROOT / name.replace(".", "/")).with_suffix(".py")


def declared(name: str) -> Stage:
    """Return a stage's declaration."""
    stage: Stage = import_module(STAGES[name]).STAGE
    return stage


def shared(name: str) -> set[str]:
    """Return the paths of code that all rows of a stage depend on."""
    stage = declared(name)
    without = BY_ROW.get(stage.rows, (KINDS,))
    found = closure([module(STAGES[name])], without=without)
    if KINDS not in BY_ROW.get(stage.rows, ()) and any(f"{KINDS}.*" in names_in(file) for file in found):
        # what a kind says of itself is in its package; what this imports shapes no result of these stages
        found |= files_of(f"{KINDS}.*")
    return shaping(found)


def by_row() -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return the paths of code that only rows with a kind or a vendor depend on, by section of ``rows.yaml``."""
    made: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name in STAGES:
        section = declared(name).rows
        for registry in BY_ROW.get(section, ()):
            parts, without = REGISTRIES[registry], BY_ROW[section]
            wanted = [part for part in parts.names({}) if section != "fits" or parts.get(part, {}).fitted]
            made.setdefault(section, {})[registry.rpartition(".")[2]] = {
                part: folded(shaping(closure(_files(registry, part), without=without)) - shared(name))
                for part in wanted
            }
    return made


def _files(registry: str, part: str) -> set[Path]:
    folder = ROOT / registry.replace(".", "/") / part
    return {*folder.rglob("*.py")} if folder.is_dir() else {folder.with_suffix(".py")}


@cache
def owners() -> dict[str, list[str]]:
    """Return the distributions by module."""
    return {top: list(names) for top, names in metadata.packages_distributions().items()}


def libraries(name: str) -> list[str]:
    """Return the libraries that compute a stage's results, as its modules and those of its rows import them."""
    if declared(name).asks:
        return []
    files = closure([module(STAGES[name])])
    modules = [file for file in files if shaping({file})]
    tops = {each.partition(".")[0] for file in modules for each in names_in(file)}
    return sorted({owners()[top][0].lower() for top in tops - {*sys.stdlib_module_names, *OURS, *LIBRARIES_APART}})


def filled(text: str) -> str:
    """Return a declaration's text as DVC fills it in: its fields are values of the row."""
    return re.sub(r"{(\w+)}", lambda field: "${key}" if field[1] == "key" else f"${{item.{field[1]}}}", text)


def read_by(stage: Stage) -> Iterator[str]:
    """Yield the paths of data that a stage reads."""
    for path in (*stage.reads, *(("schemes", "corpora") if SCHEME in stage.params else ())):
        if path in WHOLE or path.startswith("{"):
            yield path
        elif path.endswith(".json"):
            yield f"metrics/{{corpus}}/{path}"
        else:
            yield f"{path}/{{corpus}}" if path in BY_CORPUS else f"snapshot/{{corpus}}/{path}"


def written_by(name: str, stage: Stage) -> list[Any]:
    """Return the outs of a stage; metrics are committed themselves."""
    row = "{name}" if stage.rows else ""
    own = (f"{name}/{row}".rstrip("/"),) if stage.writes is None else stage.writes
    folders = [f"snapshot/{{corpus}}/{path}" for path in own if not path.startswith("metrics/")]
    metrics = [path for path in own if path.startswith("metrics/")]
    committed = [f"metrics/{{corpus}}/{name}{'-' * bool(row)}{row}.json", *metrics]
    return [
        *map(filled, folders),
        *({filled(path): {"cache": False}} for path in committed if name != "report" or path in metrics),
    ]


def described(name: str, slots: int) -> dict[str, Any]:
    """Return a stage as an entry of ``dvc.yaml``."""
    stage = declared(name)
    keys = {
        file: [key for key in stage.params if _file(key) == file]
        for file in ("params.yaml", "catalogue.yaml", "rows.yaml")
    }
    params: list[Any] = [{CODE: [f"revisions.{name}"]}, *map(filled, keys.pop("params.yaml"))]
    params += [{file: [*map(filled, named)]} for file, named in keys.items() if named]
    if used := libraries(name):
        params.append({LIBRARIES: used})
    code = [*folded(shared(name)), *(f"${{item.code[{n}]}}" for n in range(slots))]
    row = " --row ${item.name}" if stage.rows else ""
    entry = {
        "desc": summary(name).rstrip("."),
        "cmd": f"python -m pipelines {name} ${{item.corpus}}{row}",
        "deps": [*map(filled, read_by(stage)), *code],
        "params": params,
        "outs": written_by(name, stage),
    }
    if stage.rows:
        return {"foreach": f"${{rows.{stage.rows}}}", "do": entry}
    if PUBLISHED in stage.reads:
        return {"foreach": "${rows.corpora}", "do": entry}
    return {"matrix": {"corpus": "${matrix.corpora}"}, **entry}


def _file(key: str) -> str:
    section = key.partition(".")[0]
    return rows.FILE if section == "rows" else FILES[section in CATALOGUE]


def texts() -> dict[str, str]:
    """Return the content of both files by path."""
    parts = by_row()
    code = {"revisions": {name: declared(name).revision for name in STAGES}, "code": parts}
    code = formats.stamped("stages", code)
    stages = {name: described(name, rows.slots(parts.get(declared(name).rows, {}))) for name in STAGES}
    dump = {"sort_keys": False, "width": 120, "default_flow_style": None}
    return {GRAPH: HEAD + SHOWN + yaml.safe_dump({"stages": stages}, **dump), CODE: HEAD + yaml.safe_dump(code, **dump)}


if __name__ == "__main__":
    for path, text in texts().items():
        (ROOT / path).write_text(text)
