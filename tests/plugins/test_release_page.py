"""The page on which a person approves a release."""

from __future__ import annotations

from typing import Any

import pytest

from dvc_airflow import release


def test_the_page_begins_with_the_risk_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    done: dict[str, Any] = {"risk": "3 of 40 posts (7.5%) have a combination …", "alone": 3, "joined": {"m1": 0.05}}
    asked = []
    monkeypatch.setattr(release, "run", lambda *argv: asked.append(argv) or done)
    page = release.make.function(params={"corpus": "memes", "name": "m2"})["text"]
    assert asked == [("release", "make", "memes", "m2")]
    assert page.startswith(done["risk"])
    assert "- alone: 3" in page
    assert "- joined: {'m1': 0.05}" in page
