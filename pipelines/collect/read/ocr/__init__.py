"""Open OCR engines through one protocol; the engine is a parameter, and its identity is stored with every text."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pipelines.core.config.collect import Ocr
    from pipelines.core.config.label import Consent

# The only engine that sends pictures to a provider.
GOOGLE_VISION = "google_vision"


@dataclass(frozen=True)
class OcrReading:
    """The text that an engine read in one picture.

    ``text`` has single spaces and is ``""`` if nothing was read. ``confidence`` is the engine's mean over the lines,
    weighted by their length; a line that was detected but not recognized counts as 0 (0.0 without text). ``unread`` is
    the share of the lines' total length that was detected but not recognized. It is near 1 for a script that the engine
    does not support, which would otherwise pass as a picture without text. ``area`` is the share of the picture within
    the upright boxes of the lines that were read. All three are in 0..1, rounded to four digits.
    """

    text: str
    confidence: float
    engine: str
    unread: float = 0.0
    area: float = 0.0


class OcrEngine(Protocol):
    """The interface of an OCR engine, which reads one JPEG at a time."""

    @property
    def identity(self) -> str:
        """Return the engine's name, versions and settings, which are stored with every text."""
        ...

    def read(self, data: bytes) -> OcrReading:
        """Return the text of one JPEG; raise ``OcrFailed`` if it crashed the engine or took it too long."""
        ...


class OcrFailed(Exception):
    """One picture cannot be read; the message is the drop reason."""


def open_engine(params: Ocr, *, consent: Consent | None = None) -> OcrEngine:
    """Return the engine that ``ocr.engine`` names; libraries of other engines are not imported.

    Engines of this machine run in a confined child process; ``google_vision`` needs the ``consent`` on record for it.
    """
    if params.engine == GOOGLE_VISION:
        from pipelines.core.config.label import Consent
        from pipelines.core.process import now

        (consent or Consent()).check(GOOGLE_VISION, today=now().date())
        engine: OcrEngine = import_module("pipelines.collect.read.ocr.google_vision").engine(params)
        return engine
    return import_module("pipelines.collect.read.ocr.confined_engine").ConfinedEngine(params)  # type: ignore[no-any-return]
