"""The offline labellers: fair on dev, indifferent to order, silent where the gold taught them nothing."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pipelines.core.config.label import OfflineLabeller
from pipelines.core.config.params import load
from pipelines.core.taxonomy import Category, tiers_of
from pipelines.core.taxonomy import load as load_scheme
from pipelines.datasets.post import Post
from pipelines.label.attacks import inject
from pipelines.label.offline import Offline, fit
from pipelines.llm.outcome import Answer, Outcome
from pipelines.metrics.decoding import decode
from tests.label.offline_posts import Gold, pairs, written
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("embedded_once")
VOTES = load(Path(__file__).resolve().parents[2]).votes
CATEGORY = load_scheme("cradle").category()
# the texts of train/test_knn.py, so that only one of the two files embeds them
GOLD = written(120, seed=1)
NEW = written(70, seed=2)
MEMBERS = ("characters", "words", "embedding")


def fitted(features: Any, *, gold: Gold = GOLD, groups: list[str] | None = None) -> Offline:
    return fit(
        features,
        labeller=OfflineLabeller(kind="offline", features=features),
        gold=gold,
        category=CATEGORY,
        votes=VOTES,
        groups=groups or pairs(len(gold)),
    )


@pytest.fixture(scope="module")
def members(embedded_once: None) -> dict[str, Offline]:
    return {features: fitted(features) for features in MEMBERS}


@pytest.fixture(scope="module")
def answers(members: dict[str, Offline]) -> dict[str, list[Answer]]:
    return {name: member.label([post for post, _ in NEW]) for name, member in members.items()}


def right(given: list[Answer], gold: Gold) -> float:
    return float(np.mean([set(a.labels) == labels for a, (_, labels) in zip(given, gold, strict=True)]))


@pytest.mark.parametrize("features", MEMBERS)
def test_answers_are_valid_votes_in_the_order_of_the_posts(features: str, answers: dict[str, list[Answer]]) -> None:
    assert [a.record_id for a in answers[features]] == [post.record_id for post, _ in NEW]
    for answer in answers[features]:
        assert (answer.outcome, answer.labeller, answer.category) == (Outcome.VOTE, features, "labels")
        assert not CATEGORY.check(answer.labels, mode="strict", tiers=tiers_of("improved")).violations
        assert answer.scores is not None and len(answer.scores) == len(CATEGORY.names)
        assert all(0 <= score <= 1 for score in answer.scores)
        assert answer.row()["labels"] == sorted(answer.labels)


def test_each_member_reads_posts_and_their_mean_logit_is_no_worse_than_the_middle_one(
    answers: dict[str, list[Answer]],
) -> None:
    alone = sorted(right(given, NEW) for given in answers.values())
    assert alone[0] > 0.4  # the commonest set alone is right on a quarter
    scores = np.clip([[a.scores for a in given] for given in answers.values()], 1e-6, 1 - 1e-6)
    mean = 1 / (1 + np.exp(-np.log(scores / (1 - scores)).mean(axis=0)))
    decoded = decode(mean, category=CATEGORY)
    assert np.mean([a == b for a, (_, b) in zip(decoded, NEW, strict=True)]) >= alone[1] - 0.05


def test_labels_too_rare_to_learn_are_abstained_from(members: dict[str, Offline]) -> None:
    counts = {name: sum(name in labels for _, labels in GOLD) for name in CATEGORY.names}
    rare = tuple(sorted(name for name, n in counts.items() if n < VOTES.min_positives))
    assert rare
    for member in members.values():
        assert member.abstains == rare
        for answer in member.label([post for post, _ in NEW[:20]]):
            by_name = dict(zip(CATEGORY.names, answer.scores or (), strict=True))
            assert not set(answer.labels) & set(rare)
            assert {by_name[name] for name in rare} == {0.0}
            assert all(score > 0 for name, score in by_name.items() if name not in rare)


class Narrow(Category):
    """A category whose rules allow one set alone, and that holds a label too rare to learn."""

    def valid_sets(self, *, most: int = 4) -> list[frozenset[str]]:
        return [frozenset({"rape_past", "suicideideation_passive_past"})]


def test_where_every_valid_set_holds_a_rare_label_nothing_is_said() -> None:
    category = Narrow(**{field.name: getattr(CATEGORY, field.name) for field in fields(CATEGORY)})
    labeller = OfflineLabeller(kind="offline", features="words")
    member = fit("words", labeller=labeller, gold=GOLD, category=category, votes=VOTES, groups=pairs(len(GOLD)))
    for answer in member.label([post for post, _ in NEW]):
        assert (answer.outcome, answer.reason, answer.labels) == (Outcome.ABSTAINED, "rare_label", ())


@pytest.mark.parametrize("features", MEMBERS)
def test_neither_the_order_of_the_gold_nor_the_other_posts_matter(
    features: str, members: dict[str, Offline], answers: dict[str, list[Answer]]
) -> None:
    order = list(range(len(GOLD)))
    Random(5).shuffle(order)
    groups = pairs(len(GOLD))
    again = fitted(features, gold=[GOLD[i] for i in order], groups=[groups[i] for i in order])
    assert again.digest == members[features].digest
    assert again.label([post for post, _ in reversed(NEW[:12])])[::-1] == answers[features][:12]


def test_gold_posts_are_labelled_by_a_model_that_never_saw_their_group() -> None:
    """Random labels, each text twice in its group: a model that had seen the other copy would know the answer."""
    rng = Random(3)
    gold: Gold = []
    for number in range(60):
        words = " ".join(f"w{number}x{i}" for i in range(12))
        drawn = frozenset([rng.choice(["rape_past", "selfharm_past"])])
        gold += [(Post(f"{number:04x}{copy}", "same", words), drawn) for copy in "ab"]
    member = fitted("words", gold=gold)
    altered = [(inject(post, which=number), labels) for number, (post, labels) in enumerate(gold)]
    for known in (gold, altered):
        assert right(member.label([post for post, _ in known]), known) < 0.7
    strangers = [(replace(post, record_id=f"new{post.record_id}"), labels) for post, labels in gold]
    assert right(member.label([post for post, _ in strangers]), strangers) > 0.9


def test_progress_tells_of_every_post_once(members: dict[str, Offline]) -> None:
    told: list[int] = []
    members["words"].label([post for post, _ in GOLD], progress=told.append)
    assert told[-1] == len(GOLD) and len(told) > 1 and told == sorted(told)
    assert members["words"].label([]) == []


def test_what_the_labels_rest_on_is_in_the_digest(members: dict[str, Offline]) -> None:
    changed = [*GOLD[:-1], (GOLD[-1][0], frozenset(["no_crisis", "rape_past"]))]
    assert fitted("words", gold=changed).digest != members["words"].digest != members["characters"].digest


@pytest.mark.parametrize(("gold", "groups"), [([], None), (GOLD[:3], None), (GOLD, ["one author"] * len(GOLD))])
def test_too_little_gold_is_said_so(gold: Gold, groups: list[str] | None) -> None:
    with refused("GoldTooSmall", match=f"{len(gold)} items with gold"):
        fitted("words", gold=gold, groups=groups)
