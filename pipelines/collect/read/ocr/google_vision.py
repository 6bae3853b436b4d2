"""Read pictures with Google Cloud Vision, the engine of FigSIM's paper (section 5.1), which sends them to Google.

It needs a consent on record (``consents.google_vision``); no other engine sends anything. Credentials are Google's
standard ones (``GOOGLE_APPLICATION_CREDENTIALS``, ``gcloud auth application-default login`` or the machine's identity).
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from google.api_core import exceptions
from google.api_core.retry import Retry, if_exception_type
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.cloud import vision

from pipelines.collect.read.engine import Engine, OcrReading
from pipelines.collect.read.words import normalise, words
from pipelines.core.config.base import Section
from pipelines.core.errors import DataError, EngineMissing, SourceRefused, SourceThrottled, SourceUnavailable

SOURCE = "google_vision"
# Ours, as for the other engines: words below this are mostly textures of the picture.
MIN_CONFIDENCE = 0.6
# Google's quota is counted by the minute (cloud.google.com/vision/quotas).
QUOTA_SECONDS = 60.0
BAD_IMAGE = 3
BREAKS = vision.TextAnnotation.DetectedBreak.BreakType
SPACES = {BREAKS.SPACE, BREAKS.SURE_SPACE, BREAKS.EOL_SURE_SPACE, BREAKS.LINE_BREAK}


class GoogleVision(Engine):
    """A client of Google's method ``images:annotate`` with text detection; each picture is one request."""

    remote = True
    usd_per_1000 = 1.5  # Google's price list of 2025, without the thousand pictures a month that are free
    variables = ("GOOGLE_APPLICATION_CREDENTIALS",)

    def __init__(self, params: Section, *, client: Any = None, patience_seconds: float = 60.0) -> None:
        if client is None:
            try:
                client = vision.ImageAnnotatorClient()
            except DefaultCredentialsError:
                install = "set GOOGLE_APPLICATION_CREDENTIALS to the path of a service account's key"
                raise EngineMissing(engine=SOURCE, detail="no Google credentials found", install=install) from None
        self._client = client
        self._patience = patience_seconds
        self.identity = f"google_vision-v1/google-cloud-vision-{version('google-cloud-vision')}/text_detection"

    def read(self, data: bytes) -> OcrReading:
        """Return the text of a JPEG in the order in which Google returns it."""
        again = Retry(predicate=if_exception_type(exceptions.ServiceUnavailable), timeout=self._patience)
        context = {"text_detection_params": {"enable_text_detection_confidence_score": True}}
        try:
            answer = self._client.text_detection(
                image=vision.Image(content=data), image_context=context, retry=again, timeout=self._patience
            )
        except exceptions.TooManyRequests:
            raise SourceThrottled(source=SOURCE, retry_after=QUOTA_SECONDS) from None
        except (exceptions.Unauthorized, exceptions.Forbidden, exceptions.BadRequest, GoogleAuthError) as error:
            raise SourceRefused(source=SOURCE, detail=type(error).__name__) from None
        except exceptions.GoogleAPIError as error:
            raise SourceUnavailable(source=SOURCE, detail=type(error).__name__) from None
        if answer.error.code == BAD_IMAGE:
            raise DataError(detail="Google Vision cannot decode an image of the corpus; rebuild its partition.")
        if answer.error.code:
            raise SourceUnavailable(source=SOURCE, detail=f"status {answer.error.code} for one image")
        return parse(answer, engine=self.identity)


def parse(answer: Any, *, engine: str) -> OcrReading:
    """Convert one ``AnnotateImageResponse``: words above the threshold, with confidences weighted by letters."""
    pieces, letters, score, area = [], 0, 0.0, 0.0
    blocks = (block for page in answer.full_text_annotation.pages for block in page.blocks)
    for word in (word for block in blocks for paragraph in block.paragraphs for word in paragraph.words):
        if word.confidence >= MIN_CONFIDENCE:
            breaks = (symbol.property.detected_break.type_ in SPACES for symbol in word.symbols)
            pieces += [symbol.text + " " * spaced for symbol, spaced in zip(word.symbols, breaks, strict=True)]
            letters += len(word.symbols)
            score += len(word.symbols) * word.confidence
            area += _box(word)
    pixels = sum(page.width * page.height for page in answer.full_text_annotation.pages)
    text = normalise("".join(pieces))
    has_words = bool(words(text))
    return OcrReading(
        text=text if has_words else "",
        confidence=round(min(1.0, score / letters), 4) if has_words else 0.0,
        engine=engine,
        area=round(min(1.0, area / pixels), 4) if has_words and pixels else 0.0,
    )


def _box(word: Any) -> float:
    corners = word.bounding_box.vertices
    wide, high = ([getattr(corner, axis) for corner in corners] or [0] for axis in ("x", "y"))
    return float((max(wide) - min(wide)) * (max(high) - min(high)))
