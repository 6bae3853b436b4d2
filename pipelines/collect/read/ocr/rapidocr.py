"""Read pictures with RapidOCR (PP-OCRv6 on ONNX Runtime), the default engine, with bundled weights.

SPEC.md 2.6 gives the settings and their measurement: detection side 736 with ``limit_type=max``, no orientation
classifier, one thread (one process per core is 1.9 times as fast on two cores; threads gain nothing).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import numpy as np

from pipelines.collect.read.engine import Engine, OcrReading
from pipelines.collect.read.layout import Box, compose
from pipelines.core.config.base import Positive, Section
from pipelines.core.errors import DataError, EngineMissing

# Ours, measured on 330 drawn memes: whole English lines score .90 and more (a label on an object .76); false text in
# pictures without text scores up to .90, but consists of a single character.
MIN_CONFIDENCE = 0.6
MIN_CONFIDENCE_SINGLE = 0.95
# Ours: a curved line in a rectangular crop scores below this.
MAYBE_CURVED = 0.8
# Ours, in letters per line height of a line's length: Latin lines have 1.4 to 2.6; scripts that the model does not know
# give blanks and have 0 to 0.6. A line that counts as unread is level, at least 2.5 heights long and at most a quarter
# of the picture high; anything else is a shape in the picture.
MIN_DENSITY = 0.8
MIN_LENGTH = 2.5
MAX_HEIGHT = 0.25


class RapidOcrEntry(Section):
    side: Positive = 736
    split_words_from: Positive = 8


class RapidOcr(Engine):
    """The RapidOCR engine with its two models loaded (about 0.5 GB); create one object per process."""

    Parameters = RapidOcrEntry

    def __init__(self, params: RapidOcrEntry) -> None:
        from pipelines.collect.read import rapidocr_parts as parts

        for path in parts.MODELS.values():
            if not path.is_file():
                raise EngineMissing(
                    engine="rapidocr",
                    detail=f"model {path.name} is missing",
                    install="install this project and rapidocr==3.10.0 again",
                )
        logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
        settings: dict[str, Any] = {
            "Global.log_level": "critical",
            "Global.use_cls": False,
            "Det.limit_type": "max",
            "Det.limit_side_len": params.side,
            # of the line's outline: a curved line fills little of its rectangle
            "Det.score_mode": "slow",
            # each line alone, at its own width: a batch pads all lines to the widest, and to 320 pixels
            "Rec.rec_batch_num": 1,
            "Rec.rec_img_shape": [3, parts.HEIGHT, parts.HEIGHT],
        }
        # With an explicit model path, RapidOCR does not download.
        settings |= {f"{part}.model_path": str(path) for part, path in parts.MODELS.items()}
        # ONNX Runtime changes how the thread that opens a session computes, so only this thread does
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rapidocr")
        self._engine = parts.opened(settings, thread=self._thread)
        self._detector = self._engine._load_det_model()
        parts.replace(self._detector, parts.KeptMask)
        parts.replace(self._engine._load_rec_model(), parts.SpacedDecode)
        self._split_words_from = params.split_words_from
        self.identity = (
            f"rapidocr-{version('rapidocr')}/onnxruntime-{version('onnxruntime')}"
            f"/side{params.side}/split{params.split_words_from}/curved2/spaces1/lines1/int8"
        )

    def read(self, data: bytes) -> OcrReading:
        import cv2

        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        if picture is None:
            raise DataError(detail="An image of the corpus cannot be decoded; rebuild its partition.")
        scaled, record = self._engine.preprocess_img(picture)
        detected, _, lines, _ = self._thread.submit(self._engine.run_ocr_steps, scaled, record).result()
        empty = detected.boxes is None or lines.txts is None
        rows = [] if empty else list(zip(detected.boxes, lines.txts, lines.scores, strict=True))
        self._read_curved(rows, scaled)
        boxes = (_box(*row, len(scaled)) for row in rows)
        height, width = scaled.shape[:2]
        split = self._split_words_from
        return compose([b for b in boxes if b], engine=self.identity, split_words_from=split, pixels=height * width)

    def _read_curved(self, rows: list[tuple[Any, str, float]], picture: Any) -> None:
        """Read curved lines again after straightening them; a line keeps the text of the higher confidence."""
        from pipelines.collect.read.rapidocr_parts import straightened

        mask = self._detector.postprocess_op.mask
        doubtful = [n for n, row in enumerate(rows) if row[2] < MAYBE_CURVED]
        strips = [(n, strip) for n in doubtful for strip in straightened(picture, mask, rows[n][0])]
        if strips:
            again = self._thread.submit(self._engine.recognize_txt, [strip for _, strip in strips]).result()
            for (n, _), text, score in zip(strips, again.txts, again.scores, strict=True):
                rows[n] = max(rows[n], (rows[n][0], text, score), key=lambda row: row[2])


def _box(corners: Any, text: str, confidence: float, height: int) -> Box | None:
    """Return the line, marked unread if the model found a line but hardly any letters, or None for a shape."""
    width, thickness = (max(1.0, float(np.linalg.norm(corners[0] - corners[i]))) for i in (1, 3))
    characters = sum(c.isalnum() for c in text)
    density = characters * min(width, thickness) / max(width, thickness)
    certain = MIN_CONFIDENCE if characters > 1 else MIN_CONFIDENCE_SINGLE
    read = bool(confidence >= certain and density >= MIN_DENSITY)
    if not read and (width < MIN_LENGTH * thickness or thickness > MAX_HEIGHT * height):
        return None
    (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
    return Box(text if read else "", float(confidence), float(left), float(top), float(right), float(bottom), read)
