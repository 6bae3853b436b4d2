"""The demo: who plays whom, and what it forges is refused, each for its own reason."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pipelines.registry.promote import NotPromoted, promote
from pipelines.sandbox import promotions
from pipelines.sandbox.airflow_api import RunFailed
from tests.registry.small_registry import NAME, add, events, opened


def test_a_forgery_is_refused_and_leaves_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(small) as context:
        add(context, knows=6)
        before = events(context)
        monkeypatch.setattr(promotions, "opened", lambda *_, **__: nullcontext(context))
        told = dict(promotions.forgeries(context.settings, name=NAME))
        assert len(context.registry.versions(NAME)) == 1 and events(context) == before
    assert told.keys() == {"a planted pickle", "a missing card", "a changed byte"}
    assert "is or may be a pickle" in told["a planted pickle"]
    assert "card.json is missing" in told["a missing card"]
    assert "was registered" in told["a changed byte"]


@pytest.mark.parametrize("knows", [(2, 4, 6), (6, 2, 4), (4, 6, 2)])
def test_the_gate_judges_everybody_as_their_part_says(
    small: Path, monkeypatch: pytest.MonkeyPatch, knows: tuple[int, ...]
) -> None:
    given: dict[str, Any] = {"who": "tester", "why": "a test"}
    with opened(small) as context:
        for words in (*knows, 5):
            add(context, knows=words)
        monkeypatch.setattr(promotions, "opened", lambda *_, **__: nullcontext(context))
        worse, first, better = promotions.parts(context.settings, name=NAME)
        assert [knows[version - 1] for version in (worse, first, better)] == [2, 4, 6]
        promote(NAME, first, context=context, **given)
        with pytest.raises(NotPromoted):
            promote(NAME, worse, context=context, **given)
        assert promote(NAME, better, context=context, **given).champion == better


def test_where_all_are_alike_nobody_stands_between(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(small) as context:
        for _ in range(3):
            add(context, knows=4)
        monkeypatch.setattr(promotions, "opened", lambda *_, **__: nullcontext(context))
        with pytest.raises(RunFailed, match="no one stands between"):
            promotions.parts(context.settings, name=NAME)
