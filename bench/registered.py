"""What a consumer of a registered model of posts waits for: loading it in a fresh process, and answers by the second.

Against a plain ``transformers`` text-classification pipeline with the same weights, tokens, posts and batches. Ours
scrubs the posts, calibrates, and decides on a set that the scheme allows; theirs gives sigmoids. Weights are random, of
the shape of the sandbox's encoder (``tiny``) and of MiniLM's (``small``: 6 layers of 384); posts are the sandbox's, of
a few words to a few hundred.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers

from pipelines.label.post import Post
from pipelines.params import load
from pipelines.registry import contents, model
from pipelines.registry.model_described import SCHEME, Described, Trained
from pipelines.registry.versions import listing
from pipelines.sandbox import labels, narratives
from pipelines.sections import EncoderModel
from pipelines.taxonomy import load as load_scheme
from pipelines.taxonomy.files import FOLDER
from pipelines.train import floors, tiny
from pipelines.train.calibration import Calibration
from pipelines.train.task import task_of

ROOT = Path(__file__).resolve().parents[1]
POSTS, ROUNDS, BATCH, TOKENS, FRESH = 256, 3, 32, 512, 3
SHAPES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2},
    "small": {"hidden_size": 384, "intermediate_size": 576, "num_hidden_layers": 6, "num_attention_heads": 6},
}
# A fresh process; the clock starts with the interpreter. As the registry's client loads: MLflow's comparison of all
# that is installed with requirements.txt, which warns and does no more, takes most of a second here.
OURS = """
from mlflow import pyfunc
import pandas as pd
model = pyfunc.load_model({folder!r}, suppress_warnings=True)
print(len(model.predict(pd.DataFrame([{post!r}]))), flush=True)
"""
THEIRS = """
from transformers import pipeline
asked = pipeline("text-classification", model={folder!r}, top_k=None, function_to_apply="sigmoid", device="cpu")
print(len(asked([{text!r}])), flush=True)
"""


def packed(shape: str, *, to: Path) -> Path:
    """Write the pack of an encoder with random weights."""
    task, params = task_of(load_scheme("cradle"), "labels"), load(ROOT)
    to.mkdir()
    with tempfile.TemporaryDirectory() as base:
        tiny.make("tiny:modernbert", folder=Path(base), seed=1)
        tokens = transformers.AutoTokenizer.from_pretrained(base)
    tokens.model_max_length = TOKENS
    tokens.save_pretrained(to)
    torch.manual_seed(1)
    config = transformers.ModernBertConfig(
        vocab_size=len(tokens), pad_token_id=tokens.pad_token_id, num_labels=len(task.labels),
        cls_token_id=tokens.cls_token_id, sep_token_id=tokens.sep_token_id, **SHAPES[shape],
    )  # fmt: skip
    transformers.ModernBertForSequenceClassification(config).save_pretrained(to)
    spec = EncoderModel(
        kind="encoder", base=shape, batch=BATCH, max_tokens=TOKENS, learning_rate=1e-5, warmup=0, weight_decay=0,
        epochs=1,
    )  # fmt: skip
    identity = Calibration("multi", np.tile([1.0, 0.0], (len(task.labels), 1)))
    floors.save(to, task=task, thresholds=np.full(len(task.labels), np.inf), calibration=identity.as_json())
    Described(
        name="crisis-posts", corpus="posts", kind="encoder", task=task.key, model=shape, subset="consensus", base=shape,
        seed=1, labels=task.labels, definitions={}, scheme="cradle", scheme_digest="0" * 64, data_commit="none",
        split_digest="0" * 64, votes_digest=None, train=Trained(records=0, digest="0" * 64), spec=spec,
        scrub=params.collect.scrub, batch=BATCH,
    ).write(to)  # fmt: skip
    shutil.copy(FOLDER / "cradle.yaml", to / SCHEME)
    pq.write_table(pa.table({"record_id": pa.array([], pa.string())}), to / contents.RECORDS)
    (to / contents.CARD).write_text(json.dumps({"for": "measuring"}))
    (to / contents.PAGE).write_text("# For measuring\n")
    (to / contents.FILES).write_text(json.dumps(listing(to)))
    return to


def posts() -> list[dict[str, str]]:
    """Return posts of very different lengths, as people's are."""
    rng = random.Random(1)
    chosen = labels.cradle(POSTS, rng=rng)
    told = [narratives.write(c, rng=rng, words=min(400, int(rng.lognormvariate(4.3, 0.9)) + 5)) for c in chosen]
    return [{"title": post.title, "body": post.body} for post in told]


def fresh(code: str, *, folder: Path) -> float:
    """Return the seconds until a new process has its first answer; how it ends is of no account."""
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        said = child.stdout.readline() if child.stdout else b""
        seconds = time.monotonic() - began
    assert said == b"1\n", "it did not answer"
    return seconds


def rates(saved: Path, pack: Path, *, asked: list[dict[str, str]]) -> tuple[float, float]:
    """Return posts a second of both, measured in turn."""
    frame, texts = pd.DataFrame(asked), [Post("", **post).text for post in asked]
    ours = mlflow.pyfunc.load_model(str(saved))
    theirs = transformers.pipeline(
        "text-classification", model=str(pack), top_k=None, function_to_apply="sigmoid", device="cpu", batch_size=BATCH
    )  # fmt: skip
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(ROUNDS):
        for name, run in {
            "ours": lambda: ours.predict(frame),
            "theirs": lambda: theirs(texts, truncation=True, max_length=TOKENS),
        }.items():
            began = time.monotonic()
            assert len(run()) == len(asked)
            found[name].append(len(asked) / (time.monotonic() - began))
    return statistics.median(found["ours"]), statistics.median(found["theirs"])


def line(name: str, *, ours: float, baseline: float, baseline_name: str, unit: str, better: str) -> dict[str, Any]:
    ratio = ours / baseline if better == "more" else baseline / ours
    figures = {"ours": round(ours, 2), "baseline": round(baseline, 2), "ratio": round(ratio, 2)}
    return {"name": name, **figures, "baseline_name": baseline_name, "unit": unit}


def main() -> None:
    transformers.logging.set_verbosity_error()
    asked = posts()
    with tempfile.TemporaryDirectory() as scratch:
        for shape in SHAPES:
            pack = packed(shape, to=Path(scratch) / shape)
            saved = model.save(pack, to=Path(scratch) / f"{shape}-saved")
            if shape == "small":
                sides = (
                    OURS.format(folder=str(saved), post=asked[0]),
                    THEIRS.format(folder=str(pack), text=Post("", **asked[0]).text),
                )
                # the first of either reads the libraries from disk
                times = [[fresh(code, folder=Path(scratch)) for code in sides] for _ in range(FRESH + 1)][1:]
                ours, theirs = (statistics.median(side) for side in zip(*times, strict=True))
                print(json.dumps(line(
                    "registered_load", ours=ours, baseline=theirs, unit="s", better="less",
                    baseline_name="transformers pipeline, fresh process to first answer",
                )))  # fmt: skip
            ours, theirs = rates(saved, pack, asked=asked)
            print(json.dumps(line(
                f"registered_posts_{shape}", ours=ours, baseline=theirs, unit="posts/s", better="more",
                baseline_name=f"transformers pipeline, batches of {BATCH}",
            )))  # fmt: skip


if __name__ == "__main__":
    main()
