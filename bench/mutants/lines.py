"""Find out which tests execute each line: one run of each test file under coverage.py.

A line that runs in a fixture of a wider scope than a function counts for every test that uses the fixture. Processes
that tests start are measured too, unless they are isolated.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import coverage
import pytest
from coverage.exceptions import CoverageException
from coverage.sqldata import CoverageData

from bench.mutants.forked import after, forked, own, tests

CONTEXT = "MUTANTS_CONTEXT"
MEASURED = ("pipelines", "crisis_corpus")
START_CHILDREN = "import coverage; coverage.process_startup()\n"


class _Recorder:
    """Switch coverage's context by test and wide fixture, and time both."""

    def __init__(self, measured: coverage.Coverage, *, path: Path) -> None:
        self._measured, self._path = measured, path
        self._begun = time.monotonic()
        self._label, self._nested = "", 0.0
        self.tests: dict[str, dict[str, Any]] = {}
        self.fixtures: dict[str, float] = {}
        self.overhead = 0.0

    @contextmanager
    def _within(self, label: str) -> Iterator[None]:
        before, self._label = self._label, label
        self._switch()
        try:
            yield
        finally:
            self._label = before
            self._switch()

    def _switch(self) -> None:
        self._measured.switch_context(self._label)
        os.environ[CONTEXT] = self._label

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.overhead = self.overhead or time.monotonic() - self._begun
        fixtures = sorted(getattr(item, "fixturenames", ()))
        self.tests[item.nodeid] = {"seconds": 0.0, "fixtures": fixtures, "passed": True}
        with self._within(f"T {item.nodeid}"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        if fixturedef.scope == "function":
            return (yield)
        outer, self._nested, begun = self._nested, 0.0, time.monotonic()
        try:
            with self._within(f"F {fixturedef.argname}"):
                return (yield)
        finally:
            whole = time.monotonic() - begun
            name = fixturedef.argname
            self.fixtures[name] = self.fixtures.get(name, 0.0) + whole - self._nested
            self._nested = outer + whole

    def pytest_runtest_logreport(self, report: Any) -> None:
        test = self.tests[report.nodeid]
        test["seconds"] += report.duration
        if report.when == "setup":
            # the fixtures' own time is counted apart
            test["seconds"] -= min(self._nested, report.duration)
            self._nested = 0.0
        test["passed"] &= report.passed

    def pytest_sessionfinish(self) -> None:
        modules = [name for name in sys.modules if not own(name)]
        found = {"tests": self.tests, "fixtures": self.fixtures, "overhead": self.overhead, "modules": modules}
        self._path.write_text(json.dumps(found))


def measure(file: str, *, tree: Path, place: Path, seconds: float) -> dict[str, Any] | None:
    """Run a test file under coverage; return what it ran and the lines, or ``None`` if it was not done in time."""
    data, told = place / "coverage", place / "told.json"
    told.unlink(missing_ok=True)
    data.mkdir(parents=True, exist_ok=True)
    for old in data.glob(".coverage*"):
        old.unlink()
    site, source = place / "site", [str(tree / part) for part in MEASURED]
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(START_CHILDREN)
    settings = {"data_file": data / ".coverage", "parallel": True, "context": f"${{{CONTEXT}-}}", "patch": "_exit"}
    lines = [f"{name} = {value}" for name, value in settings.items()] + ["source =", *(f"    {s}" for s in source)]
    (place / "coveragerc").write_text("\n".join(["[run]", *lines, ""]))

    def act() -> int:
        os.environ["COVERAGE_PROCESS_START"] = str(place / "coveragerc")
        library = str(Path(coverage.__file__).parents[1])
        os.environ["PYTHONPATH"] = os.pathsep.join([str(site), os.environ["PYTHONPATH"], library])
        measured = coverage.Coverage(
            data_file=str(data / ".coverage"), data_suffix=True, config_file=False, source=source
        )
        measured.start()
        try:
            return tests([file], place=place, plugin=_Recorder(measured, path=told), stop=False)
        finally:
            measured.stop()
            measured.save()

    if forked(act, tree=tree, log=place / "map.log", late=after(seconds)) is None or not told.exists():
        return None
    return json.loads(told.read_text()) | {"lines": _lines(data, tree=tree)}


def _lines(folder: Path, *, tree: Path) -> dict[str, dict[int, list[str]]]:
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in folder.glob(".coverage.*"):
        data = CoverageData(basename=str(path))
        # a process that a test killed has not finished its file
        with suppress(CoverageException):
            data.read()
        for file in data.measured_files():
            module = Path(file).relative_to(tree).as_posix()
            for line, labels in data.contexts_by_lineno(file).items():
                found[module][line].update(labels)
        data.close()
    return {module: {line: sorted(of) for line, of in lines.items()} for module, lines in found.items()}


@dataclass
class LineMap:
    """What all measured test files told, by file."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> LineMap:
        """Read what :func:`measure` returned for each test file."""
        return cls({(known := json.loads(path.read_text()))["file"]: known for path in sorted(folder.glob("*.json"))})

    def modules(self) -> list[str]:
        """Return the libraries that tests import, in their order."""
        return list(dict.fromkeys(name for known in self.files.values() for name in known["modules"]))

    def of(self, module: str, lines: set[int], *, own: tuple[str, ...]) -> list[tuple[str, list[str]]]:
        """Return files and tests in the order of their promise: what executes the lines, then the rest of ``own``.

        Tests of ``own`` may execute a line in a process that was not measured, so all of them are in the second part.
        If no test executes the lines (such as constants), the first part is what executes the module.
        """
        found = self._executing(module, lines) or self._executing(module, None)
        order = sorted(found, key=lambda file: (file not in own, self.seconds(file, found[file])))
        rest = [
            (file, [n for n in self.all(file) if n not in found.get(file, ())]) for file in own if file in self.files
        ]
        return [(file, found[file]) for file in order] + [(file, names) for file, names in rest if names]

    def all(self, file: str) -> list[str]:
        """Return all passing tests of a file."""
        return [name for name, test in self.files[file]["tests"].items() if test["passed"]]

    def _executing(self, module: str, lines: set[int] | None) -> dict[str, list[str]]:
        result = {}
        for file, known in self.files.items():
            of_module = known["lines"].get(module, {})
            labels = {label for line, of in of_module.items() if lines is None or int(line) in lines for label in of}
            named = {label[2:] for label in labels if label.startswith("T ")}
            wide = {label[2:] for label in labels if label.startswith("F ")}
            chosen = [name for name in self.all(file) if name in named or wide & {*known["tests"][name]["fixtures"]}]
            if chosen:
                result[file] = chosen
        return result

    def seconds(self, file: str, names: list[str]) -> float:
        """Return how long these tests of a file took, with their fixtures and the imports."""
        known = self.files[file]
        fixtures = {fixture for name in names for fixture in known["tests"][name]["fixtures"]}
        own_time = sum(known["tests"][name]["seconds"] for name in names)
        return known["overhead"] + own_time + sum(known["fixtures"].get(fixture, 0.0) for fixture in fixtures)

    def normal(self, name: str) -> float:
        """Return how long a test takes, with its fixtures and the imports; a generous time for what is not known."""
        file = name.partition("::")[0]
        known = self.files.get(file, {"tests": {}})
        return self.seconds(file, [name]) if name in known["tests"] else 20.0

    def cheapest(self, file: str, names: list[str], *, budget: float) -> list[str]:
        """Return the tests of a file, fastest first, that fit into ``budget`` seconds."""
        known, chosen = self.files[file], []
        for name in sorted(names, key=lambda name: known["tests"][name]["seconds"]):
            if self.seconds(file, [*chosen, name]) <= budget:
                chosen.append(name)
        return chosen


@cache
def statements(path: Path) -> list[tuple[int, int]]:
    """Return the first and last line of each statement, of compound ones without their bodies, of functions whole."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.stmt) and node.end_lineno:
            body = getattr(node, "body", None)
            whole = not body or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            found.append((node.lineno, node.end_lineno if whole else max(node.lineno, body[0].lineno - 1)))
    return found


def around(path: Path, line: int) -> set[int]:
    """Return the lines of the innermost statement at a line."""
    spans = [span for span in statements(path) if span[0] <= line <= span[1]]
    first, last = min(spans, key=lambda span: span[1] - span[0], default=(line, line))
    return set(range(first, last + 1))
