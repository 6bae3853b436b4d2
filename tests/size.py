"""Count the size of the project, and compare it with the budgets in ``[tool.size]`` of ``pyproject.toml``.

A code line is a line with a token that is no docstring and no comment. ``product`` is the Python that is shipped: the
budgets of its packages are one number each, because a line that moved is no line saved. ``--check`` prints only what is
over its budget, and fails if anything is.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APART = ("tests", "bench", "docs")  # counted, but no part of the product
TEMPLATES = {".jinja", ".html", ".css", ".js", ".sql", ".sh", ".mplstyle", ".toml"}
# lines of templates and of YAML on 2026-11-27: what moved there since counts as code
TEMPLATES_THEN, YAML_THEN = 443, 3592
# YAML that steers what runs, which is no record of results, no lock and no paper's figures
GENERATED = ("pipelines/libraries.yaml", "pipelines/stages.yaml")  # as dvc.yaml and rows.yaml are
BEHAVIOUR = ("params.yaml", "catalogue.yaml", "pipelines/", "profiles/", "docker/")
NO_DOCS = ("docs/log/", "docs/reference/")
NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.match_case)


@dataclass(frozen=True)
class Module:
    """One Python file: its lines, and the length and complexity of each of its functions."""

    code: int
    lines: int
    skips: int
    functions: tuple[tuple[int, int], ...]


def main() -> int:
    """Print the table; return 1 if a budget is exceeded."""
    check = "--check" in sys.argv[1:]
    counts = measured()
    budgets = flat(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"].get("size", {}))
    over = [
        f"{name}: {counts.get(name, 0)} (budget {limit})"
        for name, limit in budgets.items()
        if counts.get(name, 0) > limit
    ]
    for name, count in counts.items():
        if not check:
            sys.stdout.write(f"{name:<36}{count:>9,}{budgets.get(name, ''):>9}\n")
    for line in over:
        sys.stderr.write(f"over its budget in pyproject.toml, [tool.size]: {line}\n")
    return int(bool(over))


def flat(table: dict[str, object], *, before: str = "") -> dict[str, int]:
    """Return a table of TOML with the names of its sub-tables before their keys."""
    limits: dict[str, int] = {}
    for name, value in table.items():
        limits |= (
            flat(value, before=f"{before}{name}.") if isinstance(value, dict) else {before + name: int(str(value))}
        )
    return limits


def measured() -> dict[str, int]:
    """Return every count by its name, first those of the whole project."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    paths = [ROOT / name for name in files if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()]
    modules = {path.relative_to(ROOT): read(path.read_text()) for path in paths if path.suffix == ".py"}
    product = {path: module for path, module in modules.items() if path.parts[0] not in APART}
    functions = [function for module in product.values() for function in module.functions]
    counts = {
        "product.code": sum(module.code for module in product.values()),
        "product.lines": sum(module.lines for module in product.values()),
        "product.files": len(product),
        "product.packages": len(
            {path.parts[1] for path in product if path.parts[0] == "pipelines" and len(path.parts) > 2}
        ),
        "product.fmt_skip": sum(module.skips for module in product.values()),
        "product.function_lines_p90": percentile([length for length, _ in functions]),
        "product.complexity_p90": percentile([branches for _, branches in functions]),
    }
    for part in APART:
        counts[f"{part}.lines"] = sum(module.lines for path, module in modules.items() if path.parts[0] == part)
    counts["bench.code"] = sum(module.code for path, module in modules.items() if path.parts[0] == "bench")
    counts["templates.lines"] = sum(
        filled(path)
        for path in paths
        if path.suffix in TEMPLATES and apart_from(path) and path.name != "pyproject.toml"
    )
    counts["yaml.lines"] = sum(filled(path) for path in paths if path.suffix == ".yaml" and steers(path))
    moved = counts["templates.lines"] - TEMPLATES_THEN + counts["yaml.lines"] - YAML_THEN
    counts["product.code_and_moved"] = counts["product.code"] + moved
    counts["params.lines"] = (ROOT / "params.yaml").read_text().count("\n")
    counts["docs.words"] = sum(len(path.read_text().split()) for path in paths if is_page(path))
    return counts | packages(product)


def packages(product: dict[Path, Module]) -> dict[str, int]:
    """Return the code lines of each package of ``pipelines``, and of each other distribution or folder."""
    sums: defaultdict[str, int] = defaultdict(int)
    for path, module in product.items():
        inner = path.parts[0] == "pipelines" and len(path.parts) > 1
        sums[f"code.{Path(path.parts[1]).stem if inner else path.parts[0]}"] += module.code
    return dict(sorted(sums.items()))


def read(text: str) -> Module:
    """Count one module."""
    tree = ast.parse(text)
    docstrings = {line for node in ast.walk(tree) for line in docstring(node)}
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE and token.start[0] not in docstrings:
            code.update(range(token.start[0], token.end[0] + 1))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    measures = tuple(
        (len(code.intersection(range(f.lineno, (f.end_lineno or 0) + 1))), complexity(f)) for f in functions
    )
    return Module(len(code), text.count("\n"), text.count("# fmt: skip"), measures)


def docstring(node: ast.AST) -> Iterator[int]:
    """Yield the lines of a node's docstring."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
        yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def complexity(function: ast.AST) -> int:
    """Return the number of branches of a function, plus one (McCabe)."""
    nodes = list(ast.walk(function))
    operators = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + sum(isinstance(node, BRANCHES) for node in nodes) + operators


def percentile(values: list[int], *, share: float = 0.9) -> int:
    return sorted(values)[int(share * (len(values) - 1))]


def filled(path: Path) -> int:
    return sum(bool(line.strip()) for line in path.read_text().splitlines())


def apart_from(path: Path) -> bool:
    return path.relative_to(ROOT).parts[0] not in APART


def steers(path: Path) -> bool:
    name = str(path.relative_to(ROOT))
    return name.startswith(BEHAVIOUR) and name not in GENERATED


def is_page(path: Path) -> bool:
    name = str(path.relative_to(ROOT))
    return path.suffix == ".md" and name.startswith("docs/") and not name.startswith(NO_DOCS)


if __name__ == "__main__":
    sys.exit(main())
