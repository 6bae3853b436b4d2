"""A backtest learns from months until one, answers about later items of validation, and never sees the test."""

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import f1_score

from pipelines.core import rows as row_file
from pipelines.core.config.params import Params, overlay, read_params
from pipelines.core.config.settings import Settings
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.evaluate.report import page, report
from pipelines.models import predict, train
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests.contexts import context_of
from tests.refusals import refused
from tests.small_corpus import write_posts
from tests.train import small_memes
from tests.train.small_memes import MONTHS, REPO

KEY = "severity-lines-gold-1"
LATER = f"{KEY}-until-{MONTHS[0]}"


def params_of(**rows: Any) -> Params:
    wanted = {"models": ["lines"], "seeds": [1], "until": [MONTHS[0]], **rows}
    own = {
        "models": {"lines": {"kind": "linear", "tasks": ["severity"]}},
        "train": {"rows": {"memes": wanted, "posts": {"models": [], "subsets": ["gold"]}}},
        "registry": {},
        "batch_predict": {"memes": [], "posts": []},
        "report": {"titles": {}},
    }
    return Params.model_validate(overlay(read_params(REPO), own))


def test_a_backtest_learns_from_before_and_is_scored_on_what_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    params, settings = params_of(), Settings.from_env()
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        memes = small_memes.write(
            tmp_path, vault=vault, shows="text", sizes={"train": 120, "validation": 40, "test": 12}
        )
        items = list(memes.memes)
        month = {item: MONTHS[i % 2] for i, item in enumerate(items)}
        dev = [item for item in items if memes.memes[item].split == "validation"]
        # the first later item of validation shares its group with an earlier one
        group = {item: f"g{i}" for i, item in enumerate(items)} | dict.fromkeys(dev[:2], "shared")
        placed = [
            {"record_id": r, "image": n, "split": memes.memes[r, n].split, "group": group[r, n]} for r, n in items
        ]
        small_memes.write_table(tmp_path / "snapshot/memes/split/splits.parquet", placed, name="splits")
        for name in MONTHS:
            posts = [
                {
                    "record_id": r,
                    "title": "",
                    "body": "",
                    "created": datetime.fromisoformat(f"{name}-03T00:00:00+00:00"),
                }
                for (r, _), at in month.items()
                if at == name
            ]
            write_posts(tmp_path, posts, corpus="memes", month=name, vault=vault)
        (tmp_path / row_file.FILE).write_text(row_file.text(params, root=tmp_path))
        given = {"params": params, "settings": settings, "vault": vault, "root": tmp_path}
        done = {}
        for row in (KEY, LATER):
            done[row] = train.run(context_of("memes", row=row, **given))
            predict.run(context_of("memes", row=row, **given))
        metrics = evaluate.run(context_of("memes", **given), sampling=Sampling(200, 3))

    def said(row: str) -> dict[tuple[str, int], dict[str, Any]]:
        path = tmp_path / "snapshot/memes/predictions" / row / "predictions.parquet"
        return {(a["record_id"], a["image"]): a for a in tables.read(path, name="predictions").to_pylist()}

    later = [item for item in dev if month[item] == MONTHS[1] and group[item] != "shared"]
    assert set(said(LATER)) == set(later) and {a["split"] for a in said(LATER).values()} == {"validation"}
    early = Counter(memes.memes[item].split for item in items if month[item] == MONTHS[0])
    assert done[LATER]["train"]["records"] == early["train"] < done[KEY]["train"]["records"]
    assert done[LATER]["validation"] == early["validation"]
    # the script: macro-F1 of the same later items, by scikit-learn
    task = memes.task("severity")
    gold = [min(task.seen(memes.memes[item].labels["severity"])) for item in later]
    part = metrics["tasks"]["severity"]["backtest"][MONTHS[0]]
    model = part["models"][f"lines-until-{MONTHS[0]}"]
    scores = []
    for row in (LATER, KEY):
        answers = [min(said(row)[item]["labels"]) for item in later]
        scores.append(f1_score(gold, answers, labels=task.labels, average="macro", zero_division=0))
    assert part["n"] == len(later)
    assert [model["macro_f1"]["mean"], model["whole"]["mean"]] == pytest.approx(scores, abs=1e-7)
    assert model["change"]["value"] == pytest.approx(scores[0] - scores[1], abs=1e-7)
    # the ordinary results know nothing of it
    assert set(metrics["tasks"]["severity"]["models"]) == {"lines"}
    text = page.markdown(report.build(metrics, corpus="memes", synthetic=True))
    assert f"lines-until-{MONTHS[0]}" in text and "the frozen test takes no part" in text


def test_a_backtest_needs_gold_and_is_no_candidate(tmp_path: Path) -> None:
    found = row_file.resolve(params_of(), root=tmp_path)
    assert {(key, row.keep) for key, row in found.fits.items()} == {(f"memes-{KEY}", False), (f"memes-{LATER}", False)}
    with refused("BadParams", match="there is no row"):
        kept = params_of()
        row_file.resolve(
            kept.model_copy(update={"train": kept.train.model_copy(update={"keep": (f"memes-{LATER}",)})}),
            root=tmp_path,
        )
    with refused("BadParams", match="learns from gold"):
        row_file.resolve(params_of(subsets=["unanimous"], ensemble="offline"), root=tmp_path)
