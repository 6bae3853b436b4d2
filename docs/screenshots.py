"""Take the pictures of README and tutorial from the running demo, with Chromium: `python docs/screenshots.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
# Milliseconds of the page's own clock, in which it loads its data.
BUDGET = 30000


def shoot(name: str, address: str, *, size: tuple[int, int]) -> None:
    """Write one picture of a page, ``size`` in pixels."""
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en"]
    options += [f"--window-size={size[0]},{size[1]}", f"--virtual-time-budget={BUDGET}"]
    path = IMAGES / f"{name}.png"
    subprocess.run(["chromium", *options, f"--screenshot={path}", address], check=True, capture_output=True)


def report(tracking: str, corpus: str, folder: Path) -> Path:
    """Return the page of a corpus's newest report, downloaded from MLflow."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    experiments = [one.experiment_id for one in client.search_experiments() if one.name.startswith(corpus)]
    for run in client.search_runs(experiments):
        if client.list_artifacts(run.info.run_id, "report"):
            return Path(client.download_artifacts(run.info.run_id, "report/report.html", str(folder)))
    raise SystemExit(f"MLflow has no report of {corpus}; run `make demo` first.")


def main() -> int:
    """Take both pictures."""
    home = Path(os.environ.get("CORPUS_HOME", ROOT / "var"))
    ports = json.loads((home / "ports.json").read_text())
    shoot("airflow", f"http://127.0.0.1:{ports['airflow']}/dags/posts_finetune", size=(1400, 800))
    with tempfile.TemporaryDirectory() as folder:
        page = report(f"http://127.0.0.1:{ports['mlflow']}", "posts", Path(folder))
        shoot("report", page.as_uri(), size=(1200, 900))
    return 0


if __name__ == "__main__":
    sys.exit(main())
