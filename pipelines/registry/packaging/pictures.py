"""Read the pictures that a registered model is sent, as the corpus reads its own: decode, OCR, scrub."""

from __future__ import annotations

import base64
import binascii
from contextlib import nullcontext
from typing import Any

import pandas as pd

from crisis_corpus.model_opening import opening
from pipelines.collect.read.confined_engine import open_engine
from pipelines.collect.read.decode import DecodedPicture, Decoder
from pipelines.collect.read.engine import Engine, OcrFailed
from pipelines.datasets.example import Example
from pipelines.registry.packaging.described import Described
from pipelines.registry.packaging.served import Malformed, TextReader, cells, example, says, texts

START_OF_SCAN = b"\xff\xda"


class PictureReader(TextReader):
    """Convert input rows of a picture and its text to a model's examples; not thread-safe."""

    def __init__(self, described: Described) -> None:
        """Take the settings of decoding, OCR and scrubbing; the OCR engine is opened on first use."""
        super().__init__(described)
        if described.decode is None:
            raise ValueError(described.kind)
        # consumers may have no Linux; a warning says if a picture is read without a sandbox
        loose = {"sandbox": "accepted_without"}
        self._decode = described.decode.model_copy(update=loose)
        self._ocr = described.ocr and described.ocr.model_copy(update=loose)
        self._looks, self._reads = (part in described.entry.inputs for part in ("image", "text"))
        self._engine: Engine | None = None

    def examples(self, frame: pd.DataFrame) -> list[Example | None]:
        """Return the example of each row, ``None`` for a row without content."""
        words = texts(frame, "text")
        sent = [_bytes(cell, row=row) for row, cell in enumerate(cells(frame, "image"))]
        if self._reads and self._ocr is None and None in words:
            raise Malformed(f"'text' of row {words.index(None)} is missing, and this model has no OCR of its own")
        wanted = [data if self._looks or text is None else None for data, text in zip(sent, words, strict=True)]
        with Decoder(self._decode) if any(wanted) else nullcontext() as decoder:
            decoded = [_plain(data, decoder=decoder) if data and decoder else None for data in wanted]
        return [self._of_picture(row, *cell) for row, cell in enumerate(zip(decoded, words, strict=True))]

    def _of_picture(self, row: int, picture: bytes | None, text: str | None) -> Example | None:
        if picture is None and (self._looks or text is None):
            return None
        words = self.scrubbed(self._read(picture) if text is None and picture else text or "") if self._reads else ""
        if not self._looks and not says(words):
            return None
        return example(row, words, picture if self._looks else None)

    def _read(self, picture: bytes) -> str:
        if self._engine is None and self._ocr is not None:
            with opening():
                self._engine = open_engine(self._ocr)
        try:
            return self._engine.read(picture).text if self._engine else ""
        except OcrFailed:
            return ""


def _plain(data: bytes, *, decoder: Decoder) -> bytes | None:
    """Return an image in the corpus's format, or ``None`` if it does not decode.

    An image that is already in that format is returned unchanged, because encoding it again would alter its pixels. It
    is recognised by the bytes before its pixels: size and tables, nothing else.
    """
    picture = decoder.decode(data)
    if not isinstance(picture, DecodedPicture):
        return None
    head = picture.data[: picture.data.index(START_OF_SCAN)]
    return data if data.startswith(head) else picture.data


def _bytes(cell: Any, *, row: int) -> bytes | None:
    if isinstance(cell, str):
        try:
            return base64.b64decode(cell, validate=True)
        except (binascii.Error, ValueError):
            raise Malformed(f"'image' of row {row} is not base64") from None
    if cell is not None and not isinstance(cell, bytes | bytearray | memoryview):
        raise Malformed(f"'image' of row {row} is neither bytes nor base64")
    return None if cell is None else bytes(cell)
