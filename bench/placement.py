"""Draw what a reader is asked about two checkouts: where features are, and what functions do.

    python -m bench.placement BEFORE AFTER OUT [--seed 48]

A feature is what the docstring of a module says that it does, half of them of BEFORE and half of AFTER, as sentences of
one side only favour its file names. Its place is the file of the module's longest public function whose name is unique
in both checkouts, with the same parameters. Readers see the list of files only (``tree-*.txt``) and name a file for
each of ``features.txt``; ``key-*.csv`` has the answers. For functions that both have, they see name, signature and
docstring of one side (``functions-*.txt``) and say what the body does; ``bodies-*.txt`` has the bodies.
"""

from __future__ import annotations

import argparse
import ast
import csv
import random
from collections.abc import Iterator
from pathlib import Path

FEATURES, FUNCTIONS = 24, 20
LEAST_LINES = 4  # of a function worth explaining
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def modules(root: Path) -> Iterator[tuple[str, ast.Module, str]]:
    """Yield path, syntax tree and text of each module of the product."""
    for path in sorted((root / "pipelines").rglob("*.py")):
        text = path.read_text()
        yield path.relative_to(root).as_posix(), ast.parse(text), text


def length(function: FUNCTION) -> int:
    """Return the number of lines of a function."""
    return (function.end_lineno or 0) - function.lineno


def homes(root: Path) -> dict[str, str]:
    """Return the file of each public function whose name is unique, by its signature."""
    files: dict[str, list[tuple[str, str]]] = {}
    for path, tree, _ in modules(root):
        for node in tree.body:
            if isinstance(node, FUNCTION) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append((path, f"{node.name}({ast.unparse(node.args)})"))
    return {signature: path for places in files.values() if len(places) == 1 for path, signature in places}


def features(before: Path, after: Path, *, seed: int) -> list[tuple[str, str, str]]:
    """Return sentences, each with its file before and after."""
    places = homes(before), homes(after)
    drawn = []
    for side, root in enumerate((before, after)):
        rows = []
        for path, tree, _ in modules(root):
            mine = {f"{n.name}({ast.unparse(n.args)})": length(n) for n in tree.body if isinstance(n, FUNCTION)}
            known = [name for name in mine if places[side].get(name) == path and name in places[1 - side]]
            sentence = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
            if known and sentence:
                longest = max(known, key=mine.__getitem__)
                rows.append((sentence, places[0][longest], places[1][longest]))
        drawn += random.Random(f"{seed}/features/{side}").sample(rows, FEATURES // 2)
    random.Random(seed).shuffle(drawn)
    return drawn


def functions(root: Path) -> dict[str, tuple[str, str, str, str]]:
    """Return file, signature, docstring and body of each function whose name is unique in a checkout."""
    rows: dict[str, list[tuple[str, str, str, str]]] = {}
    for path, tree, text in modules(root):
        for node in ast.walk(tree):
            if isinstance(node, FUNCTION) and length(node) >= LEAST_LINES:
                signature = f"def {node.name}({ast.unparse(node.args)})"
                signature += f" -> {ast.unparse(node.returns)}" if node.returns else ""
                body = ast.get_source_segment(text, node) or ""
                rows.setdefault(node.name, []).append((path, signature, ast.get_docstring(node) or "", body))
    return {name: places[0] for name, places in rows.items() if len(places) == 1}


def main() -> None:
    """Write the questions and the keys."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=48)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    drawn = features(options.before, options.after, seed=options.seed)
    numbered = [f"{number}. {sentence}\n" for number, (sentence, _, _) in enumerate(drawn, 1)]
    (options.out / "features.txt").write_text("".join(numbered))
    sides = functions(options.before), functions(options.after)
    names = sorted(sides[0].keys() & sides[1].keys())
    names = random.Random(f"{options.seed}/functions").sample(names, FUNCTIONS)
    for place, root in enumerate((options.before, options.after), 1):
        name = ("before", "after")[place - 1]
        (options.out / f"tree-{name}.txt").write_text("".join(f"{path}\n" for path, _, _ in modules(root)))
        with (options.out / f"key-{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows((number, row[place]) for number, row in enumerate(drawn, 1))
        asked = [sides[place - 1][name] for name in names]
        shown = [f'{n}. {path}\n{head}\n"""{doc}"""\n\n' for n, (path, head, doc, _) in enumerate(asked, 1)]
        (options.out / f"functions-{name}.txt").write_text("".join(shown))
        bodies = [f"{n}. {path}\n{body}\n\n" for n, (path, _, _, body) in enumerate(asked, 1)]
        (options.out / f"bodies-{name}.txt").write_text("".join(bodies))


if __name__ == "__main__":
    main()
