"""Measure OCR of drawn memes, one thread: against denormal numbers kept, lines in batches, a detector of floats.

Texts and confidences without denormal numbers must be equal. The better of two runs each.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import time
from random import Random

import onnxruntime

from pipelines.config.params import load
from pipelines.extract.ocr.rapidocr import MODELS, RapidOcr
from pipelines.sandbox.reddit.caption_grammar import sentence
from pipelines.sandbox.reddit.draw import Meme, draw

PICTURES = 24
ROUNDS = 2
STYLES = ("capitals", "bar", "tweet")
BASELINES = {
    "denormals": ("ocr", "denormal numbers kept"),
    "batches": ("ocr_lines", "lines in batches of six"),
    "floats": ("ocr_detector", "detector in floating point"),
}


def pictures() -> list[bytes]:
    """Draw memes of three styles with two sentences each, 640 x 640, quality 90."""
    rng, files = Random(11), []
    for seed in range(PICTURES):
        meme = Meme(seed, STYLES[seed % len(STYLES)], text=(sentence(rng), sentence(rng)))
        out = io.BytesIO()
        draw(meme).save(out, "JPEG", quality=90)
        files.append(out.getvalue())
    return files


class Denormals(onnxruntime.SessionOptions):  # type: ignore[misc]
    """Options of a session that keeps denormal numbers; the others are equal."""

    def add_session_config_entry(self, *_: str) -> None:
        """Ignore our one entry."""


def read(engine: RapidOcr) -> tuple[float, str]:
    """Return the CPU seconds and a digest of all readings."""
    files = pictures()
    readings, start = hashlib.sha256(), time.process_time()
    for data in files:
        readings.update(repr(engine.read(data)).encode())
    return time.process_time() - start, readings.hexdigest()


def measured(which: str) -> tuple[float, str]:
    """Return :func:`read` of one engine in a process of its own: the setting holds for a whole thread."""
    done = subprocess.run([sys.executable, __file__, which], stdout=subprocess.PIPE, check=True)
    seconds, digest = json.loads(done.stdout)
    return seconds, digest


def batched(engine: RapidOcr) -> RapidOcr:
    """Return the engine with RapidOCR's own batches: lines are as wide as the widest, and at least 320 pixels."""
    recogniser = engine._engine.text_rec
    recogniser.rec_batch_num, recogniser.rec_image_shape = 6, [3, 48, 320]
    return engine


def main() -> None:
    """Print one JSON line for each baseline."""
    runs = [{which: measured(which) for which in ("ours", *BASELINES)} for _ in range(ROUNDS)]
    best = {which: min(run[which] for run in runs) for which in runs[0]}
    assert best["ours"][1] == best["denormals"][1]
    for which, (name, baseline) in BASELINES.items():
        line = {
            "name": name,
            "ours": round(PICTURES / best["ours"][0], 2),
            "baseline": round(PICTURES / best[which][0], 2),
            "baseline_name": baseline,
            "ratio": round(best[which][0] / best["ours"][0], 2),
            "unit": "pictures/s per core",
        }
        print(json.dumps(line))


if __name__ == "__main__":
    if sys.argv[1:]:
        if sys.argv[1] == "denormals":
            onnxruntime.SessionOptions = Denormals
        if sys.argv[1] == "floats":
            MODELS["Det"] = MODELS["Rec"].with_name("PP-OCRv6_det_small.onnx")
        engine = RapidOcr(load().images.ocr)
        print(json.dumps(read(batched(engine) if sys.argv[1] == "batches" else engine)))
    else:
        main()
