"""Open an OCR engine: in a confined child process, in which a picture that crashes it costs that picture only."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from pipelines.collect.read.confine import UID
from pipelines.collect.read.confined_child import ChildCrashed, ChildLate, ConfinedChild, readable
from pipelines.collect.read.engine import ENGINES, Engine, OcrFailed, OcrReading
from pipelines.collect.read.ocr_child import FAILED, READING, UNREADABLE
from pipelines.core.config.base import fitted
from pipelines.core.config.collect import Ocr
from pipelines.core.config.label import Consent
from pipelines.core.errors import DataError, EngineMissing, StepFailed
from pipelines.core.parts import Allowed
from pipelines.core.process import now

# Ours: a picture of 40 million pixels takes RapidOCR seconds, on a busy machine a minute.
TIMEOUT_SECONDS = 180
MAX_TEXT = 2**20


def open_engine(params: Ocr, *, consent: Consent | None = None, allowed: Allowed | None = None) -> Engine:
    """Return the engine that ``ocr.engine`` names; libraries of other engines are not imported.

    Engines of this machine run in a confined child process; one that sends pictures needs the ``consent`` on record for
    it. ``allowed``: the distributions whose engines may be used; an identity then has the digest of its distribution.
    """
    name, allowed = params.engine, allowed or {}
    kind = ENGINES.get(name, allowed)
    settings = fitted(kind.Parameters, params.engines.get(name, {}), key=f"images.ocr.engines.{name}")
    if kind.remote:
        (consent or Consent()).check(name, today=now().date())
    engine = kind(settings) if kind.remote else ConfinedEngine(params, allowed=allowed)
    if origin := ENGINES.origin(name, allowed):
        engine.identity += f"@{origin[:16]}"
    return engine


class ConfinedEngine(Engine):
    """An engine in a child process; for use by one thread."""

    def __init__(self, params: Ocr, *, allowed: Allowed | None = None) -> None:
        self._engine, wanted = params.engine, ENGINES.get(params.engine, allowed or {}).program
        self._scratch = _scratch() if wanted else None
        folder = self._scratch.name if self._scratch else ""
        program = shutil.which(wanted) if wanted else None
        paths = [*readable(), *([str(Path(program).resolve().parents[1])] if program else [])]
        distributions = json.dumps({name: entry.model_dump() for name, entry in (allowed or {}).items()})
        variables = {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._child = ConfinedChild(
            "ocr_child",
            [params.model_dump_json(), distributions, str(TIMEOUT_SECONDS), os.pathsep.join(paths), folder],
            timeout_seconds=TIMEOUT_SECONDS,
            sandbox=params.sandbox,
            readable=paths,
            writable=[folder] if folder else [],
            environment=variables | ({"TMPDIR": folder, "PATH": os.environ.get("PATH", "")} if folder else {}),
        )
        self._start()
        self.identity = str(self._child.facts.get("identity"))

    def _start(self) -> None:
        self._child.started()
        missing = self._child.facts.get("missing")
        if isinstance(missing, dict):
            self.close()
            raise EngineMissing(**missing)

    def read(self, data: bytes) -> OcrReading:
        self._start()
        try:
            return self._child.ask(data, read=self._answer)
        except ChildCrashed:
            raise OcrFailed("ocr_crashed") from None
        except ChildLate:
            raise OcrFailed("ocr_timeout") from None

    def _answer(self, source: BinaryIO) -> OcrReading:
        outcome, confidence, unread, area, size = READING.unpack(source.read(READING.size))
        if outcome == UNREADABLE:
            raise DataError(detail="An image of the corpus cannot be decoded; rebuild its partition.")
        if outcome == FAILED:
            raise StepFailed(command=self._engine, returncode="an error")
        # a picture may have taken over the child
        if not (all(0 <= share <= 1 for share in (confidence, unread, area)) and size <= MAX_TEXT):
            raise ChildCrashed
        text = source.read(size)
        if len(text) != size:
            raise ChildCrashed
        return OcrReading(text=text.decode(), confidence=confidence, engine=self.identity, unread=unread, area=area)

    def close(self) -> None:
        self._child.end()
        if self._scratch:
            self._scratch.cleanup()

    def __del__(self) -> None:
        if hasattr(self, "_child"):
            self.close()


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Return the folder in which a program gets its pictures; the child's own user may write in it."""
    folder = tempfile.TemporaryDirectory(prefix="ocr-")
    if os.geteuid() == 0:
        os.chown(folder.name, UID, UID)
    return folder
