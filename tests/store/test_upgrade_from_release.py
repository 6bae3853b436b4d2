"""An upgrade to a build with a stage and a column of a table more runs the new stage alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.core.config.settings import Settings
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests import small_corpus
from tests.small_checkout import checkout
from tests.stages import reproduce, rerun

CORPUS, MONTH, POSTS = "notes", "2022-11", 6
PROFILE = {
    "corpora": {
        "memes": None,
        "posts": None,
        CORPUS: {
            "content": "texts",
            "scheme": "cradle",
            "subreddits": ["notes"],
            "source": "dump",
            "first_month": MONTH,
            "last_month": MONTH,
        },
    },
    "sources": {"dump": {"ethics": "none needed: made up"}},
}
NEEDED = (
    "pipelines/",
    "crisis_corpus/",
    "schemes/",
    "snapshot/",
    "data/",
    ".dvc",
    ".gitignore",
    "docs/stages.py",
    "dvc.yaml",
    "rows.yaml",
    "params.yaml",
    "catalogue.yaml",
)
MADE = (f"dedupe@{CORPUS}", f"sample@{CORPUS}")
# A stage that reads the column that its own release added to a table.
STAGE = '''"""Count the items of the sample that have a reason."""

from __future__ import annotations

from typing import Any

from pipelines.store import tables
from pipelines.store.metrics_file import write_metrics
from pipelines.store.stage import Context, Stage

STAGE = Stage(reads=("sample",), params=(), writes=())


def run(ctx: Context) -> dict[str, Any]:
    """Write the counts."""
    path = ctx.root / "snapshot" / ctx.corpus / "sample" / "sample.parquet"
    rows = [row for batch in tables.batches(path, name="sample") for row in batch.to_pylist()]
    assert rows == tables.read(path, name="sample").to_pylist()
    counts = {"items": len(rows), "reasons": sum(row["why"] is not None for row in rows)}
    return write_metrics(counts, ctx.root / "metrics" / ctx.corpus / "tally.json")
'''
EDITS = {
    "pipelines/cli/stages.py": ('    "gold": "pipelines.annotate.gold",\n', '    "tally": "pipelines.curate.tally",\n'),
    "pipelines/store/tables.py": (
        '_contract("The items to label.", "record_id image", ITEM',
        ', _texts("why", nullable=True)',
    ),
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A checkout of the working tree."""
    return checkout(tmp_path / "code", only=NEEDED)


@pytest.fixture
def settings(tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A corpus of this release, two stages of which were run."""
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    (profile := tmp_path / "notes.yaml").write_text(yaml.safe_dump(PROFILE))
    repository.init(settings, checkout=code, profile=str(profile))
    with workspace(settings) as clone, Vault.existing(settings) as vault:
        names = {vault.record_id(f"t3_{n}"): f"t3_{n}" for n in range(POSTS)}
        small_corpus.admit(vault, names, corpus=CORPUS, month=MONTH)
        rows = [{"record_id": r, "title": f"Title {n}", "body": f"Body {n}"} for n, r in enumerate(names)]
        paths = [small_corpus.write_posts(clone.path, rows, corpus=CORPUS, month=MONTH, vault=vault)]
        texts = [small_corpus.full("texts", record_id=r, words=3, language="en", signature=bytes(128)) for r in names]
        paths.append(clone.path / "data" / CORPUS / MONTH / "texts" / "000.parquet")
        small_corpus.write_rows(texts, paths[-1], name="texts", vault=vault)
        clone.add(paths)
        reproduce(clone, MADE[-1])
        clone.commit("snapshot", paths=["data", "metrics", "dvc.lock"])
    return settings


def edit(code: Path) -> None:
    """Commit the newer build to the checkout."""
    (code / "pipelines" / "curate" / "tally.py").write_text(STAGE)
    for name, (mark, more) in EDITS.items():
        text = (code / name).read_text()
        assert text.count(mark) == 1, name
        (code / name).write_text(text.replace(mark, mark + more))
    environment = os.environ | {"PYTHONPATH": str(code)}
    subprocess.run([sys.executable, "docs/stages.py"], cwd=code, env=environment, check=True)
    git("add", "--all", cwd=code)
    git("commit", "--quiet", "-m", "a stage and a column more", cwd=code)


def test_the_new_stage_alone_runs_and_reads_the_new_column_as_null(code: Path, settings: Settings) -> None:
    edit(code)
    with workspace(settings) as clone:
        before = clone.lock()
        assert set(before) == {*MADE}
    upgraded = repository.upgrade(settings, checkout=code)
    assert upgraded is not None and (upgraded.kept, upgraded.to_run) == (MADE, ())
    with workspace(settings) as clone:
        after = clone.lock()
        assert {name: after[name]["outs"] for name in MADE} == {name: before[name]["outs"] for name in MADE}
        assert rerun(clone, f"tally@{CORPUS}") == [f"tally@{CORPUS}"]
        written = json.loads((clone.path / "metrics" / CORPUS / "tally.json").read_text())
        assert written == {"items": POSTS, "reasons": 0}
