"""FigSIM's leaking split through the commands: Table 8 member by member, and each score as published and leak-free."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from pipelines.annotate.imports import mapping
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as scheme_of
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from pipelines.workspace.stages import Definition
from tests.annotate import leaking_release
from tests.annotate.leaking_release import Release
from tests.commands import answered
from tests.small_checkout import checkout
from tests.stages import run_commands

pytestmark = pytest.mark.faults
SPLITS = "annotations/memes/replica/splits.csv"
# what the codes of nothing stand for is the empty set
NOTHING = {"figurative": "F4", "related": "SR6"}
NO_SANDBOX = {"sandbox": "accepted_without"}
PROFILE: dict[str, Any] = {
    "corpora": {"posts": None},
    "images": {"decode": NO_SANDBOX, "ocr": NO_SANDBOX},
    "sample": {"memes": {"size": 1049}},
    "gold": {"memes": {"published": "annotations/memes/replica/gold.csv"}},
    "split": {"memes": {"published": SPLITS, "proposals": 2000}},
    "few_shot": {"examples": {"memes": 0}},
    "moderation": {"systems": {"memes": []}},
    "train": {"rows": {"memes": {"models": ["small-image"], "subsets": ["gold"], "seeds": [1]}}},
    "predict": {"rows": {"memes": []}},
    "models": {"small-image": {"tasks": ["severity"]}},
    "evaluate": {"resamples": 100},
}


@dataclass(frozen=True)
class Ran:
    release: Release
    imported: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    page: str
    split: dict[str, str]
    leaks: set[str]
    gold: list[dict[str, Any]]
    names: dict[str, str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    home = tmp_path_factory.mktemp("figsim")
    release = leaking_release.write(home)
    code = checkout(home / "code")
    (code / "profiles/own.yaml").write_text(yaml.safe_dump(PROFILE))
    git("add", "--all", cwd=code)
    git("commit", "--quiet", "-m", "the profile", cwd=code)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(code):
        patch.setenv("CORPUS_HOME", str(home / "var"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        settings = Settings.from_env()
        repository.init(settings, checkout=code, profile="own")
        options = ("--mapping", str(home / "mapping.yaml"), "--pictures", str(home / "pictures"))
        imported = answered("import", "memes", str(home / "labels.csv"), *options)
        with workspace(settings) as clone, Vault.existing(settings) as vault:
            # a change of the published split runs again what keeps its members
            defined = Definition.resolve_all(clone.repo, ["dedupe@memes", "sample@memes"])
            assert all(SPLITS in stage.deps for stage in defined.values())
            assert clone.inventory().digest(SPLITS)
            run_commands("report@memes", clone=clone)
            metrics = {path.stem: json.loads(path.read_text()) for path in clone.path.glob("metrics/memes/*.json")}
            folder = clone.path / "snapshot/memes"
            names = {vault.record_id(f"replica/{name}", domain="import"): name for name in release.split}
            yield Ran(
                release,
                imported,
                metrics,
                (folder / "report" / "report.md").read_text(),
                {names[record]: part for (record, _), (part, _) in tables.splits(folder).items()},
                {names[record] for record, _ in tables.leaks(folder)},
                tables.read(folder / "gold/gold.parquet", name="gold").to_pylist(),
                names,
            )


def test_the_split_is_the_published_one_member_by_member_and_its_leaks_are_counted(ran: Ran) -> None:
    assert (ran.imported["items"], ran.imported["pictures"], ran.imported["matches"]) == (1049, 1049, True)
    repeating = [n for n in Counter(ran.release.author.values()).values() if n > 1]
    assert len(repeating) / len({*ran.release.author.values()}) == pytest.approx(0.15, abs=0.005)
    assert 2 * len(ran.release.copies) / 1049 == pytest.approx(0.12, abs=0.005)
    assert ran.split == ran.release.split
    assert ran.leaks == ran.release.leaking()
    told = ran.metrics["split"]["published"]["splits"]
    leaks = Counter(ran.split[name] for name in ran.leaks)
    for name, size in {"train": 633, "validation": 208, "test": 208}.items():
        assert told[name] == {"placed": size, "members": size, "deleted": 0, "missing": 0, "leaks": leaks[name]}
    assert leaks["train"] == 0 < min(leaks["validation"], leaks["test"])


def test_table_8_is_reproduced_label_by_label(ran: Ran) -> None:
    categories, expected = scheme_of("figsim").categories, mapping.read("figsim").expected
    codes = {(key, label.name): label.code for key, own in categories.items() for label in own.labels}
    found = {name: Counter[str]() for name in expected}
    for row in ran.gold:
        key, split = row["category"], ran.split[ran.names[row["record_id"]]]
        found[split].update([codes[key, label] for label in row["labels"]] or [NOTHING[key]])
    assert found == {name: Counter(part.by_label) for name, part in expected.items()}


def test_each_score_is_printed_as_published_and_leak_free(ran: Ran) -> None:
    task = ran.metrics["evaluate"]["tasks"]["severity"]
    leaks = sum(ran.split[name] == "test" for name in ran.leaks)
    model = task["models"]["small-image"]
    assert (task["n"], task["leaks"], model["leak_free"]["n"]) == (208, leaks, 208 - leaks)
    assert f"{leaks} memes of test share a near-duplicate or an author with an earlier split." in ran.page
    sheet = ran.page.partition("As published and leak-free")[2]
    printed = next(line for line in sheet.splitlines() if "small-image" in line)
    for scores in (model["valid"], model["leak_free"]["valid"]):
        assert f"{100 * scores['figures']['macro_f1']['mean']:.1f}" in printed
    assert model["valid"]["figures"] != model["leak_free"]["valid"]["figures"]
