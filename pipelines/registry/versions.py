"""Read and write versions, their files and aliases in MLflow.

MLflow has no compare-and-set for aliases, and a version's files can be altered without its knowledge. So an alias is
trusted only if the journal (:mod:`pipelines.registry.journal`) agrees, and a version's files only if they have the
digest that the journal recorded at registration. Other modules make these checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.errors import ConfigError, RegistryError

CHAMPION, CHALLENGER = "champion", "challenger"
ALIASES = (CHAMPION, CHALLENGER)
# Tag of a version: :func:`digest` of its files.
DIGEST = "digest"
# Tag of a version: how many of its training records a takedown removed from its list.
TAKEN_DOWN = "taken_down"
# MLflow writes this file into every downloaded copy of a registered model.
WRITTEN_BY_MLFLOW = frozenset({"registered_model_meta"})
# Registered name -> corpus and category; models of posts use the category of params.finetune.
NAMES: Mapping[str, tuple[str, str | None]] = {
    "crisis-posts": ("posts", None),
    "meme-severity": ("memes", "severity"),
    "meme-figurative": ("memes", "figurative"),
    "meme-related": ("memes", "related"),
}


class NoRegistry(ConfigError):
    """No registry is configured."""

    message = "MLFLOW_TRACKING_URI is not set and no MLflow server runs here, so there is no registry."
    remedy = "Set it to the address of the MLflow server, or start the embedded one with `corpus sandbox up`."


class UnknownModel(ConfigError):
    """No model is registered under this name."""

    message = "No model is registered as '{name}'."
    remedy = "Use one of {known}."
    exit_code = 64


class UnknownVersion(ConfigError):
    """A model has no such version, or no version with this alias."""

    message = "There is no version {version} of '{name}'."
    remedy = "List its versions: `corpus registry {name}`."


class RegistryUnavailable(RegistryError):
    """MLflow does not answer, or answers with an error."""

    message = "The registry cannot be used now: {detail}."
    remedy = "Check MLFLOW_TRACKING_URI, then repeat the command: it continues where it stopped and repeats no step."
    exit_code = 75


class AliasAstray(RegistryError):
    """An alias does not point to the version it was just set to: another process sets it without the journal."""

    message = "Alias '{alias}' of '{name}' was set to {wanted} but points to {found}."
    remedy = "Find the process that sets aliases besides `corpus promote`, stop it, and repeat the command."
    exit_code = 75


@dataclass(frozen=True)
class Version:
    """One version of a registered model.

    Args:
        name: the registered model.
        version: its number, from 1.
        digest: the digest of its files at registration; ``""`` if this project did not register it.
        source: the place of the files in MLflow.
        run_id: the MLflow run that produced the version.
        tags: such as ``data_commit``; no content.
    """

    name: str
    version: int
    digest: str
    source: str
    run_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def uri(self) -> str:
        """Its URI in MLflow."""
        return f"models:/{self.name}/{self.version}"


def checked(name: str) -> tuple[str, str | None]:
    """Return the entry of a registered model's name in :data:`NAMES`.

    Raises:
        UnknownModel: the name is not in it.
    """
    if name not in NAMES:
        raise UnknownModel(name=name, known=", ".join(sorted(NAMES)))
    return NAMES[name]


def subject(name: str, *, params: Params) -> tuple[str, str]:
    """Return the corpus of a registered model and the category that it predicts.

    Raises:
        UnknownModel: the name is not in :data:`NAMES`.
    """
    corpus, category = checked(name)
    return corpus, category or params.finetune.category


def listing(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its POSIX path, in order."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: sha256(paths[name]) for name in sorted(paths) if name not in WRITTEN_BY_MLFLOW}


def digest(folder: Path) -> str:
    """Return the SHA-256 of the ``sha256sum`` listing of all files below a folder, MLflow's files included.

    The digest changes if a file is changed, added, removed or renamed. Files that MLflow adds to downloaded copies are
    not included.
    """
    lines = "".join(f"{found}  {name}\n" for name, found in listing(folder).items())
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Registry:
    """The MLflow registry, limited to what this project uses; safe for use by several processes."""

    def __init__(self, uri: str) -> None:
        """Use :meth:`open` instead."""
        from mlflow import MlflowClient

        self.uri = uri
        self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    @classmethod
    def open(cls, settings: Settings) -> Registry:
        """Open the registry at ``MLFLOW_TRACKING_URI`` without sending a request.

        Raises:
            NoRegistry: the variable is not set.
        """
        if not settings.mlflow_tracking_uri:
            raise NoRegistry()
        return cls(settings.mlflow_tracking_uri)

    def names(self) -> list[str]:
        """Return every registered name, sorted."""
        return sorted(model.name for model in _pages(self.client.search_registered_models))

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a model, oldest first; empty if no model is registered as ``name``."""
        found = _pages(self.client.search_model_versions, filter_string=f"name = '{name}'")
        return sorted(map(_version, found), key=lambda version: version.version)

    def version(self, name: str, number: int) -> Version:
        """Return one version.

        Raises:
            UnknownVersion: there is no version with this number.
        """
        with missing(name=name, version=number):
            return _version(self.client.get_model_version(name, str(number)))

    def add(self, name: str, *, source: str, run_id: str | None, tags: Mapping[str, str]) -> Version:
        """Register files that MLflow already has as the next version of ``name``; create the model if necessary.

        ``tags`` should have :data:`DIGEST`.
        """
        from mlflow.exceptions import MlflowException

        with translated():
            # the model may exist, or a concurrent registration may create it first
            with suppress(MlflowException):
                self.client.create_registered_model(name)
            # an MLflow server accepts a logged model as the source only together with its model id
            model_id = source.removeprefix("models:/") if source.startswith("models:/m-") else None
            found = self.client.create_model_version(name, source, run_id, dict(tags), model_id=model_id)
            return _version(found)

    def tag(self, version: Version, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        with translated():
            for key, value in tags.items():
                self.client.set_model_version_tag(version.name, str(version.version), key, value)

    def alias(self, name: str, alias: str = CHAMPION) -> int | None:
        """Return the version number that an alias points to, or ``None`` if the alias is not set."""
        with suppress(UnknownVersion), missing(name=name, version=alias):
            return int(self.client.get_model_version_by_alias(name, alias).version)
        return None

    def point(self, name: str, alias: str, version: int | None) -> None:
        """Set an alias to a version, or delete it (``None``), and verify it; idempotent.

        Raises:
            UnknownVersion: the model has no such version.
            AliasAstray: the alias points elsewhere afterwards.
        """
        if self.alias(name, alias) != version:
            try:
                self._put(name, alias, version)
            except RegistryUnavailable:
                # MLflow's insert fails if another process inserted the alias meanwhile; the second try updates it
                self._put(name, alias, version)
        found = self.alias(name, alias)
        if found != version:
            raise AliasAstray(name=name, alias=alias, wanted=version or "nothing", found=found or "nothing")

    def _put(self, name: str, alias: str, version: int | None) -> None:
        with missing(name=name, version=version):
            if version is None:
                self.client.delete_registered_model_alias(name, alias)
            else:
                self.client.set_registered_model_alias(name, alias, str(version))

    def files(self, version: Version) -> list[str]:
        """Return the paths of a version's files, sorted, without downloading the files."""
        repository, found, folders = self._files_of(version), list[str](), [""]
        with translated():
            while folders:
                for entry in repository.list_artifacts(folders.pop() or None):
                    (folders if entry.is_dir else found).append(entry.path)
        return sorted(found)

    def fetch(self, version: Version, *, to: Path, path: str = "") -> Path:
        """Download a version's files, or the one at ``path``, into the new folder ``to``; return the local path.

        The files are not verified: compare :func:`digest` with the journal.
        """
        to.mkdir(parents=True, exist_ok=True)
        with translated():
            return Path(self._files_of(version).download_artifacts(path, str(to)))

    def put(self, version: Version, files: Iterable[Path], *, below: str) -> None:
        """Replace files of a version in the folder ``below``, ``"."`` for the top."""
        repository = self._files_of(version)
        with translated():
            for file in files:
                repository.log_artifact(str(file), None if below == "." else below)

    def _files_of(self, version: Version) -> Any:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with missing(name=version.name, version=version.version):
            place = self.client.get_model_version_download_uri(version.name, str(version.version))
            return get_artifact_repository(place, tracking_uri=self.uri, registry_uri=self.uri)


def _version(found: Any) -> Version:
    tags = dict(found.tags)
    return Version(found.name, int(found.version), tags.get(DIGEST, ""), found.source, found.run_id or None, tags)


def _pages(search: Any, **asked: Any) -> Iterator[Any]:
    token = None
    while token != "":
        with translated():
            page = search(**asked, page_token=token)
        yield from page
        token = page.token or ""


@contextmanager
def missing(*, name: str, version: int | str | None) -> Iterator[None]:
    """Translate MLflow's errors: UnknownVersion for a missing version, the others as :func:`translated` does."""
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
def translated() -> Iterator[None]:
    """Turn MLflow's errors into RegistryUnavailable, without MLflow's message."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise RegistryUnavailable(detail=str(error.error_code)) from None
    except OSError as error:
        raise RegistryUnavailable(detail=type(error).__name__) from None
