"""One real Label Studio for all tests that need it: its own process, home and database on a free port."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.annotate.label_studio.server import Account, ensure_accounts, start
from pipelines.core.components import down
from pipelines.core.config.settings import Settings
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PSEUDONYMS = ("a1", "a2", "c1")


@pytest.fixture(scope="session")
def label_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a running server with accounts for ``a1``, ``a2`` and ``c1``."""
    if not (ROOT / ".label-studio" / "bin" / "label-studio").exists():
        pytest.fail("Label Studio is not installed: `make annotate` installs it into .label-studio/")
    home = tmp_path_factory.mktemp("label-studio")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CORPUS_LABEL_STUDIO", "CORPUS_LABEL_STUDIO_URL", "CORPUS_LABEL_STUDIO_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("CORPUS_HOME", str(home))
        patch.setenv("CORPUS_LABEL_STUDIO_ENV", str(ROOT / ".label-studio"))
        settings = Settings.from_env()
    try:
        start(settings, port=free_port())
        ensure_accounts(settings, pseudonyms=PSEUDONYMS)
        yield settings
    finally:
        down(settings)


@pytest.fixture(scope="session")
def accounts(label_studio: Settings) -> dict[str, Account]:
    """The accounts of the running server by pseudonym."""
    return ensure_accounts(label_studio, pseudonyms=PSEUDONYMS)
