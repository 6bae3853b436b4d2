"""Run every benchmark and write the table of docs/log/performance.md from their JSON lines (``make bench``)."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "log" / "performance.md"
HEAD = """# Performance

Ours against common alternatives, measured alternately in the same run by `make bench`
({date}; {machine}). Quote the ratios (above 1: ours is better); absolute values depend on the machine.

| benchmark | ours | baseline | ratio | unit | baseline |
|---|---|---|---|---|---|
"""
COLUMNS = ("name", "ours", "baseline", "ratio", "unit", "baseline_name")


def measure(script: Path) -> list[dict[str, object]]:
    """Run one script and return the comparisons it printed."""
    sys.stderr.write(f"bench: {script.stem}\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [line for line in found if "ratio" in line]


def kept(page: str) -> Iterator[list[str]]:
    """Yield the rows of a page's table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    yield from (row for row in rows[2:] if len(row) == len(COLUMNS))


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def main(names: list[str]) -> None:
    """Run all benchmarks, or the named ones; rows of other benchmarks are kept."""
    page = PAGE.read_text()
    rows = {(row[0], row[-1]): row for row in kept(page)} if names else {}
    for script in sorted(HERE.glob("*.py")):
        if script.stem != "run" and (not names or script.stem in names):
            found = [[_cell(line[column]) for column in COLUMNS] for line in measure(script)]
            rows |= {(row[0], row[-1]): row for row in found}
    table = "".join(f"| {' | '.join(row)} |\n" for _, row in sorted(rows.items()))
    head = HEAD.format(date=datetime.now(UTC).date(), machine=machine())
    PAGE.write_text(f"{head}{table}\n## {page.partition(chr(10) + '## ')[2]}")


if __name__ == "__main__":
    main(sys.argv[1:])
