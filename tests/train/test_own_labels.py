"""Labels of one's own: the same stages and the same Dag on an imported set whose scheme is an order of five grades."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.workspace.clone import workspace
from tests.stages import run_commands
from tests.train import own_labels as own

ROOT = own.ROOT
PEOPLE = 500
TASK, MODEL = "severity", "tiny-encoder-gold"
pytestmark = pytest.mark.faults
CHANGES: dict[str, object] = {
    "models": {
        "tiny-encoder": {
            "kind": "encoder", "base": "tiny:modernbert", "batch": 8, "max_tokens": 64, "learning_rate": 0.002,
            "warmup": 0.1, "weight_decay": 0.01, "epochs": 4,
        }
    },
    # a tenth of the people show no sign: an alert that misses none of them is raised for many
    "finetune": {
        "models": ["tiny-encoder", "knn"],
        "recall_floors": {
            "suicideideation_active_ongoing": 0, "selfharm_ongoing": 0, "Behavior": 0.9, "Attempt": 0.9,
        },
    },
    # one labeller is enough for what nothing is learnt from here
    "votes": {"labellers": ["words"]},
    "ensembles": {"offline": {"members": ["words"]}},
    "silver": {"resamples": 100},
    "evaluate": {"resamples": 200},
}  # fmt: skip
PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
dags = {name: {t.task_id: sorted(t.upstream_task_ids) for t in dag.tasks} for name, dag in bag.dags.items()}
print(json.dumps({"errors": bag.import_errors, "dags": dags}))
"""


@dataclass(frozen=True)
class Ran:
    """What the import reported, the stages that ran in their order, and what they left."""

    imported: dict[str, Any]
    stages: tuple[str, ...]
    metrics: dict[str, dict[str, Any]]
    page: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    home = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home / "var"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        settings = Settings.from_env()
        imported = own.begin(home, people=PEOPLE, settings=settings, changes=CHANGES)
        with workspace(settings) as clone:
            stages = run_commands("report@posts", clone=clone)
            metrics = {path.stem: json.loads(path.read_text()) for path in clone.path.glob("metrics/posts/*.json")}
            page = (clone.path / "snapshot" / "posts" / "report" / "report.md").read_text()
        yield Ran(imported, stages, metrics, page)


def test_the_imported_labels_are_gold_of_every_split(ran: Ran) -> None:
    assert (ran.imported["items"], ran.imported["gold"], ran.imported["texts"]["kept"]) == (PEOPLE,) * 3
    assert ran.metrics["gold"]["records"] == PEOPLE - 2
    assert ran.metrics["gold"]["how"] == {"published": PEOPLE - 2}, "two wrote what others had"


def test_the_model_learns_from_people_and_from_nothing_else(ran: Ran) -> None:
    told = ran.metrics["finetune-gold-tiny-encoder"]
    assert (told["subset"], told["ensemble"], told["train"]["records"], told["validation"]) == ("gold", None, 299, 100)
    assert sum(told["support"].values()) == 299
    assert told["unseen"] == []
    assert told["fit"]["alerts"].keys() == {"Behavior", "Attempt"}, "floors of another scheme's labels are put out"


def test_the_tuned_model_beats_the_majority_in_every_figure_of_an_order(ran: Ran) -> None:
    task = ran.metrics["evaluate"]["tasks"][TASK]
    assert (task["kind"], task["ordinal"], task["labels"]) == ("single", True, list(own.LEVELS))
    tuned = {name: cell["mean"] for name, cell in task["models"][MODEL]["valid"]["figures"].items()}
    majority = task["baselines"]["majority"]["figures"]
    assert task["n"] == 99
    assert tuned["exact"] > majority["exact"] + 0.3
    assert tuned["macro_f1"] > majority["macro_f1"] + 0.3
    assert tuned["kappa"] > 0.5 > majority["kappa"] == 0
    assert tuned["mae"] < majority["mae"]
    assert task["models"][MODEL]["outcomes"] == {"vote": 3 * 99}, "three seeds"


def test_no_model_with_an_alert_scores_below_the_majority_class(ran: Ran) -> None:
    task = ran.metrics["evaluate"]["tasks"][TASK]
    majority = task["baselines"]["majority"]["figures"]
    models = task["models"].items()
    warning = {name: model for name, model in models if any(floor["alert"] for floor in model["floors"].values())}
    assert warning.keys() >= {MODEL, "knn-gold"}
    for model in warning.values():
        figures = model["all"]["figures"]
        assert figures["exact"]["mean"] > majority["exact"]
        assert figures["macro_f1"]["mean"] > majority["macro_f1"]
        for alert in (floor["alert"] for floor in model["floors"].values()):
            assert not alert["dev"]["guarantee"], "twenty people or fewer cannot guarantee .9"
            assert alert["dev"]["recall"] == 1
            assert 0 <= alert["alert_rate"]["rate"] <= 1
            assert alert["recall"]["rate"] is not None
    page = ran.page.partition("**Alerts of labels with a recall floor**")[2]
    assert "without guarantee of the floor" in page.splitlines()[4]


def test_the_page_has_the_order_and_no_crises(ran: Ran) -> None:
    head, _, rest = ran.page.partition("**Suicide severity as an order**")
    kappa = ran.metrics["evaluate"]["tasks"][TASK]["models"][MODEL]["valid"]["figures"]["kappa"]["mean"]
    rows = {line.split("|")[1].strip(): line for line in rest.splitlines()[:8] if line.startswith("|")}
    assert "Quadratic-weighted kappa" in rows["Model"]
    assert f" {kappa:.2f} [" in rows[MODEL]
    assert "Majority" in head
    assert not any(word in ran.page for word in ("CRADLE Bench", "Table 4", "Over-extension", "confused"))


def test_everybody_has_one_grade_in_each_prediction(ran: Ran) -> None:
    outcomes = {"dev": {"vote": 100}, "test": {"vote": 99}}
    assert ran.metrics["predict_finetuned-gold-tiny-encoder"]["outcomes"] == outcomes
    confusion = ran.metrics["evaluate"]["tasks"][TASK]["models"][MODEL]["confusion"]
    assert sum(map(sum, confusion)) == 3 * 99


def test_the_stages_are_those_of_every_corpus_of_posts(ran: Ran) -> None:
    before = ["dedupe", "sample", "gold", "split", "few_shot", "votes", "silver"]
    after = ["finetune", "predict_finetuned", "baselines", "evaluate", "agreement", "analysis", "report"]
    tuned = {"finetune": 2, "predict_finetuned": 2, "repeats": 4}
    assert Counter(name.partition("@")[0] for name in ran.stages) == dict.fromkeys([*before, *after], 1) | tuned
    assert "finetune@posts-gold-tiny-encoder" in ran.stages


def test_the_dag_parses_under_the_profile_and_tunes_on_gold(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "CORPUS_HOME": str(tmp_path / "var"),
        "CORPUS_PROFILE": "cssrs",
    }
    argv = [sys.executable, "-c", PARSE, str(ROOT / "dags" / "posts_finetune.py")]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    parsed = json.loads(done.stdout.strip().rpartition("\n")[2])
    assert parsed["errors"] == {}
    tasks = parsed["dags"]["posts_finetune"]
    tuned = {task for task in tasks if task.startswith("finetune__")}
    assert tuned == {"finetune__gold-modernbert", "finetune__gold-knn"}
    assert all(tasks[task] == ["pin"] for task in tuned), "what labels is another Dag's"
    assert tasks["track"] == ["publish"]
