"""``make bench``: run every script here, gather their JSON lines in var/bench.jsonl, render docs/performance.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "performance.md"
HEAD = """# Performance

Ours against what a user would otherwise use, measured in turn in the same run by `make bench`
({date}; {machine}). Quote the ratios (above 1 ours is better): absolute figures are one machine's.

| what | ours | baseline | ratio | unit | baseline is |
|---|---|---|---|---|---|
"""


def measure(script: Path) -> list[dict[str, object]]:
    """Run one script and return the objects it printed."""
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
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _key(line: dict[str, object]) -> tuple[object, object]:
    return line["name"], line["baseline_name"]


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(names: list[str]) -> None:
    """Measure the named scripts, or all; lines of scripts that were not run again are kept."""
    kept = ROOT / "var" / "bench.jsonl"
    kept.parent.mkdir(exist_ok=True)
    lines: dict[tuple[object, object], dict[str, object]] = {}
    if kept.exists():
        lines = {_key(line): line for line in map(json.loads, kept.read_text().splitlines())}
    scripts = [p for p in sorted(HERE.glob("*.py")) if p.stem != "run" and (not names or p.stem in names)]
    for script in scripts:
        lines |= {_key(line): line for line in measure(script)}
        kept.write_text("".join(json.dumps(line) + "\n" for line in lines.values()))
    columns = ("name", "ours", "baseline", "ratio", "unit", "baseline_name")
    rows = ["| " + " | ".join(_cell(line[c]) for c in columns) + " |" for _, line in sorted(lines.items())]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    notes = PAGE.read_text().partition("\n## ")[2] if PAGE.exists() else ""
    page = HEAD.format(date=datetime.now(UTC).date(), machine=machine) + "\n".join(rows) + "\n"
    PAGE.write_text(page + (f"\n## {notes}" if notes else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
