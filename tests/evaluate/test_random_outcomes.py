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
from pipelines.report import figsim
from pipelines.report.cradle import tables as cradle_tables
from pipelines.report.papers import printed
from tests.evaluate import figsim_runs, posts_runs

ROOT = Path(__file__).resolve().parents[2]
FEW = Sampling(resamples=20, seed=1)
NAMES = load("cradle").category().names
N = 60


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
    places = [f"untuned/{key}" for key, *_ in printed("cradle")["table_4"]["rows"]]
    places += [f"finetuned/{subset}/{key}" for key, subset, *_ in printed("cradle")["table_8"]["rows"]]
    said = {}
    for place in places:
        parts = place.split("/")
        name = f"{parts[2]}-{parts[1]}" if parts[0] == "finetuned" else parts[1]
        said[name] = {r: labels if rng.random() < 0.5 else crisis(rng) for r, labels in gold.items()}
        lost = {r: "refused" for r in gold if name == "gemini" and rng.random() < 0.2}
        posts_runs.write_run(root, place, {"test": said[name]}, lost=lost)
        said[name] = {r: None if r in lost else labels for r, labels in said[name].items()}
    metrics = evaluate.run("posts", params=load_params(ROOT, profile="cradle"), root=root, sampling=FEW)
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


def test_cradles_table_4_is_scikit_learns(posts: Any) -> None:
    ours = {row[1].removeprefix("ours: "): row for row in cradle_tables.table_4(posts[0]).rows if "ours:" in row[1]}
    assert ours.keys() == {key for key, *_ in printed("cradle")["table_4"]["rows"]}
    for name, row in ours.items():
        truth, answer = both(name, posts, valid=True)
        assert row[2] == f"{len(truth)}/{N}"
        assert [cell.split(" [")[0] for cell in row[3:]] == [f"{value:.4f}" for value in scores(truth, answer)], name
    assert ours["gemini"][2] != f"{N}/{N}"


def test_cradles_table_8_is_scikit_learns(posts: Any) -> None:
    ours = {row[0]: row for row in cradle_tables.table_8(posts[0]).rows if row[1] == "ours"}
    assert len(ours) == 6
    for key, subset, title, base, *_ in printed("cradle")["table_8"]["rows"]:
        after, before = (scores(*both(name, posts, valid=False)) for name in (f"{key}-{subset}", base))
        expected = [f"{100 * a:.2f} ({100 * (a - b):+.2f})" for a, b in zip(after, before, strict=True)]
        assert list(ours[f"{title}, {subset}"][2:8]) == expected


def test_cradles_tables_13_to_16_are_scikit_learns(posts: Any) -> None:
    for sheet, number in zip(cradle_tables.tables_13_to_16(posts[0]), (13, 14, 15, 16), strict=True):
        labels = printed("cradle")[f"table_{number}"]["labels"]
        for row in (row for row in sheet.rows if row[1].startswith("ours:")):
            truth, answer = both(row[1].removeprefix("ours: "), posts, valid=True)
            precision, recall, f1, _ = precision_recall_fscore_support(truth, answer, average=None, zero_division=0)
            places = [NAMES.index(label) for label in labels]
            expected = [f"{value:.3f}" for i in places for value in (f1[i], precision[i], recall[i])]
            assert list(row[2:]) == expected, row[1]


def test_cradles_table_12_counts_refusals_as_wrong(posts: Any) -> None:
    rows = [row for row in cradle_tables.table_12(posts[0]).rows if row[0] == "gemini, ours"]
    for row, valid in zip(rows, (True, False), strict=True):
        assert [cell.split(" [")[0] for cell in row[2:]] == [
            f"{value:.4f}" for value in scores(*both("gemini", posts, valid=valid))
        ]


@pytest.fixture(scope="module")
def memes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return metrics of random answers of all systems of FigSIM's Table 3, gold, and what each answered by seed."""
    rng, root, scheme = Random(21), tmp_path_factory.mktemp("memes"), load("figsim")
    items = [(f"test-{i:03d}", 0) for i in range(N)]
    tasks = {key: task_of(scheme, key) for key in figsim.NAMES}

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
    for key, _, kind, *numbers in printed("figsim")["table_3"]["rows"]:
        for place, task in enumerate(tasks):
            if numbers[4 * place] is None:
                continue
            for seed in (1, 2):
                answers = {item: gold[task][item] if rng.random() < 0.5 else drawn(task) for item in items}
                said[key, task, seed] = [answers[item] for item in items]
                source = "prompted" if key.endswith(("-zero", "-few")) else "train"
                figsim_runs.write_run(root, task, key, seed, answers, source=source)
        assert kind
    metrics = evaluate.run("memes", params=load_params(ROOT, profile="figsim"), root=root, sampling=FEW)
    return metrics, {key: [gold[key][item] for item in items] for key in tasks}, said


def times_100(values: list[float]) -> str:
    """Return mean and standard deviation over runs as the table prints them."""
    return f"{100 * np.mean(values):.2f}±{100 * np.std(values, ddof=1):.2f}"


def test_figsims_table_3_is_scikit_learns(memes: Any) -> None:
    metrics, gold, said = memes
    rows = {row[0]: row for row in figsim.table_3(metrics).rows}
    for key, name, _, *numbers in printed("figsim")["table_3"]["rows"]:
        for place, task in enumerate(figsim.NAMES):
            ours = rows[name][4 + 4 * place], rows[name][6 + 4 * place]
            if numbers[4 * place] is None:
                assert ours == (UNDEFINED, UNDEFINED)
                continue
            labels = tuple(metrics["tasks"][task]["labels"])
            truth = vector(gold[task], labels)
            runs = [vector(said[key, task, seed], labels) for seed in (1, 2)]
            for cell, average in zip(ours, ("macro", "weighted"), strict=True):
                assert cell == times_100([f1_score(truth, run, average=average, zero_division=0) for run in runs]), key
    assert len(rows) >= 22 and all(rows[name][2] == "2" for _, name, *_ in printed("figsim")["table_3"]["rows"])


def test_figsims_table_4_is_scikit_learns(memes: Any) -> None:
    metrics, gold, said = memes
    rows = figsim.table_4(metrics).rows
    for task in figsim.NAMES:
        found, labels = metrics["tasks"][task], tuple(metrics["tasks"][task]["labels"])
        truth = vector(gold[task], labels)
        every = [
            f1_score(truth, vector(said[found["best"], task, seed], labels), average=None, zero_division=0)
            for seed in (1, 2)
        ]
        ours = {row[0]: row[3] for row in rows}
        for i, label in enumerate(labels):
            assert ours[label] == times_100([run[i] for run in every]), label
    averages = [row[3] for row in rows if "verage" in row[0]]
    bests = [metrics["tasks"][task]["models"][metrics["tasks"][task]["best"]]["valid"] for task in figsim.NAMES]
    cells = [best["figures"][name] for best in bests for name in figsim.FIGURES]
    assert averages == [f"{100 * cell['mean']:.2f}±{100 * cell['std']:.2f}" for cell in cells]


def test_figsims_table_8_counts_our_gold(memes: Any) -> None:
    metrics, gold, _ = memes
    rows = {row[0].split(maxsplit=1)[1]: row for row in figsim.table_8(metrics).rows if row[0] != "Total"}
    for label in metrics["tasks"]["severity"]["labels"][1:4]:
        assert rows[label][6] == rows[label][8] == str(sum(label in labels for labels in gold["severity"]))


def test_a_row_of_notes_is_beside_the_figures_that_rest_on_less_than_a_paper(memes: Any) -> None:
    sheet = figsim.table_3(memes[0])
    notes = {row[0]: row[-1] for row in sheet.rows if row[-1]} if sheet.columns[-1] == "Note" else {}
    kinds = {key: model["kind"] for key, model in memes[0]["tasks"]["severity"]["models"].items()}
    names = {key: name for key, name, *_ in printed("figsim")["table_3"]["rows"]}
    assert notes == {names[key]: note for key, kind in kinds.items() if kind and (note := KINDS.get(kind, {}).note)}


def test_without_our_results_our_columns_are_empty(memes: Any, posts: Any) -> None:
    """No figure of a paper is in a column of ours: with all results removed, these columns have no digit."""
    nothing = {**memes[0], "tasks": {key: {**t, "models": {}, "best": None, "baselines": {}, "pairs": []}
                                    for key, t in memes[0]["tasks"].items()}}  # fmt: skip
    for sheet in (figsim.table_3(nothing), figsim.table_4(nothing), figsim.table_12(nothing)):
        own = [i for i, name in enumerate(sheet.columns) if "ours" in name.lower() or name == "Our runs"]
        cells = {row[i] for row in sheet.rows for i in own if "Test memes" not in sheet.columns[i]}
        assert own and cells <= {UNDEFINED, "", "0/0"}
    empty = {**posts[0], "tasks": {"labels": {**posts[0]["tasks"]["labels"], "models": {}, "baselines": {}}}}
    for sheet in (cradle_tables.table_4(empty), cradle_tables.table_8(empty), *cradle_tables.tables_13_to_16(empty)):
        assert not [row for row in sheet.rows if row[1].startswith("ours")]
