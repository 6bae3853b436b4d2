"""What the gate lets through and what it names, on real versions of a real registry."""

from __future__ import annotations

import json
import pickle
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crisis_corpus import integrity
from crisis_corpus.integrity import NoPack, pickles
from crisis_corpus.versions import DIGEST, UnknownModel, UnknownVersion
from pipelines.registry import candidate
from pipelines.registry.candidate import Context
from pipelines.registry.promotion import gate
from pipelines.registry.promotion.gate import summary
from pipelines.registry.promotion.holdout import Frozen, open_test
from pipelines.registry.promotion.promote import promote
from pipelines.registry.versions import CHALLENGER
from pipelines.store import tables
from tests.registry import small_registry
from tests.registry.small_registry import GRAVEST, NAME, WHO, add, events, opened, severity_test, take_down, trained
from tests.small_corpus import own_scheme
from tests.train import small_posts
from tests.train.small_posts import SmallPosts


def everybody(context: Context) -> list[str]:
    path = context.root / "snapshot" / "memes" / "split" / "splits.parquet"
    found: list[str] = pq.read_table(path)["record_id"].to_pylist()
    return found


def checks(verdict: gate.GateVerdict) -> set[str]:
    return {reason.partition(":")[0] for reason in verdict.reasons}


def test_a_first_version_must_beat_the_majority_set_and_the_second_the_first(context: Context) -> None:
    add(context, knows=4)
    first = gate.run(NAME, 1, context=context)
    assert first.passed and (first.version, first.champion) == (1, None)
    assert first.figures["scores"]["macro_f1"]["probability"] == 1
    assert context.registry.alias(NAME, CHALLENGER) == 1
    promote(NAME, 1, **WHO, context=context)
    add(context, knows=2)
    worse = gate.run(NAME, 2, context=context)
    assert checks(worse) == {"better"} and worse.champion == 1
    assert context.registry.alias(NAME, CHALLENGER) is None
    add(context, knows=6)
    better = gate.run(NAME, 3, context=context)
    assert better.passed
    found = better.figures["scores"]["macro_f1"]
    assert found["low"] > 0 and found["difference"] == pytest.approx(found["candidate"] - found["other"], abs=1e-8)
    assert [event for event, *_ in events(context)][-4:] == ["refused", "registered", "looked", "gated"]
    assert [row.why for row in context.journal.rows(NAME) if row.event in gate.JUDGED][1:] == [
        "1 reason against it",
        "every check passed",
    ]
    for role, number in (("candidate", 3), ("champion", 1)):
        told = better.figures[role]
        assert (told["version"], told["records"], told["taken_down"], told["in_test"]) == (number, 36, 0, 0)
        assert told["files"] == context.registry.version(NAME, number).tags[DIGEST]
        assert len(told["data_commit"]) == 40 and len(told["split"]) == 64
    told = better.figures["test"]
    assert (len(told["digest"]), len(told["split"]), told["n"], told["taken_down"]) == (64, 64, 72, 0)


def test_a_version_equal_to_the_champion_is_not_promoted(context: Context) -> None:
    add(context, knows=4)
    promote(NAME, 1, **WHO, context=context)
    add(context, knows=4)
    (reason,) = gate.judge(NAME, 2, context=context).reasons
    assert reason == (
        "better: its macro-F1 is not shown to be higher: p is above 0.1, the level of this look, on 72 items by"
        " 36 authors or groups, 12 of them with None, the rarest label"
    )
    alone = gate.run(NAME, 2, context=context, compare=False)
    assert alone.passed and alone.champion is None


def test_who_knows_nothing_is_no_first_champion(context: Context) -> None:
    add(context, knows=0)
    verdict = gate.judge(NAME, 1, context=context)
    assert checks(verdict) == {"better", "recall"}
    found = verdict.figures["scores"]["recall"][GRAVEST]
    assert (found["gold"], found["groups"], found["verdict"], found["alert_rate"]) == (24, 12, "below", 0)
    assert "recall of Suicide attempt/death is under its floor 0.5000 with 95 % confidence" in " ".join(verdict.reasons)


def test_a_floor_that_the_test_cannot_decide_is_left_to_the_approver(context: Context, small: Path) -> None:
    add(context, knows=4)
    with opened(small, recall_floors={NAME: {GRAVEST: 0.9}}) as careful:
        verdict = gate.judge(NAME, 1, context=careful)
    assert verdict.passed
    found = verdict.figures["scores"]["recall"][GRAVEST]
    assert (found["verdict"], pytest.approx(found["recall"]), found["needed"]) == ("too_few", 22 / 24, 29)
    text = summary(verdict)
    assert "The gate cannot decide, so you have to:" in text and f"- {GRAVEST}: {found['groups']} groups" in text
    assert "Look 1 at part 1 of 1 of the test: p = 0.0001" in text and "its level is returned" in text
    ahead = verdict.figures["scores"]["macro_f1"]
    low, high = ahead["intervals"]["candidate"]
    assert low < ahead["candidate"] < high
    assert f"| macro-F1 | {ahead['candidate']:.3f} [{low:.3f}, {high:.3f}] |" in text
    assert f"| {ahead['difference']:+.3f} [{ahead['low']:+.3f}, {ahead['high']:+.3f}] |" in text
    assert "9 looks remain" in text


def test_a_severe_label_that_the_champion_finds_must_not_be_lost(context: Context, small: Path) -> None:
    add(context, knows=4)
    promote(NAME, 1, **WHO, context=context)

    def forget(pack: Path) -> None:
        rules = json.loads((pack / "words.json").read_text())
        del rules["words"]["chair"]
        (pack / "words.json").write_text(json.dumps(rules))

    add(context, knows=6, change=forget)
    with opened(small, recall_floors={}) as unnamed:
        verdict = gate.judge(NAME, 2, context=unnamed)
    assert checks(verdict) == {"recall"} and GRAVEST in verdict.reasons[0]
    assert verdict.figures["scores"]["severe"][GRAVEST]["verdict"] == "inferior"


def test_too_few_positives_of_a_severe_label_ask_the_approver_or_refuse(context: Context, small: Path) -> None:
    add(context, knows=4)
    promote(NAME, 1, **WHO, context=context)
    add(context, knows=6)
    with opened(small, tolerance=0.01) as asking:
        verdict = gate.run(NAME, 2, context=asking)
    assert verdict.passed and verdict.figures["scores"]["severe"][GRAVEST]["verdict"] == "undecided"
    assert f"- {GRAVEST} (severe): with" in summary(verdict)
    with opened(small, tolerance=0.01, undecided="refuse") as strict:
        verdict = gate.run(NAME, 2, context=strict)
    assert checks(verdict) == {"recall"} and "is not shown to equal the champion's" in verdict.reasons[0]


def test_an_abstention_is_a_wrong_answer(context: Context) -> None:
    add(context, knows=6, abstains=["door", "chair", "cloud"])
    verdict = gate.judge(NAME, 1, context=context)
    assert verdict.figures["scores"]["abstained"]["candidate"] > 20
    assert "recall" in checks(verdict)


def test_a_record_that_was_taken_down_is_counted_and_hinders(context: Context) -> None:
    add(context, knows=6)
    take_down(context, trained(context.root)[:3])
    verdict = gate.judge(NAME, 1, context=context)
    assert verdict.reasons == ("taken_down: 3 of the 36 records that it has learnt from were taken down",)


def test_a_stale_version_is_refused_with_its_deadline(context: Context) -> None:
    add(context, knows=6)
    # the verdict is not reused, although the scores are
    assert gate.run(NAME, 1, context=context).passed
    until = {"until": "2023-03-01T00:00:00+00:00"}
    context.journal.append(NAME, event="stale", from_version=1, metrics=until, who="corpus", why="a takedown")
    told = "stale: version 1 learnt from records that were taken down, and is removed on 2023-03-01"
    assert gate.judge(NAME, 1, context=context).reasons == (told,)


def test_who_has_seen_the_test_is_refused(context: Context) -> None:
    add(context, knows=6, records=everybody(context))
    verdict = gate.judge(NAME, 1, context=context)
    assert verdict.reasons == ("split: the candidate (version 1) has learnt from 36 groups of the test",)
    assert verdict.figures["candidate"]["in_test"] == 72


def test_the_gate_reads_the_leak_free_test_only(context: Context) -> None:
    test = severity_test(context)
    leaks = [
        item for item, group in zip(test.board.items, test.board.groups, strict=True) if group != test.board.groups[0]
    ]
    rows = [{"record_id": record, "image": image} for record, image in leaks[:20]]
    path = context.root / "snapshot" / "memes" / "split" / "leaks.parquet"
    tables.write_rows(rows, path, name="leaks")
    assert set(severity_test(context).board.items) == {*test.board.items} - {*leaks[:20]}
    add(context, knows=6)
    verdict = gate.run(NAME, 1, context=context)
    assert (verdict.figures["test"]["n"], verdict.figures["test"]["gate"]) == (52, 52)


def test_who_has_seen_a_near_duplicate_of_the_test_is_refused(context: Context) -> None:
    """A record of another split may join a group of the test later: the model that learnt from it has seen the test."""
    path = context.root / "snapshot" / "memes" / "split" / "splits.parquet"
    table = tables.read(path, name="splits")
    rows = table.to_pylist()
    place = next(n for n, row in enumerate(rows) if row["split"] == "test")
    twin = {**rows[place], "record_id": "f" * len(rows[place]["record_id"])}
    tables.write(pa.Table.from_pylist([*rows, twin], schema=table.schema), path, name="splits")
    add(context, knows=6, records=[twin["record_id"]])
    verdict = gate.judge(NAME, 1, context=context)
    assert verdict.reasons == ("split: the candidate (version 1) has learnt from 1 groups of the test",)
    assert verdict.figures["candidate"]["in_test"] == 0


def test_a_champion_that_has_seen_part_of_the_test_is_compared_on_the_rest(context: Context) -> None:
    test = severity_test(context)
    seen = sorted(test.record_ids)[:8]
    groups = {group for record_id in seen for group in test.groups_of[record_id]}
    add(context, knows=4, records=seen)
    small_registry.champion(context, 1)
    add(context, knows=6)
    verdict = gate.run(NAME, 2, context=context)
    assert verdict.passed and verdict.figures["champion"]["groups_in_test"] == len(groups)
    assert verdict.figures["test"]["gate"] == 72 - sum(group in groups for group in test.board.groups)
    assert verdict.figures["scores"]["rival"]["name"] == "champion, version 1"
    assert f"The champion has learnt from {len(groups)} groups of the test: they are left out for both." in summary(
        verdict
    )


def test_a_champion_that_has_seen_the_test_does_not_refuse_every_candidate(context: Context) -> None:
    add(context, knows=6, records=everybody(context))
    small_registry.champion(context, 1)
    add(context, knows=4)
    verdict = gate.run(NAME, 2, context=context)
    assert verdict.passed and verdict.champion == 1
    assert verdict.figures["scores"]["rival"] == {"name": "majority set", "among": ["majority set"]}
    assert "36 groups of the test: too many for a comparison with it" in summary(verdict)
    assert promote(NAME, 2, **WHO, context=context).champion == 2


def test_every_fault_is_named_and_nothing_is_run(context: Context) -> None:
    def spoil(folder: Path) -> None:
        pack = integrity.place(folder)
        (pack / "words.json").write_bytes((pack / "words.json").read_bytes().replace(b"planning", b"Planning"))
        (pack / integrity.CARD).unlink()
        # it would be seen, if it ran
        (pack / "extra.txt").write_bytes(pickle.dumps({"a": print}))
        (folder / "rule_model.py").write_text("open('ran', 'w')\n")

    add(context, knows=6, after=spoil, labels=["a"], records=[])
    verdict = gate.judge(NAME, 1, context=context)
    assert checks(verdict) == {"files", "pickle", "card", "labels", "asked"}
    told = " ".join(verdict.reasons)
    for part in ("1 files differ from files.json: words.json",
                 "1 files are missing although listed in files.json: card.json",
                 "1 files are not in files.json: extra.txt", "artifacts/pack/extra.txt is or may be a pickle",
                 "its 1 labels are not the ", "card.json is missing", "was registered",
                 "its files failed verification"):  # fmt: skip
        assert part in told
    assert not Path("ran").exists()
    assert "scores" not in verdict.figures


def test_a_changed_byte_outside_the_pack_and_a_registration_past_the_journal_are_seen(context: Context) -> None:
    add(context, knows=6, after=lambda folder: (folder / "conda.yaml").write_text("name: other\n"))
    add(context, knows=6, journal=False)
    for version in (1, 2):
        assert checks(gate.judge(NAME, version, context=context)) == {"files", "asked"}


def test_a_version_without_a_card_or_a_pack_is_refused(context: Context) -> None:
    add(context, knows=6, change=lambda pack: (pack / integrity.CARD).unlink())
    add(context, knows=6, after=lambda folder: (integrity.place(folder) / integrity.FILES).unlink())
    card, pack = (gate.judge(NAME, number, context=context) for number in (1, 2))
    assert checks(card) == {"card", "asked"} and "the model fails (ValueError)" in card.reasons[-1]
    assert checks(pack) == {"files", "card", "taken_down", "asked"}


def test_an_altered_champion_is_not_run_either(context: Context) -> None:
    first = add(context, knows=4)
    promote(NAME, 1, **WHO, context=context)
    (Path(first.source) / "conda.yaml").write_text("name: other\n")
    add(context, knows=6)
    verdict = gate.judge(NAME, 2, context=context)
    assert checks(verdict) == {"champion"} and "withdraw it" in verdict.reasons[0]
    # nor is a baseline its rival when its list of records is lost
    (integrity.place(Path(first.source)) / integrity.FILES).unlink()
    assert checks(gate.judge(NAME, 2, context=context)) == {"champion"}


def test_what_was_scored_is_not_scored_again_until_something_changes(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(context, knows=6)
    before = gate.run(NAME, 1, context=context)
    seen = events(context)
    monkeypatch.setenv("RULE_MODEL_FAILS", "1")
    assert gate.run(NAME, 1, context=context) == before
    assert events(context) == seen
    test = severity_test(context)
    take_down(context, sorted(test.record_ids)[:1])
    after = gate.run(NAME, 1, context=context)
    assert after.basis != before.basis and after.figures["test"]["n"] == 71
    assert after.reasons == ("asked: version 1 was not scored: the model fails (RuntimeError)",)
    assert events(context) == [*seen, ("refused", None, 1)]


def test_names_and_versions_that_are_not_there(context: Context) -> None:
    add(context, knows=6)
    with pytest.raises(UnknownVersion):
        gate.judge(NAME, 7, context=context)
    with pytest.raises(UnknownModel):
        gate.judge("meme-humour", 1, context=context)


def test_pickles_are_found_by_content(tmp_path: Path) -> None:
    for number, protocol in enumerate(range(6)):
        (tmp_path / f"{number}.json").write_bytes(pickle.dumps({"a": [1, "b"], "c": print}, protocol=protocol))
    (tmp_path / "joined.txt").write_bytes(pickle.dumps([1]) + b"and more")
    (tmp_path / "weights.safetensors").write_bytes(pickle.dumps([1]))
    (tmp_path / "a.pt").write_bytes(b"anything")
    (tmp_path / "NAMED.SAFETENSORS").write_bytes(b"a text, which is no pickle")
    for name, inside in {"archive.zip": "data/DATA.PKL", "harmless.zip": "data/notes.txt"}.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(inside, "anything")
    for name, harmless in {
        ".gitignore": b".venv\n", "b.json": b'{"a": 1}', "c.txt": b"I am here.\n", "d": b"", "e.md": b"# (a) b.",
        "good.safetensors": (2).to_bytes(8, "little") + b"{}", "f.py": b"class A: pass\n", "vocab.txt": b"N\nS\n.",
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(harmless)
    found = {"0.json", "1.json", "2.json", "3.json", "4.json", "5.json", "joined.txt", "weights.safetensors", "a.pt"}
    found |= {"NAMED.SAFETENSORS", "archive.zip"}
    assert set(pickles(tmp_path)) == found


def test_a_pack_that_says_too_little_is_none(tmp_path: Path) -> None:
    (tmp_path / integrity.FILES).write_text("{}")
    (tmp_path / integrity.MODEL).write_text('{"format": 1, "kind": "rule"}')
    with pytest.raises(NoPack, match="labels"):
        candidate.Pack.read(tmp_path)


def test_posts_of_the_test_are_sent_as_title_and_body(tmp_path: Path) -> None:
    made = small_posts.made()
    with small_posts.copied(made, to=tmp_path / "copy") as corpus:
        test = frozen(corpus)
        assert [item[0] for item in test.board.items] == corpus.of("test")
        frames = list(test.frames(("title", "body")))
        assert [*frames[0].columns] == ["title", "body"]
        titles = [title for frame in frames for title in frame["title"]]
        assert titles == [corpus.posts[record].title for record in corpus.of("test")]
        assert list(test.board.gold) == [corpus.posts[record].labels for record in corpus.of("test")]
        assert test.majority in {corpus.posts[record].labels for record in corpus.of("dev")}
        assert not any(title in repr(test) for title in titles)
        gone = corpus.of("test")[0]
        corpus.vault.destroy([gone], reason="test", now=datetime(2023, 2, 1, tzinfo=UTC))
        after = frozen(corpus)
    assert len(after.board.items) == len(test.board.items) - 1 and after.taken_down == 1
    assert after.digest != test.digest and after.split == test.split


def test_a_team_s_scheme_is_read_from_the_clone(tmp_path: Path) -> None:
    with small_posts.copied(small_posts.made(), to=tmp_path / "copy") as corpus:
        before, scheme = frozen(corpus), own_scheme(corpus.root, like="cradle")
        posts = corpus.params.corpora["posts"].model_copy(update={"scheme": scheme})
        params = corpus.params.model_copy(update={"corpora": {**corpus.params.corpora, "posts": posts}})
        test = open_test("posts", category="labels", params=params, vault=corpus.vault, root=corpus.root)
    assert test.digest == before.digest


def frozen(corpus: SmallPosts) -> Frozen:
    return open_test("posts", category="labels", params=corpus.params, vault=corpus.vault, root=corpus.root)
