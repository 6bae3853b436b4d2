"""Commit the working tree into a checkout of its own, with a smaller sandbox."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pipelines.workspace.git import git

ROOT = Path(__file__).resolve().parents[1]


def checkout(
    folder: Path, *, smaller: Callable[[dict[str, Any]], object] | None = None, only: tuple[str, ...] = ("",)
) -> Path:
    """Copy what git knows or would add, change the sandbox's profile in place by ``smaller``, and commit all of it.

    ``only`` are the beginnings of the paths that are copied.
    """
    names = git("ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in (name for name in names if name.startswith(only)):
        # a link within the checkout, such as client/crisis_corpus
        linked = (ROOT / name).is_symlink() and not (ROOT / name).readlink().is_absolute()
        if linked or (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=not linked)
    if smaller:
        path = folder / "profiles" / "sandbox.yaml"
        profile = yaml.safe_load(path.read_text())
        smaller(profile)
        path.write_text(yaml.safe_dump(profile))
    git("init", "--quiet", "-b", "main", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "-m", "the working tree", cwd=folder)
    return folder
