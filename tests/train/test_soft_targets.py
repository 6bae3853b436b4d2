"""Annotators' shares as targets: counted from their answers alone, learnt from by classifiers, nothing else changed."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.core import rows as row_file
from pipelines.core.config.params import Params, overlay, read_params
from pipelines.core.config.settings import Settings
from pipelines.models import kind, train
from pipelines.models.fitting.loss_and_optimizer import Loop, weigh
from pipelines.store.vault.vault import Vault
from tests.contexts import context_of
from tests.refusals import refused
from tests.train import small_memes
from tests.train.small_memes import REPO
from tests.train.small_run import SETTINGS, a_task, captions, plain

BASE = {"kind": "text", "base": "tiny:bert", "epochs": 1, "learning_rate": 0.001, "batch": 8}


def annotated(memes: small_memes.SmallMemes, root: Path) -> list[dict[str, Any]]:
    """Write answers to items of train: of three people; one of them skips some items and answers others twice."""
    rng, found = Random(4), []
    start = datetime(2023, 1, 1, tzinfo=UTC)
    for number, ((record_id, image), meme) in enumerate(memes.memes.items()):
        for who in ("annotator-1", "annotator-2", "annotator-3")[: 1 + number % 3]:
            for name in ("first", "second")[: 1 + (who == "annotator-1" and number % 4 == 0)]:
                labels = rng.choice([meme.labels["severity"], frozenset({rng.choice(["None", "Suicide ideation"])})])
                skipped = number % 5 == 0 and who == "annotator-2"
                found.append(
                    {
                        "record_id": record_id,
                        "image": image,
                        "annotator": who,
                        "category": "severity",
                        "round": name,
                        "outcome": "skipped" if skipped else "answered",
                        "labels": None if skipped else sorted(labels),
                        "answered": start + timedelta(days=name == "second"),
                        "note": None,
                    }
                )
    for name in ("first", "second"):
        rows = [row for row in found if row["round"] == name]
        small_memes.write_table(root / "annotations/memes" / name / "annotations.parquet", rows, name="annotations")
    return found


def script(rows: list[dict[str, Any]], task: Any) -> dict[tuple[str, int], list[float]]:
    """Return the shares by item, counted without the project's reader."""
    last: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["answered"]):
        if row["outcome"] == "answered":
            last[row["record_id"], row["image"]][row["annotator"]] = min(task.seen(frozenset(row["labels"])))
    return {
        item: [sum(said == label for said in each.values()) / len(each) for label in task.labels]
        for item, each in last.items()
        if len(each) > 1
    }


def test_a_classifier_learns_from_the_shares_of_annotators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    models = {"hard": BASE, "soft": {**BASE, "targets": "annotators"}}
    rows = {"memes": {"models": [*models], "subsets": ["gold"], "seeds": [1]}}
    params = Params.model_validate(overlay(read_params(REPO), {"models": models, "train": {"rows": rows}}))
    (tmp_path / row_file.FILE).write_text(row_file.text(params, root=tmp_path))
    reads = {row.model: row.reads for row in row_file.read(tmp_path).fits.values() if row.corpus == "memes"}
    assert reads == {"hard": "snapshot/memes/split/splits.parquet", "soft": "annotations/memes"}
    settings = Settings.from_env()
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        memes = small_memes.write(tmp_path, vault=vault, sizes={"train": 24, "validation": 9, "test": 9})
        expected = script(annotated(memes, tmp_path), memes.task("severity"))
        material = memes.load("severity", soft=True)
        got = {e.item: e.shares for e in (*material.train, *material.validation, *material.test) if e.shares}
        of_train = {e.item for e in material.train}
        assert got == {item: pytest.approx(shares) for item, shares in expected.items() if item in of_train}
        assert 0 < len(got) < len(material.train) and all(sum(shares) == pytest.approx(1) for shares in got.values())
        given = {"params": params, "settings": settings, "vault": vault, "root": tmp_path}
        told = {name: train.run(context_of("memes", row=f"severity-{name}-gold-1", **given)) for name in models}
    assert told["soft"]["soft"] == len(got) and "soft" not in told["hard"]
    losses = [told[name]["fit"]["history"][0]["train_loss"] for name in models]
    assert losses[0] != losses[1], "the targets are others"
    cards = {name: (tmp_path / f"snapshot/memes/fits/severity-{name}-gold-1/model.json").read_text() for name in models}
    assert '"targets"' in cards["soft"] and '"targets"' not in cards["hard"]
    assert kind.spec(params, "soft").deviations == ("annotators' shares as targets",)


@pytest.mark.parametrize("key", ["severity", "figurative"])
def test_the_loss_of_soft_targets_is_their_cross_entropy(key: str) -> None:
    task, rng = a_task(key), np.random.default_rng(3)
    examples = captions(24, split="train", task=task)
    shares = rng.dirichlet(np.ones(len(task.labels)), size=12)
    examples[:12] = [
        type(e)(e.item, e.split, e.text, None, e.labels, e.group, shares=tuple(row))
        for e, row in zip(examples[:12], shares.tolist(), strict=True)
    ]
    built, weights = plain(task), weigh(examples, task=task, max_pos_weight=20)
    with torch.no_grad():
        logits = built.module(**built.prepare(examples)).double()
    truth = np.array([e.shares or [label in task.seen(e.labels) for label in task.labels] for e in examples], float)
    w, y = torch.from_numpy(weights.values).double(), torch.from_numpy(truth)
    if task.kind == "single":
        expected = -(w * y * logits.log_softmax(-1)).sum() / (w * y).sum()
    else:
        expected = -(w * y * logits.sigmoid().log() + (1 - y) * (1 - logits.sigmoid()).log()).mean()
    settings = SETTINGS.model_copy(update={"batch": len(examples)})
    loop = Loop(built, examples=examples, task=task, settings=settings, seed=1, weights=weights)
    for _ in loop.epoch(0):
        pass
    assert loop.mean_loss() == pytest.approx(float(expected), rel=1e-5)


def test_soft_targets_and_rationales_of_one_model_are_refused(tmp_path: Path) -> None:
    reader = {"kind": "infused", "base": "tiny:clip", "rationales": "gpt-5-mini", "targets": "annotators"}
    rows = {"memes": {"models": ["reader"], "subsets": ["gold"], "seeds": [1]}}
    own = {"models": {"reader": reader}, "train": {"rows": rows}}
    with refused("BadParams", match="has no soft targets"):
        row_file.resolve(Params.model_validate(overlay(read_params(REPO), own)), root=tmp_path)
