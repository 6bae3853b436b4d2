"""Serve registered models of memes: decode, OCR and scrub the input as the corpus does."""

from __future__ import annotations

import base64
import binascii
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.torch import load_file

from crisis_corpus.model_opening import opening
from pipelines.collect.read.confined_engine import open_engine
from pipelines.collect.read.decode import DecodedPicture, Decoder
from pipelines.collect.read.engine import Engine, OcrFailed
from pipelines.collect.scrub.scrub import scrub
from pipelines.core.errors import ConfigError
from pipelines.datasets.example import TEST, Example
from pipelines.metrics.decoding import decide
from pipelines.models import build
from pipelines.packaging.model_described import REST, Described, asked
from pipelines.packaging.model_pyfunc import SILENT, Asker, Malformed, cells, says, texts
from pipelines.train.predictors.inference import AT_ONCE, predict
from pipelines.train.predictors.prediction import VOTE, Prediction

HEAD = "head."
START_OF_SCAN = b"\xff\xda"


def opened(pack: Path, described: Described) -> Asker:
    """Load the meme classifier of a model package, and return its predict function.

    The encoder's weights are in the format of ``transformers``, those of the head in ``rest.safetensors``.
    """
    _, task = asked(pack, described=described)
    spec = described.spec.model_copy(update={"base": str(pack)})
    built = build(spec, task=task, seed=0, folder=pack, max_tokens=described.max_tokens or 0)
    rest = load_file(pack / REST) if (pack / REST).is_file() else {}
    if {name for name in built.module.state_dict() if name.startswith(HEAD)} != set(rest):
        raise ConfigError("BaseUnfit", base=described.base, detail=f"{REST} does not have the weights of its head")
    built.module.load_state_dict(rest, strict=False)
    # float64: see ``decide``
    thresholds = np.array(described.thresholds or (), np.float64)
    seen = ExampleReader(described)

    def ask(frame: pd.DataFrame) -> list[Prediction]:
        examples = seen.examples(frame)
        readable = [example for example in examples if example is not None]
        scores = predict(built, examples=readable, task=task, batch=described.batch // AT_ONCE)
        built.forget()
        decided = decide(scores, task=task, thresholds=thresholds)
        answers = map(Prediction, repeat(VOTE), decided, map(tuple, scores.tolist()))
        return [SILENT if example is None else next(answers) for example in examples]

    return ask


class ExampleReader:
    """Convert input rows (image, text) to a classifier's examples, empty rows to ``None``; not thread-safe."""

    def __init__(self, described: Described) -> None:
        """Take the settings of decoding, OCR and scrubbing; the OCR engine is opened on first use."""
        if described.decode is None:
            raise ValueError(described.kind)
        # consumers may have no Linux; a warning says if a picture is read without a sandbox
        loose = {"sandbox": "accepted_without"}
        self._decode = described.decode.model_copy(update=loose)
        self._ocr = described.ocr and described.ocr.model_copy(update=loose)
        self._kinds = described.scrub
        self._looks, self._reads = described.kind in ("image", "fusion"), described.kind in ("text", "fusion")
        self._engine: Engine | None = None

    def examples(self, frame: pd.DataFrame) -> list[Example | None]:
        """Return the example of each row, ``None`` for a row without content.

        Raises:
            Malformed: an image is neither bytes nor base64, a text is not a string, or a text is missing and the model
                has no OCR.
        """
        words = texts(frame, "text")
        pictures = [_bytes(cell, row=row) for row, cell in enumerate(cells(frame, "image"))]
        if self._reads and self._ocr is None and None in words:
            raise Malformed(f"'text' of row {words.index(None)} is missing, and this model has no OCR of its own")
        wanted = [data if self._looks or text is None else None for data, text in zip(pictures, words, strict=True)]
        with Decoder(self._decode) if any(wanted) else nullcontext() as decoder:
            decoded = [_plain(data, decoder=decoder) if data and decoder else None for data in wanted]
        return [self._example(row, *cell) for row, cell in enumerate(zip(decoded, words, strict=True))]

    def _example(self, row: int, picture: bytes | None, text: str | None) -> Example | None:
        if picture is None and (self._looks or text is None):
            return None
        words = ""
        if self._reads:
            words = scrub(self._read(picture) if text is None and picture else text or "", kinds=self._kinds)[0]
            if not self._looks and not says(words):
                return None
        return Example((str(row), 0), TEST, words, picture if self._looks else None, None, "")

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
