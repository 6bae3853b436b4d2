"""A corpus in a notebook: frames without content, content that does not show, labels of test that stay closed."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.core.config.operate import Takedown
from pipelines.core.config.params import texts_below
from pipelines.core.errors import BadParams, NoSecret
from pipelines.core.taxonomy import load
from pipelines.datasets import items as items_module
from pipelines.evaluate import evaluate
from pipelines.evaluate.inputs import runs_of
from pipelines.evaluate.model_scores import Sampling
from pipelines.notebook import Corpus, Sealed, open_corpus
from pipelines.store.vault import access
from pipelines.takedown.selection import Selection
from pipelines.takedown.takedown import Deletion
from pipelines.workspace.clone import workspace
from tests.notebook.published import CORPUS, MODEL, Published, published
from tests.refusals import refused
from tests.small_corpus import ROOT
from tests.train import small_posts

WHY = "a test of notebooks"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    made = published(tmp_path / "home")
    monkeypatch.setenv("CORPUS_HOME", str(made.settings.home))
    return made


@pytest.fixture
def corpus(home: Published) -> Iterator[Corpus]:
    opened = open_corpus(CORPUS, why=WHY)
    yield opened
    opened.close()


def words(home: Published) -> set[str]:
    """Pieces of the content of every post."""
    parts = {part for post in home.posts.values() for part in (post.title, post.body)}
    pieces = {part[at : at + 12] for part in parts for at in (0, 15)}
    # a frame of parameters may show these
    public = "".join(texts_below(ROOT).values())
    return {piece for piece in pieces if len(piece) == 12 and piece not in public}


def openings(*argv: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["access", *argv, "--json"])
    found: list[dict[str, Any]] = json.loads(done.stdout)["access"]
    return found


def attacks(frame: pd.DataFrame) -> Iterator[Callable[[], Any]]:
    """Everything that a person does with a frame and a notebook then stores."""
    column, cell = frame.text, frame.text.iloc[0]
    for each in (frame, frame.head(), column, column.head(), cell, [cell], {"a": cell}, frame.iloc[0], column.values):
        yield from (lambda each=each: repr(each), lambda each=each: str(each), lambda each=each: f"{each}")
    yield from (frame._repr_html_, frame.to_html, frame.to_csv, frame.to_json, frame.to_markdown, frame.to_latex)
    yield from (frame.to_dict, column.to_json, column.to_list, frame.info, lambda: frame.describe(include="all"))
    yield from (frame.groupby("split").text.first, lambda: frame.groupby("split").agg(list).to_html())
    yield from (lambda: pd.DataFrame({"nested": [frame]}).to_html(), lambda: column.astype(str).to_list())
    yield from (lambda: column.str.lower().to_list(), lambda: column.map("{}".format).to_list(), column.sum)
    yield from (lambda: int(cell), lambda: {}[cell], lambda: cell + "", lambda: json.dumps(cell), lambda: cell[0])
    yield from (lambda: vars(cell), lambda: json.dumps(cell, default=str), lambda: column.value_counts().to_string())
    yield from (lambda: pickle.dumps(frame), lambda: pickle.dumps(cell), lambda: copy.deepcopy(cell), cell)
    yield from (frame.to_parquet, lambda: frame.to_pickle("frame.pickle"), lambda: bytes(cell))
    yield lambda: [getattr(cell, name) for name in dir(cell) if not callable(getattr(cell, name))]


def test_frames_need_no_secret_and_have_no_content(
    home: Published, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CORPUS_SECRET")
    frame = corpus.items()
    assert [*frame] == ["month", "subreddit", "language", "words", "split", "group"]
    assert frame.split.value_counts().to_dict() == {"train": 40, "dev": 24, "test": 24}
    assert {record for record, _ in corpus.items(split="dev").index} == set(home.of("dev"))
    assert {*corpus.gold().split} == {"dev"} and len(corpus.gold("dev")) == 24
    assert "test" not in {*corpus.votes().split, *corpus.silver().split, *corpus.predictions(MODEL).split}
    for method in (corpus.gold, corpus.votes, corpus.silver):
        with refused("LabelsClosed"):
            method(split="test")
    with pytest.raises(NoSecret):
        corpus.items(text=True)
    with refused("UnknownName", match="known: dev, test, train"):
        corpus.items(split="tset")
    assert repr(corpus) == f"<corpus posts at {corpus.commit[:12]}: texts>"


def test_content_does_not_show_unless_it_is_revealed(
    home: Published, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    frame, secret = corpus.items(split="train", text=True), words(home)
    texts = frame.text.reveal()
    assert texts[0] == frame.text.iloc[0].reveal() and any(word in texts[0] for word in secret)
    ran = 0
    for number, attack in enumerate(attacks(frame)):
        shown = ""
        try:
            shown = repr(attack())
            ran += 1
        except Exception as error:
            shown = f"{error!r} {error}"
        assert not [word for word in secret if word in shown or word in repr(shown)], number
    assert ran > 40, "the attacks do not work at all"
    sys.stdout.write(f"{frame} {frame.text.iloc[0]} {[*frame.text]}")
    assert not [word for word in secret if word in "".join(capsys.readouterr())]
    left = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    assert not [word for word in secret if any(word.encode() in data for data in left)]
    with refused("ContentSealed"):
        pickle.dumps(Sealed(("a", 0), "content"))
    corpus.show([frame.index[0][0]])
    assert texts[0] in capsys.readouterr().out


def test_an_error_on_the_way_does_not_quote_content(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def quoting(*_: Any, **__: Any) -> Any:
        raise ValueError("a quiet lantern")

    monkeypatch.setattr("pipelines.notebook.opened", quoting)
    with refused("NotOpened") as caught:
        corpus.items(text=True)
    assert "lantern" not in str(caught.value) and caught.value.__suppress_context__
    assert items_module.opened is not quoting


def test_each_opening_is_on_record(home: Published, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_USER", "A. Person")
    with closing(open_corpus(CORPUS)) as named, pytest.raises(BadParams, match="why: needs one line"):
        named.items(text=True)
    assert openings() == []
    train = corpus.items(split="train", text=True)
    corpus.items(split="train", text=True)
    corpus.show(home.of("dev")[:2], why="two of dev")
    first, second = openings()
    assert (first["corpus"], first["items"], first["why"]) == (CORPUS, len(train), WHY), "again is no second opening"
    assert first["who"].startswith("os:") and (second["items"], second["why"]) == (2, "two of dev")
    month = f"{datetime.now(UTC):%Y-%m}"
    assert openings("--month", month) == [first, second] and openings("--month", "2020-01") == []
    fullname = home.posts[home.of("dev")[0]].fullname
    assert openings("--record", fullname) == openings("--record", home.of("dev")[0]) == [second]
    shown = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["access"]).stdout
    assert "two of dev" in shown and not [word for word in words(home) if word in shown]
    with small_posts.opened(home.settings.home) as vault:
        for statement in ("UPDATE access SET items = 1", "DELETE FROM access"):
            with refused("VaultUnavailable"), vault.database.writing() as connection:
                connection.exec_driver_sql(statement)
        with vault.database.writing() as connection:
            connection.exec_driver_sql("DROP TRIGGER access_UPDATE")
            connection.exec_driver_sql("UPDATE access SET items = 1 WHERE number = 1")
        with refused("AccessAltered", match="row 1"):
            access.every(vault)


def test_own_predictions_are_scored_as_the_report_scores_its_models(home: Published, corpus: Corpus) -> None:
    dev = corpus.items(split="dev")
    said = corpus.predictions(MODEL, split="dev").labels.reindex(dev.index)
    found = corpus.score(said, against=MODEL)
    assert found.models["mine"] == found.models[MODEL] and found.pairs[0]["p"] == {
        "bootstrap": 1.0, "randomisation": 1.0, "mcnemar": 1.0,
    }  # fmt: skip
    assert found.n == 23, "the example of the prompts is left out"
    cell = found.models["mine"]["figures"]["macro_f1"]
    assert cell["low"] < cell["mean"] < cell["high"]
    worst = corpus.score(pd.Series("no_crisis", index=dev.index), against=MODEL)
    assert worst.tests.value.iloc[0] != 0 and "mine" in repr(worst) and worst.look is None
    with pytest.raises(BadParams, match="is not of its labels") as caught:
        corpus.score(pd.Series("a quiet lantern", index=dev.index))
    assert "lantern" not in str(caught.value)
    with refused("NothingToScore"):
        corpus.score({("0" * 32, 0): "no_crisis"})


def test_a_score_on_test_is_a_look_that_is_counted_once(home: Published, corpus: Corpus) -> None:
    test = corpus.items(split="test")
    one, other = (pd.Series(label, index=test.index) for label in ("no_crisis", "selfharm_past"))
    terms = corpus.params.promote
    first = corpus.score(one, split="test")
    assert first.look and (first.look["number"], first.look["left"]) == (1, terms.looks - 1)
    assert corpus.score(one, split="test").look == first.look and first.n < 24, "only the gate set"
    second = corpus.score(other, split="test", against=MODEL)
    assert second.look and (second.look["number"], second.look["left"]) == (2, terms.looks - 2)
    assert "look 2" in repr(second)
    two = terms.model_copy(update={"alpha": 2 * terms.level, "looks": 2})
    corpus.params = corpus.params.model_copy(update={"promote": two})
    with refused("LooksSpent"):
        corpus.score(pd.Series("selfharm_ongoing", index=test.index), split="test")
    corpus.close()
    pinned = open_corpus(CORPUS, revision=corpus.commit)
    with pytest.raises(BadParams, match="newest commit only"):
        pinned.score(one, split="test")


def test_the_figures_are_those_of_the_report(home: Published, corpus: Corpus) -> None:
    said = corpus._read("predictions/*/predictions.parquet", name="predictions").to_pylist()
    own = {(row["record_id"], row["image"]): row["labels"] for row in said}
    whole = corpus.params.promote.model_copy(update={"parts": 1})
    corpus.params = corpus.params.model_copy(update={"promote": whole})
    found = corpus.score(own, split="test")
    gold, tasks = corpus._gold(), corpus.tasks
    traits = evaluate._traits(gold, scheme=load("cradle"), tasks=tasks)
    runs = runs_of(said, tasks=tasks, gold=gold)["labels"]
    sampling = Sampling(corpus.params.evaluate.resamples, corpus.params.evaluate.seed)
    report = evaluate.measure(tasks["labels"], gold=gold, runs=runs, traits=traits, sampling=sampling)
    assert found.n == report["n"] == 24 and found.models["mine"] == report["models"][MODEL]["all"]


def test_records_that_were_taken_down_are_in_no_frame_of_any_commit(home: Published, corpus: Corpus) -> None:
    gone = {home.of(split)[1] for split in ("train", "dev")}
    before = corpus.commit
    with small_posts.opened(home.settings.home) as vault:
        chosen = Selection("0" * 32, frozenset(gone), {"records": 2}, frozenset())
        terms = {"terms": Takedown(withdraw_share=0.5), "now": datetime.now(UTC)}
        Deletion(settings=home.settings, vault=vault, **terms).run(chosen, reason="request-7", who="a person")
    with workspace(home.settings) as clone:
        assert clone.head != before
    old = open_corpus(CORPUS, revision=before, why=WHY)
    for each in (corpus, old, open_corpus(CORPUS, why=WHY)):
        frames = (each.items(), each.items(text=True), each.gold(), each.votes(), each.silver())
        for frame in (*frames, each.predictions(MODEL)):
            assert len(frame) and not gone & {record for record, _ in frame.index}
        each.close()
    assert len(openings("--record", min(gone))) == 0, "no opening of it is on record"


def test_data_sets_have_labels_outside_test(corpus: Corpus) -> None:
    datasets = pytest.importorskip("datasets")
    made = corpus.to_datasets()
    assert isinstance(made, datasets.DatasetDict) and {name: len(rows) for name, rows in made.items()} == {
        "dev": 24, "test": 24, "train": 40,
    }  # fmt: skip
    assert "labels" in made["dev"].features and "labels" not in made["test"].features
    assert made["dev"][0]["labels"] and made["dev"][0]["text"].startswith("Title: ") and "Title:" not in repr(made)
