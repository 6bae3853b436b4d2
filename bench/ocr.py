"""Measure OCR of drawn memes, one thread: against denormal numbers kept, lines in batches, a detector of floats.

Texts and confidences without denormal numbers must be equal. The better of two runs each. ``ocr_900`` reads pictures of
the second world (bench/second_world), enlarged to 900 pixels, the longer side of many memes on Reddit.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import subprocess
import sys
import time
from random import Random

import onnxruntime
from PIL import Image

from bench.second_world import world
from crisis_corpus_sandbox.reddit.captions import sentence
from crisis_corpus_sandbox.reddit.draw import Meme, draw
from pipelines.collect.read.ocr.rapidocr import RapidOcr, RapidOcrEntry
from pipelines.collect.read.rapidocr_parts import MODELS

PICTURES = 24
ROUNDS = 2
STYLES = ("capitals", "bar", "tweet")
SIDE, SEED = 900, 5
# The pictures, the engine that reads them -> names of the measure and of the baseline.
BASELINES = {
    ("drawn", "denormals"): ("ocr", "denormal numbers kept"),
    ("drawn", "batches"): ("ocr_lines", "lines in batches of six"),
    ("drawn", "floats"): ("ocr_detector", "detector in floating point"),
    ("enlarged", "floats"): ("ocr_900", "detector in floating point"),
}


def enlarged() -> list[bytes]:
    """Enlarge pictures of the second world; quality 90."""
    files = []
    for picture in itertools.islice(world.build(SEED), PICTURES):
        image = Image.open(io.BytesIO(picture.data)).convert("RGB")
        factor = SIDE / max(image.size)
        out = io.BytesIO()
        size = (round(image.width * factor), round(image.height * factor))
        image.resize(size, Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
        files.append(out.getvalue())
    return files


def drawn() -> list[bytes]:
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


def read(engine: RapidOcr, files: list[bytes]) -> tuple[float, str]:
    """Return the CPU seconds and a digest of all readings."""
    readings, start = hashlib.sha256(), time.process_time()
    for data in files:
        readings.update(repr(engine.read(data)).encode())
    return time.process_time() - start, readings.hexdigest()


def measured(*which: str) -> tuple[float, str]:
    """Return :func:`read` of one engine in a process of its own: the setting holds for a whole thread."""
    done = subprocess.run([sys.executable, __file__, *which], stdout=subprocess.PIPE, check=True)
    seconds, digest = json.loads(done.stdout)
    return seconds, digest


def batched(engine: RapidOcr) -> RapidOcr:
    """Return the engine with RapidOCR's own batches: lines are as wide as the widest, and at least 320 pixels."""
    recogniser = engine._engine.text_rec
    recogniser.rec_batch_num, recogniser.rec_image_shape = 6, [3, 48, 320]
    return engine


def main() -> None:
    """Print one JSON line for each baseline."""
    sides = [*BASELINES, ("drawn", "ours"), ("enlarged", "ours")]
    runs = [{side: measured(*side) for side in sides} for _ in range(ROUNDS)]
    best = {side: min(run[side] for run in runs) for side in sides}
    assert best["drawn", "ours"][1] == best["drawn", "denormals"][1]
    for side, (name, baseline) in BASELINES.items():
        ours, other = best[side[0], "ours"][0], best[side][0]
        line = {
            "name": name,
            "ours": round(PICTURES / ours, 2),
            "baseline": round(PICTURES / other, 2),
            "baseline_name": baseline,
            "ratio": round(other / ours, 2),
            "unit": "pictures/s per core",
        }
        print(json.dumps(line))


if __name__ == "__main__":
    match sys.argv[1:]:
        case [pictures, which]:
            if which == "denormals":
                onnxruntime.SessionOptions = Denormals
            if which == "floats":
                MODELS["Det"] = MODELS["Rec"].with_name("PP-OCRv6_det_small.onnx")
            engine = RapidOcr(RapidOcrEntry())
            found = read(
                batched(engine) if which == "batches" else engine, {"drawn": drawn, "enlarged": enlarged}[pictures]()
            )
            print(json.dumps(found))
        case _:
            main()
