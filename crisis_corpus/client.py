"""Load registered models by name, verify them, and detect changes of the champion (the version in use).

    from crisis_corpus import load
    model = load("crisis-posts")
    model(["a text", {"title": "a title", "body": "what it says"}])

The journal (a signed log of decisions about models) decides which version is champion; MLflow's alias must agree with
it. Every file is compared with the digest in the journal each time a model is loaded, before any of its code runs.
Airflow and DVC are never imported; MLflow is imported only when a model is loaded.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crisis_corpus import integrity, last_seen, trusted
from crisis_corpus.errors import RegistryError
from crisis_corpus.home import MLFLOW_FILE, mlflow_address, of_home
from crisis_corpus.items import frame_of
from crisis_corpus.journal import BEGINNING, opened
from crisis_corpus.model_opening import opening
from crisis_corpus.trusted import Trusted, verified
from crisis_corpus.versions import NoRegistry, RegistryReader, Version, variable

if TYPE_CHECKING:
    import pandas as pd

# As the client's own requirement of mlflow-skinny.
MLFLOW = "mlflow>=3.17.2,<3.18"
# In a home: verified files of models by their digest, and the last rows of the journal that were seen.
CACHE = "models"
PICKLE = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"


class StaleModel(UserWarning):
    """A warning: records on which the model was trained were taken down, so the model's weights will be deleted."""


class NotLoaded(RegistryError):
    """A model's files are intact, but the model cannot be loaded on this machine."""

    message = "Version {version} of '{name}' cannot be loaded on this machine ({detail})."
    remedy = (
        "Its files are intact. Install its packages: `mlflow models prepare-env --model-uri models:/{name}/{version}`; "
        "see docs/registry.md."
    )
    exit_code = 69


class NotInstalled(NotLoaded):
    """A module that a model, or its registry, needs is not installed."""

    message = "{what} needs the module '{module}', which is not installed here."
    remedy = "Run `{python} -m pip install {packages}`, then load the model in a new process."


@dataclass(frozen=True)
class Model:
    """A loaded model version whose files were verified.

    Args:
        token: the argument for :func:`changed`.
        labels: the model's labels, in the order of the probabilities.
        inputs: the columns that it reads.
        card: intended and prohibited uses, and measured quality; see docs/registry.md.
        stale: the time (ISO 8601) at which the version is removed, because records that it was trained on were taken
            down; ``None`` for a version that is not stale.
    """

    name: str
    version: int
    files: str
    token: str
    labels: tuple[str, ...]
    inputs: tuple[str, ...]
    card: Mapping[str, Any] = field(repr=False)
    _model: Any = field(repr=False)
    stale: str | None = None

    @property
    def alerts(self) -> Mapping[str, Mapping[str, Any]]:
        """The figures of the alert of each label, such as ``floor``, ``guaranteed_recall`` and ``alert_rate``."""
        return dict(self.card.get("alerts", {}))

    def __call__(self, items: Iterable[Any] | pd.DataFrame) -> list[dict[str, Any]]:
        """Return a row for each item, in their order: ``labels``, ``scores`` by label, ``abstain`` and ``alerts``.

        ``scores`` has the probability of each of the model's labels; it is empty if nothing was judged. As a frame:
        ``pandas.DataFrame(model(items))``. For the other values, see :meth:`predict`.

        Args:
            items: texts (``str``); pictures (encoded ``bytes``, or a path); mappings, or a frame, with the columns
                :attr:`inputs`, such as ``title`` and ``body``, of which some may be missing.
        """
        asked = frame_of(items, inputs=self.inputs)
        if not len(asked):
            return []
        rows: list[dict[str, Any]] = self.predict(asked).to_dict("records")
        for row in rows:
            row["scores"] = dict(zip(self.labels, row.pop("probabilities"), strict=False))
        return rows

    def predict(self, asked: pd.DataFrame) -> pd.DataFrame:
        """Return a table of ``labels``, ``probabilities``, ``abstain`` and ``alerts``, one row for each input row.

        ``labels`` are the most probable label set. ``alerts`` are the labels that must not be missed and may apply:
        read an item that has the alert or the label.
        """
        return self._model.predict(asked)


def load(
    reference: str, *, tracking_uri: str | None = None, journal_url: str | None = None, cache: Path | None = None
) -> Model:
    """Load a model's champion (``<name>`` or ``<name>@champion``), or the version ``<name>/<version>``.

    The prefix ``models:/`` is optional. On the registry's machine, its home (``CORPUS_HOME``) or the address of its
    database of MLflow is enough. A version that was trained on records taken down since is loaded with the warning
    :class:`StaleModel`.

    Args:
        reference: the name of the version, as above.
        tracking_uri: the MLflow server; by default ``MLFLOW_TRACKING_URI``, else that of the home.
        journal_url: the database of the journal; by default ``CORPUS_JOURNAL_URL``, else that of the home. A read-only
            account is enough.
        cache: the folder for downloaded versions, by the digest of their files; by default ``<CORPUS_HOME>/models``.
    """
    loadable, folder = _had(reference, tracking_uri=tracking_uri, journal_url=journal_url, cache=cache)
    pack = integrity.place(folder)
    manifest = integrity.read_manifest(pack / integrity.MODEL)
    card = json.loads((pack / integrity.CARD).read_bytes())
    version, loaded = loadable.version, _loaded(loadable.version, folder)
    described = (loadable.files, loadable.token, manifest.labels, manifest.inputs, card)
    return Model(version.name, version.version, *described, loaded, loadable.stale)


def download(
    reference: str, *, tracking_uri: str | None = None, journal_url: str | None = None, cache: Path | None = None
) -> Path:
    """Download and verify a model version as :func:`load` does, but run none of its code; return its folder."""
    return _had(reference, tracking_uri=tracking_uri, journal_url=journal_url, cache=cache)[1]


def token(name: str, *, journal_url: str | None = None) -> str:
    """Return a token that changes only when a model's version is promoted, rolled back to, withdrawn or becomes stale.

    The token is the digest of the journal's last such row: registrations, verdicts of the gate and intended changes do
    not affect consumers.
    """
    return _asked(name, known=BEGINNING, journal_url=journal_url)


def changed(name: str, token: str, *, journal_url: str | None = None) -> str | None:
    """Return a new token if a model's champion changed, or a version was withdrawn or became stale, since ``token``.

    Returns ``None`` if nothing changed.
    """
    now = _asked(name, known=token, journal_url=journal_url)
    return None if now == token else now


@contextmanager
def unpickled() -> Iterator[None]:
    """Prevent MLflow from loading pickles inside this context, whatever the environment variables are."""
    with variable(PICKLE, "false"):
        yield


def _had(
    reference: str, *, tracking_uri: str | None, journal_url: str | None, cache: Path | None
) -> tuple[Trusted, Path]:
    """Return the version that a reference names, and the folder of its verified files."""
    name, number = trusted.parsed(reference)
    home = _home(tracking_uri)
    uri, cache = tracking_uri or mlflow_address(home), cache or home / CACHE
    if not uri:
        raise NoRegistry()
    with opened(journal_url or _journal_url(home), home=home, seen=cache / last_seen.FILE) as journal:
        try:
            # imports MLflow, of which the client has the part that asks a server
            with opening():
                registry = RegistryReader(uri)
            loadable = trusted.find(name, number, registry=registry, journal=journal)
        except ModuleNotFoundError as error:
            raise _missing(error.name or "", what="A registry without a server", packages=[MLFLOW]) from None
    if loadable.stale is not None:
        reason = "records on which it was trained were taken down; it is removed on"
        warnings.warn(f"{loadable.version.uri} is stale: {reason} {loadable.stale[:10]}", StaleModel, stacklevel=3)
    return loadable, verified(loadable, registry=registry, cache=cache)


def _home(tracking_uri: str | None = None) -> Path:
    """Return the home: ``CORPUS_HOME``, else that of a database of MLflow, else ``var``; it may lack what is asked."""
    given = os.environ.get("CORPUS_HOME")
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not given and uri.startswith("sqlite:///") and uri.endswith(f"/{MLFLOW_FILE}"):
        given = str(Path(uri.removeprefix("sqlite:///")).parent)
    home = Path(given or "var").resolve()
    for name, value in of_home(home).items():
        os.environ.setdefault(name, value)
    return home


def _journal_url(home: Path) -> str:
    return os.environ.get("CORPUS_JOURNAL_URL", f"sqlite:///{home}/journal.sqlite")


def _asked(name: str, *, known: str, journal_url: str | None) -> str:
    home = _home()
    with opened(journal_url or _journal_url(home), home=home, seen=home / CACHE / last_seen.FILE) as journal:
        return trusted.token(name, journal=journal, known=known)


def _loaded(version: Version, folder: Path) -> Any:
    with unpickled(), opening():
        try:
            from mlflow import pyfunc

            # suppress_warnings skips the comparison of every installed package, which takes half a second
            return pyfunc.load_model(str(folder), suppress_warnings=True)
        except ModuleNotFoundError as error:
            # the model's own code raises it, so the name may be anything
            if not re.fullmatch(r"[A-Za-z_][\w.]{0,99}", error.name or "", re.ASCII):
                raise NotLoaded(name=version.name, version=version.version, detail=type(error).__name__) from None
            # of MLflow, the client has the part that loads a model
            pins = (folder / "requirements.txt").read_text().splitlines()
            packages = [pin for pin in pins if not pin.startswith("mlflow==")]
            what = f"Version {version.version} of '{version.name}'"
            raise _missing(str(error.name), what=what, packages=packages) from None
        except Exception as error:
            # the model's own code runs during loading, and its message may contain anything
            raise NotLoaded(name=version.name, version=version.version, detail=type(error).__name__) from None


def _missing(module: str, *, what: str, packages: Sequence[str]) -> NotInstalled:
    return NotInstalled(what=what, module=module, python=shlex.quote(sys.executable), packages=shlex.join(packages))
