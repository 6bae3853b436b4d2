"""Build the wheels of the three distributions from the working tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("crisis_corpus", "pipelines", "dags", "papers", "plugins", "profiles", "client", "sandbox")
FILES = ("pyproject.toml", "README.md", "LICENSE", "catalogue.yaml", "dvc.yaml", "params.yaml")


def build(out: Path) -> None:
    """Write the wheels to a folder."""
    # a copy, because setuptools writes into the folder that it builds
    source = out / "source"
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy2(ROOT / name, source / name)
    for folder in (source / "client", source, source / "sandbox"):
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(out)]
        subprocess.run([*pip, str(folder)], check=True)
    shutil.rmtree(source)


def wheels(folder: Path) -> dict[str, Path]:
    """Return the wheels in a folder by the distribution's name."""
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}
