"""Settings of all tests: one project secret, one cache of compiled kernels, one folder of shared fixtures."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import dvc.repo  # noqa: F401 - its logger keeps the stderr of its first import, which typer's runner replaces and closes
import pytest
from hypothesis import HealthCheck, settings
from ruamel.yaml import YAML

from pipelines.core.config import params
from pipelines.store.vault.vault import Vault
from pipelines.workspace.scratch import compiled_kernels
from tests import built_once

os.environ.setdefault("CORPUS_SECRET", "5e" * 64)
# how long drawing an example takes depends on what else the machine does
settings.register_profile("project", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("project")
# compiled once, not once a home or a checkout
os.environ.update(compiled_kernels(Path(__file__).parents[1] / "var"))


# The files that take longest: begun last, one would keep a worker busy after the others have ended.
LONG = (
    "doctor/test_doctor.py", "store/test_parameters.py", "registry/test_promote.py", "train/test_generate.py",
    "annotate/test_round.py", "attacks/test_logins.py", "store/test_workspace.py", "privacy/test_takedown.py",
    "attacks/test_picture_child.py", "store/test_upgrade.py", "store/test_beginning.py", "label/test_aggregate.py",
    "collect/sources/test_misbehaviour.py", "train/test_sft.py", "attacks/test_pushed_code.py",
    "privacy/test_expiry.py", "cli/test_wrong_inputs.py", "train/test_predict.py", "registry/test_model.py",
    "store/test_results.py", "curate/test_stratify.py", "train/test_sft_processes.py",
    "train/test_checkpoint.py", "registry/test_register.py", "train/models/test_learning.py", "train/test_loop.py",
)  # fmt: skip


# collection makes a million objects and no garbage
gc.disable()
# characters of a YAML text that is parsed once
LONG_TEXT = 5_000
# what marks every test of a file
SLOW = "\npytestmark = pytest.mark.faults\n"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of the slow tier when it is not run: some import large libraries."""
    if collection_path.suffix != ".py" or "not faults" not in config.option.markexpr:
        return None
    return SLOW in collection_path.read_text() or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, in the order of ``LONG``; `tests/tiers.py` hands files out in this order."""
    place = {Path(__file__).parent / name: n for n, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_collection_finish() -> None:
    """Exclude what collection imported from garbage collection: each full one would visit a million objects."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # tests make many objects and few cycles: a sixth less processor time


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Let ruamel.yaml, which DVC uses, parse each long text once: tests read ``params.yaml`` thousands of times.

    They also begin a hundred corpora with the same values.
    """
    load, plain, rewrite = YAML.load, vars(YAML(typ="safe")), params._rewritten

    @lru_cache(maxsize=128)
    def rewritten(text: str, values: bytes) -> str:
        return rewrite(text, pickle.loads(values))

    @lru_cache(maxsize=128)
    def parsed(text: str) -> bytes:
        return pickle.dumps(load(YAML(typ="safe"), text))

    def loaded(self: YAML, stream: Any) -> Any:
        if not isinstance(stream, str) or len(stream) < LONG_TEXT or vars(self) != plain:
            return load(self, stream)
        return pickle.loads(parsed(stream))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(YAML, "load", loaded)
        patch.setattr(params, "_rewritten", lambda text, values: rewritten(text, pickle.dumps(values)))
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_fixtures(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give :mod:`tests.built_once` a folder that all workers of the session share."""
    built_once.share(tmp_path_factory)


@pytest.fixture(scope="module", autouse=True)
def no_traces() -> Iterator[None]:
    """Restore the environment and MLflow's address after each file: fixtures and commands set both for a process."""
    before = dict(os.environ)
    yield
    if mlflow := sys.modules.get("mlflow"):
        mlflow.set_tracking_uri(None)
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=bytes(range(64))) as opened:
        yield opened


@pytest.fixture(scope="session")
def embeddings() -> dict[str, Any]:
    """Embeddings by text, of all tests that use the fixture ``embedded_once``."""
    return {}


@pytest.fixture(scope="module")
def embedded_once(embeddings: dict[str, Any]) -> Iterator[None]:
    """Load the real embedding model once, and ask it once for each text: many tests use the same posts."""
    import numpy as np

    from pipelines.collect.read.embedding import MiniLM

    load, real = MiniLM.__init__, MiniLM.embed

    @cache
    def loaded() -> MiniLM:
        load(model := object.__new__(MiniLM))
        return model

    def embed(self: MiniLM, text: str) -> Any:
        if text not in embeddings:
            digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
            place = built_once.built_once(
                f"embedding-{digest}", lambda folder: np.save(folder / "vector.npy", real(loaded(), text))
            )
            embeddings[text] = np.load(place / "vector.npy")
        return embeddings[text].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MiniLM, "__init__", lambda self: None)
        patch.setattr(MiniLM, "embed", embed)
        yield
