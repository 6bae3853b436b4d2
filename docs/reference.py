"""Write the reference pages into docs/reference/ from the code (``make docs``).

Dags come from Airflow's own parser, commands from the command line's tree, parameters from the pydantic models and
:data:`FILES`, tables from their contracts, formats from their list, parts from their registries, and errors from the
source, so that nothing is imported for them.
"""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
FILES = ("params.yaml", "catalogue.yaml")
SHORT = 60
PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
dags = {dag_id: {"doc": dag.doc_md, "schedule": str(dag.schedule or ""),
                 "tasks": [[task.task_id, task.doc_md or getattr(getattr(task, "python_callable", None), "__doc__", "")]
                           for task in dag.tasks]}
        for dag_id, dag in bag.dags.items()}
print(json.dumps({"errors": bag.import_errors, "dags": dags}))
"""


def cell(text: Any) -> str:
    """Return a text as a cell of a table."""
    return " ".join(str(text).replace("|", "\\|").split())


def table(head: str, rows: list[list[Any]]) -> str:
    """Return a table, or nothing without rows; ``head`` has the names of its columns, joined by ``|``."""
    lines = [
        f"| {head} |",
        "|---" * (head.count("|") + 1) + "|",
        *("| " + " | ".join(map(cell, row)) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n\n" if rows else ""


def parsed_dags() -> dict[str, Any]:
    """Return doc, schedule and tasks of each Dag, parsed in a process of its own as Airflow does."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "AIRFLOW_HOME": home, "CORPUS_HOME": f"{home}/var",
                       "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
                       "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}  # fmt: skip
        command = [sys.executable, "-c", PARSE, str(ROOT / "dags")]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().rpartition("\n")[2])
    if found["errors"]:
        raise ValueError(f"Dags with import errors: {sorted(found['errors'])}")
    return dict(sorted(found["dags"].items()))


def dags() -> str:
    """Return the page of the Dags; the tasks of a stage's matrix are one row."""
    out = ["# Dags\n\nTasks of one stage and different models, tasks or labellers are one row.\n\n"]
    for name, dag in parsed_dags().items():
        doc = dag["doc"].strip().partition("\n")[2].strip()
        cron = re.search(r"expression='([^']+)'", dag["schedule"])
        assets = [f"`{asset}`" for asset in dict.fromkeys(re.findall(r"Asset\(name='([^']+)'", dag["schedule"]))]
        steps: dict[str, list[str]] = {}
        for task, text in dag["tasks"]:
            row = steps.setdefault(task.rpartition(".")[2].partition("__")[0], ["", "0"])
            row[:] = [(text or "").strip().partition("\n")[0], str(int(row[1]) + 1)]
        when = (
            f"Triggered by: {', '.join(assets)}."
            if assets
            else f"Schedule: {cron[1] if cron else dag['schedule'] or 'manual'}."
        )
        rows = [[f"`{step}`", *row] for step, row in steps.items()]
        out.append(f"## {name}\n\n{doc}\n\n{when}\n\n{table('task | purpose | tasks', rows)}")
    return "".join(out)


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and group of commands, depth first, by its words after ``corpus``."""
    if command is None:
        from typer.main import get_command

        from pipelines.cli.main import app

        command = get_command(app)
        command.list_commands(None)  # loads those of other distributions
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def command_page() -> str:
    """Return the page of the commands."""
    out = ["# Commands\n\n`corpus COMMAND --help` prints the same.\n\n"]
    for path, command in commands():
        if command.hidden:
            continue
        rows = []
        for given in command.params:
            names = [*given.opts, *given.secondary_opts]
            shown = (
                ", ".join(f"`{name}`" for name in names)
                if names[0].startswith("-")
                else f"`{given.metavar or given.name.upper()}`"
            )
            default = "required" if given.required else given.default
            default = "" if default in (None, False) or callable(default) else default
            kind = type_name(given.type_descriptor.annotation)
            rows.append([shown, kind, default, getattr(given, "help", "") or ""])
        title = " ".join(("corpus", *path))
        out.append(f"{'#' * min(2 + len(path[1:]), 4)} {title}\n\n{(command.help or '').strip()}\n\n")
        out.append(
            table("argument or option | type | default | meaning", [row for row in rows if row[0] != "`--help`"])
        )
    return "".join(out)


def type_name(kind: Any) -> str:
    """Return a type as a reader of ``params.yaml`` knows it."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_name(args[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_name(one) for one in args))
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in args)
    if origin in (tuple, list):
        return f"list of {type_name(args[0])}"
    if origin is dict:
        return f"{type_name(args[1])} by name"
    names = {str: "text", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return names.get(kind, getattr(kind, "__name__", str(kind)).lower())


def models_in(kind: Any) -> list[tuple[str, Any]]:
    """Return the models of a field's type, each with the step from the field's key to its own keys."""
    from pipelines.core.config.base import Section

    if isinstance(kind, type) and issubclass(kind, Section):
        return [("", kind)]
    if get_origin(kind) is dict:
        return [(f".<name>{step}", model) for step, model in models_in(get_args(kind)[1])]
    if get_origin(kind) in (tuple, list):
        return [(f"[]{step}", model) for step, model in models_in(get_args(kind)[0])]
    return [found for one in get_args(kind) for found in models_in(one)]


def parameters(model: Any, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield key, type and the model's own default of every parameter."""
    for name, given in model.model_fields.items():
        key, below = f"{prefix}{name}", models_in(given.annotation)
        for step, found in below:
            yield from parameters(found, f"{key}{step}.")
        if not below:
            yield (
                key,
                type_name(given.annotation),
                "" if given.is_required() else given.get_default(call_default_factory=True),
            )


def parts() -> Iterator[tuple[str, str, Any]]:
    """Yield key, type and default of the parameters that parts and stages declare themselves."""
    from pipelines.cli.parts import named, registries
    from pipelines.cli.stages import STAGES

    for name, module in STAGES.items():
        if (own := import_module(module).STAGE.parameters) is not None:
            yield from parameters(own, f"{name}.")
    for section, registry in registries().items():
        for name in registry.names({}):
            yield from parameters(registry.get(name, {}), f"{section}.<name>.")
    for section, registry in named().items():
        for name in registry.names({}):
            yield from parameters(registry.get(name, {}).Parameters, f"{section}.{name}.")


def sections() -> dict[str, str]:
    """Return the text of each section of the parameters, with its comments."""
    found: dict[str, list[str]] = {}
    name, before = "", []
    for line in [line for name in FILES for line in (ROOT / name).read_text().splitlines()]:
        if line[:1] in ("", "#"):  # a comment at the margin belongs to the section below it
            before.append(line)
            continue
        if line[0].isalpha():
            name = line.partition(":")[0]
        found.setdefault(name, []).extend([*before, line])
        before = []
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def parameter_page() -> str:
    """Return the page of the parameters: types from the models, values and comments from :data:`FILES`."""
    from pipelines.core.config.params import Params

    values = {key: section for name in FILES for key, section in yaml.safe_load((ROOT / name).read_text()).items()}
    texts = sections()
    rows: dict[str, list[list[Any]]] = {}
    for key, kind, default in (*parameters(Params), *parts()):
        value: Any = values
        for step in key.split("."):
            value = value.get(step, default) if isinstance(value, dict) else default
        shown = "" if value == "" else json.dumps(value, default=str)
        shown = f"`{shown if len(shown) <= SHORT else shown[: SHORT - 1] + '…'}`" if shown else ""
        rows.setdefault(key.partition(".")[0], []).append([f"`{key}`", kind, shown])
    out = ["# Parameters\n\nThe types of all parameters, and the values of `params.yaml` and `catalogue.yaml`. A JSON "
           "schema for editors: [params.schema.json](params.schema.json).\n\n"]  # fmt: skip
    for name, listed in rows.items():
        out.append(f"## {name}\n\n{table('key | type | default', unique(listed))}")
        out.append(f"```yaml\n{texts[name]}\n```\n\n" if name in texts else "")
    return "".join(out)


def unique(rows: list[list[Any]]) -> list[list[Any]]:
    """Return the rows without repetitions: the kinds of a model share keys."""
    return [row for number, row in enumerate(rows) if row not in rows[:number]]


def table_page() -> str:
    """Return the page of the tables' contracts."""
    from pipelines.store.tables import CONTRACTS

    out = [
        "# Tables\n\nParquet tables of stages and months of data. A table with a row that violates its "
        "contract is not written (`ContractViolated`). A value is never null, a text never empty and a float always "
        "finite unless stated otherwise. A sealed column is encrypted with its record's key.\n\n"
    ]
    for name, contract in CONTRACTS.items():
        rows = [[f"`{one.name}`", one.type, values(one), one.about] for one in contract.columns]
        key = ", ".join(f"`{column}`" for column in contract.key)
        out.append(f"## {name}\n\n{contract.about} Sorted by {key}, which no two rows share.\n\n")
        out.append(table("column | type | values | meaning", rows))
    return "".join(out)


def format_page() -> str:
    """Return the page of the formats."""
    from pipelines.core.formats import formats

    head = (
        "# Formats\n\nWhat a deployment keeps beyond one run. A reader refuses a version that is newer than its own, "
        "and data that states none (`UnknownFormat`), and reads every earlier one. A result of a stage has the stage's "
        "`revision` in `pipelines/stages.yaml`: `corpus upgrade` keeps results whose revision did not change. "
        "`dvc.lock` and `.dvc` files are DVC's own, with its `schema`. A column that a later release adds to a table "
        "may be null, and is null where an older file lacks it.\n\n"
    )
    rows = [
        [f"`{name}`", kept["version"], kept["holds"], kept["stated"], f"`{kept['written']}`", f"`{kept['read']}`"]
        for name, kept in formats().items()
    ]
    return head + table("format | version | what it is | where the version is | written by | read by", rows)


def values(column: Any) -> str:
    """Return which values the contract of a column accepts."""
    low, high = column.accepted_range
    words = [
        "sealed" if column.sealed else "",
        ", ".join(f"`{value}`" for value in column.accepted_values),
        "" if low is None else f"at least {low}" if high is None else f"{low} to {high}",
        "may be empty" if column.empty else "",
        "may be null" if column.nullable else "",
    ]
    return "; ".join(filter(None, words))


def store_rows() -> str:
    """Return the rows of the table of stores in docs/takedown.md."""
    from pipelines.takedown.stores import stores

    rows = ([store.name, store.holds, store.erased or "nothing", store.keeps or "nothing"] for store in stores())
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def errors() -> dict[str, dict[str, Any]]:
    """Return family, cause, remedy and exit status by the code of each error, from the catalogue and the client."""
    import crisis_corpus
    from pipelines.core import errors as ours

    modules = [import_module(f"crisis_corpus.{module.name}") for module in pkgutil.iter_modules(crisis_corpus.__path__)]

    catalogue = tomllib.loads((Path(ours.__file__).with_name("errors.toml")).read_text())
    listed = {
        code: {"family": family, "exit_code": vars(ours)[family].exit_code, "cause": "", "remedy": "", **texts}
        for family, entries in catalogue.items()
        for code, texts in entries.items()
    }
    for name, error in (item for module in modules for item in vars(module).items()):
        if isinstance(error, type) and issubclass(error, ours.CorpusError) and "message" in vars(error):
            own = {"cause": error.message, "remedy": error.remedy, "exit_code": error.exit_code}
            listed.setdefault(name, {"family": error.__mro__[1].__name__, **own})
    del listed["CorpusError"]
    return dict(sorted(listed.items()))


def error_page() -> str:
    """Return the page of the errors."""
    head = (
        "# Errors\n\nA command prints one line, `Name: what is wrong. What to do.`, and exits with the status below. "
        "Words in braces are filled in.\n\n"
    )
    rows = [
        [f"`{code}`", error["exit_code"], error["family"], plain(error["cause"]), plain(error["remedy"])]
        for code, error in errors().items()
    ]
    return head + table("error | exit status | family | message | remedy", rows)


# The section whose entries name a part -> what its methods get and give, and a test to begin with.
PARTS: dict[str, tuple[list[str], str]] = {
    "sources": (
        [
            "collect.submission.Submission",
            "collect.submission.Dropped",
            "collect.sources.Monthly",
            "collect.sources.Listed",
            "collect.sources.ListedPost",
            "collect.sources.Lookup",
            "collect.month.Window",
            "collect.sources.ClosedEntry",
        ],
        "tests/collect/sources/test_added_source.py",
    ),
    "providers": (
        [
            "llm.vendor.Client",
            "llm.vendor.Provider",
            "llm.vendor.Reply",
            "llm.outcome.Raw",
            "llm.model_facts.Capabilities",
            "core.config.label.Price",
        ],
        "tests/label/test_vendors.py",
    ),
    "models": (
        [
            "models.kind.Based",
            "models.kind.Serving",
            "models.kind.Job",
            "models.kind.Desk",
            "models.kind.Answers",
            "datasets.example.Example",
            "datasets.example.only",
            "datasets.example.targets",
            "core.taxonomy.task.Task",
            "models.prediction.Prediction",
            "models.prediction.Predictor",
            "models.fitting.calibrated_predictor.CalibratedPredictor",
            "models.fitting.calibrated_predictor.calibrate",
            "metrics.recall_constraints.load",
            "metrics.calibration.Calibration",
        ],
        "tests/train/small_tuned.py",
    ),
    "moderators": (
        ["evaluate.moderation.moderator.Request", "evaluate.moderation.moderator.Verdict", "llm.outcome.Outcome"],
        "tests/moderation/test_wires.py",
    ),
    "round.backends": (
        [
            "annotate.backends.Queue",
            "annotate.backends.AnnotationTask",
            "annotate.backends.AnnotatorAnswer",
            "annotate.form.Form",
        ],
        "tests/annotate/backend_contract.py",
    ),
    "images.ocr.engines": (
        ["collect.read.engine.OcrReading", "collect.read.engine.OcrFailed"],
        "tests/curate/ocr/test_engines.py",
    ),
}


def part_page() -> str:
    """Return the page of the parts that are declared once: what each class owes, and what it gets and gives."""
    from pipelines.cli.parts import named, registries

    out = [
        "# Parts of your own\n\nA part is a class in a module (a model: in a package) whose name is the part's, and "
        "its test: two files. A project of your own offers it by an entry point instead. Faults are codes of "
        '[Errors](errors.md), raised by their family: `SourceError("CorruptDump", name=…)`.\n\n'
    ]
    for section, registry in {**registries(), **named()}.items():
        below, test = PARTS[section]
        names = ", ".join(f"`{name}`" for name in registry.names({}))
        place, entry = registry.package.replace(".", "/"), f"`{registry.key}` of an entry of `{section}`"
        if section in named():
            entry = f"the entry's key in `{section}`"
        out.append(
            f"## {section}\n\nThere are {names}, in `{place}/`. The name is {entry}; the entry point's group is "
            f"`{registry.group}`. See `{test}`.\n\n{described(registry.base)}"
        )
        for path in below:
            module, _, name = f"pipelines.{path}".rpartition(".")
            out.append(described(getattr(import_module(module), name)))
        own = [(name, registry.get(name, {})) for name in registry.names({})]
        rows = [[f"`{name}`", ", ".join(f"`{one}`" for one in part.variables)]
                for name, part in own if getattr(part, "variables", ())]  # fmt: skip
        out.append(table(f"{section} | environment variables that it needs", rows))
    return "".join(out)


def described(thing: Any) -> str:
    """Return a class or function with its signature, docstring and own methods, as code."""
    lines = [signature(thing), *quoted(thing, 4)]
    if isinstance(thing, type):
        hints = vars(thing).get("__annotations__", {})
        lines += [f"    {name}: {hint}" for name, hint in hints.items() if name[0] != "_" and name != "model_config"]
        for name, value in list(vars(thing).items()):
            function = next((getattr(value, at) for at in ("__func__", "fget", "func") if hasattr(value, at)), value)
            owed = getattr(function, "__isabstractmethod__", False)
            if (owed or name[0] != "_") and isinstance(function, FunctionType):
                lines += [""] if value is function else ["", f"    @{type(value).__name__}"]
                lines += ["    @abstractmethod"] if owed else []
                lines += [f"    {signature(function)}", *quoted(function, 8)]
    return f"`{thing.__module__}`\n\n```python\n" + "\n".join(lines) + "\n```\n\n"


def signature(thing: Any) -> str:
    """Return the first line of a class or function."""
    if isinstance(thing, type):
        bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object)
        return f"class {thing.__name__}({bases}):".replace("()", "")
    word = "async def" if inspect.iscoroutinefunction(thing) else "def"
    return f"{word} {thing.__name__}{str(inspect.signature(thing)).replace(chr(39), '')}:"


def quoted(thing: Any, indent: int) -> list[str]:
    """Return the lines of a docstring."""
    text = inspect.getdoc(thing) if thing.__doc__ else None
    return textwrap.indent(f'"""{text}"""', " " * indent).splitlines() if text else []


def plain(text: str | None) -> str:
    """Return text that Markdown leaves unchanged."""
    return (text or "").replace("<", "&lt;").replace("*", "\\*")


def pages() -> dict[str, str]:
    """Return all pages and the JSON schema by file name."""
    from pipelines.core.config.params import Params

    return {
        "dags.md": dags(),
        "commands.md": command_page(),
        "parameters.md": parameter_page(),
        "params.schema.json": json.dumps(Params.model_json_schema(), indent=1) + "\n",
        "tables.md": table_page(),
        "formats.md": format_page(),
        "errors.md": error_page(),
        "parts.md": part_page(),
    }


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text)
    page = ROOT / "docs" / "takedown.md"
    head, line, _ = page.read_text().partition("|---|---|---|---|\n")
    page.write_text(head + line + store_rows())
