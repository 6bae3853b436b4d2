"""OCR engines behind one protocol, so that the engine is a parameter and its identity is stored with every text."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pipelines.config.collect import Ocr


@dataclass(frozen=True)
class Reading:
    """What one engine read in one picture.

    ``text`` has single spaces and is ``""`` when nothing was read; ``words`` counts it as
    :func:`pipelines.extract.words.words` does. ``confidence`` is the engine's mean over the lines, weighted by their
    length, a line that was found but not read counting 0 (0.0 without text). ``unread`` is the share of the length of
    all lines that was found but not read: near 1 for a script the engine does not know, which would otherwise pass as
    a picture without text. Both are in 0..1, rounded to four digits.
    """

    text: str
    words: int
    confidence: float
    engine: str
    unread: float = 0.0


class OcrEngine(Protocol):
    """Reads one JPEG at a time; ``identity`` names the engine, its versions and its settings."""

    @property
    def identity(self) -> str:
        """Name, versions and settings, as stored beside every text."""
        ...

    def read(self, data: bytes) -> Reading:
        """Return the text of one JPEG picture."""
        ...


def open_engine(params: Ocr) -> OcrEngine:
    """Return the engine that ``ocr.engine`` names; only its own libraries are imported.

    Raises:
        EngineMissing: a program, a model or credentials of the engine are not there.
    """
    engine: OcrEngine = import_module(f"pipelines.extract.ocr.{params.engine}").engine(params)
    return engine
