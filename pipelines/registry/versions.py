"""Write model versions, their files and aliases in the MLflow registry, and give the addresses of MLflow's pages.

MLflow has no compare-and-set for aliases, and a version's files can be altered without its knowledge: see
:mod:`crisis_corpus.versions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crisis_corpus import versions
from crisis_corpus.errors import RegistryError
from crisis_corpus.versions import (
    CHAMPION,
    NAME,
    NoRegistry,
    RegistryUnavailable,
    UnknownModel,
    UnknownVersion,
    Version,
    missing,
    of_mlflow,
    translated,
)
from pipelines.core.config.models import Registered
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings

CHALLENGER = "challenger"
ALIASES = (CHAMPION, CHALLENGER)
# What MLflow shows of every registered model.
ABOUT = (
    "The version with the alias `champion` is in use. Aliases are set by the Dag `promote` or `corpus promote` only, "
    "after a comparison on the frozen test and the approval of a person; `corpus registry` shows the journal with the "
    "reasons. Load versions with `crisis_corpus.load`, which compares files and alias with the journal."
)
# Tag of a version: how many of its training records a takedown removed from its list.
TAKEN_DOWN = "taken_down"


class AliasAstray(RegistryError):
    """A model's alias points to another version than the one just set, because another process sets it, too."""


def entry(name: str, *, params: Params) -> Registered:
    """Return what a registered name stands for: its corpus, its task and its candidates."""
    if (registered := params.registry.get(name)) is None:
        raise UnknownModel(name=name, known=", ".join(params.registry) or "a name of section registry of params.yaml")
    return registered


class Registry(versions.RegistryReader):
    """The MLflow registry, limited to what this project uses; several processes may use it at the same time."""

    @classmethod
    def open(cls, settings: Settings) -> Registry:
        """Open the registry at ``MLFLOW_TRACKING_URI`` without sending a request."""
        if not settings.mlflow_tracking_uri:
            raise NoRegistry()
        return cls(settings.mlflow_tracking_uri)

    def names(self) -> list[str]:
        """Return the names of all models, without those that this project could not have registered."""
        names = (str(model.name) for model in _pages(self.client.search_registered_models))
        return sorted(filter(NAME.fullmatch, names))

    def versions(self, name: str) -> list[Version]:
        """Return the versions of a model, oldest first; empty if no model is registered as ``name``."""
        pages = _pages(self.client.search_model_versions, filter_string=f"name = '{name}'")
        return sorted(map(of_mlflow, pages), key=lambda version: version.version)

    def add(
        self, name: str, *, source: str, run_id: str | None, tags: Mapping[str, str], description: str = ""
    ) -> Version:
        """Register files that MLflow already has as the next version of ``name``; create the model if necessary.

        ``tags`` should have :data:`DIGEST`, the digest of the files. ``description`` is Markdown, which MLflow shows on
        the version's page.
        """
        from mlflow.exceptions import MlflowException

        with translated():
            # the model may exist, or a concurrent registration may create it first
            with suppress(MlflowException):
                self.client.create_registered_model(name, description=ABOUT)
            # an MLflow server accepts a logged model as the source only together with its model id
            model_id = source.removeprefix("models:/") if source.startswith("models:/m-") else None
            options = {"model_id": model_id, "description": description or None}
            added = self.client.create_model_version(name, source, run_id, dict(tags), **options)
            return of_mlflow(added)

    def tag(self, version: Version, tags: Mapping[str, str]) -> None:
        with translated():
            for key, value in tags.items():
                self.client.set_model_version_tag(version.name, str(version.version), key, value)

    def point(self, name: str, alias: str, version: int | None) -> None:
        """Set a model's alias to a version, or delete it if the version is ``None``, and verify it; may be repeated."""
        if self.alias(name, alias) != version:
            try:
                self._put(name, alias, version)
            except RegistryUnavailable:
                # MLflow's insert fails if another process inserted the alias meanwhile; the second try updates it
                self._put(name, alias, version)
        pointed = self.alias(name, alias)
        if pointed != version:
            raise AliasAstray(name=name, alias=alias, wanted=version or "nothing", found=pointed or "nothing")

    def _put(self, name: str, alias: str, version: int | None) -> None:
        with missing(name=name, version=version):
            if version is None:
                self.client.delete_registered_model_alias(name, alias)
            else:
                self.client.set_registered_model_alias(name, alias, str(version))

    def files(self, version: Version) -> list[str]:
        """Return the sorted paths of a model version's files; no file is downloaded."""
        repository, files, folders = self.artifacts(version), list[str](), [""]
        with translated():
            while folders:
                for entry in repository.list_artifacts(folders.pop() or None):
                    (folders if entry.is_dir else files).append(entry.path)
        return sorted(files)

    def remove(self, version: Version) -> None:
        """Delete a model version and its files; may be repeated if it was interrupted."""
        if self.files(version):
            with translated():
                self.artifacts(version).delete_artifacts()
        with suppress(UnknownVersion), missing(name=version.name, version=version.version):
            self.client.delete_model_version(version.name, str(version.version))

    def runs(self, experiment: str) -> Iterator[Any]:
        """Yield the MLflow runs of an experiment, if it exists: deleted ones too, because they keep their files."""
        from mlflow.entities import ViewType

        with translated():
            place = self.client.get_experiment_by_name(experiment)
        if place is not None:
            options = {"experiment_ids": [place.experiment_id], "run_view_type": ViewType.ALL}
            yield from _pages(self.client.search_runs, **options)

    def run_files(self, run_id: str) -> Any:
        """Return MLflow's artifact repository object for the files of a run."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with translated():
            place = self.client.get_run(run_id).info.artifact_uri
            return get_artifact_repository(place, tracking_uri=self.uri, registry_uri=self.uri)

    def put(self, version: Version, files: Iterable[Path], *, below: str) -> None:
        """Replace files of a model version in its folder ``below`` (``"."`` is the top folder)."""
        repository = self.artifacts(version)
        with translated():
            for file in files:
                repository.log_artifact(str(file), None if below == "." else below)


def _pages(search: Any, **asked: Any) -> Iterator[Any]:
    token = None
    while token != "":
        with translated():
            page = search(**asked, page_token=token)
        yield from page
        token = page.token or ""


# Tag of a run with the numbers of a commit, and the file of the report among its artifacts.
COMMIT, REPORT = "data_commit", "report/report.html"
# The newest runs among which a report is searched for; every publish since the last report has one.
SEARCHED = 10


def mlflow_web(uri: str | None) -> str | None:
    """Return the address of MLflow's pages without a login; ``None`` for a store that is not a server."""
    parts = urlsplit(uri or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def numbers_experiment(corpus: str) -> str:
    """Return the name of the experiment with the numbers of a corpus's commits."""
    return f"{corpus}_dataset"


def pages_of_commit(settings: Settings, *, corpus: str, commit: str, client: Any = None) -> dict[str, str]:
    """Return the addresses ``run``, of the commit's numbers or else the newest, and ``report``, of the newest report.

    A model's commit has no report of it: that is published after its training. Without a server or a run, there is no
    address.
    """
    address = mlflow_web(settings.mlflow_tracking_uri)
    if address is None:
        return {}
    from mlflow import MlflowClient

    client, pages = client or MlflowClient(settings.mlflow_tracking_uri), dict[str, str]()
    with translated():
        place = client.get_experiment_by_name(numbers_experiment(corpus))
        if place is None:
            return {}
        newest = list(client.search_runs([place.experiment_id], max_results=SEARCHED))
        same = client.search_runs([place.experiment_id], f"tags.{COMMIT} = '{commit}'", max_results=1)
        for run in (*same, *newest):
            page = f"{address}/#/experiments/{place.experiment_id}/runs/{run.info.run_id}"
            pages.setdefault("run", page)
            if any(file.path == REPORT for file in client.list_artifacts(run.info.run_id, "report")):
                return pages | {"report": f"{page}/artifacts/{REPORT}"}
    return pages


def page_of_version(settings: Settings, *, name: str, version: int) -> str | None:
    """Return the address of a model version's page."""
    address = mlflow_web(settings.mlflow_tracking_uri)
    return address and f"{address}/#/models/{name}/versions/{version}"
