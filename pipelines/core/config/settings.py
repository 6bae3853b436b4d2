"""Read addresses and secrets from ``CORPUS_*`` environment variables and from the folder ``CORPUS_HOME``."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError

from pipelines.core.config.base import Positive, Section
from pipelines.core.errors import BadParams, ConfigError, NoSecret
from pipelines.core.process import create_private, login, write_private

# In a home: variables that the environment need not have.
HOME_ENV = "corpus.env"
HOME_NAMES = re.compile(r"(?!CORPUS_HOME$|CORPUS_SECRET$)(CORPUS|MLFLOW|AWS)_[A-Z0-9_]+")
# In a home: the database of the embedded MLflow; its files are in the folder `mlflow`, to which this variable of MLflow
# leads where no server does.
MLFLOW_FILE, MLFLOW_ROOT = "mlflow.sqlite", "_MLFLOW_SERVER_ARTIFACT_ROOT"
# In a clone made by `corpus clone`: the path of its home. Git never commits what is in its own folder.
HOME_FILE = Path(".git") / "corpus-home"

# DVC's options of an S3 remote, and the variables that set them.
REMOTE = {name: name.upper() for name in ("region", "access_key_id", "secret_access_key", "session_token")}
REMOTE["endpointurl"] = "ENDPOINT"


# The first one that is set counts.
SECRETS = SECRET, SECRET_FILE, SECRET_COMMAND = "CORPUS_SECRET", "CORPUS_SECRET_FILE", "CORPUS_SECRET_COMMAND"
# The secret that `take_secret` removed from the environment.
_taken: dict[str, str] = {}
# A place of the secret: in a home that also has the vault.
GENERATED = "generated"
Port = Annotated[int, Field(ge=0)]
LOOPBACK = ("127.0.0.1", "::1", "localhost")
# A secret manager on another host answers within this time.
COMMAND_SECONDS = 30.0


def take_secret() -> None:
    """Move the project secret out of the environment that child processes (git, OCR, trainers) inherit."""
    if text := os.environ.pop(SECRET, ""):
        _taken[SECRET] = text


def with_secret() -> dict[str, str]:
    """Return the environment variables with the project secret, for a process that opens the vault."""
    return _taken | os.environ


def find_home() -> Path:
    """Return CORPUS_HOME, the folder of all data and state.

    It is the value of the variable ``CORPUS_HOME``; else, from the working directory upwards, the folder that a clone's
    home file names, or ``var`` in a checkout of the project; else ``var`` in the working directory.
    """
    if given := os.environ.get("CORPUS_HOME"):
        return Path(given).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / HOME_FILE).is_file():
            return Path((folder / HOME_FILE).read_text().strip())
        if (folder / "params.yaml").is_file() and (folder / "dvc.yaml").is_file():
            return folder / "var"
    return here / "var"


def of_home(home: Path) -> dict[str, str]:
    """Return the variables of ``corpus.env`` in the home; a line is NAME=value, quoted as in a shell, or a comment."""
    values, path = {}, home / HOME_ENV
    for number, line in enumerate(_lines(path), start=1):
        name, equals, text = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        try:
            value, *more = shlex.split(text) or [""]
        except ValueError:
            more = [text]
        if more or not equals or not HOME_NAMES.fullmatch(name):
            detail = "needs NAME=value, with a name CORPUS_*, MLFLOW_* or AWS_* that is not the home's or the secret's"
            raise BadParams(where=f"{path} line {number}", detail=detail)
        values[name] = value
    return values


def set_of_home(home: Path, values: Mapping[str, str]) -> None:
    """Set variables in ``corpus.env`` of the home, and keep its other lines."""
    path = home / HOME_ENV
    kept = [line for line in _lines(path) if line.partition("=")[0].strip() not in values]
    lines = [*kept, *(f"{name}={shlex.quote(value)}" for name, value in values.items())]
    write_private(path, "".join(f"{line}\n" for line in lines))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BadParams(where=str(path), detail=f"cannot be read ({type(error).__name__})") from None


def _mlflow(home: Path) -> str | None:
    """Return ``MLFLOW_TRACKING_URI``, else the address of the embedded MLflow, or its database if that is not started.

    MLflow's clients read their login from the environment: that of the embedded server is set there.
    """
    try:
        ports = json.loads((home / "ports.json").read_bytes())
        embedded = f"http://127.0.0.1:{int(ports['mlflow'])}"
    except (OSError, ValueError, KeyError, TypeError):
        embedded = None
    uri = os.environ.get("MLFLOW_TRACKING_URI") or embedded
    if not uri and (home / MLFLOW_FILE).exists():
        uri = f"sqlite:///{home / MLFLOW_FILE}"
        os.environ.setdefault(MLFLOW_ROOT, str(home / "mlflow"))
    if uri and uri == embedded and (password := password_of(home, TRACKING)):
        os.environ |= {"MLFLOW_TRACKING_USERNAME": TRACKING, "MLFLOW_TRACKING_PASSWORD": password}
    return uri


def local_registry(settings: Settings) -> Settings:
    """Return the settings with an MLflow: without a server, its database and files in the home, which are created."""
    if settings.mlflow_tracking_uri:
        return settings
    (settings.home / MLFLOW_FILE).touch(mode=0o600)
    return Settings.from_env()


def provider_variable(provider: str) -> str:
    """Return the beginning of the names of a provider's environment variables."""
    return f"CORPUS_{provider.upper().replace('-', '_')}"


class Endpoint(Section):
    """A model provider's URL and API key; ``url`` is ``None`` for the provider's default URL."""

    url: str | None
    key: SecretStr


def _remote_options(remote: str) -> dict[str, SecretStr]:
    """Return DVC's options of a remote: ``CORPUS_REMOTE_OPTIONS``, and for S3 the variables of ``REMOTE``."""
    try:
        given = json.loads(os.environ.get("CORPUS_REMOTE_OPTIONS") or "{}")
        valid = isinstance(given, dict) and all(isinstance(value, str | int | float) for value in given.values())
    except ValueError:
        valid = False
    if not valid:
        raise BadParams(where="CORPUS_REMOTE_OPTIONS", detail="needs a JSON object of strings, numbers and booleans")
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    if remote.startswith("s3://"):
        options = {option: os.environ.get(f"CORPUS_REMOTE_{name}", "") for option, name in REMOTE.items()}
        values |= {option: value for option, value in options.items() if value}
    return {key: SecretStr(value) for key, value in values.items()}


def _below(template: str) -> Any:
    return Field(default_factory=lambda values: template.format(home=values["home"]), validate_default=True)


class Settings(Section):
    """Addresses and secrets, from ``CORPUS_*`` environment variables (docs/configuration.md lists them)."""

    home: Path
    vault_url: str = _below("sqlite:///{home}/vault.sqlite")
    vault_backup: Path | None = None
    repo: str = _below("{home}/corpus.git")
    remote: str = _below("{home}/remote")
    remote_options: dict[str, SecretStr]
    cache: Path = _below("{home}/cache")
    dumps: Path = _below("{home}/sandbox/dumps")
    sandbox: Path = _below("{home}/sandbox")
    reddit_client_id: str = ""
    reddit_client_secret: str = ""
    reddit_url: str = "https://www.reddit.com"
    reddit_oauth_url: str = "https://oauth.reddit.com"
    arctic_shift_url: str = "https://arctic-shift.photon-reddit.com"
    contact: str = ""
    user: str = ""
    sandbox_port: Port | None = None
    mlflow_tracking_uri: str | None = None
    traces: Annotated[bool, BeforeValidator(lambda text: text == "on")] = False
    answers_url: str = _below("sqlite:///{home}/answers.sqlite")
    refresh_url: str = _below("sqlite:///{home}/refresh.sqlite")
    journal_url: str = _below("sqlite:///{home}/journal.sqlite")
    label_studio: Path = _below("{home}/label_studio")
    label_studio_env: Annotated[Path, AfterValidator(Path.resolve)] = Field(".label-studio", validate_default=True)
    label_studio_port: Port | None = None
    label_studio_url: str | None = None
    label_studio_key: SecretStr = SecretStr("")
    annotation_files: Path = _below("{home}/annotation")
    hub_url: Annotated[str, AfterValidator(lambda url: url.rstrip("/"))] = "https://huggingface.co"
    hub_token: SecretStr = SecretStr("")
    finetune_processes: Positive | None = None

    @classmethod
    def from_env(cls) -> Settings:
        """Read the settings from the environment, which gets what only ``corpus.env`` of the home has.

        Paths and databases default to places under :func:`find_home`.
        """
        home = find_home()
        for name, value in of_home(home).items():
            os.environ.setdefault(name, value)
        texts = {name: os.environ.get(f"CORPUS_{name.upper()}") for name in cls.model_fields}
        # an empty text is a value, except where the default is none
        values: dict[str, Any] = {
            name: text
            for name, text in texts.items()
            if text or (text == "" and cls.model_fields[name].default is not None)
        }
        values |= {"home": home, "mlflow_tracking_uri": _mlflow(home)}
        values["remote_options"] = _remote_options(values.get("remote", ""))
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            [fault, *_] = error.errors()
            raise BadParams(where=f"CORPUS_{str(fault['loc'][0]).upper()}", detail=fault["msg"]) from None

    def endpoint(self, provider: str) -> Endpoint:
        """Return a model provider's URL and key from ``CORPUS_<PROVIDER>_URL`` and ``CORPUS_<PROVIDER>_KEY``."""
        name = provider_variable(provider)
        return Endpoint(url=os.environ.get(f"{name}_URL") or None, key=SecretStr(os.environ.get(f"{name}_KEY", "")))

    @property
    def person(self) -> str:
        """The person of this process: the login, after ``CORPUS_USER`` if that is set."""
        return f"{self.user} ({login()})" if self.user.strip() else login()

    @property
    def secret_place(self) -> str:
        """Where the project secret is: the variable that gives the secret or its place, else ``home``.

        The value is ``generated`` if secret and vault are both below ``CORPUS_HOME``.
        """
        variable = next(filter(with_secret().get, SECRETS), None)
        if variable in (None, SECRET_FILE) and self.vault_url.startswith("sqlite:///"):
            file = Path(os.environ[SECRET_FILE]) if variable else self.home / "secret"
            both = (file, Path(self.vault_url.removeprefix("sqlite:///")))
            if all(path.resolve().is_relative_to(self.home.resolve()) for path in both):
                return GENERATED
        return variable or "home"

    def require_secret_apart(self, source: str, *, address: str) -> None:
        """Check that the project secret is not stored beside the vault, unless ``source`` is simulated on this host."""
        if self.secret_place == GENERATED and urlsplit(address).hostname not in LOOPBACK:
            raise ConfigError("SecretBesideVault", source=source, home=self.home)

    def secret(self) -> bytes:
        """Return the project secret (hex): ``CORPUS_SECRET``, ``_FILE``, ``_COMMAND``, else ``<home>/secret``."""
        text = _given_secret()
        if text is None:
            try:
                text = (self.home / "secret").read_text()
            except OSError:
                raise NoSecret(home=self.home) from None
        try:
            secret = bytes.fromhex(text.strip())
        except ValueError:
            secret = b""
        if len(secret) < 32:
            raise BadParams(where="CORPUS_SECRET", detail="needs at least 64 hexadecimal digits")
        return secret

    def create_secret(self) -> bytes:
        """Return the project secret, and create ``<home>/secret`` (mode 600) if there is none."""
        if not any(map(with_secret().get, SECRETS)):
            create_private(self.home / "secret", secrets.token_hex(64))
        return self.secret()


def _given_secret() -> str | None:
    """Return the secret that a variable has or names, or ``None`` if no variable is set."""
    if text := with_secret().get(SECRET):
        return text
    if path := os.environ.get(SECRET_FILE):
        try:
            return Path(path).read_text()
        except (OSError, ValueError) as error:
            raise ConfigError("SecretUnreadable", variable=SECRET_FILE, detail=type(error).__name__) from None
    command = os.environ.get(SECRET_COMMAND)
    return _printed(command) if command else None


@cache
def _printed(command: str) -> str:
    """Run a command without a shell, once in a process, and return what it prints."""
    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, timeout=COMMAND_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        status = getattr(error, "returncode", None)
        detail = type(error).__name__ if status is None else f"exit status {status}"
        raise ConfigError("SecretUnreadable", variable=SECRET_COMMAND, detail=detail) from None
    return done.stdout


# The administrator of Airflow, a user of Airflow who may answer questions of tasks, and the user of MLflow.
ADMIN, APPROVER, TRACKING = "admin", "approver", "mlflow"


def passwords_file(home: Path) -> Path:
    """Return the path of the file with the passwords by user, which the embedded Airflow reads, too."""
    return home / "run" / "passwords.json"


def create_passwords(home: Path) -> Path:
    """Write the file of the embedded services' passwords (mode 600) unless it exists, and return its path."""
    path = passwords_file(home)
    create_private(path, json.dumps({user: secrets.token_urlsafe(24) for user in (ADMIN, APPROVER, TRACKING)}) + "\n")
    return path


def password_of(home: Path, user: str) -> str:
    """Return the password of a user of the embedded services; empty if it is missing or may not be read."""
    try:
        return str(json.loads(passwords_file(home).read_text())[user])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
