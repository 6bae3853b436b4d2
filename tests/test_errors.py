"""The catalogue has the texts of every error that the code raises, with the fields that the code gives."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from pathlib import Path
from string import Formatter

from pipelines.core import errors

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = tomllib.loads(Path(errors.__file__).with_name("errors.toml").read_text())
FAMILY = {code: family for family, entries in CATALOGUE.items() for code in entries}
TEXTS = {code: texts for entries in CATALOGUE.values() for code, texts in entries.items()}


def raised() -> dict[str, list[tuple[str, set[str] | None]]]:
    """Return family and fields of each place that raises a code; fields are None if a mapping is unpacked there."""
    places: defaultdict[str, list[tuple[str, set[str] | None]]] = defaultdict(list)
    for folder in ("pipelines", "plugins", "sandbox"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
                    continue
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                first = node.args[0] if node.args else None
                code = first.value if isinstance(first, ast.Constant) else name
                if isinstance(code, str) and code in TEXTS:
                    names = {keyword.arg for keyword in node.keywords}
                    places[code].append((name, None if None in names else {str(field) for field in names}))
    return places


def classes() -> set[str]:
    paths = [path for folder in ("pipelines", "sandbox") for path in (ROOT / folder).rglob("*.py")]
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text())))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


def test_every_code_is_raised_with_the_fields_of_its_texts() -> None:
    places = raised()
    assert not set(TEXTS) - set(places) - classes(), "nothing raises it"
    for code, calls in places.items():
        needed = {
            field
            for text in ("cause", "remedy")
            for _, field, _, _ in Formatter().parse(TEXTS[code].get(text, ""))
            if field
        }
        for _, fields in calls:
            assert fields is None or needed <= fields, f"{code} needs {sorted(needed - fields)}"


def test_a_code_that_is_raised_is_in_the_catalogue() -> None:
    families = {
        name
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, errors.CorpusError)
    }
    unknown = []
    for folder in ("pipelines", "plugins", "sandbox"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in families
                    and node.args
                ):
                    code = ast.literal_eval(node.args[0]) if isinstance(node.args[0], ast.Constant) else None
                    if code is not None and FAMILY.get(code) is None:
                        unknown.append((path.name, node.lineno, code))
    assert not unknown
