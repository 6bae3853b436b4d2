"""``corpus status``: the numbers of the last publish, from the commit itself."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from pipelines.core.config.models import Subset
from pipelines.core.config.params import FILES
from pipelines.core.config.settings import Settings
from pipelines.core.process import now
from pipelines.core.rows import FILE as ROWS
from pipelines.core.rows import Fit, Rows
from pipelines.operate import status
from pipelines.operate.status import LAST_RUN, table
from pipelines.registry import versions
from pipelines.store.vault import checks
from pipelines.store.vault.vault import Vault
from pipelines.workspace import publish
from pipelines.workspace.git import git
from tests import mlflow_database
from tests.commands import output
from tests.refusals import refused
from tests.small_corpus import sign

ROOT = Path(__file__).resolve().parents[1]
SPLIT = {"sizes": {"train": 6}, "excluded": 0, "max_deviation": 0.5, "mean_deviation": 0.2, "leakage": 0, "balance": []}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    return Settings.from_env()


def test_without_a_corpus_it_says_how_to_begin(settings: Settings) -> None:
    with refused("NoCorpus"):
        status.gather(settings)


def published(settings: Settings, *, work: Path, **metrics: object) -> None:
    """Commit these metrics files of memes to a new corpus repository."""
    (work / "metrics" / "memes").mkdir(parents=True, exist_ok=True)
    for name, content in metrics.items():
        (work / "metrics" / "memes" / f"{name}.json").write_text(json.dumps(content))
    for name in FILES:
        shutil.copy(ROOT / name, work)
    (work / ".dvc").mkdir()
    (work / ".dvc" / "config").touch()
    git("init", "--quiet", "-b", "corpus", cwd=work)
    git("add", "--all", cwd=work)
    git("commit", "--quiet", "-m", "snapshot", cwd=work)
    git("clone", "--quiet", "--bare", str(work), settings.repo)
    sign(settings)
    Vault.create(settings).close()


def test_each_part_appears_when_it_exists(settings: Settings, tmp_path: Path) -> None:
    work = tmp_path / "work"
    published(settings, work=work, split=SPLIT)
    with Vault.existing(settings) as vault:
        vault.admit([("a" * 32, "t3_a"), ("b" * 32, "set/b")], corpus="memes", month="2022-12", now=now())
        with vault.database.writing() as connection:
            [known, _] = checks.known(connection, corpus="memes")
            checks.begin(connection, corpus="memes", now=now())
            checks.note(connection, {known: checks.SEEN}, corpus="memes", now=now())
    found = status.gather(settings)
    assert found["corpora"]["memes"]["deletions"] == {"never_checked": 1}
    assert not list((settings.home / "scratch").iterdir())
    assert found["commit"] == publish.head(settings) == git("rev-parse", "HEAD", cwd=work)
    [(corpus, memes), (other, nothing)] = found["corpora"].items()
    assert (corpus, other, nothing) == ("memes", "posts", {})
    assert memes["split"]["leakage"] == 0 and "balance" not in memes["split"]
    assert "collect" not in memes and "dedupe" not in memes
    assert "leakage" in output("status")


def test_what_dvc_shows_is_no_corpus(settings: Settings, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "metrics" / "all-corpora" / "summary").mkdir(parents=True)
    (work / "metrics" / "all-corpora" / "summary" / "memes.json").write_text("{}")
    published(settings, work=work, split=SPLIT)
    assert "all-corpora" not in status.gather(settings)["corpora"]


def test_truth_is_beside_the_removed_duplicates(settings: Settings, tmp_path: Path) -> None:
    quality = {"collect": {"kept": 5}, "ocr": {"word_recall": 0.9}, "truth": {"precision": 1.0, "recall": 0.5}}
    published(settings, work=tmp_path / "work", **{"quality": quality, "dedupe": {"pairs": 3, "dropped": 2}})
    found = status.gather(settings)["corpora"]["memes"]
    assert {key: found[key] for key in quality} == quality
    assert found["dedupe"] == {"pairs": 3, "dropped": 2, "precision": 1.0, "recall": 0.5}


def fit(model: str, *, subset: Subset, seed: int) -> Fit:
    row = {"corpus": "memes", "name": f"severity-{model}-{seed}", "task": "severity", "model": model}
    row |= dict.fromkeys(("labels", "reads"), "snapshot/a") | {"code": ()}
    return Fit.model_validate(row | {"subset": subset, "seed": seed, "keep": True})


def test_the_run_of_a_commit_has_the_models_evaluation_tables(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    cell = {"mean": 0.61, "low": 0.5, "high": 0.7}
    scores = {"figures": {"macro_f1": cell, "exact": cell}, "labels": {"none": {"f1": cell}}}
    figures = {"macro_f1": 0.62, "exact": 0.5, "weighted_f1": None}
    bert = {"kind": "text", "runs": 3, "valid": scores, "by_seed": {"1": {"all": {"figures": figures}}}}
    task: dict[str, Any] = {
        "n": 60, "labels": ["none"], "support": {"none": 12}, "models": {"bert": bert},
        "baselines": {"majority": {"figures": {"macro_f1": 0.1}}},
    }  # fmt: skip
    other = {**task, "models": {"gpt": {"kind": "prompted", "runs": 1, "valid": None}}}
    address = mlflow_database.place(tmp_path)
    monkeypatch.chdir(tmp_path)
    client = MlflowClient(address)
    trained = client.create_run("0", run_name="bert on severity, seed 1").info.run_id
    tuned = client.create_run("0", run_name="lora on unanimous labels, seed 7").info.run_id
    task["models"]["lora-unanimous"] = bert | {
        "by_seed": {"7": {"all": {"figures": {"exact": 0.4}}}, "8": {"all": {"figures": {"exact": 0.1}}}}
    }
    runs = {f"train-severity-bert-{seed}": {"weights": {"run": run}} for seed, run in ((1, trained), (2, "0" * 32))}
    runs |= {"train-severity-lora-7": {"weights": {"run": tuned}}, "train-severity-lora-8": {}}
    fits = [fit("bert", subset="gold", seed=seed) for seed in (1, 2)]
    fits += [fit("lora", subset="unanimous", seed=seed) for seed in (7, 8)]
    rows = Rows(votes={}, silver={}, fits={f"memes-{row.name}": row for row in fits}, answers={})
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ROWS).write_text(yaml.safe_dump({"format": 1, "rows": rows.model_dump(mode="json")}))
    published(settings, work=tmp_path / "work", evaluate={"tasks": {"severity": task, "related": other}}, **runs)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    run = status.track(Settings.from_env(), corpus="memes")["run"]
    assert client.get_run(trained).data.metrics == {"test_macro_f1": 0.62, "test_exact": 0.5}
    assert client.get_run(tuned).data.metrics == {"test_exact": 0.4}
    tracked = client.get_run(run)
    assert tracked.info.run_name == f"memes at {tracked.data.tags['data_commit'][:12]}"
    pages = {"corpus": "memes", "client": client}
    server = Settings.from_env().model_copy(update={"mlflow_tracking_uri": "http://user:secret@127.0.0.1:5000/"})
    of_commit = versions.pages_of_commit(server, commit=tracked.data.tags["data_commit"], **pages)
    assert of_commit == versions.pages_of_commit(server, commit="another", **pages)
    assert of_commit["run"].startswith("http://127.0.0.1:5000/#/experiments/") and of_commit["run"].endswith(run)
    assert "report" not in of_commit
    (tmp_path / "report.html").write_text("a page")
    later = client.create_run(tracked.info.experiment_id).info.run_id
    client.log_artifact(later, str(tmp_path / "report.html"), "report")
    reported = versions.pages_of_commit(server, commit=tracked.data.tags["data_commit"], **pages)
    assert reported["run"] == of_commit["run"] and reported["report"].endswith(f"{later}/artifacts/report/report.html")
    assert versions.pages_of_commit(Settings.from_env(), commit="-", corpus="memes") == {}
    path = client.download_artifacts(run, "evaluation", str(tmp_path))
    found = {file.stem: json.loads(file.read_text()) for file in Path(path).iterdir()}
    listed = [dict(zip(found["scores"]["columns"], row, strict=True)) for row in found["scores"]["data"]]
    assert [(row["task"], row["model"], row["macro_f1"]) for row in listed] == [
        ("related", "gpt", None), ("severity", "bert", 0.61), ("severity", "lora-unanimous", 0.61),
    ]  # fmt: skip
    [label] = [row for row in found["labels"]["data"] if row[1] == "bert"]
    assert label[:7] == ["severity", "bert", "none", 12, 0.61, 0.5, 0.7]


SCORE = {"mean": 0.61234567, "low": 0.5, "high": 0.7}
STATUS: dict[str, Any] = {
    "commit": "0123456789abcdef",
    "corpora": {
        "memes": {
            "collect": {"submissions": 1300, "dropped": {"deleted": 2, "gone": 3}},
            "split": {"sizes": {"train": 6, "test": 2}, "mean_deviation": 0.20000001},
            "benchmark": {"severity": {"majority": 0.13456789, "tiny": SCORE}},
        },
        "posts": {
            "collect": {"submissions": 480},
            "benchmark": {"labels": {"majority": 0.2, "knn": SCORE}},
            "votes": {"cost": 1.5},
        },
    },
    "vault": {"records": 7},
    "registry": {"meme-severity": {"champion": 1, "event": "promoted"}},
}


def shown(**more: Any) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=120).print(table(STATUS | more))
    return out.getvalue().splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│┃").split("│" if "│" in line else "┃")]


def test_each_corpus_has_a_column_and_a_number_has_one_row() -> None:
    rows = [cells(line) for line in shown() if "│" in line or "┃" in line]
    assert rows[0] == ["part", "number", "memes", "posts", "all"]
    assert ["collect", "submissions", "1,300", "480", ""] in rows
    assert ["", "dropped: deleted", "2", "", ""] in rows and ["", "dropped: gone", "3", "", ""] in rows
    assert ["split", "sizes: train", "6", "", ""] in rows
    assert ["", "severity: tiny", "61.2 [50.0, 70.0]", "", ""] in rows
    assert ["votes", "cost", "", "1.500", ""] in rows
    assert ["registry", "meme-severity: champion", "", "", "1"] in rows


def test_counts_that_a_takedown_leaves_are_said_to_be_those_of_the_last_run() -> None:
    assert LAST_RUN not in " ".join(shown(takedowns={"open": 1, "done": 0}))
    assert LAST_RUN in " ".join(" ".join(shown(takedowns={"open": 0, "done": 1})).split())


def test_rows_are_aligned_and_no_float_is_long() -> None:
    lines = shown()
    assert len({len(line) for line in lines[1:]}) == 1
    assert not any(re.search(r"\d\.\d{4}", line) for line in lines)


def test_figures_of_how_the_split_was_made_are_left_to_json() -> None:
    assert not any("deviation" in line for line in shown())
