"""Draw docs/images/flow.svg from dvc.yaml and the Dags (``make docs``).

An edge leads from the stage that writes a path to one that reads it, unless a longer path connects the two. The bold
words of a Dag's docstring are its tasks: they give the steps of ``*_collect`` and the Dags of each box. The docstrings
of the Dags of a corpus are those of ``plugins/dvc_airflow/dags.py``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
IMAGE = ROOT / "docs" / "images" / "flow.svg"
# The boxes that are not stages or steps, with the boxes before them, and a stage with one whose outs no row of this
# checkout reads; and the paths that are written outside stages.
BEFORE = {"refresh": [], "collect": ["refresh"], "train": ["rationales"],
          "annotation_round": ["sample"], "annotation_pull": ["annotation_round"], "register": ["report"],
          "promote": ["register"], "deliver": ["promote"], "release": ["gold", "silver"],
          "deletion_sweep": ["partition"], "takedown": [], "doctor": [], "backup": [], "housekeeping": []}  # fmt: skip
# Boxes that wait for no other: each is below another one, without an edge.
BELOW = {"takedown": "deletion_sweep", "doctor": "deletion_sweep", "backup": "doctor", "housekeeping": "backup"}
WRITES = {"partition": ["data/*"], "annotation_round": ["annotations/*"], "promote": ["models/*"]}
# The last box of each band of rows, and its label.
BANDS = {"partition": "one month of a corpus", "report": "all months, at one commit", "deliver": "registered models"}
# Kind of box -> colour, text of the legend, and the x that its boxes tend to.
KINDS = {"corpora": ("#ffffff", "task of every corpus (*)", 480), "images": ("#fdebd3", "of a corpus of images", 180),
         "texts": ("#dbeafe", "of a corpus of texts", 720), "dag": ("#dcf3d8", "Dag", 860)}  # fmt: skip
# Pixels; a character of a monospaced font is .602 of its size wide.
WIDTH, TOP, PITCH, TALL, GAP, LABEL, NAME, SMALL, EM, SWEEPS = 1000, 44, 54, 36, 16, 18, 12, 10, 0.602, 40
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<title>From a month of Reddit to registered models and releases</title><style>
text {{ font: 12px DejaVu Sans Mono, Menlo, Consolas, monospace; text-anchor: middle }} .box {{ stroke: #475569 }}
.note {{ font-size: 10px; fill: #475569 }} .label {{ font-size: 11px; text-anchor: start; fill: #334155 }}
.edge {{ fill: none; stroke: #64748b; marker-end: url(#tip) }}</style><rect width="100%" height="100%" fill="#ffffff"/>
<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8Z" fill="#64748b"/></marker>
"""


@dataclass(eq=False)
class Box:
    """A node of the picture; one without a name is the point where an edge passes a row."""

    name: str
    kind: str
    note: str = ""
    before: list[Box] = field(default_factory=list)
    after: list[Box] = field(default_factory=list)
    row: int = 0
    x: float = 480

    @property
    def width(self) -> float:
        return max(len(self.name) * NAME, len(self.note) * SMALL) * EM + 16 if self.name else 10

    def reaches(self, other: Box) -> bool:
        return self is other or any(box.reaches(other) for box in self.after)


def connected(written: str, dep: str) -> bool:
    """Return whether one of two paths of dvc.yaml contains the other; a template matches any name."""
    first, second = (re.sub(r"\$\{.*?\}", "*", path).split("/") for path in (written, dep))
    return all(fnmatchcase(a, b) or fnmatchcase(b, a) for a, b in zip(first, second, strict=False))


def paths(dep: str, stage: dict[str, Any], rows: dict[str, Any]) -> set[str]:
    """Return what a dep of a stage reads: a dep that is a field of the stage's rows has a path in each of them."""
    if dep.startswith("${item.code["):
        return set()
    if not (whole := re.fullmatch(r"\$\{item\.(\w+)\}", dep)):
        return {dep}
    section = stage["foreach"].strip("${}").removeprefix("rows.")
    return {row[whole[1]] for row in rows[section].values()}


def graph() -> dict[str, Box]:
    """Return the boxes by name, connected without redundant edges; raise ``ValueError`` if one has no Dag."""
    stages: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    rows: dict[str, Any] = yaml.safe_load((ROOT / "rows.yaml").read_text())["rows"]
    reads = {name: {path for dep in stage.get("do", stage)["deps"] for path in paths(dep, stage, rows)}
             for name, stage in stages.items()}  # fmt: skip
    stages = {name: stage.get("do", stage) for name, stage in stages.items()}
    code = {path.stem: path.read_text() for path in sorted((ROOT / "dags").glob("*.py")) if path.stem != "corpora"}
    made = [node for node in ast.parse((ROOT / "plugins" / "dvc_airflow" / "dags.py").read_text()).body
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_dag")]  # fmt: skip
    docs = {f"*_{node.name.removesuffix('_dag')}": ast.get_docstring(node) or "" for node in made}
    docs |= {dag: ast.get_docstring(ast.parse(text)) or "" for dag, text in code.items()}
    bold = {dag: words for dag, doc in docs.items() if (words := re.findall(r"\*\*(\w+)\*\*", doc))}
    steps = [task for task in bold["*_collect"] if task != "publish"]
    chains = [[task for task in steps if task != other] for other in ("texts", "images")]
    boxes: dict[str, Box] = {}
    for name in [*(task for chain in chains for task in chain), *stages, *BEFORE]:
        dags = [dag for dag in bold if name in bold[dag]]
        # what no docstring names is a stage that a team has added
        boxes[name] = Box(name, name if name in KINDS else "corpora", ", ".join(dags) or "*" * (name in stages))
        if name in bold:
            boxes[name] = Box(name, "dag", "Dag, manual" if "schedule=None" in code[name] else "Dag, scheduled")
    if lost := [name for name in boxes if not boxes[name].note] + [d for d in bold if not {d, *bold[d]} & boxes.keys()]:
        raise ValueError(f"in bold in no docstring of dags/, or not in BEFORE of docs/flow.py: {lost}")
    # a file that git keeps, not DVC's cache, is a mapping with its path
    wrote = {name: [path for out in stage["outs"] for path in ([out] if isinstance(out, str) else out)]
             for name, stage in stages.items()} | WRITES  # fmt: skip
    edges = {(a, b) for b, names in BEFORE.items() for a in names} | {edge for c in chains for edge in pairwise(c)}
    edges |= {(a, b) for b, a in BELOW.items()}
    edges |= {(a, b) for b in stages for a in wrote if a != b
              and any(connected(out, dep) for out in wrote[a] for dep in reads[b])}  # fmt: skip
    for a, b in sorted(edges):
        boxes[a].after.append(boxes[b])
    for box in boxes.values():
        box.after = [b for b in box.after if not any(c is not b and c.reaches(b) for c in box.after)]
        for b in box.after:
            b.before.append(box)
    return boxes


def layout(boxes: list[Box]) -> list[list[Box]]:
    """Set x and the row of each box, which is the longest path to it; return the edges, with a bend in each row."""
    for box in boxes * len(boxes):
        box.row = max(0, *([b.row + 1 for b in box.before] or [min(b.row for b in box.after) - 1]))
    edges = [[a, *(Box("", "corpora", row=row) for row in range(a.row + 1, b.row)), b] for a in boxes for b in a.after]
    links = [link for edge in edges for link in pairwise(edge)]
    near = {a: [b for link in links for b in link if a in link and b is not a] for link in links for a in link}
    for _ in range(SWEEPS):
        for number in range(max(box.row for box in boxes) + 1):
            aim = {a: sum(b.x for b in near[a]) / len(near[a]) for a in near if a.row == number}
            aim = {a: 0.25 * KINDS[a.kind][2] + 0.75 * x if a.name else x for a, x in aim.items()}
            row = sorted(aim, key=aim.__getitem__)
            row[0].x = aim[row[0]]
            for a, b in pairwise(row):
                b.x = max(aim[b], a.x + (a.width + b.width) / 2 + GAP)
            shift = sum(aim[a] - a.x for a in row) / len(row)
            for a in row:
                a.x += shift
            # back into the picture, from the right and then from the left
            row[-1].x = min(row[-1].x, WIDTH - GAP - row[-1].width / 2)
            for b, a in pairwise(reversed(row)):
                a.x = min(a.x, b.x - (a.width + b.width) / 2 - GAP)
            row[0].x = max(row[0].x, GAP + row[0].width / 2)
            for a, b in pairwise(row):
                b.x = max(b.x, a.x + (a.width + b.width) / 2 + GAP)
    return edges


def svg() -> str:
    """Return the picture."""
    boxes = graph()
    edges = layout([*boxes.values()])
    ends = [boxes[name].row for name in BANDS]
    top = {box.row: TOP + box.row * PITCH + LABEL * (1 + sum(e < box.row for e in ends)) for box in boxes.values()}
    out = []
    for label, first, last in zip(BANDS.values(), [0, *(end + 1 for end in ends)], ends, strict=False):
        y = top[first] - LABEL - 6
        out += [f'<rect x="4" y="{y}" width="{WIDTH - 8}" height="{top[last] + TALL + 8 - y}" fill="#f4f5f7"/>',
                f'<text class="label" x="12" y="{y + 15}">{label}</text>']  # fmt: skip
    for edge in (edge for edge in edges if BELOW.get(edge[-1].name) != edge[0].name):
        path = f"M{edge[0].x:.0f} {top[edge[0].row] + TALL}"
        for a, b in pairwise(edge):
            path += f"C{a.x:.0f} {top[b.row] - 6} {b.x:.0f} {top[a.row] + TALL + 6} {b.x:.0f} {top[b.row]}"
            path += "" if b.name else f"V{top[b.row] + TALL}"
        out.append(f'<path class="edge" d="{path}"/>')
    for box in boxes.values():
        x, y, fill = box.x, top[box.row], KINDS[box.kind][0]
        out += [f'<rect class="box" x="{x - box.width / 2:.0f}" y="{y}" width="{box.width:.0f}" height="{TALL}" rx="5" '
                f'fill="{fill}"/><text x="{x:.0f}" y="{y + 15}">{box.name}</text>'
                f'<text class="note" x="{x:.0f}" y="{y + 29}">{box.note}</text>']  # fmt: skip
    for n, (colour, label, _) in enumerate(KINDS.values()):
        out += [f'<rect class="box" x="{12 + 230 * n}" y="12" width="16" height="16" fill="{colour}"/>',
                f'<text class="label" x="{34 + 230 * n}" y="24">{label}</text>']  # fmt: skip
    return HEAD.format(height=max(top.values()) + TALL + 12, width=WIDTH) + "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    IMAGE.write_text(svg())
