"""The declared tables (queues, joint errors): their values are those of short scripts that share no code with them."""

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from pipelines.core.config import params as params_module
from pipelines.core.config.models import Entry, Evaluate
from pipelines.core.config.params import Params
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report import report
from tests.contexts import context_of
from tests.evaluate.figsim_runs import SCHEME, write_gold, write_run
from tests.evaluate.test_report import LABELS
from tests.refusals import refused

ROOT = Path(__file__).parents[2]
ITEMS = [(f"r{i:03}", 0) for i in range(80)]
GROUPS = {item: f"g{i // 2}" for i, item in enumerate(ITEMS)}
REACHED = {"None", "Suicide ideation", "Suicide attempt/death"}
DAY = {"arrivals": 200, "read": [20, 70]}
DECLARED = {"queues": {"memes": {"severity": DAY, "figurative": DAY}}, "joint": {"memes": [["figurative", "severity"]]}}


def said(key: str, gold: frozenset[str], rng: random.Random, share: float) -> frozenset[str]:
    answer = gold if rng.random() < share else rng.choice(LABELS[key])
    return task_of(SCHEME, key).seen(answer)


def world(root: Path) -> dict[str, Any]:
    """Write gold and two runs of a model with probabilities in one of them; return what a script needs of them."""
    rng = random.Random(11)
    labels = {key: {item: rng.choice(values) for item in ITEMS} for key, values in LABELS.items()}
    write_gold(root, dict.fromkeys(ITEMS, "test"), labels, groups=GROUPS)
    runs: dict[str, Any] = {}
    for key in ("figurative", "severity", "related"):
        task = task_of(SCHEME, key)
        for seed in (1, 2):
            answers = {item: said(key, labels[key][item], rng, 0.6) for item in ITEMS}
            lost = dict.fromkeys(rng.sample(ITEMS, 4), "refused")
            scores = {}
            for item in ITEMS if seed == 1 else ():
                raw = [rng.choice((0.1, 0.2, 0.5)) + (label in answers[item]) for label in task.labels]
                shares = [x / sum(raw) if task.kind == "single" else x / 2 for x in raw]
                scores[item[0]] = np.array(shares, np.float32).tolist()
            write_run(root, key, "net", seed, answers, outcomes=lost, scores=scores)
            kept = {item: labels for item, labels in answers.items() if item not in lost}
            runs[key, seed] = kept, {item: scores[item[0]] for item in kept if item[0] in scores}
    theirs = {item: s for item, s in runs["severity", 2][0].items() if s & REACHED}
    kept = dict.fromkeys((item for item in ITEMS if item not in theirs), "abstained")
    write_run(root, "severity", "foreign", 0, dict.fromkeys(ITEMS, frozenset()) | theirs, outcomes=kept, source="asked")
    runs["foreign"] = theirs
    gold = {key: {i: task_of(SCHEME, key).seen(s) for i, s in labels[key].items()} for key in labels}
    return {"gold": gold, "runs": runs}


@pytest.fixture(scope="module")
def settings() -> Params:
    whole = params_module.load(ROOT)
    declared = Evaluate(resamples=300, seed=5, **DECLARED)
    labels = {"calm": "None", "sad": "Suicide ideation", "act": "Suicide attempt/death", "other": None}
    foreign = Entry(kind="saved", path="a.csv", labels=labels)
    return whole.model_copy(update={"evaluate": declared, "models": {**whole.models, "foreign": foreign}})


@pytest.fixture(scope="module")
def made(settings: Params, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    root = tmp_path_factory.mktemp("declared")
    known = world(root)
    return evaluate.run(context_of("memes", params=settings, root=root), sampling=Sampling(300, 5)), known


def unread(weights: dict, gold: dict, chance: dict, label: str, share: float) -> float:
    """The script: expected share of a label's items behind the first ``share`` of a queue; ties share the cut."""
    left, room = 0.0, share * sum(weights.values())
    for level in sorted(set(chance.values()), reverse=True):
        here = [item for item in gold if chance[item] == level]
        size = sum(weights[item] for item in here)
        read = min(1.0, max(0.0, room / size)) if size else 1.0
        room -= size
        left += sum(weights[item] * (1 - read) for item in here if label in gold[item])
    whole = sum(weights[item] for item in gold if label in gold[item])
    return left / whole if whole else float("nan")


def chance_of(key: str, answers: dict, scores: dict, gold: dict) -> dict:
    task, found = task_of(SCHEME, key), {}
    for item in gold:
        pairs = [(p, label) for p, label in zip(scores.get(item, ()), task.labels, strict=False) if label != "None"]
        if pairs and task.kind == "single":
            found[item] = round(sum(p for p, _ in pairs), 8)
        elif pairs:
            found[item] = round(1 - float(np.prod([1 - p for p, _ in pairs])), 8)
        else:
            found[item] = float(bool(answers[item] - {"None"})) if item in answers else -1.0
    return found


@pytest.mark.parametrize("key", ["severity", "figurative"])
def test_what_is_unread_is_what_a_script_counts(key: str, made: tuple[dict[str, Any], dict[str, Any]]) -> None:
    metrics, known = made
    queue, gold = metrics["tasks"][key]["models"]["net"]["queue"], known["gold"][key]
    chances = [chance_of(key, *known["runs"][key, seed], gold) for seed in (1, 2)]
    one = dict.fromkeys(gold, 1.0)
    for count, label in ((k, x) for k in DAY["read"] for x in task_of(SCHEME, key).labels):
        each = [unread(one, gold, chance, label, count / 200) for chance in chances]
        cell = queue["read"][str(count)][label]
        if not any(label in labels for labels in gold.values()):
            assert cell["share"]["mean"] is None
            continue
        assert cell["share"]["mean"] == pytest.approx(sum(each) / 2, abs=1e-7)
        support = sum(label in labels for labels in gold.values())
        assert cell["a_day"]["mean"] == pytest.approx(sum(each) / 2 * support / len(gold) * 200, abs=1e-6)
    assert queue["unanswered"] == 8
    assert queue["curve"]["Any"][0] == 1 and queue["curve"]["Any"][-1] == 0


def test_the_interval_of_what_is_unread_draws_whole_groups(made: tuple[dict[str, Any], dict[str, Any]]) -> None:
    metrics, known = made
    gold, rng = known["gold"]["severity"], random.Random(2)
    chances = [chance_of("severity", *known["runs"]["severity", seed], gold) for seed in (1, 2)]
    names, drawn = sorted(set(GROUPS.values())), []
    for _ in range(1500):
        often = Counter(rng.choices(names, k=len(names)))
        weights = {item: float(often[GROUPS[item]]) for item in gold}
        drawn.append(unread(weights, gold, rng.choice(chances), "Suicide planning", 0.35))
    cell = metrics["tasks"]["severity"]["models"]["net"]["queue"]["read"]["70"]["Suicide planning"]["share"]
    assert [cell["low"], cell["high"]] == pytest.approx(np.nanpercentile(drawn, [2.5, 97.5]), abs=0.09)


def test_joint_errors_are_what_a_script_counts(made: tuple[dict[str, Any], dict[str, Any]]) -> None:
    metrics, known = made
    (pair,) = metrics["joint"]
    wrong = []
    for seed in (1, 2):
        first, second = (known["runs"][key, seed][0] for key in ("figurative", "severity"))
        for item in first.keys() & second.keys():
            gold = [known["gold"][key][item] for key in ("figurative", "severity")]
            wrong.append((first[item] != gold[0], second[item] != gold[1], gold[1]))
    model, n = pair["models"]["net"], len(wrong)
    counts = Counter(each[:2] for each in wrong)
    assert model["answers"] == n
    assert [model[k]["count"] for k in ("both", "first_only", "second_only")] == [
        counts[True, True],
        counts[True, False],
        counts[False, True],
    ]
    assert model["if_wrong"]["of"] == sum(a for a, _, _ in wrong)
    rates = defaultdict(list)
    for a, b, gold in wrong:
        rates[gold] += [] if a else [b]
    corrected = sum(b if not a or not rates[gold] else np.mean(rates[gold]) for a, b, gold in wrong) / n
    assert model["corrected"]["value"] == pytest.approx(corrected, abs=1e-7)
    assert model["change"]["value"] == pytest.approx(corrected - sum(b for _, b, _ in wrong) / n, abs=1e-7)
    assert model["change"]["low"] <= model["change"]["value"] <= model["change"]["high"]


def test_transfer_is_what_scikit_learn_scores_on_the_labels_of_the_map(made: tuple[dict[str, Any], Any]) -> None:
    metrics, known = made
    gold, models = known["gold"]["severity"], metrics["tasks"]["severity"]["models"]
    items, reached = sorted(gold), sorted(REACHED)

    def macro(answers: dict) -> float:
        truth, guess = (
            np.array([[label in each.get(item, ()) for label in reached] for item in items]) for each in (gold, answers)
        )
        return f1_score(truth, guess, average="macro", zero_division=0)

    part = models["foreign"]["transfer"]
    ours = np.mean([macro(known["runs"]["severity", seed][0]) for seed in (1, 2)])
    assert part["labels"] == reached and part["here"] == "net" and "transfer" not in models["net"]
    assert part["macro_f1"]["mean"] == pytest.approx(macro(known["runs"]["foreign"]), abs=1e-7)
    assert part["change"]["value"] == pytest.approx(macro(known["runs"]["foreign"]) - ours, abs=1e-7)


def test_the_report_has_the_declared_tables_and_says_how_to_read_them(made: tuple[dict[str, Any], Any]) -> None:
    page = report.build(made[0], corpus="memes", synthetic=False)
    text, html = report_page.markdown(page), report_page.html(page)
    for words in (
        "20 read: unread, %",
        "net: Suicide planning",
        "a queue in random order leaves 90 %",
        "It is no experiment",
        "3 of 5",
    ):
        assert words in text
    assert html.count("unread by items read a day, net") >= 2


def test_without_a_declaration_nothing_of_them_is_there(settings: Params, tmp_path: Path) -> None:
    world(tmp_path)
    plain = settings.model_copy(update={"evaluate": Evaluate(resamples=50, seed=5)})
    metrics = evaluate.run(context_of("memes", params=plain, root=tmp_path), sampling=Sampling(50, 5))
    assert "joint" not in metrics and "queue" not in metrics["tasks"]["severity"]["models"]["net"]
    assert "reviewers" not in report_page.markdown(report.build(metrics, corpus="memes", synthetic=False))


def test_an_unknown_task_or_label_is_refused(settings: Params, tmp_path: Path) -> None:
    world(tmp_path)
    for declared, code in (
        ({"joint": {"memes": [["figurative", "nothing"]]}}, "UnknownName"),
        ({"queues": {"memes": {"severity": {**DAY, "labels": ["Nothing"]}}}}, "BadParams"),
    ):
        wrong = settings.model_copy(update={"evaluate": Evaluate(resamples=50, seed=5, **declared)})
        with refused(code):
            evaluate.run(context_of("memes", params=wrong, root=tmp_path), sampling=Sampling(50, 5))
