"""The card of a tuned model, and the digest by which it names those it has learnt from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from pipelines.train.predictors import finetuned, training_records
from pipelines.train.predictors.finetuned import Card
from pipelines.train.predictors.training_records import TrainingRecords
from tests.train import small_posts as small
from tests.train import small_tuned


def card(**changed: object) -> Card:
    given = {
        "kind": "knn", "corpus": "posts", "model": "near", "subset": "gold", "task": "labels", "scheme": "cradle",
        "labels": small.TASK.labels, "base": "b", "seed": 1, "data_commit": "none",
        "train": TrainingRecords(records=1, digest="d"), "selected": TrainingRecords(records=2, digest="e"),
        "spec": small_tuned.MODELS["knn"],
    }  # fmt: skip
    return Card.model_validate(given | changed)


def test_the_digest_is_of_the_sorted_ids() -> None:
    ids = ["b" * 32, "a" * 32, "b" * 32]
    expected = hashlib.sha256(("a" * 32 + "\n" + "b" * 32 + "\n").encode()).hexdigest()
    assert training_records.trained_on(ids) == TrainingRecords(records=2, digest=expected)
    assert training_records.trained_on(ids[:1]).digest != expected


def test_a_card_survives_the_disk_and_names_its_model(tmp_path: Path) -> None:
    for spec in small_tuned.MODELS.values():
        made = card(kind=spec.kind, spec=spec)
        (tmp_path / finetuned.CARD).write_text(made.model_dump_json())
        assert finetuned.read(tmp_path) == made and made.name == "near-gold"


@pytest.mark.parametrize("changed", [{"spec": {"kind": "text", "base": "b"}}, {"more": 1}, {"seed": "one"}])
def test_a_card_of_another_form_is_no_card(changed: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        card(**changed)
