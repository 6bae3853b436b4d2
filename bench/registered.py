"""Measure loading a registered model of posts in a new process, and its predictions per second.

The baseline is a plain ``transformers`` text-classification pipeline with the same weights, tokens, posts and batches.
Ours scrubs the posts, calibrates, and decodes to a label set that the scheme allows; the baseline returns sigmoids.
Weights are random, in the shape of the sandbox's encoder (``tiny``) and of MiniLM's (``small``: 6 layers of 384); posts
are the sandbox's, of a few words to a few hundred.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers

from crisis_corpus import integrity
from crisis_corpus.integrity import Learnt, TrainedWeights, listing
from crisis_corpus_sandbox.reddit import label_quotas, narratives
from pipelines.core.config.params import Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import FOLDER
from pipelines.core.taxonomy import load as load_scheme
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.post import Post
from pipelines.metrics import recall_constraints
from pipelines.metrics.calibration import Calibration
from pipelines.models import base_files
from pipelines.models.fitting.inference import AT_ONCE
from pipelines.models.kind import Kind
from pipelines.models.kinds.encoder import Encoder
from pipelines.registry.candidate import Context
from pipelines.registry.journal import Journal
from pipelines.registry.packaging import model
from pipelines.registry.packaging.described import SCHEME, Described
from pipelines.registry.packaging.inputs import columns
from pipelines.registry.packaging.register import put
from pipelines.registry.transitions import Move, finish, intend
from pipelines.registry.versions import Registry
from pipelines.store.vault.vault import Vault

ROOT = Path(__file__).resolve().parents[1]
POSTS, ROUNDS, BATCH, TOKENS, FRESH = 256, 3, 32, 512, 5
SECRET = bytes(64)
SHAPES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2},
    "small": {"hidden_size": 384, "intermediate_size": 576, "num_hidden_layers": 6, "num_attention_heads": 6},
}
# Each runs in a new process; the time is from naming the model to the first answer, including imports. Ours looks up
# the champion on MLflow's server and in the journal, and verifies every file of the folder that an earlier process
# downloaded.
OURS = """
import time
import pandas as pd
from crisis_corpus.client import load
began = time.monotonic()
assert len(load("crisis-posts@champion").predict(pd.DataFrame([{post!r}]))) == 1
print(time.monotonic() - began, flush=True)
"""
THEIRS = """
import time
began = time.monotonic()
from transformers import pipeline
asked = pipeline("text-classification", model={folder!r}, top_k=None, function_to_apply="sigmoid", device="cpu")
assert len(asked([{text!r}])) == 1
print(time.monotonic() - began, flush=True)
"""


def packed(shape: str, *, to: Path) -> Path:
    """Write the pack of an encoder with random weights."""
    task, params = task_of(load_scheme("cradle"), "labels"), load(ROOT)
    to.mkdir()
    with tempfile.TemporaryDirectory() as base:
        base_files.make("tiny:modernbert", folder=Path(base), seed=1)
        tokens = transformers.AutoTokenizer.from_pretrained(base)
    tokens.model_max_length = TOKENS
    tokens.save_pretrained(to)
    torch.manual_seed(1)
    config = transformers.ModernBertConfig(
        vocab_size=len(tokens), pad_token_id=tokens.pad_token_id, num_labels=len(task.labels),
        cls_token_id=tokens.cls_token_id, sep_token_id=tokens.sep_token_id, **SHAPES[shape],
    )  # fmt: skip
    transformers.ModernBertForSequenceClassification(config).save_pretrained(to)
    spec = Encoder(
        kind="encoder", base=shape, batch=BATCH, max_tokens=TOKENS, learning_rate=1e-5, warmup=0, weight_decay=0,
        epochs=1,
    )  # fmt: skip
    identity = Calibration("multi", np.tile([1.0, 0.0], (len(task.labels), 1)))
    recipe = {"batch": BATCH // AT_ONCE}
    recall_constraints.save(to, task=task, alerts={}, calibration=identity.as_json(), recipe=recipe)
    return finished(to, spec=spec, name="crisis-posts", corpus="posts", task=task, params=params)


def finished(to: Path, *, spec: Kind, name: str, corpus: str, task: Task, params: Params) -> Path:
    """Write what a pack has beside the files of its model."""
    scheme, inputs = params.corpora[corpus].scheme, columns(params.corpora[corpus].content, reads=spec.inputs)
    Described(
        name=name, corpus=corpus, kind=spec.kind, task=task.key, model=spec.kind, subset="gold", shown=spec.kind,
        base=spec.named, seed=1, labels=task.labels, definitions={}, item="item", items="items",
        scheme=scheme, scheme_digest="0" * 64, data_commit="none", split_digest="0" * 64, votes_digest=None,
        train=Learnt(records=0, digest="0" * 64), weights=TrainedWeights(run=None, files={}),
        spec=spec.model_dump(exclude_unset=True), inputs=inputs, scrub=params.collect.scrub, batch=BATCH,
        decode=params.images.decode if "image" in inputs else None,
    ).write(to)  # fmt: skip
    shutil.copy(FOLDER / f"{scheme}.yaml", to / SCHEME)
    pq.write_table(pa.table({"record_id": pa.array([], pa.string())}), to / integrity.RECORDS)
    (to / integrity.CARD).write_text(json.dumps({"for": "measuring"}))
    (to / integrity.PAGE).write_text("# For measuring\n")
    (to / integrity.FILES).write_text(json.dumps(listing(to)))
    return to


def posts() -> list[dict[str, str]]:
    """Return posts of very different lengths, as in reality."""
    rng = random.Random(1)
    chosen = label_quotas.cradle(POSTS, rng=rng)
    told = [narratives.write(c, rng=rng, words=min(400, int(rng.lognormvariate(4.3, 0.9)) + 5)) for c in chosen]
    return [{"title": post.title, "body": post.body} for post in told]


@contextmanager
def champion(saved: Path, *, home: Path, name: str = "crisis-posts") -> Iterator[None]:
    """Register a saved model at an MLflow server and record it as champion for the duration of the context."""
    home.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    store = ["--backend-store-uri", f"sqlite:///{home}/mlflow.sqlite", "--artifacts-destination", str(home / "files")]
    asked = [sys.executable, "-m", "mlflow", "server", *store, "--port", str(port), "--workers", "1"]
    environment = {"CORPUS_HOME": str(home), "CORPUS_SECRET": SECRET.hex(), "MLFLOW_TRACKING_URI": uri}
    # as in the sandbox: the server's job runner occasionally takes a full core
    environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    before = {key: os.environ.get(key) for key in environment}
    os.environ |= environment
    settings, params = Settings.from_env(), load(ROOT)
    server = subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(3000):
            with suppress(OSError), urllib.request.urlopen(f"{uri}/health", timeout=1):
                break
            time.sleep(0.1)
        with (
            Vault.open(f"sqlite:///{home}/vault.sqlite", secret=SECRET) as vault,
            Journal.of(settings) as journal,
        ):
            context = Context(Registry.open(settings), journal, params, params.promote, settings, vault)
            who, why = "bench", "to be loaded"
            version, _ = put(name, saved, context=context, who=who, why=why)
            move = Move(name, "promoted", None, None, version.version, who, why, {}, version.digest)
            finish(intend(move, journal=journal), registry=context.registry, journal=journal, say=lambda _: None)
        yield
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def fresh(code: str, *, folder: Path) -> float:
    """Return the seconds that a new process measures until its first answer."""
    told = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout
    return float(told.splitlines()[-1])


def rates(saved: Path, pack: Path, *, asked: list[dict[str, str]]) -> tuple[float, float]:
    """Return the posts per second of both, measured alternately."""
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
                    OURS.format(post=asked[0]),
                    THEIRS.format(folder=str(pack), text=Post("", **asked[0]).text),
                )
                # the first run of each reads the libraries from disk, and ours downloads
                with champion(saved, home=Path(scratch) / "home"):
                    times = [[fresh(code, folder=Path(scratch)) for code in sides] for _ in range(FRESH + 1)][1:]
                ours, theirs = (statistics.median(side) for side in zip(*times, strict=True))
                print(json.dumps(line(
                    "registered_load", ours=ours, baseline=theirs, unit="s", better="less",
                    baseline_name="transformers pipeline, imports to first answer",
                )))  # fmt: skip
            ours, theirs = rates(saved, pack, asked=asked)
            print(json.dumps(line(
                f"registered_posts_{shape}", ours=ours, baseline=theirs, unit="posts/s", better="more",
                baseline_name=f"transformers pipeline, batches of {BATCH}",
            )))  # fmt: skip


if __name__ == "__main__":
    main()
