"""Read model versions, their files and aliases in MLflow.

MLflow has no compare-and-set for aliases, and a version's files can be altered without its knowledge. So an alias is
trusted only if the journal (:mod:`crisis_corpus.journal`) agrees, and a version's files only if they have the
digest that the journal recorded at registration. Other modules make these checks.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crisis_corpus.errors import ConfigError, RegistryError
from crisis_corpus.integrity import digest
from crisis_corpus.model_opening import COPY

CHAMPION = "champion"
SQLITE = "sqlite:///"
# Tag of a version: :func:`crisis_corpus.integrity.digest` of its files.
DIGEST = "digest"
COMPILED = "__pycache__"
BARS = "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"
_VARIABLES = threading.RLock()
# Tag of a version: the digest of the row that last made it champion; it reveals a journal that was cut.
RECORDED = "journal"
# A registered name is a part of addresses and paths.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class NoRegistry(ConfigError):
    """No model registry (MLflow server) is configured."""

    message = "MLFLOW_TRACKING_URI is not set and no MLflow server runs here, so there is no registry."
    remedy = (
        "Set it to the address of the MLflow server, or start the embedded one with `corpus up`; on its machine, "
        "CORPUS_HOME, set to the registry's folder, is enough."
    )


class UnknownModel(ConfigError):
    """No model is registered under this name."""

    message = "No model is registered as '{name}'."
    remedy = "Use one of {known}."
    exit_code = 64


class UnknownVersion(ConfigError):
    """A model has no version with this number, or no version with this alias."""

    message = "There is no version {version} of '{name}'."
    remedy = "List its versions: `corpus registry {name}`."


class RegistryUnavailable(RegistryError):
    """The MLflow server of the model registry does not answer, or answers with an error."""

    message = "The registry cannot be used now: {detail}."
    remedy = "Check MLFLOW_TRACKING_URI, then repeat the command: it continues where it stopped and repeats no step."
    exit_code = 75


@dataclass(frozen=True)
class Version:
    """One version of a registered model.

    Args:
        digest: the digest of its files at registration; ``""`` if this project did not register it.
        tags: the version's tags in MLflow, such as ``data_commit``; no content.
    """

    name: str
    version: int
    digest: str
    source: str
    run_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


class RegistryReader:
    """Read-only access to the MLflow registry, limited to what consumers of models use."""

    def __init__(self, uri: str) -> None:
        from mlflow import MlflowClient

        self.uri = uri
        if uri.startswith(SQLITE):
            _find_files()
        self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    def version(self, name: str, number: int) -> Version:
        with missing(name=name, version=number):
            return of_mlflow(self.client.get_model_version(name, str(number)))

    def alias(self, name: str, alias: str = CHAMPION) -> int | None:
        """Return the number of the model version that an alias points to, or ``None`` if the alias is not set."""
        with suppress(UnknownVersion), missing(name=name, version=alias):
            return int(self.client.get_model_version_by_alias(name, alias).version)
        return None

    def fetch(self, version: Version, *, to: Path, path: str = "") -> Path:
        """Download a model version's files, or the file at ``path``, into the new folder ``to``; return the local path.

        Compiled code that was not registered is deleted: `mlflow models serve` on a store of files leaves it there. The
        files are not verified: compare :func:`crisis_corpus.integrity.digest` with the journal.
        """
        to.mkdir(parents=True, exist_ok=True)
        with translated(), variable(BARS, os.environ.get(BARS, "false")):
            fetched = Path(self.artifacts(version).download_artifacts(path, str(to)))
        if not path:
            # plain MLflow has left it in a store of files
            (fetched / COPY).unlink(missing_ok=True)
        if any(fetched.rglob(COMPILED)) and digest(fetched) != version.digest:
            delete_compiled(fetched)
        return fetched

    def artifacts(self, version: Version) -> Any:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with missing(name=version.name, version=version.version):
            place = self.client.get_model_version_download_uri(version.name, str(version.version))
            return get_artifact_repository(place, tracking_uri=self.uri, registry_uri=self.uri)


def _find_files() -> None:
    """Let MLflow find what its server stored when it is not running: in the folder ``mlflow`` beside its database."""
    from mlflow.store.artifact import artifact_repository_registry as known
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
    from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

    def stored(artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> Any:
        if not (tracking_uri or "").startswith(SQLITE):
            return MlflowArtifactsRepository(artifact_uri, tracking_uri, registry_uri)
        folder = Path(str(tracking_uri).removeprefix(SQLITE)).parent / "mlflow"
        return LocalArtifactRepository(str(folder / urlsplit(artifact_uri).path.lstrip("/")))

    known._artifact_repository_registry.register("mlflow-artifacts", stored)


def delete_compiled(folder: Path) -> None:
    """Delete the compiled code below a folder: Python would run it in place of the verified source."""
    for compiled in list(folder.rglob(COMPILED)):
        shutil.rmtree(compiled)


def of_mlflow(entry: Any) -> Version:
    """Convert MLflow's description of a model version to a :class:`Version`."""
    tags = dict(entry.tags)
    return Version(entry.name, int(entry.version), tags.get(DIGEST, ""), entry.source, entry.run_id or None, tags)


@contextmanager
def missing(*, name: str, version: int | str | None) -> Iterator[None]:
    """Convert MLflow's errors: UnknownVersion if the model version is missing, others as :func:`translated` does."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST, ErrorCode

    absent = {ErrorCode.Name(code) for code in (RESOURCE_DOES_NOT_EXIST, INVALID_PARAMETER_VALUE)}
    with translated():
        try:
            yield
        except MlflowException as error:
            # MLflow reports a missing alias as an invalid parameter
            if error.error_code in absent:
                raise UnknownVersion(name=name, version=version) from None
            raise


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable inside this context; it is the process's, so threads enter one after another."""
    with _VARIABLES:
        before = os.environ.get(name)
        os.environ[name] = value
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


@contextmanager
def translated() -> Iterator[None]:
    """Convert MLflow's errors to RegistryUnavailable, without MLflow's message."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise RegistryUnavailable(detail=str(error.error_code)) from None
    except OSError as error:
        raise RegistryUnavailable(detail=type(error).__name__) from None
