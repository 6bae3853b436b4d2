"""Configure the DVC remote of a clone, and check that it answers before it is used.

The clients of object stores repeat a failed request for minutes, so one request with a deadline is made first.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from pipelines.core.config.private_file import write_private
from pipelines.core.config.settings import Settings
from pipelines.core.errors import ConfigError, DataError

# Ours: a tenth of it is long for a distant store, and a command must fail within half a minute.
DEADLINE_SECONDS = 15
# Remotes whose address begins with a bucket or container, which DVC does not create.
BUCKETS = frozenset({"s3", "gs", "gcs", "azure", "oss"})
# Errors of the clients that mean the credentials, although they are no PermissionError.
CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "ClientAuthenticationError", "RefreshError"})
BAD_FORMAT = "CORPUS_REMOTE or CORPUS_REMOTE_OPTIONS is not in DVC's format"


def configure(path: Path, *, settings: Settings, scratch: bool = True) -> None:
    """Configure a clone's DVC cache and remote in ``.dvc/config.local``, which is not committed (mode 600).

    A scratch clone keeps DVC's own state in its scratch folder, so that it is removed with the clone. The files of
    another clone are copies, because a command or a person may write into a link, which would alter the cache's object.
    """
    core = {"remote": "corpus", "analytics": "false", "autostage": "false", "check_update": "false"}
    sections = {
        "cache": {"dir": str(settings.cache), "type": "reflink,hardlink,copy" if scratch else "reflink,copy"},
        "core": core | ({"site_cache_dir": str(path.parent / "site")} if scratch else {}),
        "'remote \"corpus\"'": {"url": settings.remote}
        | {name: value.get_secret_value() for name, value in settings.remote_options.items()},
    }
    lines = []
    for section, options in sections.items():
        lines += [f"[{section}]", *(f"    {name} = {_quoted(value)}" for name, value in options.items())]
    write_private(path / ".dvc" / "config.local", "\n".join(lines) + "\n")


def _quoted(value: str) -> str:
    """Return a value in the format of DVC's configuration, which has no escapes."""
    quote = "'" if '"' in value else '"'
    if quote in value or "%(" in value or not value.isprintable():
        detail = "a value has a line break, both kinds of quotes, or %(, which DVC cannot store"
        raise ConfigError("RemoteRefused", detail=detail)
    return f"{quote}{value}{quote}"


def opened(path: Path) -> Any:
    """Open a clone as a DVC repository object."""
    from dvc.config import ConfigError as BadConfig
    from dvc.repo import Repo

    try:
        return Repo(str(path))
    except BadConfig:
        # DVC's message may quote the value of an option
        raise ConfigError("RemoteRefused", detail=BAD_FORMAT) from None


def storage(repo: Any) -> Any:
    """Return the store of a repository's DVC remote after it has answered one request (a folder is not tested)."""
    from dvc.config import ConfigError as BadConfig
    from dvc_objects.fs.errors import ConfigError as BadOptions
    from dvc_objects.fs.errors import RemoteMissingDepsError

    try:
        remote = repo.cloud.get_remote_odb()
        local = remote.fs.protocol == "local"
    except (ImportError, RemoteMissingDepsError):
        package = f"dvc-{repo.config['remote']['corpus']['url'].partition(':')[0]}"
        raise ConfigError("RemoteRefused", detail=f"the package {package} is missing: pip install {package}") from None
    except (BadConfig, BadOptions):
        raise ConfigError("RemoteRefused", detail=BAD_FORMAT) from None
    if not local:
        _answered(remote)
    return remote


def _answered(remote: Any) -> None:
    outcome: list[BaseException | bool] = []

    def ask() -> None:
        try:
            fs, path = remote.fs, remote.path
            outcome.append(bool(fs.exists(path) or fs.protocol not in BUCKETS or fs.exists(path.partition("/")[0])))
        except Exception as error:
            outcome.append(error)

    # a daemon: its own retries may go on for minutes after the deadline
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)
    match outcome:
        case []:
            raise DataError("RemoteUnavailable", detail=f"no answer within {DEADLINE_SECONDS} seconds")
        case [True]:
            return
        case [False]:
            raise ConfigError("RemoteRefused", detail="its bucket does not exist")
        case [error]:
            name = type(error).__name__
            if isinstance(error, PermissionError) or name in CREDENTIALS:
                raise ConfigError("RemoteRefused", detail=f"it refuses the credentials ({name})") from None
            raise DataError("RemoteUnavailable", detail=f"the request failed with {name}") from None
