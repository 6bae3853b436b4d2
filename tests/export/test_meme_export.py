"""Text and image classifiers of memes load in ``transformers`` and answer as the registered models do."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel, AutoModelForImageClassification, AutoTokenizer
from transformers import AutoModelForSequenceClassification as AutoTexts

from pipelines.registry.candidate import Context
from pipelines.registry.packaging import model
from pipelines.registry.packaging.register import put
from pipelines.release.export import model_folder
from tests.registry.test_pack_memes import NAME, Lab, lab

pytestmark = pytest.mark.faults
__all__ = ["lab"]


def exported(lab: Lab, name: str, *, context: Context, tmp_path: Path) -> tuple[Path, Path]:
    """Register a model, and export it; return the folder and that of the saved model."""
    saved = model.save(lab.pack(name, to=tmp_path / "pack"), to=tmp_path / "saved")
    version, _ = put(NAME, saved, context=context, who="tester", why="a test")
    model_folder.run(NAME, version.version, repo="my-lab/memes", to=tmp_path / "out", context=context)
    return tmp_path / "out", saved


def registered(saved: Path, rows: list[dict[str, Any]]) -> Any:
    return np.array(list(mlflow.pyfunc.load_model(str(saved)).predict(pd.DataFrame(rows))["probabilities"]))


def probabilities(folder: Path, logits: Any) -> Any:
    single = json.loads((folder / "config.json").read_bytes())["problem_type"] == "single_label_classification"
    return (torch.softmax(logits, dim=-1) if single else torch.sigmoid(logits)).numpy()


def test_a_text_classifier(lab: Lab, context: Context, tmp_path: Path, offline: None) -> None:
    folder, saved = exported(lab, "tiny-text", context=context, tmp_path=tmp_path)
    told = [row for row in lab.inputs("test").values() if row["text"]]
    reader = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = AutoTexts.from_pretrained(folder)(
            **reader([row["text"] for row in told], padding=True, return_tensors="pt")
        ).logits
    found = probabilities(folder, logits)
    np.testing.assert_allclose(found, registered(saved, told), atol=1e-5)
    assert len(told) > 5 and isinstance(AutoModel.from_pretrained(folder), torch.nn.Module)
    named = json.loads((folder / "config.json").read_bytes())["id2label"]
    assert list(named.values()) == list(json.loads((folder / "thresholds.json").read_bytes()))


def test_an_image_classifier(lab: Lab, context: Context, tmp_path: Path, offline: None) -> None:
    folder, saved = exported(lab, "tiny-image", context=context, tmp_path=tmp_path)
    rows = list(lab.inputs("test").values())
    reader = AutoImageProcessor.from_pretrained(folder, backend="pil")
    pictures = [Image.open(io.BytesIO(row["image"])).convert("RGB") for row in rows]
    with torch.no_grad():
        logits = AutoModelForImageClassification.from_pretrained(folder)(**reader(pictures, return_tensors="pt")).logits
    # the registered model rounds resized pixels to bytes
    np.testing.assert_allclose(probabilities(folder, logits), registered(saved, rows), atol=2e-3)
    assert "image-classification" in (folder / "README.md").read_text()
