"""The demo plays each part of a promotion, and each of its forgeries is refused for its own reason."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from crisis_corpus_sandbox.demo import promotions
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
