"""Measure `load` of a small model of each kind that ships: seconds to the first answer, items per second, memory.

Each is fitted on a few synthetic items, registered at an MLflow server of its own, and loaded as champion in a new
process. Cards show the figures of their kind: they are written to pipelines/registry/packaging/loading.yaml.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from bench.registered import ROOT, champion, finished, posts
from bench.run import machine
from pipelines.core.config.models import Entry
from pipelines.core.config.params import Params, load
from pipelines.core.taxonomy import load as scheme_of
from pipelines.core.taxonomy.task import Task, task_of
from pipelines.datasets.example import TRAIN, VALIDATION, Example
from pipelines.datasets.post import Post
from pipelines.models.kind import KINDS, Job, Kind, spec
from pipelines.registry.packaging import model
from pipelines.registry.packaging.card import LOADING, weights_of

ROUNDS, FITTED, NAMES = 3, 48, {"posts": "crisis-posts", "memes": "meme-severity"}
LOADED = """
import json, sys, time
items = json.load(sys.stdin)
began = time.monotonic()
from crisis_corpus import load
model = load(sys.argv[1])
assert len(model(items[:1])) == 1
cold, began = time.monotonic() - began, time.monotonic()
assert len(model(items)) == len(items)
rate = len(items) / (time.monotonic() - began)
# getrusage would also count the process that started this one
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({"seconds": round(cold, 1), "items_per_second": round(rate), "megabytes": round(int(peak) / 1024)}))
"""


def models(params: Params) -> Iterator[tuple[dict[str, str], Kind]]:
    """Yield what an entry must have for the figures of a model to be those of its kind, and the model."""
    for name in ("tiny-encoder", "tiny-causal", "tiny-text", "tiny-image", "tiny-fusion"):
        entry = spec(params, name)
        yield {"kind": entry.kind}, entry
    for features in ("words", "embedding"):
        own = {"kind": "linear", "features": features}
        yield own, KINDS.of(Entry.model_validate(own), {}, where="bench")


def items(corpus: str, *, folder: Path) -> list[dict[str, str]]:
    """Return what a model of a corpus is asked about; pictures are files."""
    asked = posts()
    if corpus == "posts":
        return asked
    chance, made = random.Random(1), []
    for number, post in enumerate(asked):
        path = folder / f"{number}.jpg"
        noise = Image.frombytes("RGB", (32, 32), chance.randbytes(3 * 32 * 32))
        noise.resize((400, 300)).save(path, "JPEG")
        made.append({"image": str(path), "text": post["body"][:80]})
    return made


def examples(asked: list[dict[str, str]], *, task: Task, split: str) -> list[Example]:
    made = []
    for number, item in enumerate(asked[:FITTED]):
        picture = Path(item["image"]).read_bytes() if "image" in item else None
        text = item["text"] if picture else Post("", **item).text
        labels = frozenset({task.labels[number % len(task.labels)]})
        made.append(Example((f"{split}{number:04}", 0), split, text, picture, labels, f"{split}{number}"))
    return made


def saved(entry: Kind, *, corpus: str, asked: list[dict[str, str]], params: Params, folder: Path) -> Path:
    """Fit, package and save a model."""
    name, scheme = NAMES[corpus], scheme_of(params.corpora[corpus].scheme)
    task = task_of(scheme, params.registry[name].task)
    fit, pack = folder / "fit", folder / "pack"
    fit.mkdir()
    pack.mkdir()
    train, validation = (examples(asked, task=task, split=split) for split in (TRAIN, VALIDATION))
    one = entry.model_copy(update={"epochs": 1} if hasattr(entry, "epochs") else {})
    job = Job(
        spec=one, train=train, validation=validation, task=task, scheme=scheme, seed=1, folder=folder / "run", out=fit
    )
    one.fit(job, say=lambda _: None)
    one.pack(fit, to=pack, serving=job)
    finished(pack, spec=one, name=name, corpus=corpus, task=task, params=params)
    return model.save(pack, to=folder / "saved")


def measured(saved: Path, *, name: str, asked: list[dict[str, str]], folder: Path) -> dict[str, float]:
    command = [sys.executable, "-c", LOADED, name]
    given: dict[str, Any] = {"input": json.dumps(asked), "capture_output": True, "text": True, "cwd": folder}
    with champion(saved, home=folder / "home", name=name):
        told = [subprocess.run(command, check=True, **given).stdout for _ in range(ROUNDS + 1)][1:]
    # the first one downloads and reads the libraries from disk
    return min((json.loads(text.splitlines()[-1]) for text in told), key=lambda found: found["seconds"])


def main() -> None:
    params, rows = load(ROOT, profile="sandbox"), []
    for own, entry in models(params):
        corpus = "memes" if own["kind"] in ("text", "image", "fusion") else "posts"
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            asked = items(corpus, folder=folder)
            made = saved(entry, corpus=corpus, asked=asked, params=params, folder=folder)
            if "text" not in entry.inputs:
                asked = [{"image": item["image"]} for item in asked]
            figures = measured(made, name=NAMES[corpus], asked=asked, folder=folder)
            row = {"entry": own, "base": entry.named, "weights": weights_of(folder / "pack"), **figures}
        rows.append(row)
        print(json.dumps(row), flush=True)
    table = {"date": str(datetime.now(UTC).date()), "machine": machine(), "rows": rows}
    head = "# Written by `python bench/loaded.py`; the cards of models show it.\n"
    LOADING.write_text(head + yaml.safe_dump(table, sort_keys=False, width=120))


if __name__ == "__main__":
    main()
