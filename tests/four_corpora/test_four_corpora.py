"""Corpora that a profile declares, from dumps to champions that the client loads, by commands alone."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.four_corpora import content
from tests.golden import world
from tests.golden.nearby import UNREAD, Nearby
from tests.ports import free_port

pytestmark = pytest.mark.faults
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Corpora whose labels people give in a round of the files backend, with the decision on it.
ROUNDS: dict[str, dict[str, tuple[str, str]]] = {"first": {}, "last": {"skies": ("calibration", "--gold")}}
# Why posts of a corpus are left out, and labels that no item of train has.
DROPPED = {
    "allotment": {"deleted", "deleted_later", "not_english", "removed", "too_short"},
    "shop-signs": {"content_type", "deleted", "no_image", "not_found", "removed", "truncated"},
    "letters60": set(),
    "skies": {"content_type"},
}
UNSEEN = {
    "allotment": {"beekeeping"}, "shop-signs": set(), "letters60": {"piano", "weaving", "yoga"}, "skies": {"Aurora"},
}  # fmt: skip
SETS: dict[str, dict[str, content.Writer]] = {"first": content.FIRST, "last": content.LAST}


class Team(Nearby):
    """A team with dumps of its own and files of labels."""

    writers: Mapping[str, content.Writer]

    def reddit(self) -> None:
        reddit = content.Reddit(self.port)
        for write in self.writers.values():
            write(reddit, self.home)
        reddit.write(self.home / "sandbox")

    def months(self) -> tuple[str, ...]:
        return content.MONTHS

    def labels(self, corpus: str) -> None:
        """Import the labels that the team has, in a clone as the docs have it."""
        if corpus in self.rounds:
            return
        clone = self.home / f"lab-{corpus}"
        scheme = self.schemes[corpus]
        with self._publishing:
            self.run("clone", str(clone))
            mapping = HERE / "mappings" / f"{scheme}.yaml"
            path = self.home / f"{corpus}.csv"
            self.run("import", corpus, str(path), "--mapping", str(mapping), "--allow-bad", "0.05", cwd=clone)

    def answer(self, queues: Path) -> None:
        """Answer as people do who look at the pictures; the second errs now and then."""
        for place, tasks in enumerate(sorted(queues.glob("*/tasks.jsonl"))):
            rows = [json.loads(line) for line in tasks.read_text().splitlines()]
            answers = []
            for number, row in enumerate(rows):
                values = content.seen(tasks.parent / row["image"])
                if row["sides"]:
                    # an adjudicator decides what is in dispute, with a reason
                    values = {key: labels for key, labels in values.items() if key in row["disputed"]}
                if place == 1 and number % 7 == 0 and not row["sides"]:
                    values["weather"] = ["Aurora"]
                when = f"2022-12-{1 + number % 28:02d}T09:00:00Z"
                answers.append(
                    {"item": row["item"], "values": values, "note": "as it is seen", "seconds": 9, "answered": when}
                )
            (tasks.parent / "answers.jsonl").write_text("".join(json.dumps(each) + "\n" for each in answers))


@dataclass(frozen=True)
class Ran:
    """The team, its profile, a clone with all results, and the journal of each registered model."""

    team: Team
    profile: dict[str, Any]
    clone: Path
    journal: Mapping[str, Any]

    def metrics(self, corpus: str, name: str) -> dict[str, Any]:
        return dict(json.loads((self.clone / "metrics" / corpus / f"{name}.json").read_text()))

    def scheme(self, corpus: str) -> dict[str, Any]:
        return world.read(HERE / "schemes" / f"{self.profile['corpora'][corpus]['scheme']}.yaml")


@pytest.fixture(scope="module", params=SETS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, embedded_once: None) -> Iterator[Ran]:
    home = tmp_path_factory.mktemp(request.param)
    profile, port = world.read(HERE / f"{request.param}.yaml"), free_port()
    profile["sandbox"] = {"seed": 1, "months": [*content.MONTHS], "submissions": 1, "posts": 1, "port": port}
    files = {f"schemes/{path.name}": path.read_text() for path in (HERE / "schemes").glob("*.yaml")}
    corpora = {name: corpus["content"] for name, corpus in profile["corpora"].items() if corpus}
    checkout = world.check_out(ROOT, home / "checkout", profile=profile, files=files, without=UNREAD)
    team = Team(checkout, home / "var", corpora=corpora, rounds=ROUNDS[request.param], port=port)
    team.writers = SETS[request.param]
    team.schemes = {name: profile["corpora"][name]["scheme"] for name in corpora}
    team.home.mkdir()
    with contextlib.contextmanager(team._served)():
        team.make()
        yield Ran(team, profile, team.clone(), team.journal())


def tasks(scheme: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {key: category for key, category in scheme["categories"].items() if category.get("predicted", True)}


def test_every_category_is_predicted_scored_and_reported(ran: Ran) -> None:
    for corpus in ran.team.corpora:
        scheme = ran.scheme(corpus)
        scored = ran.metrics(corpus, "evaluate")["tasks"]
        assert scored.keys() == tasks(scheme).keys()
        page = (ran.clone / "snapshot" / corpus / "report" / "report.md").read_text()
        for key, category in tasks(scheme).items():
            named = {label["name"] for label in category["labels"]}
            assert category.get("title", key.capitalize()) in page
            for model in ran.profile["train"]["rows"][corpus]["models"]:
                folders = (ran.clone / "snapshot" / corpus / "predictions").glob(f"{key}-{model}-*")
                tables = [pq.read_table(folder / "predictions.parquet").to_pylist() for folder in folders]
                assert len(tables) == len(ran.profile["train"]["rows"][corpus]["seeds"])
                for rows in tables:
                    assert rows and {label for row in rows for label in row["labels"] or ()} <= named
                    assert all(row["outcome"] == "vote" for row in rows)
            models = scored[key]["models"]
            assert {name.partition("-consensus")[0] for name in models} >= {
                *ran.profile["train"]["rows"][corpus]["models"]
            }


def test_every_registered_model_is_gated_and_loaded(ran: Ran) -> None:
    promoted = []
    for name, entry in ran.profile["registry"].items():
        [known] = ran.journal[name]["models"]
        assert known["versions"] and not known["faults"], name
        assert {row["event"] for row in known["journal"]} & {"promoted", "refused"}, f"{name} met no gate"
        if known["champion"] is None:
            continue
        promoted.append(name)
        category = ran.scheme(entry["corpus"])["categories"][entry["task"]]
        rows = inputs(ran.team.corpora[entry["corpus"]])
        found = ran.team.load(name, rows)
        assert len(found) == len(rows)
        assert {label for row in found for label in row["labels"]} <= {label["name"] for label in category["labels"]}
    assert {ran.profile["registry"][name]["corpus"] for name in promoted} == ran.team.corpora.keys(), "one of each"


def inputs(kind: str) -> list[dict[str, Any]]:
    if kind == "texts":
        return [{"title": "A note", "body": "I carried cans of water to the tomatoes."}, {"title": "", "body": "Ok"}]
    out = io.BytesIO()
    content.Image.new("RGB", (90, 60), (200, 30, 30)).save(out, "PNG")
    return [{"image": out.getvalue()}]


def test_champions_label_every_month(ran: Ran) -> None:
    for corpus, names in ran.profile["batch_predict"].items():
        found = ran.metrics(corpus, "batch_predict").keys()
        assert found and found <= {*names}


def test_what_cannot_be_used_is_counted_and_what_was_never_seen_is_named(ran: Ran) -> None:
    for corpus in ran.team.corpora:
        counted = ran.metrics(corpus, "quality")["collect"]
        assert DROPPED[corpus] <= counted["dropped"].keys()
        assert counted["submissions"] >= counted["items"] == counted["kept"] > 60
        fits = [json.loads(path.read_text()) for path in (ran.clone / "metrics" / corpus).glob("train-*.json")]
        assert UNSEEN[corpus] <= {label for fit in fits for label in fit["unseen"]}
        assert ran.metrics(corpus, "split")["leakage"] == 0
