"""List and sample the mutants of the modules on which the security promises rest.

The operators are mutmut's, and three of ours: a removed statement (a call, a ``raise``), a negated condition, and
``return`` without its value. Left out is what says nothing about a test: texts of errors, logs and progress,
docstrings, annotations, imports, decorators, ``cast`` and encodings.
"""

from __future__ import annotations

import ast
import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache, cached_property
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

# The modules of the gate beside ``gate*.py``.
GATE = ("comparison", "holdout", "looks", "scores")
# By area: how many mutants of 420 are drawn, the modules, and the tests that are tried first.
AREAS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "vault": (55, ("pipelines/store/vault/*.py",), ("tests/privacy/test_vault.py", "tests/store/test_seal.py")),
    "seal": (35, ("pipelines/store/seal.py",), ("tests/store/test_seal.py",)),
    "fetch": (
        40,
        ("pipelines/collect/connection.py", "pipelines/collect/image_fetch.py"),
        ("tests/collect/test_image_fetch.py", "tests/collect/test_pace.py", "tests/collect/test_peer.py"),
    ),
    "decode": (
        45,
        ("pipelines/collect/read/decode*.py", "pipelines/collect/read/confine*.py"),
        ("tests/collect/test_decode.py", "tests/attacks/test_picture_child.py"),
    ),
    "hydrate": (
        60,
        ("crisis_corpus/*.py",),
        ("tests/release/test_hydrate.py", "tests/release/test_hydrate_attacks.py", "tests/registry/test_client.py"),
    ),
    "release": (55, ("pipelines/release/*.py",), ("tests/release/test_package.py", "tests/release/test_joining.py")),
    "journal": (
        35,
        ("pipelines/registry/journal.py", "pipelines/registry/transitions.py"),
        ("tests/registry/test_journal.py", "tests/attacks/test_forged_journal.py"),
    ),
    "gate": (
        35,
        (
            "pipelines/registry/promotion/gate*.py",
            *(f"pipelines/registry/promotion/{name}.py" for name in GATE),
        ),
        (
            "tests/registry/test_recall_checks.py",
            "tests/registry/test_looks.py",
            "tests/registry/test_gate.py",
            "tests/registry/test_rivals.py",
        ),
    ),
    "takedown": (
        60,
        ("pipelines/takedown/*.py",),
        ("tests/privacy/test_sinks.py", "tests/privacy/test_takedown.py", "tests/privacy/test_sweep.py"),
    ),
}
# The last one guards against a mistake of the code around it, not of its callers: no test can reach it.
TEXT_OF = frozenset({"encoding", "help", "description", "detail", "remedy", "message", "strict"})
SILENT = frozenset(
    {"say", "print", "echo", "secho", "debug", "info", "warning", "warn", "cast", "TypeVar", "getLogger"}
)


@dataclass
class Mutant:
    """One change of one module; ``key`` identifies it until the code of its line changes."""

    key: str
    area: str
    module: str
    line: int
    operator: str
    source: cst.Module
    node: cst.CSTNode
    new: cst.CSTNode

    @cached_property
    def text(self) -> str:
        """Return the module with the change."""
        return self.source.deep_replace(self.node, self.new).code

    def diff(self) -> str:
        """Return the lines that differ."""
        lines = unified_diff(self.source.code.splitlines(), self.text.splitlines(), n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))

    def compiles(self) -> bool:
        """Return whether the change is Python, and a change."""
        try:
            compile(self.text, "mutant", "exec")
        except (SyntaxError, ValueError):
            return False
        return self.text != self.source.code


def removed(node: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    """Leave out a statement that is a call, an ``await``, a ``raise``, a ``del`` or an augmented assignment."""
    for place, part in enumerate(node.body):
        called = isinstance(part, cst.Expr) and isinstance(part.value, cst.Call | cst.Await)
        if called or isinstance(part, cst.Raise | cst.Del | cst.AugAssign):
            yield node.with_changes(body=[*node.body[:place], cst.Pass(), *node.body[place + 1 :]])


def negated(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    """Negate the condition."""
    test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


def nothing(node: cst.Return) -> Iterator[cst.CSTNode]:
    """Return ``None`` instead of the value."""
    if node.value is not None and not (isinstance(node.value, cst.Name) and node.value.value == "None"):
        yield node.with_changes(value=None)


OPERATORS = [
    *mutation_operators,
    (cst.SimpleStatementLine, removed),
    (cst.If, negated),
    (cst.While, negated),
    (cst.Return, nothing),
]


class _Lister(cst.CSTVisitor):
    """Collect (operator, node, changed node) of a module, in the order of the source."""

    def __init__(self, errors: frozenset[str]) -> None:
        super().__init__()
        self.errors = errors
        self.found: list[tuple[str, cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self._silent(node):
            return False
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                name = operator.__name__.removeprefix("operator_")
                changed = list(operator(node))
                self.found += [(name, node, new) for new in (changed[:1] if name == "string" else changed)]
        # what an error says is its text; that it is raised is a statement above
        return not isinstance(node, cst.Raise)

    def _silent(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.Import() | cst.ImportFrom() | cst.Annotation() | cst.Decorator() | cst.Expr(cst.SimpleString()):
                return True
            case cst.Expr(cst.ConcatenatedString()) | cst.If(test=cst.Name("TYPE_CHECKING")):
                return True
            case cst.Arg(keyword=cst.Name(name)) if name in TEXT_OF:
                return True
            case cst.Assign(targets=[cst.AssignTarget(cst.Name(name))]) if name in TEXT_OF | {"__all__"}:
                return True
            case cst.SimpleStatementLine(body=[cst.Expr(cst.Call() as call)]) | (cst.Call() as call):
                name = call.func
                last = name.attr.value if isinstance(name, cst.Attribute) else getattr(name, "value", "")
                return last in SILENT or last in self.errors
        return False


@cache
def error_names(root: Path) -> frozenset[str]:
    """Return the exceptions of the project, whose arguments are texts."""
    files = [*root.glob("pipelines/**/*errors.py"), root / "crisis_corpus/errors.py"]
    classes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    return frozenset(node.name for node in classes if isinstance(node, ast.ClassDef))


def mutants(path: Path, *, root: Path, area: str) -> list[Mutant]:
    """Return the mutants of a module; some may not compile."""
    name = path.relative_to(root).as_posix()
    wrapper = MetadataWrapper(cst.parse_module(path.read_text()))
    places = wrapper.resolve(PositionProvider)
    lister = _Lister(error_names(root))
    wrapper.module.visit(lister)
    lines, equal, result = wrapper.module.code.splitlines(), Counter[tuple[str, ...]](), []
    for operator, node, new in lister.found:
        line = places[node].start.line
        what = (name, operator, lines[line - 1].strip())
        equal[what] += 1
        key = hashlib.sha256("\n".join((*what, str(equal[what]))).encode()).hexdigest()[:12]
        result.append(Mutant(key, area, name, line, operator, wrapper.module, node, new))
    return result


def listed(root: Path, *, area: str) -> list[Mutant]:
    """Return all mutants of an area; the errors of the client are texts only."""
    files = [path for pattern in AREAS[area][1] for path in sorted(root.glob(pattern)) if path.name != "errors.py"]
    return [mutant for path in files for mutant in mutants(path, root=root, area=area)]


def sample(root: Path, *, seed: int, size: int, areas: list[str]) -> list[Mutant]:
    """Draw about ``size`` mutants, by area as :data:`AREAS` says, and in an area from each operator in turn."""
    whole = sum(count for count, _, _ in AREAS.values())
    drawn = []
    for area in areas:
        random_of_area = random.Random(f"{seed}/{area}")
        by_operator = defaultdict(list)
        for mutant in listed(root, area=area):
            by_operator[mutant.operator].append(mutant)
        piles = [by_operator[name] for name in sorted(by_operator)]
        for pile in piles:
            random_of_area.shuffle(pile)
        random_of_area.shuffle(piles)
        wanted = round(size * AREAS[area][0] / whole)
        while wanted and any(piles):
            for pile in piles:
                if pile and wanted and (mutant := pile.pop()).compiles():
                    drawn.append(mutant)
                    wanted -= 1
    return drawn
