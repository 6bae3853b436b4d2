"""Hand a stage's result from one task to the next: one object on the remote, named in Airflow by a signed token.

The object holds the stage's entry of ``dvc.lock`` and the exact bytes of its uncached metrics. The object is stored
under a key of the stage's inputs and created only if absent, so that two tasks with the same inputs use the same
result. Object and token are authenticated with the project secret: write access to the remote or to Airflow's database
can make a task fail, but cannot make it use another result.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.core import formats
from pipelines.core.errors import DataError

FOLDER = "results"
DIGEST = re.compile(rb'"([0-9a-f]{32}(?:\.dir)?)"')
PURPOSE = b"crisis-corpus/stage-result"
# S3: the object exists, or another writer is creating it.
TAKEN = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})
Token = dict[str, Any]
"""A reference to a stage's result for other tasks: ``stage``, ``key``, ``digest``, ``differs`` and ``mac``."""


class ResultUnusable(DataError):
    """A stage result from another task is missing, was changed, or belongs to another run."""


@dataclass(frozen=True)
class StageResult:
    """The result of one DVC stage: its entry of ``dvc.lock``, and the texts of its metrics files by path."""

    stage: str
    entry: Mapping[str, Any]
    metrics: Mapping[str, str]

    def encode(self) -> bytes:
        """Serialise this stage result to JSON bytes; the entry keeps the order in which DVC writes its keys."""
        body = {"stage": self.stage, "entry": self.entry, "metrics": dict(sorted(self.metrics.items()))}
        return json.dumps(formats.stamped("stage_result", body), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> StageResult:
        """Parse a stage result from the bytes of :meth:`encode`, which the caller must have authenticated."""
        return cls(**formats.opened("stage_result", json.loads(data)))

    def write_metrics(self, root: Path) -> None:
        for path, text in self.metrics.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(text.encode())


class Results:
    """The stored stage results of all runs on one DVC remote; ``root`` is its top folder."""

    def __init__(self, fs: Any, root: str, *, secret: bytes) -> None:
        self._fs = fs
        self._root = fs.join(root, FOLDER)
        self._key = hmac.digest(secret, PURPOSE, "sha256")

    def get(self, key: str) -> StageResult | None:
        """Return the stored result for a stage's inputs, which ``key`` identifies, or ``None``."""
        data = self._read(key)
        return None if data is None else StageResult.decode(self._opened(data, stage=key))

    def create(self, key: str, result: StageResult) -> tuple[StageResult, bool]:
        """Store a stage's result unless one for the same inputs (``key``) is; return it, and whether they differ."""
        data = self._sealed(result.encode())
        while not self._create(self._path(key), data):
            # absent again: it was removed meanwhile, or the other writer has not finished yet
            if (stored := self.get(key)) is not None:
                return stored, stored.encode() != result.encode()
        return result, False

    def remove(self, key: str) -> None:
        """Delete the stage result stored under ``key``, for example if the remote has lost its objects."""
        with suppress(FileNotFoundError):
            self._fs.remove(self._path(key))

    def token(self, key: str, result: StageResult, *, run: str, base: str, differs: bool) -> Token:
        """Return a signed token by which other tasks of the same run can request a stage result."""
        digest = hashlib.sha256(self._sealed(result.encode())).hexdigest()
        token: Token = {"stage": result.stage, "key": key, "digest": digest, "differs": differs}
        return token | {"mac": self._mac(token, run=run, base=base)}

    def receive(self, token: Token, *, run: str, base: str) -> StageResult:
        """Return the stage result to which a token of this run refers."""
        stage = str(token.get("stage"))
        own = {name: token.get(name) for name in ("stage", "key", "digest", "differs")}
        # as bytes: compare_digest accepts only ASCII strings
        if not hmac.compare_digest(self._mac(own, run=run, base=base).encode(), str(token.get("mac")).encode()):
            raise ResultUnusable(stage=stage, detail="the token of the result does not belong to this run and commit")
        data = self._read(str(own["key"]))
        if data is None:
            raise ResultUnusable(stage=stage, detail="the stored result is no longer on the remote")
        if hashlib.sha256(data).hexdigest() != own["digest"]:
            raise ResultUnusable(stage=stage, detail="another result is stored in its place")
        result = StageResult.decode(self._opened(data, stage=stage))
        if result.stage != stage:
            raise ResultUnusable(stage=stage, detail="the stored result belongs to another stage")
        return result

    @property
    def place(self) -> tuple[Any, str]:
        """Return the remote's file system and its folder in which all stage results are stored."""
        return self._fs, self._root

    def forget(self, digests: Collection[str]) -> int:
        """Delete every stage result that refers to one of these DVC objects; return the number of deleted results."""
        wanted = {digest.encode() for digest in digests}
        removed = 0
        for path in list(self._fs.find(self._root)) if self._fs.exists(self._root) else []:
            with suppress(FileNotFoundError):
                with self._fs.open(path, "rb") as file:
                    named = set(DIGEST.findall(file.read()))
                if not wanted.isdisjoint(named):
                    self._fs.remove(path)
                    removed += 1
        return removed

    def _mac(self, fields: Mapping[str, Any], *, run: str, base: str) -> str:
        return self._tag(b"token", json.dumps([run, base, fields], sort_keys=True).encode())

    def _tag(self, kind: bytes, data: bytes) -> str:
        return hmac.new(self._key, kind + b"\0" + data, hashlib.sha256).hexdigest()

    def _sealed(self, body: bytes) -> bytes:
        return self._tag(b"object", body).encode() + b"\n" + body

    def _opened(self, data: bytes, *, stage: str) -> bytes:
        tag, _, body = data.partition(b"\n")
        if not hmac.compare_digest(self._tag(b"object", body).encode(), tag):
            raise ResultUnusable(stage=stage, detail="the stored result was not written by this project")
        return body

    def _path(self, key: str) -> str:
        return str(self._fs.join(self._root, key[:2], key[2:]))

    def _read(self, key: str) -> bytes | None:
        try:
            # one request, so that the bytes are those of one version of the object
            return bytes(self._fs.cat_file(self._path(key)))
        except FileNotFoundError:
            return None

    def _create(self, path: str, data: bytes) -> bool:
        """Create an object atomically; return whether it is new."""
        if self._fs.protocol == "local":
            return _link_new(Path(path), data)
        try:
            # If-None-Match on S3, ifGenerationMatch on Google Cloud, exclusive creation elsewhere
            self._fs.fs.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            answer = getattr(error.__cause__, "response", None) or {}
            if answer.get("Error", {}).get("Code") not in TAKEN:
                raise
            return False
        return True


def _link_new(path: Path, data: bytes) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        made.write_bytes(data)
        os.link(made, path)
    except FileExistsError:
        return False
    finally:
        made.unlink(missing_ok=True)
    return True
