"""Run the embedded Label Studio: a server in its own environment, on loopback, without telemetry.

In the community edition every logged-in user may read every project. To blind annotators, each pseudonym has its own
organization with a login and a service account for our API calls, and ``site`` makes Label Studio isolate
organizations, which it does not do by default.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pipelines.core.components import ServiceFailed, answers, free_port, running, wait
from pipelines.core.config.params import Params
from pipelines.core.config.settings import Settings
from pipelines.core.errors import AnnotationError
from pipelines.core.process import write_private

READY_SECONDS = 180.0
ACCOUNTS_SECONDS = 120.0
NAME = "label-studio"
ACCOUNTS = "accounts.json"
DATABASE = "label_studio.sqlite3"
SCRIPT = Path(__file__).with_name("script.py")
# Next to 8080, which is Airflow's.
PORT = 8081


@dataclass(frozen=True)
class Account:
    """The Label Studio login of one pseudonym, and the API token of the service account in the same organization."""

    email: str
    password: str
    token: str


Accounts = dict[str, Account]


def start(settings: Settings, *, port: int) -> psutil.Process:
    """Start the embedded Label Studio if it does not run, wait until it responds, and return its process."""
    note, log = _note(settings), _log(settings)
    if (process := running(note)) is None:
        program = _program(settings, name="label-studio")
        if free_port(port) != port:  # Label Studio would silently take the next one
            raise ServiceFailed(name=NAME, detail=f"port {port} is taken", log=log)
        for folder in (settings.label_studio, note.parent, log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        settings.label_studio.chmod(0o700)
        argv = [str(program), "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port)]
        _create_tables(settings, log=log)
        with log.open("ab") as out:
            child = subprocess.Popen(
                argv, cwd=settings.label_studio, env=environment(settings), stdout=out, stderr=out,
                stdin=subprocess.DEVNULL, start_new_session=True, umask=0o077,
            )  # fmt: skip
        process = psutil.Process(child.pid)
        note.write_text(json.dumps({"pid": child.pid, "started": process.create_time(), "port": port}))
    health = f"{_own_address(settings)}/health"
    wait(NAME, lambda: answers(health), note=note, log=log, seconds=READY_SECONDS)
    return process


def _create_tables(settings: Settings, *, log: Path) -> None:
    """Create the tables of a new home as a whole, before the server, which would run its 300 migrations."""
    database = settings.label_studio / DATABASE
    if database.exists():
        return
    partial = database.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        with log.open("ab") as out:
            _run(settings, "tables", database=partial, stdout=out, stderr=out, umask=0o077)
    except (OSError, subprocess.SubprocessError) as error:
        detail = f"its tables could not be created ({type(error).__name__})"
        raise ServiceFailed(name=NAME, detail=detail, log=log) from None
    partial.replace(database)


def _run(settings: Settings, action: str, *, database: Path | None = None, **options: Any) -> Any:
    """Run the script in Label Studio's own interpreter, which imports Django's settings from its own layout."""
    program = _program(settings, name="python")
    variables = environment(settings) | ({"DATABASE_NAME": str(database)} if database else {})
    # -P keeps our modules off its path
    argv = [str(program), "-P", str(SCRIPT), action]
    options |= {"cwd": settings.label_studio, "env": variables, "timeout": ACCOUNTS_SECONDS}
    return subprocess.run(argv, check=True, **options)


def serve(settings: Settings, *, params: Params, port: int | None) -> dict[str, object]:
    """Start the embedded Label Studio with an account for every person in ``params.round``.

    A running server keeps its port. ``accounts`` is the path of the file with e-mail addresses and passwords.
    """
    start(settings, port=port or settings.label_studio_port or PORT)
    accounts = ensure_accounts(settings, pseudonyms=[*params.round.annotators, params.round.adjudicator])
    return {
        "url": _own_address(settings),
        "pseudonyms": sorted(accounts),
        "accounts": str(settings.label_studio / ACCOUNTS),
    }


def address(settings: Settings) -> str:
    """Return the URL of Label Studio: an external server if one is set, else the embedded one."""
    if settings.label_studio_url:
        return settings.label_studio_url.rstrip("/")
    if running(_note(settings)) is None:
        raise AnnotationError("BackendUnavailable", backend="label_studio", detail="the embedded server does not run")
    return _own_address(settings)


def environment(settings: Settings) -> dict[str, str]:
    """Return the embedded Label Studio's complete environment.

    Variables of this process are not inherited, so that no key leaks.
    """
    return {
        **{name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ},
        "PYTHONPATH": str(Path(__file__).with_name("site")),
        "DJANGO_SETTINGS_MODULE": "crisis_settings",  # organizations do not isolate without it
        "HOME": str(settings.label_studio),  # otherwise it keeps a config file and a data folder in the user's home
        "LABEL_STUDIO_BASE_DATA_DIR": str(settings.label_studio),
        "LABEL_STUDIO_COLLECT_ANALYTICS": "false",  # default true: sends requests to the vendor
        "LABEL_STUDIO_LATEST_VERSION_CHECK": "false",
        "LABEL_STUDIO_SENTRY_DSN": "",  # default: the vendor's, for the server and for browsers
        "LABEL_STUDIO_FRONTEND_SENTRY_DSN": "",
        "LABEL_STUDIO_LOG_LEVEL": "CRITICAL",  # an error's message may quote a task
        "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "true",
        "LABEL_STUDIO_ENABLE_LOCAL_FILES_STORAGE": "false",
        "LABEL_STUDIO_ALLOWED_HOSTS": "127.0.0.1,localhost",
        "LABEL_STUDIO_CORS_ALLOW_ALL_ORIGINS": "false",  # default true: any site open in the browser may send requests
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def ensure_accounts(settings: Settings, *, pseudonyms: Collection[str]) -> Accounts:
    """Return the pseudonyms' Label Studio accounts; create missing ones and store them in ``accounts.json`` (mode 600).

    The server must have been started once, which creates its database. The operator gives each annotator their own
    address and password from ``accounts.json``.
    """
    path = settings.label_studio / ACCOUNTS
    known: Accounts = {}
    if path.exists():
        known = {name: Account(**fields) for name, fields in json.loads(path.read_text()).items()}
    if wanted := sorted(set(pseudonyms) - set(known)):
        known |= _make(settings, pseudonyms=wanted)
        write_private(path, json.dumps({name: vars(known[name]) for name in sorted(known)}, indent=1) + "\n")
    return {name: known[name] for name in pseudonyms}


def _make(settings: Settings, *, pseudonyms: list[str]) -> Accounts:
    asked = {name: secrets.token_urlsafe(18) for name in pseudonyms}
    try:
        done = _run(settings, "accounts", input=json.dumps(asked), text=True, capture_output=True)
        made = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        detail = f"accounts could not be created ({type(error).__name__})"
        raise AnnotationError("BackendUnavailable", backend="label_studio", detail=detail) from None
    return {name: Account(password=password, **made[name]) for name, password in asked.items()}


def _program(settings: Settings, *, name: str) -> Path:
    program = settings.label_studio_env / "bin" / name
    if not program.exists():
        raise ServiceFailed("EnvironmentMissing", name=NAME, detail=str(program), log=_log(settings))
    return program


def _note(settings: Settings) -> Path:
    return settings.home / "run" / f"{NAME}.pid"


def _log(settings: Settings) -> Path:
    return settings.home / "logs" / f"{NAME}.log"


def _own_address(settings: Settings) -> str:
    return f"http://127.0.0.1:{json.loads(_note(settings).read_text())['port']}"
