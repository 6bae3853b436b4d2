"""Hold all processes of a deployment to the registry of stores: what they write and what they connect to.

:func:`begin` returns variables; a process that has them, and all that it starts, notes each write and connection
outside the stores (``sitecustomize.py``). :func:`outside` returns what was noted, and the files below ``CORPUS_HOME``
that belong to no store.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipelines.core.config.settings import Settings
from pipelines.takedown.stores import stores

HERE = Path(__file__).resolve().parent
# Below CORPUS_HOME; a store of its own: "Airflow and logs".
FOLDER, TERMS, LOG = "logs/audit", "terms.json", "outside.jsonl"
PORTS = {"http": 80, "https": 443, "postgresql": 5432}
# What libraries keep of their own, devices, and memory of `multiprocessing`, whose file is removed at once.
LIBRARIES = ("~/.cache/*", "~/.config/*", "/dev/null", "/dev/tty", "/dev/shm/pym-*", "/proc/*", "/var/tmp/dvc/*")  # noqa: S108


def begin(settings: Settings, *, environment: Mapping[str, str], root: Path, people: str = "") -> dict[str, str]:
    """Write what is allowed, and return the variables of the processes to watch.

    Args:
        settings: the locations of the stores.
        environment: the variables of the deployment: the services and vendors whose addresses they are may be asked.
        root: the checkout, in which git and DVC keep locks.
        people: a pattern of the folders in which people keep clones.
    """
    folder = settings.home / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    places = [place for store in stores() for place in store.patterns(settings)]
    paths: list[str] = []
    for place in places:
        # also what is written under a name of its own and then renamed
        renamed = (place.with_name(f"{dot}{place.name}.*") for dot in ("", "."))
        paths += map(str, (place, place / "*", *renamed))
    paths += [str(Path(name).expanduser()) for name in LIBRARIES]
    paths += [
        f"{tempfile.gettempdir()}/torchinductor_*",
        people,
        str(settings.home),
        f"{root}/.dvc/*",
        f"{root}/.git/*",
    ]
    # a picture's host is whatever a post says; the offline Reddit's dead one is on this port
    found = sorted({("127.0.0.1", 9), *(address for value in environment.values() for address in _address(value))})
    terms = {"paths": paths, "addresses": found, "log": str(folder / LOG)}
    (folder / TERMS).write_text(json.dumps(terms))
    (folder / LOG).write_text("")
    return {"CORPUS_AUDIT": str(folder / TERMS), "PYTHONPATH": str(HERE)}


def outside(settings: Settings) -> list[dict[str, Any]]:
    """Return what was noted, each place once, and the files below ``CORPUS_HOME`` that are in no store."""
    noted = [json.loads(line) for line in log_of(settings).read_text().splitlines()]
    seen = {(each["event"], each["what"]): each for each in noted}
    claimed = [path for store in stores() for path in store.paths(settings)]
    return [*seen.values(), *({"event": "file", "what": str(path)} for path in _unclaimed(settings.home, claimed))]


def log_of(settings: Settings) -> Path:
    """Return the file of what was noted: JSON lines with the event, its place, the command, and where in the code."""
    return settings.home / FOLDER / LOG


def told(noted: Mapping[str, Any]) -> str:
    """Return what was noted as one line: event, place, and the first line of our code that led to it."""
    by = next((line for line in noted.get("by", ()) if "/pipelines/" in line or "/crisis_corpus" in line), "")
    return f"{noted['event']} {noted['what']} {by}".strip()


def _unclaimed(home: Path, claimed: list[Path]) -> Iterator[Path]:
    for top, folders, files in os.walk(home):
        place = Path(top)
        # a folder that is claimed is not looked into
        folders[:] = [name for name in folders if place / name not in claimed]
        yield from (place / name for name in files if place / name not in claimed)


def _address(value: str) -> Iterator[tuple[str, int]]:
    parts = urlsplit(value) if "://" in value else None
    if parts and parts.hostname:
        yield parts.hostname, parts.port or PORTS.get(parts.scheme.partition("+")[0], 443)
