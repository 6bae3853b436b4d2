"""Read pictures with RapidOCR (PP-OCRv6 on ONNX Runtime), the default engine, with bundled weights.

SPEC.md 2.6 gives the settings and their measurement: detection side 736 with ``limit_type=max``, no orientation
classifier, one thread (one process per core is 1.9 times as fast on two cores; threads gain nothing).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from pipelines.collect.read.engine import Engine, OcrReading
from pipelines.core.config.base import Positive, Section
from pipelines.core.errors import DataError, EngineMissing

# Ours: a curved line in a rectangular crop scores below this.
MAYBE_CURVED = 0.8


class RapidOcrEntry(Section):
    side: Positive = 736
    split_words_from: Positive = 8


class RapidOcr(Engine):
    """The RapidOCR engine with its two models loaded (about 0.5 GB); create one object per process."""

    Parameters = RapidOcrEntry

    def __init__(self, params: RapidOcrEntry) -> None:
        from pipelines.collect.read import rapidocr_parts as parts

        self._parts = parts
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
        from pipelines.collect.read.layout import compose

        picture = self._parts.decoded(data)
        if picture is None:
            raise DataError(detail="An image of the corpus cannot be decoded; rebuild its partition.")
        scaled, record = self._engine.preprocess_img(picture)
        detected, _, lines, _ = self._thread.submit(self._engine.run_ocr_steps, scaled, record).result()
        empty = detected.boxes is None or lines.txts is None
        rows = [] if empty else list(zip(detected.boxes, lines.txts, lines.scores, strict=True))
        self._read_curved(rows, scaled)
        boxes = (self._parts.box(*row, len(scaled)) for row in rows)
        height, width = scaled.shape[:2]
        split = self._split_words_from
        return compose([b for b in boxes if b], engine=self.identity, split_words_from=split, pixels=height * width)

    def _read_curved(self, rows: list[tuple[Any, str, float]], picture: Any) -> None:
        """Read curved lines again after straightening them; a line keeps the text of the higher confidence."""
        mask = self._detector.postprocess_op.mask
        doubtful = [n for n, row in enumerate(rows) if row[2] < MAYBE_CURVED]
        strips = [(n, strip) for n in doubtful for strip in self._parts.straightened(picture, mask, rows[n][0])]
        if strips:
            again = self._thread.submit(self._engine.recognize_txt, [strip for _, strip in strips]).result()
            for (n, _), text, score in zip(strips, again.txts, again.scores, strict=True):
                rows[n] = max(rows[n], (rows[n][0], text, score), key=lambda row: row[2])
