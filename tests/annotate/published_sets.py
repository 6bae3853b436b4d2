"""Synthetic files of the three published shapes, with exactly the counts that the papers print. Every word is ours."""

import csv
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.annotate.imports import mapping

# FigSIM's categories by the letters of their codes, with the code of "none" where a set may be empty
FIGSIM = {"F": (4, "F4"), "SS": (6, None), "SR": (6, "SR6"), "M": (3, None), "C": (2, None)}
CODES = [f"{letters}{i}" for letters, (size, _) in FIGSIM.items() for i in range(1, size + 1)]
# plain words, so that the language gate sees English
WORDS = ["garden", "river", "window", "morning", "kettle", "bicycle", "market", "letter", "winter", "bridge", "candle"]


def figsim(path: Path) -> None:
    """Write FigSIM's shape: a permalink, a split and 21 columns of 0 and 1."""
    expected = mapping.read("figsim").expected
    rows: list[list[object]] = []
    for part, split in (("train", "train"), ("validation", "val"), ("test", "test")):
        counts = expected[part].by_label
        chosen = [set[str]() for _ in range(expected[part].items or 0)]
        for letters, (size, none) in FIGSIM.items():
            deal(chosen, {f"{letters}{i}": counts[f"{letters}{i}"] for i in range(1, size + 1)}, none=none)
        for own in chosen:
            link = f"/r/SuicideMeme/comments/{100_001 + len(rows)}/a_title/"
            rows.append([link, split, *(int(code in own) for code in CODES)])
    table(path, ["permalink", "split", *CODES], rows)


def deal(chosen: Sequence[set[str]], counts: dict[str, int], *, none: str | None) -> None:
    """Give each label to as many items as it counts; the ``none`` label's items come last and have nothing else."""
    empty = 0 if none is None else counts[none]
    others = [code for code, n in counts.items() if code != none for _ in range(n)]
    full = len(chosen) - empty
    assert len(others) >= full
    for i, code in enumerate(others):
        # a label's items are consecutive, so that no item gets it twice
        chosen[i % full].add(code)
    for i in range(full, len(chosen)):
        chosen[i].add(str(none))


def cradle(part: str) -> list[dict[str, Any]]:
    """Return CRADLE's shape for one part: a title, a text and a list of labels."""
    expected = mapping.read("cradle").expected[part]
    sizes = sorted((size for size, n in expected.by_size.items() for _ in range(n)), reverse=True)
    crises = expected.by_label["no_crisis"]
    sizes = sizes[: len(sizes) - crises]
    sets: list[list[str]] = [[] for _ in sizes]
    tokens = iter([label for label, n in expected.by_label.items() if label != "no_crisis" for _ in range(n)])
    for depth in range(max(sizes)):
        open_sets = [s for s, size in zip(sets, sizes, strict=True) if size > depth]
        for one, label in zip(open_sets, islice(tokens, len(open_sets)), strict=True):
            assert label not in one
            one.append(label)
    sets += [["no_crisis"] for _ in range(crises)]
    return [{"title": f"A note about {part}", "text": prose(f"{part} {i}"), "labels": s} for i, s in enumerate(sets)]


def prose(which: str) -> str:
    """Return a mild English text that no other one equals."""
    at = sum(which.encode()) % len(WORDS)
    first, second = WORDS[at], WORDS[(at * 3 + 1) % len(WORDS)]
    return f"Today I walked past the {first} and thought about the {second} that we had seen there, number {which}."


def jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def cssrs(path: Path, *, people: int | None = None) -> None:
    """Write the shape ``User, Post list, Label``: posts in one cell, as Python writes a list."""
    labels = _shares("cssrs", share=1)[:people]
    cells = [repr([prose(f"{i} {k}") + ' It\'s "quoted".' for k in range(2)]) for i in range(len(labels))]
    rows = [[f"user-{i}", cell, label] for i, (cell, label) in enumerate(zip(cells, labels, strict=True))]
    table(path, ["User", "Post list", "Label"], rows)


# A spreadsheet cut cells of the published C-SSRS file here.
CUT_AT = 32_759


def cut_cssrs(path: Path, *, cut: int = 28, people: int | None = None) -> list[list[str]]:
    """Write :func:`cssrs`'s shape, the first ``cut`` cells cut in their middle; return each person's complete posts.

    The cuts fall on letters, quotes, escapes and commas, and once inside the bytes of a character.
    """
    labels = _shares("cssrs", share=1)[:people]
    complete, rows = [], []
    for i, label in enumerate(labels):
        posts = [odd_prose(f"{i} {k}") for k in range(250 if i < cut else 2)]
        # moves the cut by one character from person to person
        posts[0] += "x" * i
        cell = repr(posts)[:CUT_AT]
        ends = [len(repr(posts[: k + 1])) - 1 for k in range(len(posts))]
        complete.append([post for post, end in zip(posts, ends, strict=True) if end <= len(cell)])
        rows.append([f"user-{i}", cell[:-1] + "\ue000" if i == cut - 1 else cell, label])
    table(path, ["User", "Post", "Label"], rows)
    path.write_bytes(path.read_bytes().replace("\ue000".encode(), b"\xf0\x9f"))
    return complete


def odd_prose(which: str) -> str:
    """Return :func:`prose` with all that a list in a cell escapes or quotes."""
    return prose(which) + ' It\'s "quoted", \\ and\nbroken;\t☕ [1, 2], caf\u00e9 \x07.'


def rsd15k(path: Path, *, share: int = 100) -> None:
    """Write the shape of RSD-15K with a hundredth of its counts: several posts a person, each with its time."""
    rows = [
        [i, f"{i // 11}", odd_prose(f"{i}"), label, 1_577_836_800 + 3600 * i]
        for i, label in enumerate(_shares("rsd15k", share=share))
    ]
    table(path, ["ID", "users", "text", "sentiment", "time"], rows)


def sdcnl(folder: Path, *, rows: int = 20, empty: int | None = None) -> list[Path]:
    """Write the shape of SDCNL's training and testing set."""
    paths = []
    for name, begin, end in (("training-set", 0, rows * 4 // 5), ("testing-set", rows * 4 // 5, rows)):
        cells = [
            [f"A title, {i}", "emptypost" if i == empty else odd_prose(f"{i}"), f"writer_{i % 9}", i, i % 2,
             f"https://www.reddit.com/r/depression/comments/{100_000 + i}/a_title/"]
            for i in range(begin, end)
        ]  # fmt: skip
        header = ["title", "selftext", "author", "num_comments", "is_suicide", "url"]
        paths.append(table(folder / f"{name}.csv", header, cells))
    return paths


def swmh(folder: Path, *, share: int = 400) -> list[Path]:
    """Write the shape of SWMH's three files with a part of its counts."""
    rows = [[odd_prose(f"{i}"), f"self.{label}"] for i, label in enumerate(_shares("swmh", share=share))]
    parts = {"train": rows[::2], "val": rows[1::4], "test": rows[3::4]}
    return [table(folder / f"{name}.csv", ["text", "label"], part) for name, part in parts.items()]


def _shares(name: str, *, share: int) -> list[str]:
    counts = mapping.read(name).expected["all"].by_label
    return [label for label, n in counts.items() for _ in range(n // share)]


def table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path
