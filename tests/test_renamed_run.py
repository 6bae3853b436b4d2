"""From dumps to loaded models, results under other names are equal but for the names.

The corpora, the schemes, all their categories and labels, and the registered models have other names, which sort alike.
Models that read the names of labels as words (prompts, causal models) are left out.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from pipelines.core.config.added_corpora import complete
from tests.golden import frozen, world
from tests.golden.nearby import UNREAD, Nearby
from tests.renamed import CORPORA, ROOT, SCHEMES, Names, parameters

pytestmark = pytest.mark.faults
NAMES = Names()
DATASET = "truth"
# What differs from the sandbox's profile: the labels are files of a team's own, and whatever reads names is left out.
SMALL = yaml.safe_load("""
sandbox: {seed: 7, months: ["2022-11"], submissions: 97, posts: 200}
corpora: {memes: {last_month: "2022-11"}, posts: {last_month: "2022-11"}}
collect: {shard_size: 200}
sample: {memes: {size: 45}, posts: {size: 130}}
split:
  memes: {proposals: 2000}
  posts: {proposals: 2000, ratios: {train: 50, dev: 45, test: 35}, sizes: {train: 50, dev: 45, test: 35}}
gold:
  memes: {truth: false, published: annotations/memes/truth/gold.csv}
  posts: {truth: false, published: annotations/posts/truth/gold.csv}
ensembles: {offline: {members: [words, characters], aggregate: mean_logit, fallback: null}}
votes: {labellers: {memes: [], posts: [words, characters]}, min_positives: 2}
silver: {ensembles: {memes: [], posts: [offline]}, min_probability: 0, resamples: 100}
injection_test: {size: 5}
moderation: {systems: {memes: [openai], posts: []}, items: 20}
models:
  tiny-text: {epochs: 2}
  tiny-fusion: {epochs: 2}
  tiny-encoder: {epochs: 12}
train:
  rows:
    memes: {models: [tiny-text, tiny-fusion], subsets: [gold], ensemble: null, seeds: [1]}
    posts: {models: [tiny-encoder, knn], subsets: [consensus], ensemble: offline, seeds: [1]}
predict: {rows: {memes: [], posts: [offline]}}
few_shot: {examples: {memes: 0, posts: 5}}
evaluate: {resamples: 100}
agreement: {resamples: 100}
promote: {alpha: 19.9, looks: 20, parts: 1, baselines: []}
registry:
  crisis-posts: {candidates: [{model: tiny-encoder, subset: consensus, seed: 1}]}
  meme-severity: {candidates: [{model: tiny-fusion}]}
  meme-figurative: {candidates: []}
  meme-related: {candidates: [{model: tiny-text}]}
""")


class Renamed(Nearby):
    """A world whose labels are imported from the sandbox's truth, under old or new names."""

    names: Names | None = None

    def reddit(self) -> None:
        self.run("sandbox", "build", "--profile", "golden")

    def labels(self, corpus: str) -> None:
        """Import the truth as a team would import its labels."""
        clone, old = self.home / f"lab-{corpus}", (NAMES.back(corpus) if self.names else corpus)
        scheme = {"memes": "figsim", "posts": "cradle"}[old]
        truth = json.loads((self.home / "sandbox" / f"truth_{self.corpora[corpus]}.json").read_text())["submissions"]
        told = [(each["fullname"], each["labels"][scheme]) for each in truth if each["labels"].get(scheme)]
        if scheme == "cradle":
            # the others are labelled by models
            told = [each for each in told if int(each[0].removeprefix("t3_"), 36) % 5 < 2]
        keys = [*world.read(ROOT / "pipelines" / "core" / "taxonomy" / "schemes" / f"{scheme}.yaml")["categories"]]
        lines = [";".join(["id", *map(self._new, keys)])]
        for fullname, labels in told:
            lines.append(";".join([fullname, *("|".join(map(self._new, labels[key])) for key in keys)]))
        (self.home / f"{corpus}.csv").write_text("\n".join(line.replace(";", ",") for line in lines) + "\n")
        mapping = {
            "dataset": DATASET, "title": "The truth", "source": "the sandbox", "scheme": self._new(scheme),
            "level": "item", "format": "csv", "columns": {"reddit": ["id"]},
            "labels": {self._new(key): {"columns": [self._new(key)], "blank": "none"} for key in keys},
        }  # fmt: skip
        (self.home / f"{corpus}.yaml").write_text(yaml.safe_dump(mapping))
        self.run("clone", str(clone))
        self.run(
            "import",
            corpus,
            str(self.home / f"{corpus}.csv"),
            "--mapping",
            str(self.home / f"{corpus}.yaml"),
            cwd=clone,
        )

    def _new(self, word: str) -> str:
        return word if self.names is None else self.names.labels.get(word) or self.names.words.get(word, word)


@dataclass(frozen=True)
class Ran:
    """A clone with all results, the journal of each registered model, and what champions answer."""

    clone: Path
    journal: Mapping[str, Any]
    answers: Mapping[str, Any]


def made(home: Path, *, names: Names | None) -> Ran:
    values = complete(world.overlay(world.overlay(parameters(), world.read(ROOT / "profiles" / "sandbox.yaml")), SMALL))
    values["sandbox"]["port"] = world.PORT
    profile, files = values, {}
    corpora = dict(world.CORPORA)
    if names is not None:
        profile = names.profile(values)
        for old, new in CORPORA.items():
            profile["gold"][new]["published"] = f"annotations/{new}/{DATASET}/gold.csv"
            corpora[new] = corpora.pop(old)
        files = {
            f"schemes/{SCHEMES[name]}.yaml": yaml.safe_dump(names.scheme(name), sort_keys=False) for name in SCHEMES
        }
    checkout = world.check_out(ROOT, home / "checkout", profile=profile, files=files, without=UNREAD)
    place = Renamed(checkout, home / "var", corpora=corpora, rounds={})
    place.names = names
    with place.serving():
        place.make()
        clone, journal = place.clone(), place.journal()
        of = {name: corpora[entry["corpus"]] for name, entry in profile["registry"].items()}
        answers = {name: asked(place, of[name], name) for name in journal if champion(journal[name])}
    return Ran(clone, journal, answers)


def events(journal: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    """Return what was decided about which versions of a name."""
    return [(row["event"], row.get("version")) for row in journal["models"][0]["journal"]]


def champion(journal: Mapping[str, Any]) -> bool:
    """Return whether a version of a name is champion."""
    [known] = journal["models"]
    return known["champion"] is not None


def asked(place: Renamed, content: str, name: str) -> list[dict[str, Any]]:
    """Return what the champion of a name answers about two inputs."""
    if content == "texts":
        return place.load(
            name, [{"title": "A title", "body": "What it says about a day."}, {"title": "", "body": "Ok"}]
        )
    out = io.BytesIO()
    Image.new("RGB", (90, 60), (200, 30, 30)).save(out, "PNG")
    return place.load(name, [{"image": out.getvalue(), "text": "Some words"}])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, embedded_once: None) -> Iterator[tuple[Ran, Ran]]:
    yield made(tmp_path_factory.mktemp("usual"), names=None), made(tmp_path_factory.mktemp("renamed"), names=NAMES)


def results(ran: Ran) -> dict[str, Any]:
    """Return what the stages wrote by path: values of JSON files, rows of tables without sealed columns."""
    found: dict[str, Any] = {}
    for folder in ("metrics", "snapshot", "annotations", "data"):
        for path in sorted((ran.clone / folder).rglob("*")):
            name = path.relative_to(ran.clone).as_posix()
            if path.suffix == ".json":
                value: Any = json.loads(path.read_text())
            elif path.suffix == ".parquet":
                table = pq.read_table(path)
                sealed = [field.name for field in table.schema if b"sealed" in (field.metadata or {})]
                value = table.drop_columns(sealed).to_pylist()
            else:
                continue
            value = NAMES.back(value)
            found[NAMES.back(name)] = dict(frozen.flat(value)) if path.suffix == ".json" else value
    return found


def test_every_result_is_equal_but_for_the_names(both: tuple[Ran, Ran]) -> None:
    usual, renamed = map(results, both)
    assert usual.keys() == renamed.keys()
    assert [name for name in usual if not alike(usual[name], renamed[name])] == []


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(
            alike(one[key], other[key]) for key in one if not own(str(key), one[key])
        )
    if isinstance(one, list) and isinstance(other, list):
        if all(isinstance(each, str) for each in one):
            return sorted(one) == sorted(other)
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float):
        return bool(np.isclose(one, other, rtol=1e-6, atol=1e-9, equal_nan=True))
    return bool(one == other)


def own(key: str, value: Any) -> bool:
    return bool(frozen.OWN.search(key) or frozen.NOW.match(str(value)))


def test_the_same_versions_were_registered_and_promoted(both: tuple[Ran, Ran]) -> None:
    usual, renamed = both
    found = NAMES.back(renamed.journal)
    assert usual.journal.keys() == found.keys() and usual.journal
    for name, journal in usual.journal.items():
        assert events(journal) == events(found[name])
        assert champion(journal) == champion(found[name])


def test_champions_give_the_same_answers(both: tuple[Ran, Ran]) -> None:
    usual, renamed = both
    assert usual.answers.keys() >= {"crisis-posts"}
    assert alike(NAMES.back(renamed.answers), usual.answers)
