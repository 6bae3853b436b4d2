"""Join the files of a dataset that have its posts and its labels apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipelines.annotate.imports.cells import Names, normal, text_of
from pipelines.annotate.imports.mapping import DatasetMapping
from pipelines.annotate.imports.published_files import File


def has(file: File, names: Names) -> bool:
    """Return whether the file has a column of one of these names."""
    return any(normal(name) in file.columns for name in names)


def joined(files: Sequence[File], *, mapping: DatasetMapping) -> Sequence[File]:
    """Return the files that have labels, each with the columns that the others have of the same items.

    A row without a counterpart is invalid (``not_joined``), and so is one with several that differ (``joined_twice``).
    """
    if not mapping.join:
        return files
    labelled = [file for file in files if all(_labelled(file, key, mapping=mapping) for key in mapping.labels)]
    others = [file for file in files if file not in labelled and has(file, mapping.join)]
    if not (labelled and others):
        return files
    posts: dict[str, tuple[Any, ...]] = {}
    names = sorted(frozenset[str]().union(*(file.columns for file in others)) & mapping.used)
    differing = set()
    for file in others:
        columns = [file.column(name) if name in file.columns else [None] * len(file.grid.numbers) for name in names]
        for key, cells in zip(_keys(file, mapping.join), zip(*columns, strict=True), strict=True):
            if posts.setdefault(key, cells) != cells:
                differing.add(key)
    return [_with(file, posts, names, differing, by=mapping.join) for file in labelled]


def _labelled(file: File, key: str, *, mapping: DatasetMapping) -> bool:
    labels = mapping.labels[key]
    return has(file, labels.columns) or bool(labels.flags and all(has(file, names) for names in labels.flags.values()))


def _keys(file: File, by: Names) -> list[str]:
    name = next((normal(name) for name in by if normal(name) in file.columns), None)
    return [text_of(cell).strip() for cell in file.column(name)] if name else [""] * len(file.grid.numbers)


def _with(file: File, posts: dict[str, tuple[Any, ...]], names: list[str], differing: set[str], *, by: Names) -> File:
    keys, grid = _keys(file, by), file.grid
    faults = {n: "not_joined" for n, key in zip(grid.numbers, keys, strict=True) if key not in posts}
    faults |= {n: "joined_twice" for n, key in zip(grid.numbers, keys, strict=True) if key in differing}
    kept = [at for at, number in enumerate(grid.numbers) if number not in faults]
    own = sorted(file.columns)
    more = [name for name in names if name not in own]
    columns = [[column[at] for at in kept] for column in map(file.column, own)]
    columns += [[posts[keys[at]][names.index(name)] for at in kept] for name in more]
    numbers = [grid.numbers[at] for at in kept]
    return replace(
        file,
        grid=replace(grid, header=[*own, *more], columns=columns, numbers=numbers, faults={**grid.faults, **faults}),
    )
