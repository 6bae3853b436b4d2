"""The rival of a candidate is the best baseline; all its seeds and its alerts are judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crisis_corpus import integrity
from pipelines.core.errors import BadParams
from pipelines.registry.candidate import Context
from pipelines.registry.promotion import gate
from pipelines.registry.promotion.gate import summary
from pipelines.registry.promotion.promote import promote
from pipelines.store import tables
from tests.registry.small_registry import GRAVEST, NAME, add, opened, severity_test

WEIGHTS = {"run": "r" * 32, "files": {"model.safetensors": "7" * 64}}
CLIP = {"model": "clip", "subset": "gold", "shown": "clip", "seed": 1, "weights": WEIGHTS}
RECORDS = {"records": 36, "digest": "5" * 64}


def predict(context: Context, *, model: str, seed: int, right: float, folder: str) -> None:
    """Write predictions on the test of a model that is right on the first items."""
    test = severity_test(context)
    rows = []
    for n, ((record_id, image), gold) in enumerate(zip(test.board.items, test.board.gold, strict=True)):
        wrong = next(label for label in test.task.labels if label not in gold)
        labels = sorted(gold) if n < right * len(test.board.items) else [wrong]
        where: dict[str, Any] = {"record_id": record_id, "image": image, "task": "severity", "split": "test"}
        rows.append(
            where | {"model": model, "seed": seed, "outcome": "vote", "scores": [], "alerts": [], "labels": labels}
        )
    place = context.root / "snapshot" / "memes" / "predictions" / folder
    place.mkdir(parents=True)
    table = pa.Table.from_pylist(rows, schema=tables.SCHEMAS["predictions"])
    tables.write(table, place / "predictions.parquet", name="predictions")


def trained(context: Context, *, seed: int, selected: dict[str, Any] = RECORDS, weights: Any = WEIGHTS) -> None:
    path = context.root / "metrics" / "memes" / f"train-severity-clip-gold-{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"weights": weights, "selected": selected}))


def described(**values: Any) -> Callable[[Path], None]:
    def change(pack: Path) -> None:
        path = pack / integrity.MODEL
        path.write_text(json.dumps(json.loads(path.read_bytes()) | values))

    return change


def test_a_first_champion_must_beat_the_best_baseline_that_the_corpus_has(small: Path) -> None:
    with opened(small, baselines=("offline", "clip")) as context:
        predict(context, model="offline", seed=0, right=0.7, folder="severity-offline")
        add(context, knows=4)
        verdict = gate.run(NAME, 1, context=context)
        assert [reason.partition(":")[0] for reason in verdict.reasons] == ["better"]
        assert verdict.figures["scores"]["rival"] == {"name": "offline", "among": ["majority set", "offline"]}
        assert "against: offline." in summary(verdict)
        add(context, knows=6)
        assert gate.run(NAME, 2, context=context).passed
        # a champion whose weights are about to go is replaced by what beats the constants
        assert gate.judge(NAME, 1, context=context, compare=False).passed


def test_a_baseline_that_is_no_model_is_refused(small: Path) -> None:
    # knn is a model, but its predictions are named with the subset that it learnt from
    for wrong in ("ofline", "knn"):
        with opened(small, baselines=(wrong,)) as context:
            add(context, knows=6)
            with pytest.raises(BadParams, match=f"named {wrong}, only .*knn-consensus, knn-unanimous, .*offline"):
                gate.run(NAME, 1, context=context)


def test_a_fine_tuned_model_is_a_baseline_under_the_name_of_its_predictions(small: Path) -> None:
    with opened(small, baselines=("knn-consensus",)) as context:
        for seed in (1, 2):
            predict(context, model="knn-consensus", seed=seed, right=0.9, folder=f"severity-knn-consensus-{seed}")
        add(context, knows=4)
        verdict = gate.run(NAME, 1, context=context)
    assert not verdict.passed and verdict.figures["scores"]["rival"]["name"] == "knn-consensus"


def test_further_seeds_that_arrive_later_are_judged(context: Context) -> None:
    add(context, knows=6, change=described(**CLIP))
    trained(context, seed=1)
    before = gate.run(NAME, 1, context=context)
    predict(context, model="clip", seed=2, right=0.1, folder="severity-clip-gold-2")
    trained(context, seed=2)
    after = gate.run(NAME, 1, context=context)
    assert before.basis != after.basis
    assert [len(each.figures["scores"]["macro_f1"]["seeds"]) for each in (before, after)] == [1, 2]
    assert [row.event for row in context.journal.rows(NAME)].count("looked") == 1


@pytest.mark.parametrize(
    ("other", "seeds"),
    [
        ({}, 3),
        ({"selected": {"records": 1, "digest": "6" * 64}}, 2),
        ({"own": {"run": "q" * 32, "files": {}}}, 1),
        ({"selected": {}}, 1),
    ],
)
def test_all_seeds_of_exactly_this_training_are_judged(context: Context, other: dict[str, Any], seeds: int) -> None:
    for seed, right in ((1, 1.0), (2, 0.4), (3, 0.0)):
        predict(context, model="clip", seed=seed, right=right, folder=f"severity-clip-gold-{seed}")
        trained(context, seed=seed)
    if "own" in other:
        trained(context, seed=1, weights=other["own"])
    elif other:
        # without records it is unknown whether two trainings are equal
        for seed in (3,) if other["selected"] else (1, 2, 3):
            trained(context, seed=seed, **other)
    add(context, knows=4)
    promote(NAME, 1, who="tester", why="a test", context=context)
    add(context, knows=6, change=described(**CLIP))
    verdict = gate.run(NAME, 2, context=context)
    found = verdict.figures["scores"]
    assert ("over all seeds is above 0.1" in " ".join(verdict.reasons)) is not verdict.passed
    assert verdict.passed is (seeds < 3)
    if verdict.passed:
        assert len(found["macro_f1"]["seeds"]) == seeds and found["look"]["p"] <= 0.1
        assert (found["look"]["p_seeds"] > found["look"]["p"]) == (seeds > 1)
        assert (f"of its {seeds} seeds" in summary(verdict)) == (seeds > 1)


def warn(*, raised: list[str], guaranteed: float) -> Callable[[Path], None]:
    """Return a change that makes a model raise alerts for every item, and its card guarantee their recall."""

    def change(pack: Path) -> None:
        rules = json.loads((pack / "words.json").read_text())
        (pack / "words.json").write_text(json.dumps(rules | {"alerts": raised}))
        card = json.loads((pack / integrity.CARD).read_text())
        alerts = {GRAVEST: {"guaranteed_recall": guaranteed, "guarantee": True}}
        (pack / integrity.CARD).write_text(json.dumps(card | {"alerts": alerts}))

    return change


def test_a_guarantee_is_of_the_alert_and_is_refused_when_the_test_refutes_it(context: Context, small: Path) -> None:
    add(context, knows=6, change=warn(raised=[], guaranteed=0.9))
    add(context, knows=6, change=warn(raised=[GRAVEST], guaranteed=0.9))
    silent, warns = (gate.run(NAME, number, context=context) for number in (1, 2))
    assert [reason.partition(":")[0] for reason in silent.reasons] == ["recall"]
    assert "is under its floor 0.9000" in silent.reasons[0]
    found = warns.figures["scores"]["recall"][GRAVEST]
    assert warns.passed and (found["floor"], found["recall"], found["verdict"]) == (0.9, 1, "too_few")
    # its recall has no other price
    assert found["alert_rate"] == 1 and "| 0.900 | 1.000 (–) | undecided: too few |" in summary(warns)
    assert silent.figures["scores"]["recall"][GRAVEST]["alert_rate"] == 0
    with opened(small, recall_floors={}) as unnamed:
        assert gate.judge(NAME, 1, context=unnamed).reasons == silent.reasons


def test_an_alert_of_another_label_makes_a_model_unfit(context: Context) -> None:
    add(context, knows=6, change=warn(raised=["Fog"], guaranteed=0.9))
    (reason,) = gate.run(NAME, 1, context=context).reasons
    assert "not valid for 'severity': its labels or alerts are not labels of the task" in reason
