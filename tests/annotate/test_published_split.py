"""A published split is taken as its authors made it, member by member, from the import to the split."""

import random
from pathlib import Path
from typing import Any

import yaml

from pipelines.annotate import gold
from pipelines.core.config.params import Params
from pipelines.curate import sample, split
from pipelines.curate.dedupe import dedupe
from pipelines.store import tables
from pipelines.workspace.clone import workspace
from tests.annotate import published_sets as sets
from tests.annotate.test_imports import NOW, Imports, empty, params, run, settings, vault
from tests.contexts import context_of

__all__ = ["empty", "params", "run", "settings", "vault"]
SIZES = {"train": 60, "dev": 20, "test": 20}
MAPPING = {
    **{"dataset": "replica", "title": "A replica", "source": "made here", "tried": "yes", "assumed": "nothing"},
    **{"scheme": "cradle", "level": "item", "format": "jsonl", "month": "2017-12"},
    "columns": {"own": ["id"], "own_author": ["user"], "body": ["body"]},
    "parts": {
        **{name: {"split": name, "columns": ["split"], "values": [name]} for name in SIZES},
        "later": {"columns": ["split"], "values": ["later"]},
    },
    "labels": {"labels": {"columns": ["label"]}},
    "lengths": {"min_words": 1, "max_words": 2000},
}
# of the published posts 15 % are of authors with several, mostly over splits, and 12 % are near-duplicates
AUTHORS = {
    **{f"test {n}": f"train {n}" for n in range(3)},
    **{f"dev {n}": f"train {n + 3}" for n in range(2)},
    **{f"test {n}": "dev 2" for n in (3, 4)},
    # later posts: of an author in two splits, and of one in test
    **{"later 0": "train 0", "later 1": "test 7"},
}
COPIES = {
    **{"test 5": "train 5", "test 6": "train 6", "dev 5": "train 12", "test 9": "dev 6"},
    **{"test 8": "test 7", "train 11": "train 10", "test 10": "test 0", "later 2": "train 20"},
}
LEAKS = {*(f"test {n}" for n in (0, 1, 2, 3, 4, 5, 6, 9, 10)), "dev 0", "dev 1", "dev 5"}


def posts(later: int) -> list[dict[str, Any]]:
    """Return the shape of T8 in small, and as many later posts, which no published split has."""
    names = [f"{name} {n}" for name, size in {**SIZES, "later": later}.items() for n in range(size)]
    words = sorted({word for name in names for word in sets.prose(name).split() if word.isalpha()})
    draw = random.Random(1)
    own = {name: " ".join(draw.choices(words, k=40)) for name in names}
    return [
        {
            **{"id": name, "user": AUTHORS.get(name, name), "split": name.split()[0], "label": "no_crisis"},
            "body": f"I thought that {own[COPIES[name]]} again" if name in COPIES else f"I thought that {own[name]}",
        }
        for name in names
    ]


class Replica:
    def __init__(self, run: Imports, folder: Path) -> None:
        self.run, self.folder = run, folder
        (folder / "replica.yaml").write_text(yaml.safe_dump(MAPPING))
        changed: dict[str, dict[str, object]] = {
            "split": {"published": "annotations/posts/replica/splits.csv", "proposals": 20_000},
            "gold": {"published": "annotations/posts/replica/gold.csv", "splits": None},
            "sample": {"size": 106},
        }
        update = {
            section: {"posts": getattr(run.params, section)["posts"].model_copy(update=values)}
            for section, values in changed.items()
        }
        self.params: Params = run.params.model_copy(update=update)

    def id_of(self, name: str) -> str:
        return self.run.vault.record_id(f"replica/{name}", domain="import")

    def stages(self, later: int) -> tuple[dict[str, str], dict[str, Any], set[str]]:
        """Import, and run the stages up to the split; return the split of each post, the report, and what leaks."""
        rows = posts(later)
        self.run("posts", str(self.folder / "replica.yaml"), sets.jsonl(self.folder / "replica.jsonl", rows))
        names = {self.id_of(row["id"]): row["id"] for row in rows}
        with workspace(self.run.settings) as clone:
            clone.checkout(*(n.removesuffix(".dvc") for n in self.run.names() if n.endswith(".parquet.dvc")))
            given: dict[str, Any] = {"params": self.params, "settings": self.run.settings, "vault": self.run.vault}
            context = context_of("posts", **given, root=clone.path)
            for stage in (dedupe, sample, gold, split):
                report = stage.run(context)
            split.remember("posts", params=self.params, vault=self.run.vault, now=NOW, root=clone.path)
            snapshot = clone.path / "snapshot/posts"
            leaks = {names[record] for record, _ in tables.leaks(snapshot)}
            return {names[r]: part for (r, _), (part, _) in tables.splits(snapshot).items()}, report, leaks


def test_a_leaking_split_is_reproduced_member_by_member_and_only_a_deletion_takes_one_out(
    run: Imports, tmp_path: Path
) -> None:
    replica = Replica(run, tmp_path)
    published = {row["id"]: row["split"] for row in posts(0)}
    placed, report, leaks = replica.stages(0)
    assert placed == published and leaks == LEAKS
    told = report["published"]
    assert (told["authors"], told["near_duplicates"], report["leakage"]) == (6, 4, 0)
    assert {name: counts["leaks"] for name, counts in told["splits"].items()} == {"train": 0, "dev": 3, "test": 9}
    assert {name: counts["placed"] for name, counts in told["splits"].items()} == SIZES

    # a later month moves nothing: what is linked to two splits is left out, and a copy of a member is dropped
    grown, report, leaks = replica.stages(6)
    assert published.items() <= grown.items() and leaks == LEAKS
    assert grown.keys() - published.keys() == {f"later {n}" for n in (1, 3, 4, 5)} and grown["later 1"] == "test"
    assert (report["withheld"], report["separated_pairs"], report["excluded"]) == (0, 0, 1)

    run.vault.destroy([replica.id_of("test 12"), replica.id_of("train 0")], reason="request", now=NOW)
    rest, report, leaks = replica.stages(6)
    assert (
        published.keys() - rest.keys() == {"test 12", "train 0"}
        and rest.items() <= {**grown, "later 0": "test"}.items()
    )
    told = report["published"]["splits"]
    assert [(told[name]["members"], told[name]["deleted"], told[name]["missing"]) for name in SIZES] == [
        (60, 1, 0),
        (20, 0, 0),
        (20, 1, 0),
    ]
    assert leaks == LEAKS - {"test 0", "test 10"}, "what they shared is no longer in train"
