"""Read pictures with Tesseract, a Debian package with a third of RapidOCR's memory and less recall.

Two passes read the two kinds of meme captions: the grey picture for dark text on light paper, and only the picture's
near-white parts for white outlined capitals, of which the first pass reads 2 %. A word that both passes find is taken
from the pass with the higher confidence. Measured on 67 drawn memes, share of words read in paper styles / outlined
capitals: grey psm 3 .97 / .02, grey psm 11 .95 / .06, white twice enlarged psm 11 .01 / .97, white soft-edged
.01 / .87.
"""

from __future__ import annotations

import io
import os
from typing import Any

import pytesseract
from PIL import Image, ImageChops

from pipelines.collect.read.engine import Engine, OcrReading
from pipelines.collect.read.layout import Box, compose
from pipelines.core.config.base import Positive, Section
from pipelines.core.errors import DataError, EngineMissing, StepFailed

# Ours: on the drawn memes, words below this were mostly false and words above it mostly right.
MIN_CONFIDENCE = 0.6
# Ours: words of low confidence count as unread text if they are at least this long and this many, else as noise
# (Russian and Ukrainian captions give 2 to 12 of them, pictures without text up to 2).
UNREAD_LETTERS, UNREAD_WORDS = 3, 2
# Ours: the outlined capitals of memes are white; despite JPEG noise, all three channels stay above this level.
WHITE = 230
# Whole page, and scattered words (tesseract --help-psm).
PAPER, SCATTERED = 3, 11
SAME_WORD = 0.5
TIMEOUT_SECONDS = 60


class TesseractEntry(Section):
    split_words_from: Positive = 8


class Tesseract(Engine):
    """The ``tesseract`` program with its English model, in one thread; it runs twice per picture."""

    program = "tesseract"
    Parameters = TesseractEntry

    def __init__(self, params: TesseractEntry) -> None:
        try:
            version = str(pytesseract.get_tesseract_version())
            languages = pytesseract.get_languages()
        except pytesseract.TesseractNotFoundError:
            detail = "the program tesseract is not on PATH"
            raise EngineMissing(
                engine="tesseract", detail=detail, install="run `apt-get install tesseract-ocr`"
            ) from None
        if "eng" not in languages:
            detail = "its English model is missing"
            raise EngineMissing(engine="tesseract", detail=detail, install="run `apt-get install tesseract-ocr-eng`")
        # Tesseract's own threads slow it down next to other processes; pytesseract passes the environment on.
        os.environ.setdefault("OMP_THREAD_LIMIT", "1")
        self._split_words_from = params.split_words_from
        self.identity = (
            f"tesseract-{version}/pytesseract-{pytesseract.__version__}/eng"
            f"/psm{PAPER}+white{WHITE}x2psm{SCATTERED}/split{params.split_words_from}"
        )

    def read(self, data: bytes) -> OcrReading:
        try:
            picture = Image.open(io.BytesIO(data), formats=["JPEG"]).convert("RGB")
        except OSError:
            raise DataError(detail="An image of the corpus cannot be decoded; rebuild its partition.") from None
        boxes = _words(picture.convert("L"), mode=PAPER, scale=1) + _words(_white(picture), mode=SCATTERED, scale=2)
        pixels = picture.width * picture.height
        split = self._split_words_from
        return compose(_surest(boxes), engine=self.identity, split_words_from=split, pixels=pixels)


def _white(picture: Image.Image) -> Image.Image:
    """Return the near-white parts, black on white and twice enlarged, which leaves the letters of outlined capitals."""
    red, green, blue = picture.split()
    darkest = ImageChops.darker(ImageChops.darker(red, green), blue)
    mask = darkest.point([255 if level < WHITE else 0 for level in range(256)])
    return mask.resize((mask.width * 2, mask.height * 2), Image.Resampling.LANCZOS)


def _words(picture: Image.Image, *, mode: int, scale: int) -> list[Box]:
    # White text has a separate pass, so Tesseract's own inversion would only cost time.
    config = f"--oem 1 --psm {mode} -c tessedit_do_invert=0"
    try:
        table: dict[str, list[Any]] = pytesseract.image_to_data(
            picture, lang="eng", config=config, timeout=TIMEOUT_SECONDS, output_type=pytesseract.Output.DICT
        )
    except (pytesseract.TesseractError, RuntimeError):
        raise StepFailed(command="tesseract", returncode="an error") from None
    columns = (table[name] for name in ("text", "conf", "left", "top", "width", "height"))
    boxes = []
    for text, confidence, left, top, width, height in zip(*columns, strict=True):
        characters = sum(c.isalnum() for c in text)
        read = confidence >= MIN_CONFIDENCE * 100
        if characters >= (1 if read else UNREAD_LETTERS):
            right, bottom = (left + width) / scale, (top + height) / scale
            shown = text.strip() if read else ""
            boxes.append(Box(shown, confidence / 100, left / scale, top / scale, right, bottom, read))
    return boxes


def _surest(boxes: list[Box]) -> list[Box]:
    """Return the boxes that no box of higher confidence covers by half; unread ones only if there are enough."""
    kept: list[Box] = []
    for box in sorted(boxes, key=lambda b: (-b.confidence, b.top, b.left)):
        if all(box.shared_with(other) < SAME_WORD for other in kept):
            kept.append(box)
    enough = sum(not box.read for box in kept) >= UNREAD_WORDS
    return [box for box in kept if box.read or enough]
