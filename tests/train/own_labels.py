"""A corpus repository of one's own: five grades of C-SSRS by person, in the published file's shape, and a profile."""

from __future__ import annotations

import csv
import shutil
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import yaml

from pipelines.annotate.imports import imports
from pipelines.core.config.params import load
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 1, 2, tzinfo=UTC)
PROFILE = "own"
LEVELS = load_scheme("cssrs").category().names
# frequency of each level in the file, about as in the published one
SHARES = dict(zip(LEVELS, (6, 5, 9, 4, 3), strict=True))
# the words that give a level away, and those that do not
SIGNS = dict(zip(LEVELS, ("garden bench", "river boat", "stone bridge", "window seat", "music box"), strict=True))
PLACES = ("market", "station", "library", "harbour", "kitchen", "meadow", "village", "museum", "theatre", "bakery")
TIMES = ("this morning", "last winter", "on the weekend", "after the rain", "before lunch", "in the evening")


def posts_of(level: str, *, chance: Random) -> list[str]:
    """Return one person's two or three mild posts; the last shows the level, but not for every tenth person."""
    said = [
        f"I walked by the {chance.choice(PLACES)} {chance.choice(TIMES)} and met {chance.randint(2, 90)} people there."
        for _ in range(chance.randint(1, 2))
    ]
    shown = SIGNS[level] if chance.random() > 0.1 else "old tower"
    sign = f"Then I saw the {shown} near the {chance.choice(PLACES)} and thought about it {chance.choice(TIMES)}."
    return [*said, sign]


def write_file(path: Path, *, people: int) -> None:
    """Write ``User, Post list, Label`` with so many people."""
    chance = Random(7)
    levels = [level for level, share in SHARES.items() for _ in range(share)]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["User", "Post list", "Label"])
        for number in range(people):
            level = levels[number % len(levels)]
            out.writerow([f"user-{number}", repr(posts_of(level, chance=chance)), level])


def checkout(folder: Path, *, changes: dict[str, object]) -> Path:
    """Commit the working tree with ``profiles/own.yaml``: C-SSRS's profile with some changes."""
    names = git("ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in (name for name in names if (ROOT / name).is_file()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    profile = yaml.safe_load((folder / "profiles" / "cssrs.yaml").read_text())
    for key, value in changes.items():
        profile[key] = {**profile.get(key, {}), **value}
    (folder / "profiles" / f"{PROFILE}.yaml").write_text(yaml.safe_dump(profile))
    git("init", "--quiet", "-b", "main", cwd=folder)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "-m", "the working tree", cwd=folder)
    return folder


def begin(home: Path, *, people: int, settings: Settings, changes: dict[str, object]) -> dict[str, object]:
    """Make the corpus repository under that profile and import the file; return the import's report."""
    home.mkdir(parents=True, exist_ok=True)
    repository.init(settings, checkout=checkout(home / "checkout", changes=changes), profile=PROFILE)
    write_file(home / "people.csv", people=people)
    # as `corpus import` does it in a clone, whose params.yaml has the profile's values
    with workspace(settings) as clone, Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        return imports.run(
            "posts", files=[home / "people.csv"], mapping="cssrs", params=load(clone.path),
            settings=settings, vault=vault, now=NOW,
        )  # fmt: skip
