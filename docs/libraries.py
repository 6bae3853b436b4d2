"""Write pipelines/libraries.yaml: the locked version of each library that a stage of dvc.yaml names (``make lock``)."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
FILE = "pipelines/libraries.yaml"
HEAD = """\
# Written by `make lock` from requirements.lock: the versions of the libraries that compute a stage's results, which
# dvc.yaml names as parameters. A new version makes the stages run again that import the library, and no others.
"""


def named() -> set[str]:
    """Return the libraries that the stages of dvc.yaml name."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values()
    params = [param for stage in stages for param in stage.get("do", stage)["params"]]
    groups = [param.get(FILE, ()) for param in params if isinstance(param, dict)]
    return {name for group in groups for name in group}


def text() -> str:
    """Return the content of the file."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    return HEAD + yaml.safe_dump({name: pins[name] for name in sorted(named())})


if __name__ == "__main__":
    (ROOT / FILE).write_text(text())
