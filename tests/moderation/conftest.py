"""An audit of a small corpus by the sandbox's moderation systems, which make no mistake unless a test says so."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.evaluate.moderation import moderation
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests.contexts import context_of
from tests.label.conftest import CALM, VendorHost
from tests.train import small_memes as small

SECRET = bytes(range(32))
SIZES = {"train": 12, "validation": 6, "test": 6}
SYSTEMS = ("openai", "azure", "llama-guard-3")
PATHS = {"openai": "/openai/v1", "azure": "/azure", "guard": "/guard/v1"}


@dataclass
class Audit:
    """A small corpus with everything that an audit needs."""

    memes: small.SmallMemes
    params: Params
    settings: Settings

    def run(self, *systems: str, **changes: Any) -> dict[str, Any]:
        """Run the stage for some systems, with other values of the section ``moderation``."""
        return moderation.run(context_of("memes", params=self.given(*systems, **changes), **self.places))

    def given(self, *systems: str, **changes: Any) -> Params:
        section = self.params.moderation.model_copy(update={"systems": {"memes": systems or SYSTEMS}, **changes})
        return self.params.model_copy(update={"moderation": section})

    @property
    def places(self) -> dict[str, Any]:
        return {"settings": self.settings, "vault": self.memes.vault, "root": self.memes.root}

    def change(self, section: str, **changes: Any) -> None:
        """Change values of a section of the parameters."""
        self.params = self.params.model_copy(update={section: getattr(self.params, section).model_copy(update=changes)})

    def moderator(self, name: str, **changes: Any) -> None:
        """Change the description of a system."""
        spec = self.params.moderators[name].model_copy(update=changes)
        self.params = self.params.model_copy(update={"moderators": {**self.params.moderators, name: spec}})

    def rows(self) -> list[dict[str, Any]]:
        path = self.memes.root / "snapshot" / "memes" / "moderation" / "moderation.parquet"
        return tables.read(path, name="moderation").to_pylist()


@contextmanager
def opened(folder: Path, url: str, patch: pytest.MonkeyPatch) -> Iterator[tuple[Params, Vault]]:
    """Yield parameters and a vault for audits below ``folder`` with the systems that the sandbox serves at ``url``."""
    patch.setenv("CORPUS_HOME", str(folder))
    patch.setenv("CORPUS_SECRET", SECRET.hex())
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for provider, path in PATHS.items():
        patch.setenv(f"CORPUS_{provider.upper()}_URL", url + path)
        patch.setenv(f"CORPUS_{provider.upper()}_KEY", "k")
    params = load(small.REPO, profile="sandbox")
    params = params.model_copy(update={"moderation": params.moderation.model_copy(update={"items": None})})
    with Vault.open(f"sqlite:///{folder}/vault.sqlite", secret=SECRET) as vault:
        yield params, vault


@contextmanager
def audit(folder: Path, url: str, patch: pytest.MonkeyPatch) -> Iterator[Audit]:
    """Yield an audit of memes."""
    with opened(folder, url, patch) as (params, vault):
        yield Audit(small.write(folder, vault=vault, sizes=SIZES), params, Settings.from_env())


def asked(host: VendorHost, vendor: str) -> list[str]:
    """Return the digests of the keys of all questions that a vendor answered with status 200, in order."""
    return [line["key"] for line in host.log() if line["vendor"] == vendor and line["status"] == 200]


def digest(key: str) -> str:
    """Return the digest of an idempotency key, as the vendors' log has it."""
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
def vendors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorHost]:
    host = VendorHost(tmp_path_factory.mktemp("vendors"))
    host.vendors.tempers.update(dict.fromkeys(("openai", "azure", "guard"), CALM))
    with host.server:
        yield host


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendors: VendorHost) -> Iterator[Audit]:
    with audit(tmp_path, vendors.server.address, monkeypatch) as made:
        yield made
