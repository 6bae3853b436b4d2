"""With ``promote.four_eyes`` a promotion takes two persons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.cli.shared import login
from pipelines.promotion import gate
from pipelines.promotion.promote import promote
from pipelines.registry.approved import SamePerson
from pipelines.registry.candidate import Context
from tests.registry import small_registry
from tests.registry.small_registry import NAME, TERMS, add


@pytest.fixture
def context(small: Path) -> Iterator[Context]:
    terms = TERMS.model_copy(update={"four_eyes": True})
    with small_registry.opened(small, terms=terms) as context:
        add(context, knows=5)
        yield context


@pytest.mark.parametrize(
    ("who", "asked_by"),
    [
        ("airflow:ada", "airflow:ada"),
        # the run was not started by a person
        ("airflow:ada", ""),
        ("ada (os:ada)", "bob (os:ada)"),
        # the same login has run the gate
        ("another name (os:ada)", None),
    ],
)
def test_four_eyes_are_two_persons(context: Context, who: str, asked_by: str | None) -> None:
    gate.run(NAME, 1, context=context, who="corpus gate (os:ada)")
    with pytest.raises(SamePerson):
        promote(NAME, 1, who=who, why="a test", asked_by=asked_by, context=context)
    assert [row.event for row in context.journal.rows(NAME)] == ["registered", "looked", "gated"]
    assert promote(NAME, 1, who="bob (os:bob)", why="a test", context=context).champion == 1


def test_four_eyes_need_a_gate_that_somebody_ran(context: Context) -> None:
    with pytest.raises(SamePerson):
        promote(NAME, 1, who="ada (os:ada)", why="a test", context=context)
    assert login().startswith("os:")
