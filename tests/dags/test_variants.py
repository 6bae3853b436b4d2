"""The Dags of a profile that adds a corpus, and in an Airflow of others: prefix, own pools and queues, notifier."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.core import rows
from pipelines.core.config.added_corpora import complete
from pipelines.core.config.params import load, overlay, read_params, validate
from pipelines.core.config.settings import Settings
from pipelines.core.errors import BadParams
from pipelines.operate.run import CorpusRun
from pipelines.workspace import dag_graph
from tests.dags.test_dags import EXPECTED, ROOT, parse

FORUM = {
    "content": "texts",
    "scheme": "cssrs",
    "subreddits": ["lonely"],
    "source": "dump",
    "first_month": "2022-11",
    "last_month": None,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what the Dags read, with a profile that adds a corpus of texts and one of images."""
    copy = tmp_path_factory.mktemp("root")
    for name in ("dvc.yaml", "params.yaml", "catalogue.yaml", "rows.yaml"):
        shutil.copy(ROOT / name, copy)
    for name in ("profiles", "dags", "plugins", "pipelines"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    pictures = {**FORUM, "content": "images", "scheme": "figsim"}
    profile: dict[str, Any] = {"corpora": {"forum": FORUM, "pictures": pictures}, "sample": {"forum": {"size": 90}}}
    (copy / "profiles" / "team.yaml").write_text(yaml.safe_dump(profile))
    profile |= {"votes": {"labellers": {"forum": ["characters", "words", "embedding"]}}}
    profile |= {"silver": {"ensembles": {"forum": ["offline"]}}}
    (copy / "profiles" / "labelled.yaml").write_text(yaml.safe_dump(profile))
    profile["corpora"] |= {"memes": None, "posts": None}
    (copy / "profiles" / "bare.yaml").write_text(yaml.safe_dump(profile))
    return copy


def test_a_corpus_has_defaults_by_its_content(root: Path) -> None:
    params = load(root, profile="team")
    assert params.matrix.corpora == ("memes", "posts", "forum", "pictures")
    assert params.sample["forum"].size == 90
    assert (params.sample["pictures"].size, params.sample["forum"].seed) == (1000, params.sample["pictures"].seed)
    assert list(params.split["forum"].ratios) == ["train", "dev", "test"] and params.split["forum"].sizes is None
    assert list(params.split["pictures"].ratios) == ["train", "validation", "test"]
    assert params.split["pictures"].strata == params.split["memes"].strata
    unstated = read_params(root)
    unstated["corpora"] |= {"forum": FORUM}
    assert complete(unstated)["votes"]["labellers"]["forum"] == [] and params.votes.labellers["pictures"] == ()
    assert params.gold["forum"].splits is params.gold["pictures"].splits is None, "people label the whole sample"
    assert params.train.rows["forum"].subsets == ("gold",) and params.predict.rows["forum"] == ()
    assert params.gold["forum"].truth is False and params.batch_predict["forum"] == ()
    before = load(root)
    assert {name: params.sample[name] for name in before.sample} == before.sample
    values = complete(overlay(read_params(root), yaml.safe_load((root / "profiles" / "team.yaml").read_text())))
    read = re.findall(r"(\w+)\.\$\{item\.corpus\}\.(\w+)", (root / "dvc.yaml").read_text())
    assert read and all(
        key in values[section][name] for section, key in read for name in params.corpora if section in values
    )


def test_memes_and_posts_may_be_left_out_with_all_that_is_keyed_by_them(root: Path, tmp_path: Path) -> None:
    params, usual = load(root, profile="bare"), load(root)
    assert list(params.corpora) == ["forum", "pictures"]
    text = params.model_dump_json(exclude={"analysis", "models"})
    assert '"memes"' not in text and '"posts"' not in text
    assert "memes" in usual.round.protocol and "posts" in usual.release.corpora
    texts = {name: (root / name).read_text() for name in dag_graph.SOURCES}
    graph = dag_graph.resolve(texts | {"profile": (root / "profiles" / "bare.yaml").read_text()})
    assert {stage["name"].partition("@")[2].partition("-")[0] for stage in graph["stages"]} == set(params.corpora)
    parsed = parse(tmp_path, CORPUS_PROFILE="bare", CORPUS_ROOT=str(root))
    assert parsed["errors"] == {}
    assert not [name for name in parsed["dags"] if name.startswith(("memes", "posts"))]
    assert {"forum_label", "pictures_benchmark", "release", "promote", "annotation_round"} <= parsed["dags"].keys()


def test_of_two_corpora_one_of_whose_names_begins_the_other_each_has_its_own_stages(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    profile: dict[str, Any] = {"corpora": {"memes": None, "posts": None, "a": FORUM, "a-b": FORUM}}
    texts = {name: (root / name).read_text() for name in dag_graph.SOURCES}
    mine = {"foreach": ["a", "a-b"], "do": {"cmd": "true", "deps": ["snapshot/${item}/gold/gold.parquet"]}}
    texts["dvc.yaml"] = texts["dvc.yaml"].replace("stages:\n", f"stages:\n  mine: {json.dumps(mine)}\n", 1)
    graph = dag_graph.resolve(texts | {"profile": yaml.safe_dump(profile)})
    assert {stage["corpus"] for stage in graph["stages"]} == {"a", "a-b"}
    for corpus, other in (("a", "a-b"), ("a-b", "a")):
        run = CorpusRun(Settings.from_env(), corpus, doing=lambda _: nullcontext(), say=str)
        run.graph = graph
        own = {name for dag in graph["dags"][corpus].values() for name in dag["targets"]}
        assert f"mine@{corpus}" in own and f"mine@{other}" not in own
        train = f"train@{corpus}-severity-knn-gold-1"
        assert {f"mine@{corpus}", train} <= {*run.own} and f"mine@{other}" not in run.own
    profile["corpora"]["a-offline"] = FORUM
    profile |= {"votes": {"labellers": {"a": ["words"]}}, "silver": {"ensembles": {"a": ["offline"]}}}
    with pytest.raises(BadParams, match="the stage 'a-offline'; rename one"):
        dag_graph.resolve(texts | {"profile": yaml.safe_dump(profile)})


@pytest.mark.parametrize("content", [["images"], {"images": None}, 1, None])
def test_a_content_of_a_wrong_form_is_named(content: object) -> None:
    values = read_params(ROOT)
    values["corpora"]["forum"] = FORUM | {"content": content}
    with pytest.raises(BadParams, match=r"corpora\.forum\.content"):
        validate(complete(values), where="params.yaml")


def test_its_dags_are_those_of_its_content(root: Path, tmp_path: Path) -> None:
    parsed: dict[str, Any] = parse(tmp_path, CORPUS_PROFILE="labelled", CORPUS_ROOT=str(root))
    assert parsed["errors"] == {}
    dags = parsed["dags"]
    ours = {name for name in dags if name.startswith(("forum", "pictures"))}
    assert ours == {
        "forum_collect", "forum_refresh", "forum_dataset", "forum_label", "forum_benchmark",
        "pictures_collect", "pictures_refresh", "pictures_dataset", "pictures_benchmark",
    }  # fmt: skip
    params = load(root, profile="labelled")
    made = rows.resolve(params, root=root)
    sections: dict[str, dict[str, Any]] = {
        "votes": made.votes,
        "silver": made.silver,
        "injection_test": made.silver,
        "train": made.fits,
        "predict": made.answers,
    }
    for name in ours:
        corpus, _, kind = name.partition("_")
        like = f"{'posts' if corpus == 'forum' else 'memes'}_{kind}"
        own, others = ({*dags[dag]["tasks"]} for dag in (name, like))
        steps = {task.partition("__")[0] for task in own} & sections.keys()
        assert steps == {task.partition("__")[0] for task in others} & sections.keys()
        of_rows = {
            f"{step}__{key.removeprefix(f'{corpus}-')}"
            for step in steps
            for key, row in sections[step].items()
            if row.corpus == corpus
        }
        alike = {task for task in others if task.partition("__")[0] not in sections}
        if kind == "benchmark":
            models = [params.models[row.model] for row in made.answers.values() if row.corpus == corpus]
            asks = params.moderation.systems.get(corpus) or any(m.labeller or m.rationales for m in models)
            alike = alike - {"estimate"} | ({"estimate"} if asks else set())
        assert own == alike | of_rows
        assert dags[name]["description"] and name in dags[name]["doc"]
    assert "sweep__forum" in dags["deletion_sweep"]["tasks"]


PREFIX = "crisis_"
TASKS = """
"*": {queue: corpus}
gate: {queue: gpu-large, pool: shared-gpu, executor_config: {pod_template_file: /etc/gpu.yaml}}
label: {queue: internet}
memes_benchmark.train: {queue: a100, timeout_minutes: 90, pool_slots: 2}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def parsed(home: Path) -> dict[str, Any]:
    (home / "tasks.yaml").write_text(TASKS)
    notify = json.dumps({"path": "team_alerts.Notifier", "kwargs": {"to": "a-secret-address"}})
    more = {"PREFIX": PREFIX, "TASKS": str(home / "tasks.yaml"), "NOTIFY": notify, "SWEEP_HOURS": "6"}
    found = parse(home, **{f"CORPUS_AIRFLOW_{name}": value for name, value in more.items()})
    assert found["errors"] == {}
    return found


@pytest.fixture(scope="module")
def dags(parsed: dict[str, Any]) -> dict[str, Any]:
    return dict(parsed["dags"])


def names_of_assets(value: Any) -> Iterator[str]:
    """Yield the name of every asset and asset alias in a serialized Dag."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and "group" in value:
            yield value["name"]
        for inner in value.values():
            yield from names_of_assets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names_of_assets(inner)


def test_every_name_has_the_prefix(dags: dict[str, Any]) -> None:
    assert set(dags) == {PREFIX + name for name in EXPECTED}
    assets: set[str] = set()
    for dag in dags.values():
        assets |= {*names_of_assets(dag["serialized"])}
        tasks = dag["tasks"].values()
        found = {*dag["tags"], *(task["pool"] for task in tasks), *(name for task in tasks for name in task["outlets"])}
        assert all(name.startswith(PREFIX) for name in found - {"default_pool", "shared-gpu"})
    assert {f"{PREFIX}memes/dataset", f"{PREFIX}gold/memes", f"{PREFIX}model"} <= assets
    assert all(name.startswith(PREFIX) for name in assets)


def test_commands_in_the_documentation_have_the_prefix(dags: dict[str, Any]) -> None:
    assert "airflow dags trigger crisis_promote --conf" in dags["crisis_promote"]["doc"]
    assert "--dag-id crisis_memes_collect" in dags["crisis_memes_collect"]["doc"]


def test_tasks_are_placed_by_the_deployment(dags: dict[str, Any]) -> None:
    gate = dags["crisis_promote"]["tasks"]["gate"]
    assert (gate["queue"], gate["pool"]) == ("gpu-large", "shared-gpu")
    assert gate["executor_config"] == {"pod_template_file": "/etc/gpu.yaml"}
    train = next(t for name, t in dags["crisis_memes_benchmark"]["tasks"].items() if name.startswith("train__"))
    assert (train["queue"], train["pool"], train["slots"], train["timeout"]) == ("a100", "crisis_gpu", 2, 5400)
    # mapped over labellers and shards
    label = [task for name, task in dags["crisis_posts_label"]["tasks"].items() if name.startswith("label__")]
    assert label and all(task["queue"] == "internet" for task in label)


def test_other_tasks_go_to_the_queue_of_all(dags: dict[str, Any]) -> None:
    tasks = dags["crisis_posts_benchmark"]["tasks"]
    assert tasks["register"]["queue"] == tasks["pin"]["queue"] == "corpus"
    tuned = [task for name, task in tasks.items() if name.startswith("train__")]
    assert tuned and all(task["queue"] == "gpu" for task in tuned), "a queue of dvc.yaml is kept"


def test_answers_of_labellers_hold_no_gpu(dags: dict[str, Any]) -> None:
    posts, memes = (dags[f"crisis_{corpus}_benchmark"]["tasks"] for corpus in ("posts", "memes"))
    asked = [posts["predict__labels-gpt"], posts["predict__labels-cradle"], memes["predict__severity-gpt-5-mini-zero"]]
    assert {(task["queue"], task["pool"], task["timeout"]) for task in asked} == {("corpus", "default_pool", 21600)}
    names = ("labels-tiny-causal-zero", "labels-knn-consensus-20251001")
    computed = [posts[f"predict__{name}"] for name in names]
    assert {(task["queue"], task["pool"], task["timeout"]) for task in computed} == {("gpu", "crisis_gpu", 21600)}


def test_every_dag_calls_the_notifier_and_stores_no_argument_of_it(dags: dict[str, Any]) -> None:
    assert all(dag["callback"] for dag in dags.values())
    assert "a-secret-address" not in json.dumps(dags)
    assert "team_alerts" not in json.dumps(dags)


def test_a_wrong_setting_is_an_import_error_of_one_sentence(home: Path) -> None:
    errors = parse(home, CORPUS_AIRFLOW_TASKS="{gaet: {queue: gpu}}")["errors"]
    assert {Path(file) for file in errors} == set((ROOT / "dags").glob("*.py"))
    for text in errors.values():
        assert text.strip().splitlines()[-1].endswith("CORPUS_AIRFLOW_TASKS: no Dag has a task 'gaet'.")
