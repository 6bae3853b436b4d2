"""`corpus plan backfill` estimates runs, requests, cost and disk, and the Dags that are woken."""

from __future__ import annotations

import json

import pytest
import yaml

from pipelines.core.config.settings import Settings
from pipelines.operate import backfill
from pipelines.operate.backfill import plan
from tests.doctor.conftest import Place
from tests.refusals import refused
from tests.small_corpus import own_scheme


def planned(place: Place, corpus: str, *, first: str = "2018-01", last: str = "2022-12") -> dict[str, object]:
    return plan(Settings.from_env(), corpus=corpus, first=first, last=last, root=place.root)


def test_five_years_from_arctic_shift_without_history(place: Place) -> None:
    place.params("corpora", "posts", "source", to="arctic_shift")
    place.params("sample", "posts", "size", to=1000)
    made = planned(place, "posts")
    assert (made["runs"], made["existing"], made["source"]) == (60, [], "arctic_shift")
    # 3,000 submissions of a subreddit are 30 pages and an empty one
    assert made["requests"] == 60 * 8 * 31
    assert made["hours"] == pytest.approx(60 * 8 * 31 / 60 / 60, abs=0.01)
    assert made["kept"] == 60 * 8 * 2100
    assert set(made["labelling"]) == {"gpt", "claude", "gemini"}  # type: ignore[call-overload]
    for one in made["labelling"].values():  # type: ignore[attr-defined]
        assert one["records"] == 1000 and one["usd_expected"] > 0
    assert made["usd_expected"] == pytest.approx(sum(o["usd_expected"] for o in made["labelling"].values()), abs=0.01)  # type: ignore[attr-defined]
    assert made["wakes"] == ["posts_dataset", "posts_label", "posts_benchmark", "posts_scoring"]
    assert any("a guess" in text for text in made["assumptions"])  # type: ignore[attr-defined]


def test_published_months_replace_the_guesses(place: Place) -> None:
    place.publish("data/memes/2022-11/records.parquet.dvc", "data/memes/2022-12/records.parquet.dvc")
    place.write("metrics/memes/quality.json", json.dumps({"collect": {"submissions": 400, "kept": 300}}))
    made = planned(place, "memes", first="2022-10")
    assert (made["runs"], made["existing"]) == (3, ["2022-11", "2022-12"])
    assert (made["submissions"], made["kept"], made["disk_gb"]) == (600, 450, 0.006)
    assert (made["requests"], made["labelling"], made["usd_expected"]) == (0, {}, 0)
    assert made["item_hours"] == 0.2
    assert any("mean of 2 published months" in text for text in made["assumptions"])  # type: ignore[attr-defined]


def test_reddit_warns_that_old_months_stay_empty(place: Place) -> None:
    place.params("corpora", "memes", "source", to="reddit")
    made = planned(place, "memes")
    assert made["requests"] == 60 * 10
    assert any("newest 1,000 posts" in text for text in made["assumptions"])  # type: ignore[attr-defined]


def test_a_model_without_a_price_leaves_the_cost_open(place: Place) -> None:
    place.params("labellers", "gpt", "model", to="a-model-of-our-own")
    assert planned(place, "posts")["usd_expected"] is None


def test_a_team_s_scheme_is_read_from_the_branch_or_the_checkout(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = own_scheme(place.root, like="cradle")
    values = yaml.safe_load((place.root / "profiles" / "sandbox.yaml").read_text())
    values["corpora"]["posts"]["scheme"] = scheme
    (place.root / "profiles" / "team.yaml").write_text(yaml.safe_dump(values))
    place.write("schemes/own.yaml", (place.root / "schemes" / "own.yaml").read_text())
    place.params("corpora", "posts", "scheme", to=scheme)
    assert planned(place, "posts")["labelling"]
    monkeypatch.setenv("CORPUS_REPO", str(place.home / "none.git"))
    monkeypatch.setenv("CORPUS_PROFILE", "team")
    assert planned(place, "posts")["labelling"]


def test_wrong_input_is_refused(place: Place) -> None:
    with refused("UnknownName"):
        planned(place, "nothing")
    with refused("BadPeriod"):
        planned(place, "posts", first="2022-12", last="2022-11")
    with refused("BadWindow"):
        planned(place, "posts", first="2022")


def test_it_is_printed_as_text(place: Place) -> None:
    shown = "\n".join(backfill.lines(planned(place, "posts")))
    assert "60 of posts_collect" in shown and "US dollars expected" in shown and "assumptions" in shown
