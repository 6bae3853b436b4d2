"""What hosts with homes of their own share: the locks of the vault, and the end of a takedown for their caches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from pipelines.core.config.settings import Settings
from pipelines.store.vault import locks
from pipelines.takedown import hosts
from tests.postgres import BOTH, address
from tests.privacy import used_corpus as used
from tests.privacy.used_corpus import House


def in_cache(settings: Settings, ids: set[str]) -> list[Path]:
    return [path for path in used.naming(settings, ids) if path.is_relative_to(settings.cache)]


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[House, Settings]]:
    """Yield two hosts that share vault, repository and remote."""
    one = used.copy(folder / "one")
    shared = {name: getattr(one, name) for name in ("vault_url", "repo", "remote", "answers_url", "refresh_url")}
    other = used.copy(folder / "other").model_copy(update=shared)
    with used.opened(one) as house:
        yield house, other


def test_a_host_clears_its_caches_after_a_takedown_on_another_one(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (one, other):
        follow = partial(hosts.follow, vault=one.vault, now=used.NOW)
        assert follow(settings=other) == 0
        ids = set(one.ids())
        checkpoint = other.home / "train" / "posts" / "model" / "epoch-1"
        page = other.home / "resume" / "page"
        for path in (checkpoint, page):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        one.take_down(one.posts())
        named = in_cache(other, ids)
        named[0].chmod(0o644)
        named[0].write_bytes(b"altered: the ids are hidden")
        assert not in_cache(one.settings, ids)
        assert follow(settings=one.settings) == 0, "the takedown has cleared its own host"
        assert follow(settings=other) == len(named)
        assert not any(path.exists() for path in named) and not checkpoint.exists() and not page.exists()
        page.touch()
        assert follow(settings=other) == 0 and page.exists(), "a takedown is followed once"


@pytest.mark.parametrize("request_", BOTH, indirect=False)
def test_one_process_at_a_time(request: pytest.FixtureRequest, request_: str, tmp_path: Path) -> None:
    request.param = request_
    url = address(request, "locks", folder=tmp_path)
    homes = [tmp_path / "one", tmp_path / ("other" if request_ == "postgresql" else "one")]
    first, second = (used.settings_of(home).model_copy(update={"vault_url": url}) for home in homes)
    with locks.alone(first, "takedowns", wait=False) as held:
        assert held
        with locks.alone(second, "takedowns", wait=False) as twice, locks.alone(second, "rounds") as other:
            assert (twice, other) == (False, True)
    with locks.alone(second, "takedowns", wait=False) as held:
        assert held
