"""Read pictures with RapidOCR (PP-OCRv6 on ONNX Runtime), the default engine, with bundled weights.

SPEC.md 2.6 gives the settings and their measurement: detection side 736 with ``limit_type=max``, no orientation
classifier, one thread (one process per core is 1.9 times as fast on two cores; threads gain nothing).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime
import rapidocr
from omegaconf import flag_override
from rapidocr.ch_ppocr_det.utils import DetPreProcess
from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode

from pipelines.config.collect import Ocr
from pipelines.errors import DataError, EngineMissing
from pipelines.extract.ocr import OcrReading
from pipelines.extract.ocr.curved import HEIGHT, KeptMask, straightened
from pipelines.extract.ocr.layout import Box, compose

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
# Ours: the probability from which on a space is read where the recogniser prefers to read nothing.
MAYBE_SPACE = 0.2
# The detector in 8-bit integers, made by bench/quantize_ocr.py; the recogniser is the wheel's.
MODELS = {
    "Det": Path(__file__).with_suffix(".detection.onnx"),
    "Rec": Path(rapidocr.__file__).parent / "models" / "PP-OCRv6_rec_small.onnx",
}


class SpacedDecode(CTCLabelDecode):  # type: ignore[misc]
    """The recogniser's decoding, which also reads a space that is the second choice after a blank."""

    def __call__(self, preds: Any, return_word_box: bool = False, **line: Any) -> Any:
        """Return the lines and their words' places."""
        first = preds.argmax(axis=2)
        certain = np.take_along_axis(preds, first[..., None], axis=2)[..., 0]
        first[(first == self.dict["blank"]) & (preds[:, :, -1] >= MAYBE_SPACE)] = self.dict[" "]
        ratios = line.get("wh_ratio_list", (1.0,)), line.get("max_wh_ratio", 1.0)
        return self.decode(first, certain, return_word_box, *ratios, remove_duplicate=True)


class TablePreProcess(DetPreProcess):  # type: ignore[misc]
    """The detector's pre-processing by a table of the 256 levels: the same numbers in a third of the time."""

    def __call__(self, img: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32] | None:
        """Return the resized picture as planes (1, 3, height, width), or None if it is too thin."""
        resized = self.resize(img)
        if resized is None:
            return None
        planes = np.empty((1, 3, *resized.shape[:2]), np.float32)
        levels = self.normalize(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float32)
        for plane, channel, table in zip(planes[0], cv2.split(resized), levels.T, strict=True):
            cv2.LUT(channel, table, dst=plane)
        return planes


class RapidOcr:
    """The RapidOCR engine with its two models loaded (about 0.5 GB); create one object per process."""

    def __init__(self, params: Ocr) -> None:
        """Load the bundled models.

        Raises:
            EngineMissing: a model is not installed.
        """
        for path in MODELS.values():
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
            "Rec.rec_img_shape": [3, HEIGHT, HEIGHT],
        }
        # With an explicit model path, RapidOCR does not download.
        settings |= {f"{part}.model_path": str(path) for part, path in MODELS.items()}
        cv2.setNumThreads(1)
        self._engine = rapidocr.RapidOCR(params=settings)
        # ONNX Runtime changes how the thread that opens a session computes, so only this thread does
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rapidocr")
        with flag_override(self._engine.cfg, "allow_objects", True):
            for part, path in MODELS.items():
                self._engine.cfg[part].session = self._thread.submit(_session, path).result()
        self._detector = self._engine._load_det_model()
        _replace(self._detector, KeptMask)
        prepare = TablePreProcess(params.side, "max", self._detector.mean, self._detector.std)
        self._detector.get_preprocess = lambda: prepare
        _replace(self._engine._load_rec_model(), SpacedDecode)
        self._split_words_from = params.split_words_from
        self.identity = (
            f"rapidocr-{version('rapidocr')}/onnxruntime-{onnxruntime.__version__}"
            f"/side{params.side}/split{params.split_words_from}/curved2/spaces1/lines1/int8"
        )

    def read(self, data: bytes) -> OcrReading:
        """Return the text of a JPEG.

        Raises:
            DataError: the bytes are not a picture; as they come from the decoder, the data is damaged.
        """
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        if picture is None:
            raise DataError(detail="An image of the corpus cannot be decoded; rebuild its partition.")
        scaled, record = self._engine.preprocess_img(picture)
        found, _, lines, _ = self._thread.submit(self._engine.run_ocr_steps, scaled, record).result()
        empty = found.boxes is None or lines.txts is None
        rows = [] if empty else list(zip(found.boxes, lines.txts, lines.scores, strict=True))
        self._read_curved(rows, scaled)
        boxes = (_box(*row, len(scaled)) for row in rows)
        height, width = scaled.shape[:2]
        split = self._split_words_from
        return compose([b for b in boxes if b], engine=self.identity, split_words_from=split, pixels=height * width)

    def _read_curved(self, rows: list[tuple[Any, str, float]], picture: Any) -> None:
        """Read curved lines again after straightening them; a line keeps the text of the higher confidence."""
        mask = self._detector.postprocess_op.mask
        doubtful = [n for n, row in enumerate(rows) if row[2] < MAYBE_CURVED]
        strips = [(n, strip) for n in doubtful for strip in straightened(picture, mask, rows[n][0])]
        if strips:
            again = self._thread.submit(self._engine.recognize_txt, [strip for _, strip in strips]).result()
            for (n, _), text, score in zip(strips, again.txts, again.scores, strict=True):
                rows[n] = max(rows[n], (rows[n][0], text, score), key=lambda row: row[2])


def _replace(model: Any, kind: type[Any]) -> None:
    """Make the model's post-processing an object of a subclass of its class."""
    with_settings = object.__new__(kind)
    vars(with_settings).update(vars(model.postprocess_op))
    model.postprocess_op = with_settings


def _session(path: Path) -> onnxruntime.InferenceSession:
    """Open a model with one thread, ONNX Runtime's memory arena, and denormal numbers as zero.

    The models produce many denormal numbers, which x86 processes slowly: without them a picture takes 54 % of the time
    (23 drawn memes, equal texts and confidences; docs/log/performance.md). The arena, which RapidOCR turns off, keeps its
    memory; otherwise the detector gets 60 MB from the kernel for each picture and gives them back.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


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


engine = RapidOcr
