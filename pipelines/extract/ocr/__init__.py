"""Open OCR engines through one protocol; the engine is a parameter, and its identity is stored with every text."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pipelines.config.collect import Ocr


@dataclass(frozen=True)
class OcrReading:
    """The text that an engine read in one picture.

    ``text`` has single spaces and is ``""`` if nothing was read. ``confidence`` is the engine's mean over the lines,
    weighted by their length; a line that was detected but not recognized counts as 0 (0.0 without text). ``unread`` is
    the share of the lines' total length that was detected but not recognized. It is near 1 for a script that the engine
    does not support, which would otherwise pass as a picture without text. Both are in 0..1, rounded to four digits.
    """

    text: str
    confidence: float
    engine: str
    unread: float = 0.0


class OcrEngine(Protocol):
    """The interface of an OCR engine, which reads one JPEG at a time."""

    @property
    def identity(self) -> str:
        """Return the engine's name, versions and settings, which are stored with every text."""
        ...

    def read(self, data: bytes) -> OcrReading:
        """Return the text of one JPEG picture."""
        ...


def open_engine(params: Ocr) -> OcrEngine:
    """Return the engine that ``ocr.engine`` names; libraries of other engines are not imported.

    Raises:
        EngineMissing: the engine's program, model or credentials are missing.
    """
    engine: OcrEngine = import_module(f"pipelines.extract.ocr.{params.engine}").engine(params)
    return engine
