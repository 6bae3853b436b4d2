"""The commands of README and docs that need the demo run as printed, page after page, after the demo itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pipelines.annotate.label_studio.server import ensure_accounts
from pipelines.core.config.settings import Settings
from tests.airflow.test_rounds_end_to_end import PEOPLE, sit, truth_of
from tests.test_docs_commands import SHELL, Block, Place, environment_of, run_page, scratch

PAGES = list(dict.fromkeys(block.page for block in SHELL if block.needs == "demo"))
# README and tutorial are read first. The index of the how-to pages starts the demo again and loads its environment,
# which all pages after it need. A backfill and another secret disturb what follows.
FIRST = ["README.md", "docs/tutorial.md"]
INDEX = "docs/howto/index.md"
LAST = ["docs/howto/backfill.md", "docs/privacy.md"]
MIDDLE = [page for page in PAGES if page not in (*FIRST, INDEX, *LAST)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    code = scratch(tmp_path_factory.mktemp("demo"))
    environment = environment_of(code)
    yield code, environment
    subprocess.run(["make", "down"], cwd=code, env=environment, check=False, capture_output=True)


@pytest.mark.faults  # half an hour
@pytest.mark.parametrize("page", [*FIRST, INDEX, *MIDDLE, *LAST])
def test_the_commands_of_a_page_run_after_the_demo(page: str, place: Place) -> None:
    def people(block: Block) -> None:
        """Do what the page says that people do before this block."""
        if "corpus round pull" in block.text:
            work(place, "annotator-1", "annotator-2")
        if "corpus round close" in block.text:
            work(place, "adjudicator-1")

    run_page(page, place, needs={"demo"}, before=people, index=None if page in FIRST else INDEX)


def work(place: Place, *names: str) -> None:
    """Answer the open items of the round as these people, in Label Studio."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CORPUS_")]:
            patch.delenv(name)
        patch.setenv("CORPUS_HOME", place[1]["CORPUS_HOME"])
        world = SimpleNamespace(settings=Settings.from_env())
        accounts, truth = ensure_accounts(world.settings, pseudonyms=PEOPLE), truth_of(world)
        for seed, name in enumerate(names):
            more = {} if name.startswith("adjudicator") else {"errors": 0.2, "seed": seed}
            sit(world, accounts, name, truth=truth, **more)
