"""Read a picture's caption and judge its language, also if the picture is mirrored."""

from __future__ import annotations

import io

from PIL import Image, ImageOps

from pipelines.extract.language import ENGLISH, LanguageGate, LanguageVerdict
from pipelines.extract.ocr import OcrEngine, OcrReading

# Ours, measured on the second world (bench/second_world): mirrored captions have a confidence of .81 or less, and their
# lines that are read of .86 or more when the picture is mirrored back. None was taken for English.
MAYBE_MIRRORED, READABLE = 0.9, 0.8
QUALITY = 95


class CaptionReader:
    """An OCR engine and the language filter; with ``twice``, a picture of doubtful text is also read mirrored."""

    def __init__(self, engine: OcrEngine, gate: LanguageGate, *, twice: bool = True) -> None:
        self._engine, self._gate, self._twice = engine, gate, twice

    def read(self, data: bytes, *, title: str = "") -> tuple[OcrReading, LanguageVerdict]:
        """Return the reading of a JPEG and its language; that of the mirrored picture if only that is English.

        Raises:
            OcrFailed: the picture crashed the engine or took it too long.
        """
        reading, verdict = self._read(data, title=title)
        doubtful = reading.confidence < MAYBE_MIRRORED and verdict.language != ENGLISH
        if self._twice and doubtful and (reading.text or reading.unread):
            again, other = self._read(mirrored(data), title=title)
            if other.language == ENGLISH and _certainty(again) >= max(READABLE, _certainty(reading)):
                return again, other
        return reading, verdict

    def _read(self, data: bytes, *, title: str) -> tuple[OcrReading, LanguageVerdict]:
        reading = self._engine.read(data)
        verdict = self._gate.judge(reading.text, title=title, confidence=reading.confidence, unread=reading.unread)
        return reading, verdict


def _certainty(reading: OcrReading) -> float:
    """Return the confidence of the lines that were read, without those that were only detected."""
    return reading.confidence / (1 - reading.unread) if reading.unread < 1 else 0.0


def mirrored(data: bytes) -> bytes:
    """Return a JPEG of this project's decoder as a JPEG of the mirrored picture."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
        ImageOps.mirror(image).save(out, "JPEG", quality=QUALITY, subsampling=0)
    return out.getvalue()
