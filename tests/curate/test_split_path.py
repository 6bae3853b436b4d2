"""The split on the way that the Dags take: months, labels and an unfit item in, the stages of dvc.yaml, the publish.

The labels have Table 8's totals; 1,050 memes are sampled, and annotators find one of them unfit (FigSIM 3.1, 4, 5.1).
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bench.split import SIZES, figsim
from pipelines.annotate.imports import imports
from pipelines.core.config.params import FILES, load
from pipelines.core.config.settings import Settings
from pipelines.curate import split
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from pipelines.workspace import publish, repository
from pipelines.workspace.clone import workspace
from tests import small_corpus
from tests.annotate.published_sets import CODES
from tests.annotate.round_manifest import write_manifest
from tests.small_checkout import checkout
from tests.stages import reproduce

NOW = datetime(2023, 1, 2, tzinfo=UTC)
MATRIX, GROUP = figsim(3)
ITEMS = len(MATRIX) + 1
UNFIT = ITEMS - 1
TARGET = "split@memes"


@dataclass
class Lab:
    """A corpus repository under this project's own ``dvc.yaml`` and parameters."""

    settings: Settings
    vault: Vault

    def collect(self, month: str, *, numbers: range) -> None:
        """Commit a month of memes; those of one group of the matrix have one author."""
        with workspace(self.settings) as clone:
            rows = [self._post(n, month=month) for n in numbers]
            names = {row["record_id"]: _name(n) for n, row in zip(numbers, rows, strict=True)}
            small_corpus.admit(self.vault, names, corpus="memes", month=month)
            paths = [small_corpus.write_posts(clone.path, rows, corpus="memes", month=month, vault=self.vault)]
            pictures = [self._picture(n, record_id=r["record_id"]) for n, r in zip(numbers, rows, strict=True)]
            paths += small_corpus.write_images(clone.path, [pictures], corpus="memes", month=month, vault=self.vault)
            clone.add(paths)
            clone.commit(f"data(memes): {month}", paths=["data"])

    def _post(self, number: int, *, month: str) -> dict[str, Any]:
        group = GROUP[number] if number < len(GROUP) else 10_000 + number
        return {
            "record_id": self.vault.record_id(_name(number)), "author_id": self.vault.author_id(f"author-{group}"),
            "created": datetime(int(month[:4]), int(month[5:]), 1 + number % 28, tzinfo=UTC), "kind": "image",
            "subreddit": "SuicideMeme", "title": f"Title {number}", "body": "", "media": "[]",
        }  # fmt: skip

    def _picture(self, number: int, *, record_id: str) -> dict[str, Any]:
        hashed = int(np.random.default_rng([7, number]).integers(0, 2**64, dtype=np.uint64))
        return {
            "record_id": record_id, "image": 0, "sha256": f"{number:064x}", "bytes": b"x", "text": f"caption {number}",
            "words": 2, "fingerprint": hashed, "fingerprint_id": "phash-1", "ocr_engine": "none",
        }  # fmt: skip

    def import_labels(self, folder: Path) -> None:
        """Import the labels of all memes but the unfit one, without a split."""
        path = folder / "labels.csv"
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["permalink", "split", *CODES])
            for number, row in enumerate(MATRIX):
                out.writerow([f"/r/SuicideMeme/comments/{_name(number)[3:]}/x/", "train", *row.astype(int)])
        with workspace(self.settings) as clone:
            params = load(clone.path)
        imports.run(
            "memes", files=[path], mapping="figsim", params=params, settings=self.settings, vault=self.vault, now=NOW
        )

    def find_unfit(self) -> None:
        """Commit a closed round in which both annotators find an item unfit."""
        described = {"corpus": "memes", "protocol": "figsim", "phase": "large_scale", "scheme": "figsim", "size": 1}
        described |= {"status": "closed", "opened": NOW, "closed": NOW}
        described["decision"] = {"go_on": True, "reason": "agreement-sufficient", "at": NOW}
        common = {"record_id": self.vault.record_id(_name(UNFIT)), "image": 0, "round": "large-scale", "batch": 0}
        people = [{**common, "annotator": f"annotator-{n}"} for n in (1, 2)]
        answer = {"guideline": "1" * 16, "outcome": "unfit", "labels": None, "seconds": 1.0}
        answer |= {"answered": NOW, "note": None}
        with workspace(self.settings) as clone:
            folder = write_manifest(clone.path, "large-scale", **described)
            assigned = [{**one, "position": 0} for one in people]
            answers = [{**one, **answer, "category": "severity"} for one in people]
            for name, rows in (("assignments", assigned), ("annotations", answers)):
                write_rows(rows, folder / f"{name}.parquet", name=name, vault=self.vault)
            clone.add(sorted(folder.glob("*.parquet")))
            clone.commit("round(memes): large-scale closed", paths=["annotations"])

    def set(self, **values: Any) -> None:
        """Change parameters of the corpus, as `corpus params set` does."""
        with workspace(self.settings) as clone:
            path = clone.path / "params.yaml"
            params = yaml.safe_load(path.read_text())
            for place, value in values.items():
                section, key = place.split("__")
                params[section]["memes"][key] = value
            path.write_text(yaml.safe_dump(params, sort_keys=False))
            clone.commit("parameters", paths=[*FILES])
        small_corpus.sign(self.settings)

    def publish(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Run the stages of `memes_dataset` up to the split and publish them; return its metrics and assignments."""
        with workspace(self.settings) as clone:
            tokens = reproduce(clone, TARGET)
            report = json.loads((clone.path / "metrics/memes/split.json").read_text())
            table = tables.read(clone.path / "snapshot/memes/split/splits.parquet", name="splits")
            base = clone.head

        def remember(clone: Any) -> None:
            clone.checkout("snapshot/memes/split")
            split.remember("memes", params=load(clone.path), vault=self.vault, now=NOW, root=clone.path)

        publish.publish_snapshot(
            self.settings, corpus="memes", targets=[TARGET], run="a run", base=base, tokens=tokens, remember=remember
        )
        return report, dict(zip(table["record_id"].to_pylist(), table["split"].to_pylist(), strict=True))


def _name(number: int) -> str:
    return f"t3_{100_000 + number}"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path / "var"))
    settings = Settings.from_env()
    code = tmp_path / "code"
    code.mkdir()
    repository.init(settings, checkout=checkout(code), profile=None)
    with Vault.open(settings.vault_url, secret=settings.secret()) as vault:
        yield Lab(settings, vault)


@pytest.mark.faults
def test_labels_are_balanced_through_the_stages_and_no_member_moves(lab: Lab, tmp_path: Path) -> None:
    lab.collect("2022-11", numbers=range(ITEMS))
    blind, first = lab.publish()
    assert (len(first), blind["stratified_on"]) == (1050, "strata")
    assert "labels" not in blind

    lab.import_labels(tmp_path)
    lab.find_unfit()
    lab.set(gold__published="annotations/memes/figsim/gold.csv")
    unused, same = lab.publish()
    assert same == first, "labels move no member of a version"
    assert unused["labels"]["unused"] is True
    assert unused["labels"]["mean_deviation"] > 1 > 0.25 >= unused["labels"]["new_version"]["mean_deviation"]

    lab.set(split__version=2)
    report, labelled = lab.publish()
    assert report["sizes"] == SIZES == {"train": 633, "validation": 208, "test": 208}
    assert (report["stratified_on"], report["unfit"], len(report["balance"])) == ("labels", 1, 21)
    assert report["max_deviation"] <= 0.75
    assert report["mean_deviation"] <= 0.25
    assert report["straddling_groups"] == report["leakage"] == 0
    authors: dict[int, set[str]] = {}
    for number, group in enumerate(GROUP.tolist()):
        authors.setdefault(group, set()).add(labelled[lab.vault.record_id(_name(number))])
    assert all(len(splits) == 1 for splits in authors.values())

    lab.collect("2022-12", numbers=range(ITEMS, ITEMS + 60))
    lab.set(sample__size=ITEMS + 40)
    grown, after = lab.publish()
    assert labelled.items() <= after.items()
    assert (len(after), grown["stratified_on"], grown["leakage"]) == (1089, "labels and strata", 0)
    assert grown["labels"]["items"] == 1049 and "unused" not in grown["labels"]
    assert lab.vault.record_id(_name(UNFIT)) not in after
