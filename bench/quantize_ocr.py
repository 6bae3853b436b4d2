"""Make the OCR detector in 8-bit integers, ``pipelines/collect/read/rapidocr_parts.detection.onnx``, from RapidOCR's.

``uv run --with onnx==1.23.2 python bench/quantize_ocr.py``. The ranges of activations are measured on memes of the
second world, seed 41. The weights keep 7 bits: the sums of 8-bit ones overflow in AVX2, which has no VNNI, so that
texts would depend on the CPU. The recogniser stays in floating point: in integers it reads one word in a hundred less.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
import onnxruntime
import rapidocr
from onnxruntime import quantization
from rapidocr.ch_ppocr_det.utils import DetPreProcess

from bench.second_world import world
from pipelines.collect.read.ocr.rapidocr import RapidOcrEntry
from pipelines.collect.read.rapidocr_parts import MODELS

SEED, PICTURES = 41, 24
# RapidOCR's, by channel
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# The kernels that ONNX Runtime has in integers and that this model uses for whole pictures
OPERATORS = ["Conv", "Add", "MaxPool", "Concat", "Resize"]
# The oldest version with a scale for each channel is 13; the model has 11.
OPSET = 17


class Inputs(quantization.CalibrationDataReader):  # type: ignore[misc]
    """The detector's inputs for the pictures."""

    def __init__(self) -> None:
        self._inputs = self._prepared()

    def _prepared(self) -> Iterator[dict[str, Any]]:
        prepare = DetPreProcess(RapidOcrEntry().side, "max", MEAN, DEVIATION)
        for picture in world.build(SEED, count=PICTURES, foreign=0, copies=0):
            yield {"x": prepare(cv2.imdecode(np.frombuffer(picture.data, np.uint8), cv2.IMREAD_COLOR))}

    def get_next(self) -> dict[str, Any] | None:
        """Return the next input."""
        return next(self._inputs, None)


def fused(source: Path, folder: Path) -> Path:
    """Return the model with GELU as one operator, which quantization would take apart, and a newer opset."""
    import onnx

    newer, out = folder / "newer.onnx", folder / "fused.onnx"
    onnx.save(onnx.version_converter.convert_version(onnx.load(source), OPSET), newer)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(out)
    of_this_machine = ["ConvActivationFusion", "ConvAddActivationFusion", "NchwcTransformer"]
    cpu = ["CPUExecutionProvider"]
    onnxruntime.InferenceSession(str(newer), options, providers=cpu, disabled_optimizers=of_this_machine)
    return out


def main() -> None:
    """Write the model."""
    source = Path(rapidocr.__file__).parent / "models" / "PP-OCRv6_det_small.onnx"
    with TemporaryDirectory() as folder:
        quantization.quantize_static(
            fused(source, Path(folder)),
            MODELS["Det"],
            Inputs(),
            op_types_to_quantize=OPERATORS,
            per_channel=True,
            reduce_range=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )


if __name__ == "__main__":
    main()
