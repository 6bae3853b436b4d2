"""A corpus in a notebook: frames without content, content that does not show, labels of test that stay closed."""

from __future__ import annotations

import base64
import copy
import io
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from PIL import Image
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
from tests.notebook.published import CORPUS, MEMES, MODEL, PICTURES, Published, published
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
    with closing(open_corpus(CORPUS, why=WHY)) as opened:
        yield opened


@pytest.fixture
def memes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Published, Corpus]]:
    made = published(tmp_path / "home", PICTURES)
    monkeypatch.setenv("CORPUS_HOME", str(made.settings.home))
    with closing(open_corpus(PICTURES, why=WHY)) as opened:
        yield made, opened


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


def attacks(frame: pd.DataFrame, name: str) -> Iterator[Callable[[], Any]]:
    """Everything that a person does with a frame whose column ``name`` is sealed, and a notebook then stores."""
    column, cell, formatter = frame[name], frame[name].iloc[0], DisplayFormatter()
    formatter.active_types = formatter.format_types
    for each in (frame, frame.head(), column, column.head(), cell, [cell], {"a": cell}, frame.iloc[0], column.values):
        yield from (lambda each=each: repr(each), lambda each=each: str(each), lambda each=each: f"{each}")
        yield lambda each=each: formatter.format(each)
    yield from (frame._repr_html_, frame.to_html, frame.to_csv, frame.to_json, frame.to_markdown, frame.to_latex)
    yield from (frame.to_dict, column.to_json, column.to_list, frame.info, lambda: frame.describe(include="all"))
    yield from (frame.groupby("split")[name].first, lambda: frame.groupby("split").agg(list).to_html())
    yield from (lambda: pd.DataFrame({"nested": [frame]}).to_html(), lambda: column.astype(str).to_list())
    yield from (lambda: column.str.lower().to_list(), lambda: column.map("{}".format).to_list(), column.sum)
    yield from (lambda: int(cell), lambda: {}[cell], lambda: cell + "", lambda: json.dumps(cell), lambda: cell[0])
    yield from (lambda: vars(cell), lambda: json.dumps(cell, default=str), lambda: column.value_counts().to_string())
    yield from (lambda: pickle.dumps(frame), lambda: pickle.dumps(cell), lambda: copy.deepcopy(cell), cell)
    yield from (frame.to_parquet, lambda: frame.to_pickle("frame.pickle"), lambda: bytes(cell), frame.to_records)
    yield from (
        lambda: np.save("frame.npy", column.to_numpy()),
        lambda: frame.to_excel("frame.xlsx"),
        column.sort_values,
    )
    yield from (lambda: [*cell], lambda: Image.open(cell), lambda: Image.fromarray(cell), lambda: cell.reveal)
    yield lambda: [getattr(cell, name) for name in dir(cell) if not callable(getattr(cell, name))]


def held(attack: Callable[[], Any], secret: Iterable[str]) -> tuple[bool, bool]:
    """Return whether an attack ran without an error, and whether neither answer nor error has one of the secrets."""
    try:
        ran, shown = True, repr(attack())
    except Exception as error:
        ran, shown = False, f"{error!r} {error}"
    return ran, not [word for word in secret if word in shown or word in repr(shown)]


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
    found = [held(attack, secret) for attack in attacks(frame, "text")]
    assert all(sealed for _, sealed in found), [number for number, (_, sealed) in enumerate(found) if not sealed]
    assert sum(ran for ran, _ in found) > 50, "the attacks do not work at all"
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
    best = corpus.score(said, against="champion")
    assert best.models["champion"]["figures"]["exact"]["mean"] == 1 > best.models["mine"]["figures"]["exact"]["mean"]
    assert {*corpus.predictions("champion").split} == {"train", "dev"}
    with refused("NotInCommit", match="predictions of 'another'"):
        corpus.score(said, against="another")
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


def test_pictures_do_not_show_and_their_opening_is_on_record(
    memes: tuple[Published, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    home, corpus = memes
    frame = corpus.images("validation")
    pictures = frame.picture.reveal()
    assert pictures == [home.posts[record].image for record, _ in frame.index] and len(pictures) == MEMES["validation"]
    assert frame.picture.map(len).to_list() == [*map(len, pictures)]
    secret = [
        text for data in pictures for text in (repr(data[60:72]).strip("b'"), base64.b64encode(data[60:72]).decode())
    ]
    assert not held(lambda: pictures, secret)[1], "what is revealed shows"
    found = [held(attack, secret) for attack in attacks(frame, "picture")]
    assert all(sealed for _, sealed in found), [number for number, (_, sealed) in enumerate(found) if not sealed]
    month = f"{datetime.now(UTC):%Y-%m}"
    assert [(each["items"], each["why"]) for each in openings("--month", month)] == [(len(frame), WHY)]
    corpus.show(home.of("train")[:1], why="one of train")
    assert "IPython.core.display.Image" in capsys.readouterr().out
    assert [each["items"] for each in openings()] == [len(frame), 1]
    with refused("NotInCommit", match="no votes"):
        corpus.votes()


def test_one_task_of_several_is_scored(memes: tuple[Published, Corpus]) -> None:
    _, corpus = memes
    said = corpus.predictions(MODEL)
    assert {*said.task} == {"severity"} and {*said.split} == {"validation"}
    found = corpus.score(said.labels, task="severity", against="champion")
    assert found.n == MEMES["validation"] and found.models["champion"]["figures"]["exact"]["mean"] == 1
    with refused("NotInCommit", match="predictions of 'champion'"):
        corpus.score(pd.Series("Metaphor", index=said.index), task="figurative", against="champion")


def test_data_sets_have_pictures(memes: tuple[Published, Corpus]) -> None:
    pytest.importorskip("datasets")
    home, corpus = memes
    made = corpus.to_datasets(why="a fit elsewhere")
    assert {name: len(rows) for name, rows in made.items()} == MEMES and "severity" not in made["test"].features
    row = made["validation"][0]
    with Image.open(io.BytesIO(home.posts[row["record_id"]].image)) as picture:
        assert row["picture"].convert("RGB").tobytes() == picture.convert("RGB").tobytes()
    assert row["severity"] == sorted(home.posts[row["record_id"]].labels["severity"]) and "Title:" not in repr(made)
    assert [(each["items"], each["why"]) for each in openings()] == [(sum(MEMES.values()), "a fit elsewhere")]
