"""Resolve the graph of the corpus branch with DVC into a small file below the home; Airflow renders the Dags from it.

Parsing a Dag may neither read a git server nor take seconds, and a stage runs the code and parameters of the corpus
branch: without the file the Dags would show the tasks of the checkout. ``python -m pipelines.workspace.dag_graph``
writes the graph of a checkout, for Dags that are parsed before there is a corpus.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.config.params import load, overlay
from pipelines.config.settings import Settings
from pipelines.workspace.clone import BRANCH, history
from pipelines.workspace.git import git

# Read by `dvc_airflow.graph`.
FILE = Path("graph") / "corpus.json"
SOURCES = ("dvc.yaml", "params.yaml")


def refresh(settings: Settings) -> bool:
    """Write the graph of the corpus branch if its sources have changed; return whether they have."""
    with history(settings) as git_dir:
        texts = read(lambda name: git("--git-dir", str(git_dir), "show", f"{BRANCH}:{name}"))
    if current(settings.home, texts):
        return False
    write(settings.home / FILE, texts)
    return True


def read(show: Callable[[str], str]) -> dict[str, str]:
    """Return the texts of the sources by name."""
    return {name: show(name) for name in SOURCES}


def current(home: Path, texts: Mapping[str, str]) -> bool:
    """Return whether the present file is the graph of these sources."""
    try:
        return bool(json.loads((home / FILE).read_bytes())["digest"] == _digest(texts))
    except (OSError, ValueError, KeyError):
        return False


def write(path: Path, texts: Mapping[str, str]) -> None:
    """Resolve sources and write the graph atomically."""
    text = json.dumps({"digest": _digest(texts), **resolve(texts)}, indent=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def _digest(texts: Mapping[str, str]) -> str:
    # with this module, so that a newer form of the file replaces an older one
    return hashlib.sha256(json.dumps(dict(texts)).encode() + Path(__file__).read_bytes()).hexdigest()


def resolve(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return ``stages`` (name, description, upstream stages, ``meta.airflow`` of each), ``corpora`` (the section),
    ``ensembles`` and ``providers`` (those that label), ``protocols`` (the corpora that people annotate), ``registry``
    (the names of registered models), ``batch_predict`` (the section).

    Matrix entries and parameters are filled in from ``params.yaml`` with the text of a ``profile`` over it.
    """
    import yaml
    from dvc.repo import Repo

    values = yaml.safe_load(texts["params.yaml"])
    if "profile" in texts:
        values = overlay(values, yaml.safe_load(texts["profile"]) or {})
    with tempfile.TemporaryDirectory(prefix="dvc-airflow-") as folder:
        here = Path(folder)
        (here / "dvc.yaml").write_text(texts["dvc.yaml"])
        (here / "params.yaml").write_text(yaml.safe_dump(values))
        load(here)
        (here / ".dvc").mkdir()
        (here / ".dvc" / "config").write_text(f"[core]\n    no_scm = true\n    site_cache_dir = {here / 'site'}\n")
        with Repo(folder) as repo:
            stages = {stage.name: stage for stage in repo.index.stages if getattr(stage, "name", None)}
            resolved = [
                {
                    "name": name,
                    "desc": stage.desc or "",
                    "upstream": sorted(s.name for s in repo.index.graph.successors(stage) if hasattr(s, "name")),
                    "airflow": (stage.meta or {}).get("airflow", {}),
                }
                for name, stage in sorted(stages.items())
            ]
    asked = (values["labellers"][name] for name in values["votes"]["labellers"])
    return {
        "stages": resolved,
        "corpora": values["corpora"],
        "ensembles": values["silver"]["ensembles"],
        "protocols": sorted(values["round"]["protocol"]),
        "registry": sorted(values["registry"]),
        "batch_predict": values["batch_predict"],
        "providers": sorted({labeller["provider"] for labeller in asked if labeller["kind"] == "remote"}),
    }


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]), json.load(sys.stdin))
    except Exception as error:  # any message of DVC or of the parameters becomes the Dag's import error
        sys.exit(f"{type(error).__name__}: {error}")
