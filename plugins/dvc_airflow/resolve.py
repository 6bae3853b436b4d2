"""Resolve dvc.yaml with DVC for one profile and write the result as a small JSON file.

Runs in a separate process (``python -m dvc_airflow.resolve``), because importing dvc takes a second and Airflow parses
often.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any


def resolve(root: Path, *, profile: str | None) -> dict[str, Any]:
    """Return ``stages`` (name, description, upstream stages, ``meta.airflow`` of each), ``corpora`` (the section),
    ``ensembles`` and ``providers`` (those that label), ``protocols`` (the corpora that people annotate), ``registry``
    (the names of registered models), ``scoring`` (those that label a corpus's months).

    Matrix entries and parameters are filled in from ``params.yaml`` with the profile over it.
    """
    import yaml
    from dvc.repo import Repo

    from pipelines.config.added_corpora import complete
    from pipelines.config.params import load, overlay

    load(root, profile=profile)
    values = yaml.safe_load((root / "params.yaml").read_text())
    if profile:
        values = complete(overlay(values, yaml.safe_load((root / "profiles" / f"{profile}.yaml").read_text()) or {}))
    with tempfile.TemporaryDirectory(prefix="dvc-airflow-") as folder:
        here = Path(folder)
        shutil.copy(root / "dvc.yaml", here)
        (here / "params.yaml").write_text(yaml.safe_dump(values))
        os.environ["DVC_SITE_CACHE_DIR"] = str(here / "site")
        with Repo.init(folder, no_scm=True) as repo:
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
    root, profile, target = Path(sys.argv[1]), sys.argv[2] or None, Path(sys.argv[3])
    sys.path.insert(0, str(root))
    try:
        resolved = resolve(root, profile=profile)
    except Exception as error:  # any message of DVC or of the parameters becomes the Dag's import error
        sys.exit(f"{type(error).__name__}: {error}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(resolved, indent=1))
    partial.replace(target)
