"""After a takedown, all that is kept tells the gold labels of the deleted records no better than their frequency."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from scipy.stats import binom

from pipelines.core.config.settings import Settings
from pipelines.store import tables
from pipelines.store.blind import blind
from pipelines.workspace.clone import Workspace, workspace
from pipelines.workspace.git import git
from pipelines.workspace.inventory import read_yaml
from pipelines.workspace.objects import digest_of, tree_digest
from tests import small_corpus
from tests.privacy import used_corpus as used
from tests.privacy.used_corpus import fullname
from tests.small_corpus import MONTHS, ROOT, gold_rows, write_table
from tests.stages import reproduce

LABELS = ("absent", "mild", "present", "severe")
GOLD, SOURCE = "snapshot/posts/gold/gold.parquet", "annotations/posts/set/gold.csv"
HEADER = ["record_id", "image", "category", "labels"]
TOGETHER = 3  # records of a takedown of several
LUCK = 1e-3  # chance that guesses by frequency are right more often than the bound


def begin(home: Path, *, records: int) -> Settings:
    """Make a corpus whose records have balanced labels, with the outs that our own stage `gold` declares."""
    settings = used.settings_of(home)
    outs = json.dumps(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["gold"]["outs"])
    gold = {
        "cmd": "python -P stage.py",
        "deps": ["data/posts", "annotations/posts"],
        "outs": json.loads(outs.replace("${item.corpus}", "posts")),
    }
    files = {
        "dvc.yaml": small_corpus.staged(yaml.safe_dump({"stages": {"gold": gold}})),
        "stage.py": Path(__file__).with_name("labels_stage.py").read_text(),
        "annotations/posts/.gitignore": "*.csv\n",
    }
    code = small_corpus.code_of(home / "code", small_corpus.ANNOTATED | small_corpus.SHELL | files)
    small_corpus.begin(settings, code=code)
    shutil.rmtree(code)
    with used.vault_of(settings) as vault, workspace(settings) as clone:
        names = {vault.record_id(fullname("posts", n)): fullname("posts", n) for n in range(records)}
        small_corpus.admit(vault, names, corpus="posts", month=MONTHS[0])
        posts = [{"record_id": i, "author_id": i, "title": "A window", "body": "and nothing"} for i in names]
        path = clone.path / SOURCE
        path.parent.mkdir(parents=True)
        with path.open("w", newline="") as file:
            lines = sorted([i, "0", "labels", LABELS[n % len(LABELS)]] for n, i in enumerate(names))
            csv.writer(file, lineterminator="\n").writerows([HEADER, *lines])
        clone.add([path, small_corpus.write_posts(clone.path, posts, corpus="posts", month=MONTHS[0], vault=vault)])
        measure(clone)
    return settings


def measure(clone: Workspace) -> None:
    """Run the stage, as the Dags do, and commit its result."""
    reproduce(clone)
    clone.commit("snapshot(posts): gold")


@dataclass
class Attacker:
    """Reads git, cache, remote and what lies beside, without secret and vault; knows the ids from before.

    ``before`` is the commit before a takedown, ``clone`` the newest one, with its tables checked out.
    """

    settings: Settings
    before: str
    clone: Workspace

    @cached_property
    def outs(self) -> dict[str, dict[str, Any]]:
        shown = [self._show("dvc.lock"), self._show(f"{SOURCE}.dvc")]
        stages = read_yaml(shown[0])["stages"].values()
        return {out["path"]: out for out in (*(o for s in stages for o in s["outs"]), *read_yaml(shown[1])["outs"])}

    def _show(self, path: str) -> str:
        return git("--git-dir", self.settings.repo, "show", f"{self.before}:{path}")

    def by_digest(self, ids: Sequence[str]) -> Sequence[str]:
        """Add guessed rows to the tables of today, and compare with the digests that are kept."""
        kept = json.loads((self.settings.home / "takedowns" / "objects.json").read_text())["digests"].keys()
        kept |= {out["md5"] for out in self.outs.values()}
        for guess, contents in self._guessed(ids):
            digests = {name: digest_of(content) for name, content in contents.items()}
            if kept.isdisjoint(digests.values()):
                digests = {name: self._without_keys(name, content) for name, content in contents.items()}
            if kept & {*digests.values(), tree_digest({Path(GOLD).name: digests[GOLD]})}:
                return guess
        return []

    def _without_keys(self, name: str, content: bytes) -> str:
        """Return the digest of a table whose bytes were made as ours, but without the keys."""
        place = self.clone.path / Path(name).name
        place.write_bytes(content)
        blind(place, keys=lambda: SimpleNamespace(keys=lambda _: {}, record_id=lambda i, domain: i))  # type: ignore[arg-type,return-value]
        return digest_of(place.read_bytes())

    def by_size(self, ids: Sequence[str]) -> Sequence[str]:
        """Compare the sizes that are kept in the same way; they tell something if they fit some guesses only."""
        sizes = self.outs["snapshot/posts/gold"]["size"], self.outs["gold.csv"]["size"]
        fits = [g for g, made in self._guessed(ids) if (len(made[GOLD]), len(made[SOURCE])) == sizes]
        return fits[0] if fits else []

    def _guessed(self, ids: Sequence[str]) -> Iterator[tuple[Sequence[str], dict[str, bytes]]]:
        now = tables.read(self.clone.path / GOLD, name="gold").to_pylist()
        lines = (self.clone.path / SOURCE).read_text().splitlines(keepends=True)
        place = self.clone.path / "guess.parquet"
        for guess in product(LABELS, repeat=len(ids)):
            added = {(i, 0): {"labels": [label]} for i, label in zip(ids, guess, strict=True)}
            write_table(place, [*now, *gold_rows(added)], name="gold")
            text = [*lines[1:], *(f"{i},0,labels,{label}\n" for i, label in zip(ids, guess, strict=True))]
            yield guess, {GOLD: place.read_bytes(), SOURCE: "".join([lines[0], *sorted(text)]).encode()}


WAYS = {"digest": Attacker.by_digest, "size": Attacker.by_size}


@pytest.mark.parametrize(("alone", "together"), [(8, 3), pytest.param(101, 99, marks=pytest.mark.faults)])
def test_labels_of_deleted_records_are_guessed_no_better_than_by_frequency(
    tmp_path: Path, alone: int, together: int
) -> None:
    records = alone + together
    settings, chance = begin(tmp_path / "home", records=2 * records), random.Random(records)
    order, right = chance.sample(range(2 * records), records), Counter[tuple[str, bool]]()
    cases = [[n] for n in order[:alone]] + [order[n : n + TOGETHER] for n in range(alone, records, TOGETHER)]
    with used.opened(settings) as house:
        for numbers in cases:
            truth = [LABELS[n % len(LABELS)] for n in numbers]
            ids, before = [house.vault.record_id(fullname("posts", n)) for n in numbers], house.tip()
            house.take_down(house.select(records=[fullname("posts", n) for n in numbers]))
            with workspace(settings) as clone:
                measure(clone)
                clone.checkout(GOLD, SOURCE)
                attacker = Attacker(settings, before, clone)
                for name, way in WAYS.items():
                    guess = way(attacker, ids) or [chance.choice(LABELS) for _ in ids]
                    hits = sum(one == other for one, other in zip(guess, truth, strict=True))
                    right[name, len(numbers) > 1] += hits
        assert house.vault.counts()["tombstones"] == records
    bounds = {False: binom.isf(LUCK, alone, 1 / len(LABELS)), True: binom.isf(LUCK, together, 1 / len(LABELS))}
    assert {key: hits for key, hits in right.items() if hits > bounds[key[1]]} == {}, (
        f"of {alone} and {together}: {right}"
    )
