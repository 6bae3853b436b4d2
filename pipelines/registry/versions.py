"""Registered versions as MLflow keeps them: what a version is, which files it has, and where an alias points.

MLflow has no compare-and-set for aliases, and a version's files can be altered behind its back. So an alias is believed
only where the journal says the same (:mod:`pipelines.registry.journal`), and a version's files only where their digest
is the one that the journal has of its registration. Both are told here and judged by others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.config.params import Params
from pipelines.config.settings import Settings
from pipelines.errors import ConfigError, RegistryError

CHAMPION, CHALLENGER = "champion", "challenger"
ALIASES = (CHAMPION, CHALLENGER)
# Tag of a version: what :func:`digest` says of its files.
DIGEST = "digest"
# Tag of a version: how many records that it has learnt from were taken off its list by a takedown.
TAKEN_DOWN = "taken_down"
# MLflow writes it into every copy that it downloads of a registered model.
WRITTEN_BY_MLFLOW = frozenset({"registered_model_meta"})
# Registered name -> corpus and category; posts are tuned on the category that params.finetune names.
NAMES: Mapping[str, tuple[str, str | None]] = {
    "crisis-posts": ("posts", None),
    "meme-severity": ("memes", "severity"),
    "meme-figurative": ("memes", "figurative"),
    "meme-related": ("memes", "related"),
}


class NoRegistry(ConfigError):
    """There is no registry to speak of."""

    message = "MLFLOW_TRACKING_URI is not set, so there is no registry."
    remedy = "Set it to the address of the MLflow server; `make demo` prints the one that it starts."


class UnknownModel(ConfigError):
    """Nothing is registered under this name."""

    message = "No model is registered as '{name}'."
    remedy = "Name one of {known}, or register a first version: `corpus register`."


class UnknownVersion(ConfigError):
    """A model has no such version, or no version of this alias."""

    message = "There is no version {version} of '{name}'."
    remedy = "`corpus registry {name}` lists the versions that there are."


class RegistryUnavailable(RegistryError):
    """MLflow does not answer, or not as asked."""

    message = "The registry cannot be used now: {detail}."
    remedy = "Check MLFLOW_TRACKING_URI, then run the same again: what was begun is finished, nothing is done twice."
    exit_code = 75


class AliasAstray(RegistryError):
    """An alias does not point where it was just put: somebody else moves it, past the journal."""

    message = "Alias '{alias}' of '{name}' was put on {wanted} and reads {found}."
    remedy = "Find out who moves aliases beside `corpus promote`, and run it again."
    exit_code = 75


@dataclass(frozen=True)
class Version:
    """One version of a registered model.

    Args:
        name: under which it is registered.
        version: its number, from 1.
        digest: of its files, as its registration said; ``""`` where it was registered by other means.
        source: where MLflow has the files.
        run_id: of the run that made it.
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
        """What MLflow calls it."""
        return f"models:/{self.name}/{self.version}"


def subject(name: str, *, params: Params) -> tuple[str, str]:
    """Return the corpus that a registered model is of, and the category that it answers.

    Raises:
        UnknownModel: the name is none of :data:`NAMES`.
    """
    if name not in NAMES:
        raise UnknownModel(name=name, known=", ".join(sorted(NAMES)))
    corpus, category = NAMES[name]
    return corpus, category or params.finetune.category


def listing(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its path with slashes, in order."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: sha256(paths[name]) for name in sorted(paths) if name not in WRITTEN_BY_MLFLOW}


def digest(folder: Path) -> str:
    """Return one SHA-256 for all files below a folder: MLflow's own and the pack's, as ``sha256sum`` would list them.

    A file that is changed, added, lost or renamed changes it; what MLflow writes into a copy that it hands out does
    not.
    """
    lines = "".join(f"{found}  {name}\n" for name, found in listing(folder).items())
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Registry:
    """MLflow's registry, as far as this project uses it; safe to be asked by several processes."""

    def __init__(self, uri: str) -> None:
        """Use :meth:`open` instead."""
        from mlflow import MlflowClient

        self.uri = uri
        self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    @classmethod
    def open(cls, settings: Settings) -> Registry:
        """Open the registry at ``MLFLOW_TRACKING_URI``; nothing is asked yet.

        Raises:
            NoRegistry: it is not set.
        """
        if not settings.mlflow_tracking_uri:
            raise NoRegistry()
        return cls(settings.mlflow_tracking_uri)

    def names(self) -> list[str]:
        """Return every registered name, sorted."""
        return sorted(model.name for model in _pages(self._client.search_registered_models))

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a model, oldest first; none where nothing is registered as ``name``."""
        found = _pages(self._client.search_model_versions, filter_string=f"name = '{name}'")
        return sorted(map(_version, found), key=lambda version: version.version)

    def version(self, name: str, number: int) -> Version:
        """Return one version.

        Raises:
            UnknownVersion: there is none of this number.
        """
        with missing(name=name, version=number):
            return _version(self._client.get_model_version(name, str(number)))

    def add(self, name: str, *, source: str, run_id: str | None, tags: Mapping[str, str]) -> Version:
        """Register files that MLflow has already as the next version of ``name``, which is made where it is not there.

        ``tags`` should have :data:`DIGEST`.
        """
        from mlflow.exceptions import MlflowException

        with translated():
            # two may begin together: one of them finds the model made
            with suppress(MlflowException):
                self._client.create_registered_model(name)
            # a server takes the source of a logged model only from whoever names the model, too
            model_id = source.removeprefix("models:/") if source.startswith("models:/m-") else None
            found = self._client.create_model_version(name, source, run_id, dict(tags), model_id=model_id)
            return _version(found)

    def tag(self, version: Version, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        with translated():
            for key, value in tags.items():
                self._client.set_model_version_tag(version.name, str(version.version), key, value)

    def alias(self, name: str, alias: str = CHAMPION) -> int | None:
        """Return the version that an alias points to, ``None`` where there is none."""
        with suppress(UnknownVersion), missing(name=name, version=alias):
            return int(self._client.get_model_version_by_alias(name, alias).version)
        return None

    def point(self, name: str, alias: str, version: int | None) -> None:
        """Put an alias on a version, or take it away (``None``), and read it back; repeating it is harmless.

        Raises:
            UnknownVersion: there is no such version.
            AliasAstray: it reads otherwise.
        """
        if self.alias(name, alias) != version:
            try:
                self._put(name, alias, version)
            except RegistryUnavailable:
                # MLflow inserts what another has inserted since it looked, and fails; this time it updates
                self._put(name, alias, version)
        found = self.alias(name, alias)
        if found != version:
            raise AliasAstray(name=name, alias=alias, wanted=version or "nothing", found=found or "nothing")

    def _put(self, name: str, alias: str, version: int | None) -> None:
        with missing(name=name, version=version):
            if version is None:
                self._client.delete_registered_model_alias(name, alias)
            else:
                self._client.set_registered_model_alias(name, alias, str(version))

    def files(self, version: Version) -> list[str]:
        """Return the paths of a version's files, sorted; nothing is downloaded but lists."""
        repository, found, folders = self._files_of(version), list[str](), [""]
        with translated():
            while folders:
                for entry in repository.list_artifacts(folders.pop() or None):
                    (folders if entry.is_dir else found).append(entry.path)
        return sorted(found)

    def fetch(self, version: Version, *, to: Path, path: str = "") -> Path:
        """Download a version's files, or the one at ``path``, below the folder ``to``, which is made; return its place.

        What came is not judged: compare :func:`digest` with what the journal says.
        """
        to.mkdir(parents=True, exist_ok=True)
        with translated():
            return Path(self._files_of(version).download_artifacts(path, str(to)))

    def _files_of(self, version: Version) -> Any:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with missing(name=version.name, version=version.version):
            place = self._client.get_model_version_download_uri(version.name, str(version.version))
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
    """Tell a version that is not there from a registry that does not answer."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST, ErrorCode

    absent = {ErrorCode.Name(code) for code in (RESOURCE_DOES_NOT_EXIST, INVALID_PARAMETER_VALUE)}
    with translated():
        try:
            yield
        except MlflowException as error:
            # an alias that is not there is an invalid parameter to MLflow
            if error.error_code in absent:
                raise UnknownVersion(name=name, version=version) from None
            raise


@contextmanager
def translated() -> Iterator[None]:
    """Turn what MLflow raises into an error without its words."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise RegistryUnavailable(detail=str(error.error_code)) from None
    except OSError as error:
        raise RegistryUnavailable(detail=type(error).__name__) from None
