"""The nearest posts vote: sealed, never those that were taken down, and beside a labeller where one is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pipelines.collect.read.embedding import MiniLM
from pipelines.core.errors import BadParams, SealBroken
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.datasets.example import TEST, TRAIN, VALIDATION, Example, Item, LabelSet
from pipelines.metrics.calibration import log_loss
from pipelines.metrics.label_sets import matrix
from pipelines.models.kind import Job
from pipelines.models.kinds.knn import Knn
from pipelines.models.kinds.knn.neighbours import FILE, Index, KnnPredictor, fit
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests.refusals import refused
from tests.train.silver_posts import TASK, exact, floored, leaks, majority, posts, unlabelled

pytestmark = pytest.mark.usefixtures("embedded_once")
NOW = datetime(2023, 1, 2, tzinfo=UTC)
SPEC = Knn(kind="knn", neighbours=(40, 10), blend=(0.5, 0.25))
ASKED = SPEC.model_copy(update={"votes": "gpt"})
HARM, FLOOR = "selfharm_ongoing", 0.7
SEEN = posts(120, split=TRAIN, seed=1)[0]
DEV, GOLD = posts(70, split=VALIDATION, seed=2)
UNSEEN, TRUTH = posts(60, split=TEST, seed=3)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with a_vault(tmp_path / "vault") as opened:
        yield opened


def a_vault(place: Path) -> Vault:
    vault = Vault.open(f"sqlite:///{place}", secret=place.name.encode().ljust(64, b"x"))
    vault.admit([(e.item[0], f"t3_{e.item[0]}") for e in SEEN], corpus="posts", month="2022-12", now=NOW)
    return vault


def a_fit(out: Path, *, vault: Vault, spec: Knn = SPEC, floor: float = FLOOR, **changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"train": SEEN, "validation": DEV, "scheme": None, "seed": 1, "folder": out}
    given["task"] = floored(TASK, **{HARM: floor})
    return fit(Job(spec=spec, out=out, vault=vault, **given | changed))


def votes(examples: list[Example], truth: list[LabelSet], *, refused: int = 0) -> dict[Item, LabelSet]:
    """Return the answers of a labeller that is right on every other post, without the first ``refused``."""
    rng = Random(5)
    answers = [labels if rng.random() < 0.5 else rng.choice(truth) for labels in truth]
    return {e.item: labels for e, labels in [*zip(examples, answers, strict=True)][refused:]}


def test_nothing_depends_on_the_order_of_train_or_on_the_day(tmp_path: Path, vault: Vault) -> None:
    one = a_fit(tmp_path / "one", vault=vault)
    two = a_fit(tmp_path / "two", vault=vault, train=Random(1).sample(SEEN, len(SEEN)))
    assert one == two
    assert (one["records"], one["answered"], one["blend"]) == (120, 0, None)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_no_embedding_lies_open_and_no_other_vault_opens_it(tmp_path: Path, vault: Vault) -> None:
    a_fit(tmp_path / "model", vault=vault)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "model").iterdir())
    model = MiniLM()
    for example in SEEN:
        vector = model.embed(example.text)
        assert not any(vector.astype(kind).tobytes()[64:128] in kept for kind in ("<f4", "<f8"))
    assert tables.sealed_columns(tables.SCHEMAS["neighbours"]) == ["vector"]
    with a_vault(tmp_path / "other") as other, pytest.raises(SealBroken):
        KnnPredictor(tmp_path / "model", task=TASK, vault=other)


def test_the_nearer_a_post_the_more_it_says_and_what_all_have_in_common_says_nothing() -> None:
    rng = np.random.default_rng(1)
    vectors, asked = rng.normal(size=(30, 8)), rng.normal(size=(5, 8))
    truth = np.eye(30)
    index = Index(vectors, truth)
    shares = index.shares(asked, neighbours=4)
    about = vectors.mean(axis=0)
    cosine = np.array([[np.dot(a - about, v - about) / np.linalg.norm(a - about) / np.linalg.norm(v - about)
                        for v in vectors] for a in asked])  # fmt: skip
    np.testing.assert_array_equal(shares.argsort(axis=1)[:, -4:], cosine.argsort(axis=1)[:, -4:])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (np.sort(shares, axis=1)[:, :26] < 0.02).all(), "others than the four nearest have the prior's share alone"
    np.testing.assert_allclose(Index(vectors + 7, truth).shares(asked + 7, neighbours=4), shares, atol=1e-9)
    np.testing.assert_array_equal(index.shares(asked, neighbours=99), index.shares(asked, neighbours=30))


def test_what_was_taken_down_votes_no_more(tmp_path: Path, vault: Vault) -> None:
    """Everything is as if the post had never been there, but for what dev had chosen."""
    a_fit(tmp_path / "model", vault=vault, spec=SPEC.model_copy(update={"neighbours": (3,)}))
    lost = SEEN[8]
    asked = MiniLM().embed(lost.text)[None]
    before = Index.open(tmp_path / "model", task=TASK, vault=vault)
    vault.destroy([lost.item[0]], reason="test", now=NOW)
    after = Index.open(tmp_path / "model", task=TASK, vault=vault)
    assert (len(before.vectors), len(after.vectors)) == (120, 119)
    k = TASK.labels.index(min(lost.labels or ()))
    shares = [index.shares(asked, neighbours=3)[0, k] for index in (before, after)]
    assert shares[1] < shares[0] - 0.3
    a_fit(tmp_path / "fresh", vault=vault, train=[e for e in SEEN if e is not lost])
    fresh = Index.open(tmp_path / "fresh", task=TASK, vault=vault)
    np.testing.assert_array_equal(fresh.vectors, after.vectors)
    np.testing.assert_array_equal(fresh.truth, after.truth)
    vault.destroy([e.item[0] for e in SEEN], reason="test", now=NOW)
    with refused("NoNeighbours", match="120"):
        KnnPredictor(tmp_path / "model", task=TASK, vault=vault)


def test_a_post_that_is_gone_before_the_fit_is_never_written(tmp_path: Path, vault: Vault) -> None:
    vault.destroy([SEEN[0].item[0]], reason="test", now=NOW)
    assert a_fit(tmp_path / "model", vault=vault)["records"] == 119
    stored = tables.read(tmp_path / "model" / FILE, name="neighbours")
    assert SEEN[0].item[0] not in stored["record_id"].to_pylist()


def test_a_post_unknown_to_the_vault_leaves_no_partial_files(tmp_path: Path, vault: Vault) -> None:
    stranger = replace(SEEN[0], item=("f" * 32, 0))
    with refused("UnknownRecord"):
        a_fit(tmp_path / "model", vault=vault, train=[*SEEN, stranger])
    assert not (tmp_path / "model").exists()


def test_a_labeller_and_its_neighbours_know_more_than_either(tmp_path: Path, vault: Vault) -> None:
    said, unseen, truth = votes(DEV, GOLD), votes(UNSEEN, TRUTH), matrix(TRUTH, labels=TASK.labels)
    only = ASKED.model_copy(update={"blend": (1.0,)})
    loss, metrics = {}, {}
    for name, spec in {"alone": SPEC, "labeller": only, "both": ASKED}.items():
        heard = spec.votes is not None
        metrics[name] = a_fit(tmp_path / name, vault=vault, spec=spec, said=said if heard else None, floor=0)
        model = KnnPredictor(tmp_path / name, task=TASK, vault=vault, said=unseen if heard else None)
        loss[name] = log_loss(model.probabilities(UNSEEN), truth=truth, task=TASK)
    assert loss["both"] < min(loss["alone"], loss["labeller"]) - 0.1
    both = metrics["both"]
    assert [(t["neighbours"], t["blend"]) for t in both["tried"]] == [(10, 0.25), (10, 0.5), (40, 0.25), (40, 0.5)]
    best = min(both["tried"], key=lambda tried: tried["log_loss"])
    assert (both["neighbours"], both["blend"]) == (best["neighbours"], best["blend"])
    assert both["log_loss"] == pytest.approx(best["log_loss"])
    assert both["answered"] == 70


def test_a_refusal_leaves_the_neighbours_alone(tmp_path: Path, vault: Vault) -> None:
    metrics = a_fit(tmp_path / "model", vault=vault, spec=ASKED, said=votes(DEV, GOLD, refused=20))
    assert metrics["answered"] == 50
    said = votes(UNSEEN, TRUTH, refused=30)
    some, none = (KnnPredictor(tmp_path / "model", task=TASK, vault=vault, said=s) for s in (said, {}))
    assert min(some.tokens(UNSEEN)) > 20 and some.tokens(unlabelled(["word " * 900])) == [256]
    scores, plain = (predictor.probabilities(UNSEEN) for predictor in (some, none))
    np.testing.assert_array_equal(scores[:30], plain[:30])
    assert (np.abs(scores[30:] - plain[30:]).max(axis=1) > 0.01).all()
    strangers = [replace(example, item=(f"other{n}", 0)) for n, example in enumerate(UNSEEN)]
    np.testing.assert_array_equal(some.probabilities(strangers), plain)
    truth = matrix(TRUTH[30:], labels=TASK.labels)
    assert log_loss(scores[30:], truth=truth, task=TASK) < log_loss(plain[30:], truth=truth, task=TASK)


def test_a_labeller_is_never_left_out_by_mistake(tmp_path: Path, vault: Vault) -> None:
    with pytest.raises(BadParams, match="'gpt' needs its answers"):
        a_fit(tmp_path / "model", vault=vault, spec=ASKED)
    with refused("NoVotes", match="gpt"):
        a_fit(tmp_path / "model", vault=vault, spec=ASKED, said=votes(UNSEEN, TRUTH))
    assert not (tmp_path / "model").exists()
    a_fit(tmp_path / "model", vault=vault, spec=ASKED, said=votes(DEV, GOLD))
    with pytest.raises(BadParams, match="'gpt' needs its answers"):
        KnnPredictor(tmp_path / "model", task=TASK, vault=vault)


@leaks
def test_posts_of_another_split_are_refused(tmp_path: Path, vault: Vault, part: str, split: str) -> None:
    given = list({"train": SEEN, "validation": DEV}[part])
    given[3] = replace(given[3], split=split)
    with refused("LeakRefused"):
        a_fit(tmp_path / "model", vault=vault, **{part: given})
    assert not (tmp_path / "model").exists()


def test_without_train_or_dev_there_is_no_model(tmp_path: Path, vault: Vault) -> None:
    with refused("NoNeighbours"):
        a_fit(tmp_path / "train", vault=vault, train=[])
    with refused("NothingToCalibrate"):
        a_fit(tmp_path / "dev", vault=vault, validation=[])


def test_a_single_label_scheme_is_learned_too(tmp_path: Path, vault: Vault) -> None:
    task = task_of(load("figsim"), "severity")

    def one(labels: LabelSet) -> LabelSet:
        thought = any(label.startswith("suicide") for label in labels)
        return frozenset({task.labels[0 if labels == {"no_crisis"} else 2 if thought else 1]})

    train, dev = ([replace(e, labels=one(e.labels or frozenset())) for e in some] for some in (SEEN, DEV))
    a_fit(tmp_path / "model", vault=vault, task=task, train=train, validation=dev)
    predictor = KnnPredictor(tmp_path / "model", task=task, vault=vault)
    scores = predictor.probabilities(UNSEEN)
    np.testing.assert_allclose(scores.sum(axis=1), 1)
    truth = [one(labels) for labels in TRUTH]
    assert exact(predictor.labels(scores), truth) > majority(truth) + 0.1


def test_it_serves_no_other_labels(tmp_path: Path, vault: Vault) -> None:
    a_fit(tmp_path / "model", vault=vault)
    with refused("OtherLabels"):
        KnnPredictor(tmp_path / "model", task=task_of(load("figsim"), "severity"), vault=vault)
