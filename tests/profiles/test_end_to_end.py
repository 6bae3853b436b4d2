"""Both papers from profile to report: real servers for every provider, real model classes, tiny weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pipelines.operate.plan.profile import paper_rows
from pipelines.workspace.clone import workspace
from tests.commands import answered, output
from tests.evaluate.printed import paper as paper_of
from tests.profiles import small_profile
from tests.stages import run_commands

pytestmark = pytest.mark.faults


@dataclass(frozen=True)
class Ran:
    """A paper's plan before the run, the stages that ran, their metrics, the report, and the providers' counts."""

    paper: str
    plan: dict[str, Any]
    stages: tuple[str, ...]
    metrics: dict[str, dict[str, Any]]
    page: str
    counts: dict[str, dict[str, int]]

    def table(self, title: str) -> list[list[str]]:
        """Return the cells of a table of the report, by rows."""
        lines = self.page.split(f"**{title}")[1].split("\n\n")[1].splitlines()
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture(scope="module", params=["figsim", "cradle"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    paper = request.param
    with small_profile.made(tmp_path_factory.mktemp(paper), paper=paper) as profile:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CORPUS_ROOT", str(profile.checkout))
            plan = answered("plan", "profile", profile.name, "--json")
            output("plan", "profile", profile.name)
        with workspace(profile.settings) as clone:
            stages = run_commands(f"report@{profile.corpus}", clone=clone)
            folder = clone.path / "metrics" / profile.corpus
            metrics = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
            page = (clone.path / "snapshot" / profile.corpus / "report" / "report.md").read_text()
        yield Ran(paper, plan, stages, metrics, page, profile.server.vendors.counts())


def test_the_plan_listed_every_row_as_runnable(ran: Ran) -> None:
    assert len(ran.plan["rows"]) == {"figsim": 22, "cradle": 15}[ran.paper]
    gaps = {row["row"]: row["missing"] for row in ran.plan["rows"] if not row["runnable"]}
    assert (gaps, ran.plan["missing"], ran.plan["runnable"]) == ({}, [], len(ran.plan["rows"]))


def test_every_row_of_the_paper_has_a_result_of_ours(ran: Ran) -> None:
    tasks = ran.metrics["evaluate"]["tasks"]
    for row in paper_rows(paper_of(ran.paper)):
        for task in row.tasks:
            model = tasks[task]["models"][row.key]
            assert sum(model["outcomes"].values()) == 12 * model["runs"], (row.key, task)
    assert ran.plan["rows"] and len(ran.stages) > 30


def test_the_report_prints_them_beside_the_papers_figures(ran: Ran) -> None:
    page = ran.page
    if ran.paper == "figsim":
        ours = {row[0] for row in ran.table("Table 3") if row[1].startswith("ours: ")}
        assert ours == {row.name for row in paper_rows(paper_of("figsim"))}
        return
    ours = [row for row in ran.table("Table 4") if row[1].startswith("ours")]
    keys = {row[1].removeprefix("ours: ").split(";")[0] for row in ours}
    assert keys >= paper_of("cradle").tables["table_4"].rows.keys()
    tuned = [row for row in ran.table("Table 8") if row[1] == "ours"]
    assert len(tuned) == 6
    assert all("(" in row[2] for row in tuned), "the change from the base"
    assert "gemini-3.8-flash" not in page


def test_every_provider_was_asked_over_http(ran: Ran) -> None:
    asked = {"figsim": {"openai", "anthropic", "google", "local", "azure", "guard"},
             "cradle": {"openai", "anthropic", "google", "local"}}[ran.paper]  # fmt: skip
    assert {name for name, told in ran.counts.items() if told["answered"]} == asked
