"""A takedown that is killed after any of its steps and repeated: the same state, one receipt."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.takedown import receipts
from pipelines.takedown.stores import stores
from pipelines.workspace.git import git
from tests.killed import asking
from tests.privacy import used_corpus as used
from tests.privacy.used_corpus import fullname

WHO = [fullname("memes", 0), fullname("memes", 3), fullname("posts", 5)]
STEPS = (
    "opened", "vault noted", "vault", "repository noted", "repository replaced", "repository committed", "repository",
    "annotation noted", "annotation", "objects noted", "objects replaced", "objects removed", "objects",
    "answers noted", "answers", "refresh noted", "refresh", "train noted", "lineage noted", "models", "receipt",
)  # fmt: skip
# the ones where most may go wrong; all of them in the slow tier
FIRST = {"vault", "repository replaced", "repository committed", "objects removed"}
Killer = Callable[[Path, str | None], int]


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    """Give a function that takes down in a process that is killed after a step, and returns how it ended."""
    with asking(Path(__file__).with_name("killed_takedown.py")) as ask:
        yield lambda home, step: ask({"home": str(home), "secret": used.SECRET, "posts": WHO, "step": step})


@pytest.fixture(scope="module")
def whole(killer: Killer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The state after a takedown that was not killed."""
    home = tmp_path_factory.mktemp("whole") / "home"
    settings = used.copy(home)
    assert killer(home, None) == 0
    return state(settings)


def state(settings: Settings) -> dict[str, Any]:
    """Everything but times and commits."""
    home = settings.home
    told = [{k: v for k, v in asdict(r).items() if k != "commit"} for r in receipts.receipts(settings)]
    objects = {str(path.relative_to(home)) for path in used.stored(settings)}
    answers = sqlite3.connect(home / "answers.sqlite").execute("SELECT key FROM answers ORDER BY key").fetchall()
    others = [
        p for p in home.rglob("*") if p.is_file() and p.relative_to(home).parts[0] in ("train", "registry", "resume")
    ]
    with used.vault_of(settings) as vault:
        return {
            "receipts": told,
            "open": len(receipts.opened(settings)),
            "tip": used.live(settings),
            "commits": git("--git-dir", settings.repo, "rev-list", "--count", "corpus"),
            "tree": git("--git-dir", settings.repo, "rev-parse", "corpus^{tree}"),
            "objects": objects,
            "answers": answers,
            "tasks": sorted(p.name for p in settings.annotation_files.rglob("*") if p.is_file()),
            "others": sorted(str(p.relative_to(home)) for p in others),
            "tombstones": vault.tombstones(),
            "map": (home / "takedowns" / "objects.json").read_text(),
            "scratch": len(list((home / "scratch").iterdir())),
        }


@pytest.mark.parametrize("step", [s if s in FIRST else pytest.param(s, marks=pytest.mark.faults) for s in STEPS])
def test_killed_and_repeated(step: str, killer: Killer, whole: dict[str, Any], tmp_path: Path) -> None:
    settings = used.copy(tmp_path / "home")
    assert killer(settings.home, step) == -9, "it was not killed there"
    assert killer(settings.home, None) == 0
    found = state(settings)
    assert found == whole, {name for name in whole if found[name] != whole[name]}
    shutil.rmtree(settings.home)


def test_the_steps_above_are_all_there_are(tmp_path: Path) -> None:
    said: list[str] = []
    with used.opened(used.copy(tmp_path / "home")) as house:
        house.take_down(house.select(records=WHO), say=said.append)
    # the stores that are emptied like others need no kill of their own, nor those with nothing to do
    others = {f"{store.name}{more}" for store in stores() for more in ("", " noted")} - set(STEPS)
    assert set(said) - others == set(STEPS)
