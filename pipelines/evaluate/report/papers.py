"""Read what a paper declares from ``papers/<name>.yaml``: tables, claims, known contradictions, and which rows exist.

A paper is about one label scheme; adding one needs no code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from pipelines.core.config.base import Section, read_section
from pipelines.core.errors import ConfigError
from pipelines.core.taxonomy import Category
from pipelines.evaluate.report.tables import Cell, Table, general

FOLDER = Path("papers")
# Weights of the sandbox, which may stand in every row: its page says that they are tiny.
TINY = "tiny:"


class Evidence(Section):
    """What our runs show on a claim about a task (:mod:`pipelines.evaluate.report.sections`)."""

    show: Literal["wrong", "presence", "votes", "subsets", "unanswered", "labels"]
    task: str
    category: str = ""
    labels: tuple[str, ...] = ()


class Claim(Section):
    """A claim of a paper that its own numbers contradict (SPEC 1.6)."""

    where: str
    claim: str
    found: str
    source: str
    ours: Evidence | None = None


class Plan(Section):
    """The rows that ``corpus plan profile`` plans: of a table of scores, ensembles among them, and tuned models."""

    rows: str = ""
    ensembles: tuple[str, ...] = ()
    tuned: str = ""


class Paper(Section):
    """A paper; without arguments, no paper.

    Args:
        test: number of items of its test split; ``answered``: of those that a model answered, if not all.
        dataset: who gives access to its data; ``imported_by`` is the command, and ``has_posts`` whether the posts come
            with it, so that no source has to be read.
        sections: what is added to titles of sections of the report, by key; ``notes``: sentences in them.
        captions: what captions of plots begin with: those of errors by task, and that of ``types`` of labels.
        best: the row that stands beside our models in heat maps.
        over_extension: the types of label whose over-extension it discusses.
        names: the names of rows and columns by key.
        weights: the weights that a row is about; others make a row of their own, whatever the entry's name.
    """

    name: str = ""
    scheme: str = ""
    test: int = 0
    answered: dict[str, int] = Field(default_factory=dict)
    dataset: str = ""
    imported_by: str = ""
    has_posts: bool = False
    plan: Plan = Plan()
    sections: dict[str, str] = Field(default_factory=dict)
    captions: dict[str, str] = Field(default_factory=dict)
    notes: dict[str, str] = Field(default_factory=dict)
    reading: tuple[str, ...] = ()
    best: str = ""
    over_extension: tuple[str, ...] = ()
    names: dict[str, str] = Field(default_factory=dict)
    weights: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    tables: dict[str, Table] = Field(default_factory=dict)
    claims: tuple[Claim, ...] = ()

    @field_validator("tables", mode="before")
    @classmethod
    def _like(cls, tables: Any) -> Any:
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            return tables
        return {key: {**general().get(table.get("like", ""), {}), **table} for key, table in tables.items()}

    def titled(self, key: str, title: str) -> str:
        """Return the title of a section of the report, with the tables and figures of the paper that it is about."""
        return f"{title} ({self.sections[key]})" if key in self.sections else title

    def like(self, *names: str) -> list[Table]:
        """Return the tables that are like one of these tables of every corpus."""
        return [table for table in self.tables.values() if table.like in names]

    def cells(self, *likes: str, **fixed: str) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield row, variables and value (a score as a fraction) of the numbers whose variables are ``fixed``."""
        for table in self.like(*likes):
            for key, binding, cell in table.printed():
                if (value := number(cell)) is not None and fixed.items() <= binding.items():
                    yield key, binding, value / table.form.scale

    def scores(self, task: str) -> dict[str, dict[str, float]]:
        """Return the scores (0 to 1) of a task by row and figure."""
        found: dict[str, dict[str, float]] = {}
        for key, binding, value in self.cells("scores", "changes", task=task):
            found.setdefault(key, {})[binding["figure"]] = value
        return found

    def labels(self, task: str) -> dict[str, dict[str, dict[str, float]]]:
        """Return the scores (0 to 1) of a task by row, label and part: F1, precision, recall."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for key, binding, value in self.cells("label_scores", task=task):
            if "label" in binding:
                found.setdefault(key, {}).setdefault(binding["label"], {})[binding["part"]] = value
        return found

    def row_of(self, task: str, key: str | None) -> str:
        """Return the key of a row of scores by label, else of the only row that the paper prints for the task."""
        rows = self.labels(task)
        return str(key) if key in rows else next(iter(rows)) if len(rows) == 1 else ""

    def label_f1(self, task: str, key: str) -> dict[str, float]:
        return {label: parts["f1"] for label, parts in self.labels(task).get(key, {}).items()}

    def lost(self, key: str) -> dict[str, int]:
        """Return by label how many test items a model left unanswered."""
        return next((table.given.get(key, {}) for table in self.like("refusals")), {})

    def support(self, category: Category, *, key: str = "") -> dict[str, int]:
        """Return the number of test items with each label of a task, merged labels added up; empty if not printed.

        With a row's key, only of the items that the model answered.
        """
        named = {
            row: round(value * table.form.scale)
            for table in self.like("counts")
            for row, _, value in self.cells("counts", category=category.key, split="test")
        }
        merges = {merge.into: merge.labels for merge in category.merges.values()}
        sums = {x: named.get(x) or sum(named.get(y, 0) for y in merges.get(x, ())) for x in category.names}
        return {label: n - self.lost(key).get(label, 0) for label, n in sums.items()} if named else {}

    def stands_for(self, key: str, *, base: str | None) -> bool:
        """Return whether a model with the weights ``base`` is the one that a row is about.

        A successor that a vendor serves today is another model: its figures never stand under the old row's name.
        Weights that are not known (``None``: predictions from outside) are taken at the word of their entry's name.
        """
        known = self.weights.get(key)
        return (
            base is None or known is None or base in known or all(part.startswith(TINY) for part in base.split(" + "))
        )


def number(cell: Cell) -> float | None:
    """Return the number in a cell, the first one of a pair."""
    first = cell[0] if isinstance(cell, tuple) else cell
    return None if first is None or isinstance(first, str) else float(first)


def available(*, root: Path = Path()) -> dict[str, Paper]:
    """Return the papers in the folder ``papers`` below ``root``, the checkout or clone that has the parameters."""

    def read(path: Path) -> Paper:
        return read_section(Paper, path, refuse=lambda detail: ConfigError("BadPaper", file=path.name, detail=detail))

    return {path.stem: read(path) for path in sorted((root / FOLDER).glob("*.yaml"))}


def about(scheme: str, *, root: Path = Path()) -> Paper:
    """Return the paper about a label scheme, the first by name if there are several, or no paper."""
    return next((paper for paper in available(root=root).values() if paper.scheme == scheme), Paper())
