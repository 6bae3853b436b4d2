"""CRADLE's Table 9: which items models have wrong, and in what way; the content opens for the vault's keys only."""

import csv
import stat
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load
from pipelines.datasets.example import NoGold
from pipelines.evaluate import error_items
from pipelines.evaluate.error_items import kinds_of
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.evaluate import posts_runs as posts
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
PARAMS = load_params(ROOT)
CATEGORY = load("cradle").category()
ACTIVE, PASSIVE = "suicideideation_active_ongoing", "suicideideation_passive_ongoing"
HARASSED, RAPE, ABUSE, HARM = "sexualharassment_past", "rape_past", "childabuse_endangerment_past", "selfharm_past"
CALM = "a calm walk by the river"


@pytest.mark.parametrize(
    ("said", "truth", "kinds"),
    [
        ({HARM}, {"no_crisis"}, {"over_extension:self_harm"}),
        ({RAPE, HARASSED}, {RAPE}, {"beside", "over_extension:sexual_harassment"}),
        ({ABUSE, HARASSED}, {HARASSED}, {"beside", "over_extension:child_abuse"}),
        ({ACTIVE, ABUSE}, {PASSIVE, ABUSE}, {"level"}),
        ({"selfharm_ongoing"}, {HARM}, {"time"}),
        ({"no_crisis"}, {HARM}, {"missed:self_harm"}),
    ],
)
def test_the_kinds_of_table_9_are_told_apart(said: set[str], truth: set[str], kinds: set[str]) -> None:
    assert set(kinds_of(said, truth=truth, category=CATEGORY)) == kinds


def test_labels_without_a_type_are_extra_or_missed() -> None:
    category = load("figsim").category("related")
    assert set(kinds_of({"Harmful factors"}, truth={"Protective factors"}, category=category)) == {"extra", "missed"}


@pytest.fixture
def corpus(tmp_path: Path) -> dict[str, frozenset[str]]:
    truth = posts.gold_of("test", n=12)
    posts.write_gold(tmp_path, {"test": truth})
    wrong = dict(truth)
    for record in ("test001", "test002", "test004"):
        wrong[record] = frozenset({"no_crisis"})
    posts.write_run(tmp_path, "untuned/gpt", {"test": wrong})
    claude = dict(wrong) | {"test002": truth["test002"]}
    posts.write_run(tmp_path, "untuned/claude", {"test": claude}, lost={"test004": "refused"})
    return truth


def test_an_item_is_listed_where_no_model_is_right(tmp_path: Path, corpus: dict[str, frozenset[str]]) -> None:
    found = error_items.listed("posts", models=["gpt", "claude"], params=PARAMS, root=tmp_path)
    assert [item.record_id for item in found] == ["test001", "test004"], "one model has test002 right"
    assert found[0].row() == {
        **{"record_id": "test001", "image": 0, "gold": ("selfharm_ongoing",), "kinds": ("missed:self_harm",)},
        "said": {"gpt": ("no_crisis",), "claude": ("no_crisis",)},
    }
    assert found[1].said == {"gpt": ("no_crisis",), "claude": None}, "a refusal is no answer"
    with refused("NoAnswers", match=r"Model 'gemini' has no predictions .* on claude, gpt"):
        error_items.listed("posts", models=["gemini"], params=PARAMS, root=tmp_path)


def test_a_commit_without_gold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoGold):
        error_items.listed("posts", models=["gpt"], params=PARAMS, root=tmp_path)


def test_the_content_opens_into_files_of_the_caller_alone(
    tmp_path: Path, corpus: dict[str, frozenset[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with Vault.open("sqlite://", secret=b"s" * 64) as vault:
        texts = [{"record_id": r, "title": "A note", "body": f"{CALM} {r}"} for r in corpus]
        small_corpus.admit(vault, {r: f"t3_{r}" for r in corpus}, corpus="posts", month="2022-11")
        small_corpus.write_posts(tmp_path, texts, corpus="posts", month="2022-11", vault=vault)
        given: dict[str, Any] = {"params": PARAMS, "root": tmp_path}
        found = error_items.listed("posts", models=["gpt", "claude"], **given)
        assert CALM not in repr(found)
        to = tmp_path / "opened"
        counts = error_items.write_content("posts", found, to=to, vault=vault, **given)
    assert counts == {"items": 2, "opened": 2}
    path = to / "items.csv"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(to.stat().st_mode) == 0o700
    rows = list(csv.DictReader(path.open()))
    assert [(row["record_id"], row["body"]) for row in rows] == [(r, f"{CALM} {r}") for r in ("test001", "test004")]
    assert CALM not in "".join(capsys.readouterr())
