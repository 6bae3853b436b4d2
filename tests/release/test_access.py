"""A release leaves for researchers whose request was granted, until the grant ends, and the register says so."""

from __future__ import annotations

import json
import stat
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.release import access
from pipelines.release.release_store import APPROVED, DRAFT, NoSuchRelease, ReleaseEntry
from tests.refusals import refused

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
DAY = timedelta(days=1)
ASKS: dict[str, Any] = {"researcher": "R. Example", "institution": "A University", "purpose": "a study of labels"}
DECIDES: dict[str, Any] = {"who": "The Steward", "why": "approved by our board"}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    found = Settings.from_env()
    entry = ReleaseEntry.of(found, "memes-1")
    package = entry.folder / "package"
    package.mkdir(parents=True)
    (package / "annotations.csv").write_text("id,severity\n")
    entry.key.write_text("00" * 32)
    entry.put({"release": "memes-1", "corpus": "memes", "status": APPROVED, "package": "package"})
    return found


def hand(settings: Settings, to: Path, *, number: int = 1, now: datetime = NOW) -> dict[str, Any]:
    return access.hand_over("memes-1", number, to=to, settings=settings, now=now)


def test_package_and_key_leave_with_a_grant_only(settings: Settings, tmp_path: Path) -> None:
    given: dict[str, Any] = {"settings": settings, "now": NOW}
    assert access.request("memes-1", **ASKS, **given) == {"release": "memes-1", "number": 1, "status": "asked"}
    with refused("NotGranted", match="request 1 is asked"):
        hand(settings, tmp_path / "out")
    access.decide("memes-1", 1, grant=False, **DECIDES, **given)
    with refused("NotGranted", match="request 1 is denied"):
        hand(settings, tmp_path / "out")
    assert not (tmp_path / "out").exists(), "nothing leaves before the check"
    until = date(2026, 6, 1)
    assert access.decide("memes-1", 1, grant=True, expires=until, **DECIDES, **given)["expires"] == "2026-06-01"
    found = hand(settings, tmp_path / "out")
    assert (tmp_path / "out" / "package" / "annotations.csv").read_text() == "id,severity\n"
    key = Path(found["key"])
    assert key.read_text() == "00" * 32 and stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not list((tmp_path / "out" / "package").rglob("*.key")), "the key goes another way than the package"
    with pytest.raises(BadParams, match="exists already"):
        hand(settings, tmp_path / "out")
    with refused("NotGranted", match="ended on 2026-06-01"):
        hand(settings, tmp_path / "late", now=datetime(2026, 6, 1, tzinfo=UTC))
    (row,) = access.register(settings, name=None, now=NOW)
    assert (row["valid"], row["handed_over"], row["who"]) == (True, [NOW.isoformat()], "The Steward")
    assert access.register(settings, name="memes-1", now=NOW + 100 * DAY)[0]["valid"] is False
    path = ReleaseEntry.of(settings, "memes-1").folder / access.FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["requests"][0]["purpose"] == "a study of labels"


def test_a_draft_and_a_retired_release_are_not_handed_over(settings: Settings, tmp_path: Path) -> None:
    access.request("memes-1", **ASKS, settings=settings, now=NOW)
    access.decide("memes-1", 1, grant=True, expires=date(2026, 6, 1), **DECIDES, settings=settings, now=NOW)
    entry = ReleaseEntry.of(settings, "memes-1")
    for status in (DRAFT, "RETIRED"):
        entry.put(entry.state() | {"status": status})
        with refused("NotGranted", match=f"it is {status}"):
            hand(settings, tmp_path / "out")


@pytest.mark.parametrize("expires", [None, NOW.date(), NOW.date() + 800 * DAY])
def test_a_grant_ends_within_two_years(settings: Settings, expires: date | None) -> None:
    access.request("memes-1", **ASKS, settings=settings, now=NOW)
    with pytest.raises(BadParams, match="within two years"):
        access.decide("memes-1", 1, grant=True, expires=expires, **DECIDES, settings=settings, now=NOW)


def test_what_is_not_there_or_not_said_is_refused(settings: Settings) -> None:
    given: dict[str, Any] = {"settings": settings, "now": NOW}
    with pytest.raises(NoSuchRelease):
        access.request("memes-2", **ASKS, **given)
    with pytest.raises(BadParams, match="why"):
        access.request("memes-1", **ASKS | {"purpose": " "}, **given)
    with refused("NoSuchRequest", match="no request 7"):
        access.decide("memes-1", 7, grant=False, **DECIDES, **given)
    access.request("memes-1", **ASKS, **given)
    own = {"who": "r. example", "why": "mine"}
    with pytest.raises(BadParams, match="another must decide"):
        access.decide("memes-1", 1, grant=True, expires=date(2026, 6, 1), **own, **given)
