"""Every column of our runs holds what scikit-learn makes of random answers, and nothing where there are none."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, jaccard_score, precision_recall_fscore_support, recall_score

from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.metrics.label_tables import UNDEFINED
from pipelines.models.kind import KINDS
from tests.contexts import context_of
from tests.evaluate import figsim_runs, posts_runs
from tests.evaluate.printed import paper, rows, sheet

ROOT = Path(__file__).resolve().parents[2]
FEW = Sampling(resamples=20, seed=1)
NAMES = load("cradle").category().names
N = 60
CRADLE, FIGSIM = paper("cradle"), paper("figsim")
TASKS = ("figurative", "severity", "related")


def vector(sets: list[frozenset[str]], labels: tuple[str, ...]) -> Any:
    return np.array([[label in labels_of for label in labels] for labels_of in sets], dtype=int)


def crisis(rng: Random) -> frozenset[str]:
    """Return a random valid label set: no crisis, or up to two labels of different types."""
    found: dict[str, str] = {}
    for label in rng.sample([n for n in NAMES if n != "no_crisis"], rng.randint(0, 2)):
        found.setdefault(label.split("_")[0], label)
    return frozenset(found.values()) or frozenset({"no_crisis"})


@pytest.fixture(scope="module")
def posts(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return metrics of random answers of all systems of CRADLE's Tables 4 and 8, gold, and what each answered."""
    rng, root = Random(20), tmp_path_factory.mktemp("posts")
    gold = {f"test{i:03d}": crisis(rng) for i in range(N)}
    posts_runs.write_gold(root, {"test": gold})
    places = [f"untuned/{key}" for key in CRADLE.tables["table_4"].rows]
    places += [
        f"finetuned/{name.rpartition('-')[2]}/{name.rpartition('-')[0]}" for name in CRADLE.tables["table_8"].rows
    ]
    said = {}
    for place in places:
        parts = place.split("/")
        name = f"{parts[2]}-{parts[1]}" if parts[0] == "finetuned" else parts[1]
        said[name] = {r: labels if rng.random() < 0.5 else crisis(rng) for r, labels in gold.items()}
        lost = {r: "refused" for r in gold if name == "gemini" and rng.random() < 0.2}
        posts_runs.write_run(root, place, {"test": said[name]}, lost=lost)
        said[name] = {r: None if r in lost else labels for r, labels in said[name].items()}
    metrics = evaluate.run(context_of("posts", params=load_params(ROOT, profile="cradle"), root=root), sampling=FEW)
    return metrics, gold, said


def scores(truth: Any, answer: Any) -> list[float]:
    """Return CRADLE's six scores as scikit-learn computes them."""
    given = {"average": None, "zero_division": 0}
    f1, recall = f1_score(truth, answer, **given), recall_score(truth, answer, **given)
    return [
        accuracy_score(truth, answer),
        jaccard_score(truth, answer, average="samples", zero_division=0),
        f1_score(truth, answer, average="micro", zero_division=0),
        float(np.mean(f1)),
        recall_score(truth, answer, average="micro", zero_division=0),
        float(np.mean(recall)),
    ]


def both(name: str, posts: Any, *, valid: bool) -> tuple[Any, Any]:
    _, gold, said = posts
    kept = [r for r in gold if said[name][r] is not None or not valid]
    answers = [said[name][r] or frozenset() for r in kept]
    return vector([gold[r] for r in kept], NAMES), vector(answers, NAMES)


def own_rows(table: str, metrics: Any) -> dict[str, tuple[str, ...]]:
    """Return our rows of a table of CRADLE by our model's name, without intervals."""
    found = {row[1].split(";")[0]: row for row in sheet("cradle", table, metrics).rows if row[1].startswith("ours: ")}
    return {whose.removeprefix("ours: "): tuple(c.split(" [")[0] for c in row[2:]) for whose, row in found.items()}


def test_cradles_table_4_is_scikit_learns(posts: Any) -> None:
    ours = own_rows("table_4", posts[0])
    assert ours.keys() == CRADLE.tables["table_4"].rows.keys() | CRADLE.tables["table_8"].rows.keys()
    for name, row in ours.items():
        truth, answer = both(name, posts, valid=True)
        assert row[6] == f"{len(truth)}/{N}"
        assert list(row[:6]) == [f"{value:.4f}" for value in scores(truth, answer)], name
    assert ours["gemini"][6] != f"{N}/{N}"


def test_cradles_table_8_is_scikit_learns(posts: Any) -> None:
    ours = rows(sheet("cradle", "table_8", posts[0]), whose="ours")
    assert len(ours) == 6
    for name, base in CRADLE.tables["table_8"].given.items():
        after, before = (scores(*both(model, posts, valid=False)) for model in (name, base))
        expected = [f"{100 * a:.2f} ({100 * (a - b):+.2f})" for a, b in zip(after, before, strict=True)]
        assert list(ours[CRADLE.names[name]][:6]) == expected


def test_cradles_tables_13_to_16_are_scikit_learns(posts: Any) -> None:
    for number in (13, 14, 15, 16):
        labels, ours = CRADLE.tables[f"table_{number}"].each["label"], own_rows(f"table_{number}", posts[0])
        assert ours.keys() >= CRADLE.tables["table_4"].rows.keys()
        for name, row in ours.items():
            truth, answer = both(name, posts, valid=True)
            precision, recall, f1, _ = precision_recall_fscore_support(truth, answer, average=None, zero_division=0)
            places = [NAMES.index(label) for label in labels]
            expected = [f"{value:.3f}" for i in places for value in (f1[i], precision[i], recall[i])]
            assert list(row) == expected, name


def test_cradles_table_12_counts_refusals_as_wrong(posts: Any) -> None:
    [row] = rows(sheet("cradle", "table_12", posts[0]), whose="ours").values()
    expected = [value for valid in (True, False) for value in scores(*both("gemini", posts, valid=valid))]
    assert list(row[:12]) == [f"{value:.4f}" for value in expected]


@pytest.fixture(scope="module")
def memes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return metrics of random answers of all systems of FigSIM's Table 3, gold, and what each answered by seed."""
    rng, root, scheme = Random(21), tmp_path_factory.mktemp("memes"), load("figsim")
    items = [(f"test-{i:03d}", 0) for i in range(N)]
    tasks = {key: task_of(scheme, key) for key in TASKS}

    def drawn(key: str) -> frozenset[str]:
        labels = tasks[key].labels
        if tasks[key].kind == "single":
            return frozenset({rng.choice(labels)})
        return frozenset(label for label in labels if rng.random() < 0.4)

    gold = {key: {item: drawn(key) for item in items} for key in tasks}
    # annotators' labels: the merged class has two names there
    raw = {
        key: {
            item: frozenset("Suicide death" if label == "Suicide attempt/death" else label for label in labels)
            or frozenset({"None"})
            for item, labels in sets.items()
        }
        for key, sets in gold.items()
    }
    figsim_runs.write_gold(root, dict.fromkeys(items, "test"), raw)
    said: dict[str, Any] = {}
    for key, cells in FIGSIM.tables["table_3"].rows.items():
        for place, task in enumerate(tasks):
            if cells[2 * place] is None:
                continue
            for seed in (1, 2):
                answers = {item: gold[task][item] if rng.random() < 0.5 else drawn(task) for item in items}
                said[key, task, seed] = [answers[item] for item in items]
                source = "prompted" if key.endswith(("-zero", "-few")) else "train"
                figsim_runs.write_run(root, task, key, seed, answers, source=source)
    metrics = evaluate.run(context_of("memes", params=load_params(ROOT, profile="figsim"), root=root), sampling=FEW)
    return metrics, {key: [gold[key][item] for item in items] for key in tasks}, said


def times_100(values: list[float]) -> str:
    """Return mean and standard deviation over runs as the table prints them."""
    return f"{100 * np.mean(values):.2f}±{100 * np.std(values, ddof=1):.2f}"


def test_figsims_table_3_is_scikit_learns(memes: Any) -> None:
    metrics, gold, said = memes
    made = sheet("figsim", "table_3", metrics)
    ours = rows(made, whose="ours")
    for key, cells in FIGSIM.tables["table_3"].rows.items():
        row = ours[FIGSIM.names[key]]
        for place, task in enumerate(TASKS):
            if cells[2 * place] is None:
                assert row[2 * place : 2 * place + 2] == (UNDEFINED, UNDEFINED)
                continue
            labels = tuple(metrics["tasks"][task]["labels"])
            truth = vector(gold[task], labels)
            runs = [vector(said[key, task, seed], labels) for seed in (1, 2)]
            for cell, average in zip(row[2 * place : 2 * place + 2], ("macro", "weighted"), strict=True):
                assert cell == times_100([f1_score(truth, run, average=average, zero_division=0) for run in runs]), key
    notes = [row[1] for row in made.rows if row[1].startswith("ours: ")]
    assert len(notes) == 22 and all("; 2 runs" in note for note in notes)


def test_figsims_table_4_is_scikit_learns(memes: Any) -> None:
    metrics, gold, said = memes
    for task in TASKS:
        found, order = metrics["tasks"][task], FIGSIM.tables[f"table_4_{task}"].each["label"]
        truth = vector(gold[task], order)
        every = [
            f1_score(truth, vector(said[found["best"], task, seed], order), average=None, zero_division=0)
            for seed in (1, 2)
        ]
        [row] = rows(sheet("figsim", f"table_4_{task}", metrics), whose="ours").values()
        assert list(row[:-2]) == [times_100([run[i] for run in every]) for i in range(len(order))]
        best = found["models"][found["best"]]["valid"]["figures"]
        cells = [best[name] for name in ("macro_f1", "weighted_f1")]
        assert list(row[-2:]) == [f"{100 * cell['mean']:.2f}±{100 * cell['std']:.2f}" for cell in cells]


def test_figsims_table_8_counts_our_gold(memes: Any) -> None:
    metrics, gold, _ = memes
    ours = rows(sheet("figsim", "table_8_severity", metrics), whose="ours")
    for label in metrics["tasks"]["severity"]["labels"][1:4]:
        assert ours[label][2] == ours[label][3] == str(sum(label in labels for labels in gold["severity"]))


def test_a_row_notes_figures_that_rest_on_less_than_a_paper(memes: Any) -> None:
    whose = {row[1].removeprefix("ours: ").split(";")[0]: row[1] for row in sheet("figsim", "table_3", memes[0]).rows}
    kinds = {key: model["kind"] for key, model in memes[0]["tasks"]["severity"]["models"].items()}
    noted = {key: note for key, kind in kinds.items() if (note := KINDS.get(kind, {}).note)}
    assert noted.keys() == {"yadav"} and all(note in whose[key] for key, note in noted.items())
    assert not any(note in whose[key] for note in noted.values() for key in kinds.keys() - noted.keys())


def test_without_our_results_there_is_no_row_of_ours(memes: Any, posts: Any) -> None:
    """No figure of a paper is in a row of ours: with all results removed, there is none."""
    for name, (metrics, *_) in {"figsim": memes, "cradle": posts}.items():
        tasks = {
            key: {**task, "models": {}, "best": None, "baselines": {}, "pairs": []}
            for key, task in metrics["tasks"].items()
        }
        for key, table in paper(name).tables.items():
            if table.rows and table.like in (
                "scores",
                "label_scores",
                "changes",
                "unanswered",
                "presence",
                "conditions",
            ):
                assert not rows(sheet(name, key, {**metrics, "tasks": tasks}), whose="ours"), key
