"""The catalogue has the texts of every error that the code raises, with the fields that the code gives."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

from pipelines.core import errors

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = tomllib.loads(Path(errors.__file__).with_name("errors.toml").read_text())
FAMILY = {code: family for family, entries in CATALOGUE.items() for code in entries}
TEXTS = {code: texts for entries in CATALOGUE.values() for code, texts in entries.items()}


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Return every node of the code, with its file."""
    paths = (path for folder in ("pipelines", "plugins", "sandbox") for path in (ROOT / folder).rglob("*.py"))
    return [(path, node) for path in paths for node in ast.walk(ast.parse(path.read_text()))]


def calls() -> Iterator[tuple[Path, ast.Call, str]]:
    for path, node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield path, node, node.func.id if isinstance(node.func, ast.Name) else node.func.attr


def raised() -> dict[str, list[set[str] | None]]:
    """Return the fields of each place that raises a code; ``None`` if a mapping is unpacked there."""
    places: defaultdict[str, list[set[str] | None]] = defaultdict(list)
    for _, call, name in calls():
        half = name == "partial"  # the rest of the fields is given where it is called
        first = call.args[half] if len(call.args) > half else None
        code = first.value if isinstance(first, ast.Constant) else name
        if isinstance(code, str) and code in TEXTS:
            names = {keyword.arg for keyword in call.keywords}
            places[code].append(None if half or None in names else {str(field) for field in names})
    return places


def classes() -> set[str]:
    return {node.name for _, node in nodes() if isinstance(node, ast.ClassDef)}


def test_every_code_is_raised_with_the_fields_of_its_texts() -> None:
    places = raised()
    assert not set(TEXTS) - set(places) - classes(), "nothing raises it"
    for code, calls in places.items():
        texts = "".join(TEXTS[code].get(text, "") for text in ("cause", "remedy"))
        needed = {field for _, field, _, _ in Formatter().parse(texts) if field}
        for fields in calls:
            assert fields is None or needed <= fields, f"{code} needs {sorted(needed - fields)}"


def test_a_code_that_is_raised_is_in_the_catalogue() -> None:
    kinds = {name: error for name, error in vars(errors).items() if isinstance(error, type)}
    families = {name for name, error in kinds.items() if issubclass(error, errors.CorpusError)}
    unknown = [
        (path.name, call.lineno, call.args[0].value)
        for path, call, name in calls()
        if isinstance(call.func, ast.Name) and name in families and call.args and isinstance(call.args[0], ast.Constant)
        if call.args[0].value not in FAMILY
    ]
    assert not unknown
