"""Every live record of a corpus gets what the pinned version says, once, and nothing outlives a takedown."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crisis_corpus import client, integrity
from crisis_corpus.trusted import AliasUntrusted, NoChampion, Withdrawn
from crisis_corpus.versions import CHAMPION
from pipelines.core.config.models import Registered
from pipelines.core.config.params import texts_below
from pipelines.operate import status
from pipelines.registry import batch_predict, lineage, show
from pipelines.registry.candidate import Context
from pipelines.registry.packaging.register import put
from pipelines.registry.promotion.promote import promote, withdraw
from pipelines.registry.webhook import Watch, notify_drift
from pipelines.store import tables
from pipelines.store.seal import open_column, write_rows
from pipelines.takedown.redaction import Gone
from pipelines.takedown.stores import Case
from pipelines.takedown.stores.interim import Copies
from tests.contexts import context_of
from tests.refusals import refused
from tests.registry import small_registry
from tests.registry.receiver import Receiver, receiver
from tests.registry.small_registry import GRAVEST, NAME, WHO, add, opened, saved, take_down, trained
from tests.small_corpus import begin, code_of, full, sign
from tests.train import small_memes, small_posts

__all__ = ["receiver"]
MONTH = "2022-12"


def champion(context: Context, version: int, *, before: int | None = None, name: str = NAME) -> None:
    small_registry.champion(context, version, before=before, name=name)
    corpus = context.params.registry[name].corpus
    batch_predict.pin(name, corpus=corpus, root=context.root, registry=context.registry, journal=context.journal)


def run(context: Context, corpus: str = "memes") -> dict[str, Any]:
    given = {"params": context.params, "settings": context.settings, "vault": context.vault, "root": context.root}
    return batch_predict.run(context_of(corpus, **given))


def rows(context: Context) -> list[dict[str, Any]]:
    path = context.root / "snapshot" / "memes" / "scoring" / f"{NAME}.parquet"
    return tables.read(path, name="predictions").to_pylist()


def everybody(context: Context) -> set[str]:
    path = context.root / "snapshot" / "memes" / "split" / "splits.parquet"
    return set(tables.read(path, name="splits")["record_id"].to_pylist())


def test_every_live_record_gets_what_the_champion_says(context: Context) -> None:
    version = add(context, knows=6, abstains=["boat"])
    champion(context, 1)
    metrics = run(context)[NAME]
    found = rows(context)
    assert {row["record_id"] for row in found} == everybody(context)
    assert {row["model"] for row in found} == {f"{NAME}/1"} and {row["task"] for row in found} == {"severity"}
    assert (metrics["version"], metrics["files"], metrics["items"]) == (1, version.digest, 108)
    assert metrics["outcomes"]["abstained"] + metrics["outcomes"]["vote"] == 108 and metrics["taken_down"] == 0
    assert sum(metrics["labels"].values()) == metrics["outcomes"]["vote"]
    assert metrics["labels"][GRAVEST] == sum(row["labels"] == [GRAVEST] for row in found) > 0
    assert not any(row["labels"] for row in found if row["outcome"] == "abstained")
    assert json.loads((context.root / "metrics" / "memes" / "batch_predict.json").read_text()) == {NAME: metrics}
    assert metrics["drift"] is None, "no gate has counted this champion's answers on the test"
    gold = tables.read(context.root / "snapshot" / "memes" / "gold" / "gold.parquet", name="gold").to_pylist()
    truth = {row["record_id"]: row["labels"] for row in gold if row["category"] == "severity"}
    right = [truth[row["record_id"]] == ["None"] for row in found if row["labels"] == ["None"]]
    assert all(right) and len(right) >= 8


def test_a_month_that_is_known_is_not_asked_about_again(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    add(context, knows=6)
    champion(context, 1)
    first = run(context)
    before = rows(context)
    asked = []
    monkeypatch.setattr(client.Model, "predict", counting(asked))
    assert run(context) == first and rows(context) == before and asked == []
    add_month(context)
    assert run(context)[NAME]["items"] == 110
    assert sum(asked) == 2
    # another version is asked about all of it, and of the first nothing stays
    add(context, knows=4)
    champion(context, 2, before=1)
    run(context)
    assert sum(asked) == 2 + 110 and {row["model"] for row in rows(context)} == {f"{NAME}/2"}
    assert len([*(context.settings.home / "scored" / NAME).iterdir()]) == 3


def test_of_a_rewritten_month_changed_records_are_asked_about(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(context, knows=6)
    champion(context, 1)
    run(context)
    before, kept = rows(context), context.settings.home / "scored"
    path = min((context.root / "data" / "memes").glob("*/images/*.parquet"))
    # a takedown rewrites the month and the kept predictions
    gone = Gone(tables.read(path, name="images")["record_id"].to_pylist()[:1])
    take_down(context, gone.ids)
    case = Case(gone=gone, settings=context.settings, vault=context.vault, now=datetime.now(UTC))
    (half := kept / NAME / "half").write_bytes(b"PAR1 of a killed process")
    assert Copies().count(case)["copies"] >= 2
    Copies().erase(case)
    assert Copies().count(case) == {"copies": 0} and not half.exists() and [*(kept / NAME).iterdir()]
    gone.without(path, made := path.with_suffix(".made"))
    made.replace(path)
    asked: list[int] = []
    monkeypatch.setattr(client.Model, "predict", counting(asked))
    assert run(context)[NAME]["records"] == len(everybody(context)) - 1 and asked == []
    assert rows(context) == [row for row in before if row["record_id"] not in gone.ids]
    # a record whose text was read again
    table = tables.read(path, name="images")
    new = table.to_pylist()
    for column in ("bytes", "text"):
        for row, value in zip(new, open_column(table, name="images", column=column, vault=context.vault), strict=True):
            row[column] = value
    new[0]["text"] = b"words of another reading"
    write_rows(new, path, name="images", vault=context.vault)
    run(context)
    assert asked == [1]


def counting(asked: list[int]) -> Any:
    original = client.Model.predict

    def predict(self: client.Model, frame: Any) -> Any:
        asked.append(len(frame))
        return original(self, frame)

    return predict


def add_month(context: Context, *, count: int = 2) -> None:
    """Write one more month: memes with the words of others."""
    month, ids = "2023-01", [context.vault.record_id(f"t3_new{i}") for i in range(count)]
    items = [(one, f"t3_new{i}") for i, one in enumerate(ids)]
    context.vault.admit(items, corpus="memes", month=month, now=small_memes.NOW)
    new = [full("images", record_id=one, image=0, bytes=b"png", text="we go door", words=300) for one in ids]
    path = context.root / "data" / "memes" / month / "images" / "000.parquet"
    write_rows(new, path, name="images", vault=context.vault)


def test_who_was_taken_down_is_not_scored_also_where_it_was_before(context: Context) -> None:
    add(context, knows=6)
    champion(context, 1)
    gone = trained(context.root)[:2]
    take_down(context, gone[:1])
    assert run(context)[NAME]["taken_down"] == 1
    take_down(context, gone[1:])
    metrics = run(context)[NAME]
    assert (metrics["taken_down"], metrics["records"]) == (2, 106)
    assert not {*gone} & {row["record_id"] for row in rows(context)}
    # the same again where nothing is kept
    shutil.rmtree(context.settings.home / "scored")
    assert run(context)[NAME] == metrics


def test_pins_follow_the_champion_and_say_the_same_twice(context: Context) -> None:
    given = {"corpus": "memes", "registry": context.registry, "journal": context.journal, "root": context.root}
    add(context, knows=4)
    with pytest.raises(NoChampion):
        batch_predict.pin(NAME, **given)
    with refused("NotPinned", match="no model of memes"):
        run(context)
    champion(context, 1)
    path = context.root / "models" / "memes" / f"{NAME}.json"
    first = path.read_bytes()
    context.journal.append(NAME, event="gated", to_version=1, **WHO)
    batch_predict.pin(NAME, **given)
    assert path.read_bytes() == first
    context.registry.point(NAME, CHAMPION, None)
    with pytest.raises(AliasUntrusted):
        batch_predict.pin(NAME, **given)


def test_a_pin_of_other_files_or_of_a_version_taken_back_is_not_asked(context: Context) -> None:
    add(context, knows=6)
    champion(context, 1)
    path = context.root / "models" / "memes" / f"{NAME}.json"
    pinned = json.loads(path.read_text())
    path.write_text(json.dumps(pinned | {"files": "0" * 64}))
    with refused("CannotScore", match="differ from those that models/ pins"):
        run(context)
    for wrong in ({"version": 0}, {"name": "crisis-posts"}):
        path.write_text(json.dumps(pinned | wrong))
        with refused("NotPinned"):
            run(context)
    path.write_text(json.dumps(pinned))
    withdraw(NAME, 1, **WHO, context=context)
    with pytest.raises(Withdrawn):
        run(context)
    assert not (context.root / "snapshot" / "memes" / "scoring").exists()


def test_a_model_that_fails_or_is_confused_writes_nothing(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def confused(pack: Path) -> None:
        known = json.loads((pack / "words.json").read_text())
        (pack / "words.json").write_text(json.dumps(known | {"default": ["no label of it"]}))

    add(context, knows=3, change=confused)
    champion(context, 1)
    with refused("CannotScore", match="an answer is not valid for 'severity'"):
        run(context)
    monkeypatch.setenv("RULE_MODEL_FAILS", "1")
    with refused("CannotScore") as raised:
        run(context)
    assert "RuntimeError" in str(raised.value)
    texts = [word for word in small_memes.WORDS["severity"].values() if word in str(raised.value)]
    assert texts == [] and not (context.root / "snapshot" / "memes" / "scoring").exists()


def test_posts_are_asked_about_by_title_and_body(small: Path, tmp_path: Path) -> None:
    made = small_posts.made()
    with opened(small) as memes, small_posts.copied(made, to=tmp_path / "copy") as posts:
        labels, titled = posts.task.labels, {record: post.title.split()[0] for record, post in posts.posts.items()}
        word = Counter(titled.values()).most_common(1)[0][0]

        def rules(pack: Path) -> None:
            described = json.loads((pack / integrity.MODEL).read_text())
            of = {"labels": list(labels), "task": "labels", "inputs": ["title", "body"]}
            (pack / integrity.MODEL).write_text(json.dumps(described | of))
            (pack / "words.json").write_text(json.dumps({"words": {word: labels[0]}, "default": [], "abstains": []}))
            script = pack.parent.parent / "rule_model.py"
            script.write_text(script.read_text().replace('["text"]', '["title"] + " " + model_input["body"]'))

        folder = small_registry.saved(memes, to=tmp_path / "model", knows=0, change=rules)
        context = replace(memes, params=posts.params, vault=posts.vault, root=posts.root)
        put("crisis-posts", folder, context=context, **WHO)
        champion(context, 1, name="crisis-posts")
        metrics = run(context, "posts")["crisis-posts"]
        path = posts.snapshot / "scoring" / "crisis-posts.parquet"
        found = {row["record_id"]: row for row in tables.read(path, name="predictions").to_pylist()}
    texts = {record: f"{post.title} {post.body}".split() for record, post in posts.posts.items()}
    assert {r for r, row in found.items() if row["labels"] == [labels[0]]} == {r for r in texts if word in texts[r]}
    assert found.keys() == texts.keys() and metrics["records"] == len(texts)
    assert {row["task"] for row in found.values()} == {"labels"}


def test_a_month_that_differs_from_the_test_is_named_published_and_notified(
    context: Context, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(context, knows=6)
    promote(NAME, 1, **WHO, context=context)
    pinned = batch_predict.pin(
        NAME, corpus="memes", registry=context.registry, journal=context.journal, root=context.root
    )
    assert pinned.test is not None and pinned.test.answered == small_registry.SIZES["test"]
    assert pinned.test.alerting[-1] == GRAVEST and pinned.test.alerts > 0
    first = run(context)[NAME]["drift"]
    assert (first["test"], first["months"]) == (72, 2) and "2023-01" not in first["exceeded"]
    add_month(context, count=40)
    found = run(context)[NAME]["drift"]
    assert found["exceeded"] == first["exceeded"] | {"2023-01": found["newest"]["exceeded"]}
    assert {GRAVEST, "words"} <= {*found["exceeded"]["2023-01"]}
    assert found["newest"]["quantities"][GRAVEST]["month"] == 1

    work = context.root / "published"
    (work / "metrics").mkdir(parents=True)
    shutil.copytree(context.root / "metrics" / "memes", work / "metrics" / "memes")
    begin(context.settings, code=code_of(work, texts_below(small_registry.REPO)))
    Watch.open(context.journal).subscribe(receiver.url, name=NAME)
    told = notify_drift("memes", settings=context.settings)
    assert told["drift"] == {NAME: found["exceeded"]} and (told["queued"], told["delivered"]) == (1, 1)
    assert notify_drift("memes", settings=context.settings)["queued"] == 0
    [(_, body)] = receiver.came
    sent = json.loads(body)
    assert sent["type"] == "model.drift"
    assert sent["data"] == {
        "name": NAME, "event": "drift", "version": 1, "months": found["exceeded"], "at": sent["timestamp"]
    }  # fmt: skip
    monkeypatch.setenv("CORPUS_SECRET", small_registry.SECRET.hex())
    sign(context.settings)
    part = status.gather(context.settings)["corpora"]["memes"]["drift"][NAME]
    assert (part["months"], part["drifted"], part["newest"]) == (3, len(found["exceeded"]), "2023-01")
    assert GRAVEST in part["exceeded"]


def test_a_model_of_an_added_corpus_goes_the_whole_way(small: Path, tmp_path: Path) -> None:
    """From its registration to its withdrawal; only the parameters know the name."""
    with opened(small) as memes:
        for part in ("data", "snapshot"):
            shutil.copytree(small / part / "memes", small / part / "signs")
        changed = {
            "corpora": {**memes.params.corpora, "signs": memes.params.corpora["memes"]},
            "split": {**memes.params.split, "signs": memes.params.split["memes"]},
            "registry": {"sign-tone": Registered(corpus="signs", task="severity", candidates=())},
            "batch_predict": {"signs": ("sign-tone",)},
        }
        context = replace(memes, params=memes.params.model_copy(update=changed))
        put("sign-tone", saved(context, to=tmp_path / "model", knows=6), context=context, **WHO)
        moved = promote("sign-tone", 1, **WHO, context=context)
        assert moved.champion == 1 and moved.verdict is None
        loaded = client.load("sign-tone@champion")
        assert (loaded.version, loaded.inputs) == (1, ("image", "text"))
        given = {"registry": context.registry, "journal": context.journal}
        [pin] = batch_predict.champions("signs", params=context.params, root=context.root, **given)
        assert pin.model == "sign-tone/1"
        metrics = run(context, "signs")["sign-tone"]
        assert metrics["items"] == 108 and metrics["drift"]["months"] == 2
        assert [model["name"] for model in show.gather(None, **given)] == ["sign-tone"]
        learnt = lineage.versions_of(trained(small)[:1], registry=context.registry, settings=context.settings)
        assert [v.name for versions in learnt.versions.values() for v in versions] == ["sign-tone"]
        withdraw("sign-tone", 1, **WHO, context=context)
        assert show.summary(context.journal)[0]["champion"] is None
        with pytest.raises(Withdrawn):
            client.load("sign-tone/1")
