"""Balance a split by the gold labels of the items, or without gold by their strata, and report the balance.

The split places units (groups of items that stay together). Items with gold count by their labels alone: by every label
of every category, by the empty set of a category, and by a lack of gold in a category in which others have it. The
others count by the strata of ``split.<corpus>.strata``. Where people label only some splits (CRADLE: dev and test), new
units with labels are placed in those splits only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.core.config.collect import Split
from pipelines.curate.items import CorpusItems, Ints
from pipelines.curate.stratify import certificate, label_pairs, stratify, unit_counts
from pipelines.curate.units import Units

# The name of the column of items whose label set in a category is empty.
EMPTY = "None"
# The name of the column of labelled items without gold in a category.
WITHOUT = "{category} without gold"
DEVIATIONS = ("balance", "max_deviation", "mean_deviation", "bound_max", "bound_mean")


@dataclass(frozen=True)
class BalanceColumns:
    """The item x column matrix of ones on which a split is balanced, with column names (such as ``kind=image``)."""

    names: list[str]
    matrix: sparse.csr_matrix

    @classmethod
    def of(cls, cells: Iterable[tuple[int, str]], *, rows: int) -> BalanceColumns:
        """Return the matrix with ones in the given (item, column name) cells."""
        ones = sorted(set(cells))
        names = sorted({name for _, name in ones})
        column = {name: j for j, name in enumerate(names)}
        where = ([i for i, _ in ones], [column[name] for _, name in ones])
        return cls(names, sparse.csr_matrix((np.ones(len(ones), np.int32), where), (rows, len(names))))


@dataclass(frozen=True)
class Balance:
    """The columns on which the items of a corpus are balanced, and the splits that labelled items may join.

    ``gaps`` has a column for each category in which some labelled items have no gold.
    """

    section: Split
    labels: BalanceColumns
    gaps: BalanceColumns
    strata: BalanceColumns
    labelled: NDArray[np.bool_]
    confined: tuple[str, ...] | None

    @classmethod
    def of(
        cls,
        everything: CorpusItems,
        gold: Sequence[Mapping[str, Any]],
        *,
        sampled: Ints,
        section: Split,
        labelled_in: Collection[str] | None,
    ) -> Balance:
        """Build the balance columns of the sampled items; an item is labelled if it has gold in any category."""
        at = everything.at({(row["record_id"], row["image"]) for row in gold})
        of: dict[int, dict[str, list[str]]] = defaultdict(dict)
        for row in gold:
            if (item := (row["record_id"], row["image"])) in at:
                of[at[item]][row["category"]] = row["labels"] or [EMPTY]
        categories: set[str] = set().union(*of.values())
        n = len(everything)
        labelled = np.zeros(n, bool)
        labelled[list(of)] = True
        label_cells = ((i, f"{key}={x}") for i, found in of.items() for key, labels in found.items() for x in labels)
        gaps = ((i, WITHOUT.format(category=key)) for i, found in of.items() for key in categories - found.keys())
        rest = sampled[~labelled[sampled]]
        known = (
            (i, f"{name}={value}")
            for name, values in everything.strata(rest).items()
            for i, value in zip(rest.tolist(), values, strict=True)
            if name in section.strata
        )
        own_splits = None if labelled_in is None else tuple(name for name in section.ratios if name in labelled_in)
        confined = None if own_splits == tuple(section.ratios) else own_splits
        labels, missing, strata = (BalanceColumns.of(cells, rows=n) for cells in (label_cells, gaps, known))
        return cls(section, labels, missing, strata, labelled, confined)

    def place(self, units: Units, within: Ints) -> Ints:
        """Place units in splits; return the split index of every item of the corpus, -1 for items not in ``within``."""
        held, order = units.held.copy(), list(self.section.ratios)
        ratios = self._ratios(len(within))
        if self.confined and self.labelled[within].any():
            own = [order.index(name) for name in self.confined]
            of_labelled = np.isin(units.unit[within], units.unit[within[self.labelled[within]]])
            rows = within[of_labelled & ((held[within] < 0) | np.isin(held[within], own))]
            begun = np.where(held[rows] < 0, -1, np.searchsorted(own, held[rows]))
            weights = {name: ratios[name] for name in self.confined}
            columns = _present(_joined(self.labels, self.gaps), rows)
            placed = self._divide(units.unit[rows], begun, columns, ratios=weights)
            held[rows] = np.array(own)[placed]
            columns = self.strata
        else:
            columns = self._all
        split = np.full(len(held), -1, np.int64)
        split[within] = self._divide(units.unit[within], held[within], _present(columns, within), ratios=ratios)
        return split

    def report(self, split: Ints, units: Units, within: Ints) -> dict[str, Any]:
        """Return the certificate of a split and, if there is gold, ``labels`` (:meth:`of_labels`).

        ``stratified_on`` names the columns of the certificate, without labels that only some splits have.
        """
        columns = _present(self.strata if self.confined else self._all, within)
        ratios = self._ratios(len(within))
        groups = units.unit[within]
        report = certificate(split[within], columns.matrix, names=columns.names, ratios=ratios, groups=groups)
        labelled = self.labelled[within]
        if self.confined and labelled.any() and not labelled.all():
            # labelled items fill their splits: a stratum's share is of the other items, as in `of_labels`
            rest = within[~labelled]
            sizes = dict(zip(ratios, np.bincount(split[rest], minlength=len(ratios)).tolist(), strict=True))
            others = certificate(split[rest], columns.matrix[~labelled], names=columns.names, ratios=sizes)
            report |= {key: others[key] for key in DEVIATIONS}
        used = {"labels": labelled.any(), "strata": not labelled.all() or not len(within)}
        report["stratified_on"] = " and ".join(name for name, there in used.items() if there)
        return report | ({"labels": self.of_labels(split)} if labelled.any() else {})

    def of_labels(self, split: Ints) -> dict[str, Any]:
        """Return the balance of the gold labels in a split, by the labelled items in each split.

        ``items`` are labelled, ``partial`` of them lack gold in some category. Deviations are over the labels, and
        ``None`` if fewer than two splits have labelled items; ``bound_mean`` is the smallest that whole items allow.
        """
        names = self.confined or tuple(self.section.ratios)
        own = [list(self.section.ratios).index(name) for name in names]
        rows = np.flatnonzero(self.labelled & np.isin(split, own))
        where = np.searchsorted(own, split[rows])
        sizes = dict(zip(names, np.bincount(where, minlength=len(own)).tolist(), strict=True))
        columns, partial = _present(self.labels, rows), np.count_nonzero(self.gaps.matrix[rows].getnnz(axis=1))
        ratios = sizes if len(rows) else self.section.ratios
        report = certificate(where, columns.matrix, names=columns.names, ratios=ratios)
        deviations = {key: report[key] for key in ("max_deviation", "mean_deviation", "bound_mean")}
        return {"items": len(rows), "partial": int(partial), **deviations}

    @property
    def _all(self) -> BalanceColumns:
        return _joined(self.labels, self.gaps, self.strata)

    def _ratios(self, items: int) -> Mapping[str, float]:
        sizes = self.section.sizes
        return sizes if sizes is not None and sum(sizes.values()) == items else self.section.ratios

    def _divide(self, unit: Ints, held: Ints, columns: BalanceColumns, *, ratios: Mapping[str, float]) -> Ints:
        """Return the split index of each item; ``unit`` and ``held`` are its group and that group's split or -1."""
        if not len(unit):
            return np.empty(0, np.int64)
        first, number = np.unique(unit, return_index=True, return_inverse=True)[1:]
        split = stratify(
            np.bincount(number),
            unit_counts(number, columns.matrix),
            ratios=ratios,
            seed=self.section.seed,
            proposals=self.section.proposals,
            pairs=unit_counts(number, label_pairs(columns.matrix)),
            assigned=held[first],
        )
        return split[number]


def _joined(*parts: BalanceColumns) -> BalanceColumns:
    matrix = sparse.hstack([part.matrix for part in parts], format="csr")
    return BalanceColumns([name for part in parts for name in part.names], sparse.csr_matrix(matrix))


def _present(columns: BalanceColumns, rows: Ints) -> BalanceColumns:
    matrix = sparse.csr_matrix(columns.matrix[rows])
    there = np.flatnonzero(np.asarray(matrix.sum(axis=0)).ravel())
    return BalanceColumns([columns.names[j] for j in there], sparse.csr_matrix(matrix[:, there]))
