"""The card says what was measured, no more, and what the model must never be used for."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from pipelines.metrics.alerts import alert
from pipelines.packaging import card
from pipelines.packaging.card import failures
from pipelines.packaging.model_described import Described
from pipelines.packaging.pack import measured
from tests.registry import packs
from tests.registry.packs import Made


@pytest.fixture(scope="module")
def described(made: Made) -> Described:
    return Described.read(made.pack)


@pytest.fixture
def numbers(made: Made, described: Described) -> dict[str, Any]:
    """The task's entry in ``evaluate.json``, for a test to alter."""
    return deepcopy(measured(described, root=made.corpus.root))


def test_its_numbers_are_those_of_evaluate_with_their_intervals(made: Made, numbers: dict[str, Any]) -> None:
    found = json.loads((made.pack / "card.json").read_text())
    model = numbers["models"]["encoder-consensus"]["all"]
    assert found["measured"]["items"] == numbers["n"] == packs.SIZES["test"]
    assert found["measured"]["confidence"] == 0.95
    for label in numbers["labels"]:
        shown = found["measured"]["labels"][label]
        assert shown["items"] == numbers["support"][label]
        assert shown["f1"] == {name: model["labels"][label]["f1"][name] for name in ("mean", "low", "high")}
    assert found["measured"]["figures"]["macro_f1"]["mean"] == model["figures"]["macro_f1"]["mean"]
    assert found["measured"]["figures"]["macro_f1"]["low"] < found["measured"]["figures"]["macro_f1"]["high"]


def test_it_states_its_training_data_and_purpose(made: Made, described: Described) -> None:
    found, page = json.loads((made.pack / "card.json").read_text()), (made.pack / "card.md").read_text()
    assert found["data"]["data_commit"] == described.data_commit
    assert found["data"]["split_digest"] == described.split_digest
    assert described.split_digest[:16] in page
    assert found["model"]["labels"] == described.definitions
    use = found["use"]
    for word in ("human decision", "Diagnosis", "tracking authors"):
        assert any(word in line for line in use["prohibited"]), word
    assert all(line in page for line in (*use["intended"], *use["prohibited"], *found["failures"], *found["help"]))
    assert "findahelpline.com" in page
    assert all(f"| {label} | " in page for label in described.labels)
    assert "{" not in page


def test_the_description_in_mlflow_has_the_figures_and_prohibitions_and_fits(made: Made) -> None:
    page = (made.pack / "card.md").read_text()
    told = card.description(page)
    assert len(told) <= 5_000 and told.endswith("among the files of this version.")
    assert told.startswith("# crisis-posts") and "| macro_f1 | " in told and "## Known failures" in told
    long = card.description(page.replace("## Measured\n", "## Measured\n" + "a line of a table\n" * 400))
    assert 4_000 < len(long) <= 5_000 and "## Never for" not in long and long.endswith("of this version.")


def test_the_weakest_labels_are_named_with_what_carries_them(described: Described, numbers: dict[str, Any]) -> None:
    label = "rape_past"
    numbers["support"] = dict.fromkeys(numbers["labels"], 9) | {"selfharm_past": 2}
    model = numbers["models"]["encoder-consensus"]
    for k, name in enumerate(numbers["labels"]):
        model["all"]["labels"][name]["f1"] = {"mean": 0.5 + k / 100, "low": 0.4, "high": 0.7}
    model["all"]["labels"][label]["f1"] = {"mean": 0.125, "low": 0.05, "high": 0.25}
    said = list(failures(model, measured=numbers, thing="post"))
    assert said[0].startswith(f"`{label}` is among its weakest labels: F1 0.12 [0.05, 0.25]")
    assert "on 9 items" in said[0]
    assert any("Fewer than 5 items" in line and "selfharm_past" in line and label not in line for line in said)


def test_confusions_and_refusals_are_said_where_they_happened(numbers: dict[str, Any]) -> None:
    model = numbers["models"]["encoder-consensus"]
    for confusion in model["crises"]["confusions"].values():
        for swap in confusion["swaps"]:
            swap |= {"count": 0, "of": 10, "rate": 0.0}
    quiet = list(failures(model, measured=numbers, thing="post"))
    assert not any("was predicted as" in line or "without an answer" in line for line in quiet)
    level = model["crises"]["confusions"]["level"]["swaps"]
    [passive] = [swap for swap in level if swap["gold"] == "passive"]
    passive |= {"count": 3, "rate": 0.3}
    model["outcomes"] = {"vote": 20, "malformed": 4}
    loud = list(failures(model, measured=numbers, thing="post"))
    assert "`passive` was predicted as `active` in 3 of 10 (0.30) cases." in loud
    assert "It left a post without an answer 4 times: 4 malformed." in loud
    assert set(quiet) < set(loud)


def test_a_figure_that_is_undefined_is_no_number(described: Described, numbers: dict[str, Any]) -> None:
    model = numbers["models"]["encoder-consensus"]
    model["all"]["figures"]["exact"] = {"mean": None, "std": None, "n": 0, "low": None, "high": None}
    page = card.page(card.card(described, measured=numbers))
    assert "| exact | – | " in page
    assert "None" not in page
    assert "nan" not in page


def test_alerts_are_on_the_card_with_their_guarantee_and_their_rate(
    described: Described, numbers: dict[str, Any]
) -> None:
    few = alert(np.linspace(0.2, 0.9, 40), truth=np.arange(40) >= 20, floor=0.9)
    enough = alert(np.linspace(0.2, 0.9, 100), truth=np.arange(100) >= 50, floor=0.9)
    rates = {"recall": {"count": 20, "of": 40, "rate": 0.5}, "alert_rate": {"count": 30, "of": 90, "rate": 1 / 3}}
    model = numbers["models"]["encoder-consensus"]
    model["floors"]["rape_past"] = {"floor": 0.9, "alert": {"dev": asdict(enough), **rates, "verdict": "below"}}
    found = card.card(described, measured=numbers, alerts={"selfharm_past": asdict(few), "rape_past": asdict(enough)})
    assert found["alerts"]["selfharm_past"]["guarantee"] is False
    assert found["alerts"]["selfharm_past"]["test"] is None
    assert found["alerts"]["rape_past"]["test"]["alert_rate"] == rates["alert_rate"]
    page = card.page(found)
    assert "| selfharm_past | 0.9 | 20 | 0.86, without guarantee of the floor | – | – | – |" in page
    assert "| rape_past | 0.9 | 50 | 0.91 | 20 of 40 (0.50) | 30 of 90 (0.33) | below the guarantee |" in page
    assert any("finds fewer posts of test than guaranteed: 20 of 40 (0.50)" in line for line in found["failures"])
    assert "the gate compares macro-F1" in page
