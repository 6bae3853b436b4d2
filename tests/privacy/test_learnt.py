"""Registered models trained on deleted records are found, tagged, cleared of ids, and withdrawn."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crisis_corpus import client, integrity
from crisis_corpus.integrity import digest
from crisis_corpus.journal import standing
from crisis_corpus.trusted import FilesChanged
from crisis_corpus.versions import CHAMPION, DIGEST, Version
from pipelines.core.config.operate import Takedown
from pipelines.registry import candidate
from pipelines.registry.candidate import Context, enter, registration
from pipelines.registry.promotion import promote
from pipelines.takedown.receipts import TakedownRequest
from pipelines.takedown.redaction import Gone
from pipelines.takedown.stores import published
from tests import small_corpus
from tests.refusals import refused
from tests.registry.small_registry import NAME, add, events, trained

REPO = Path(__file__).resolve().parents[2]
NOW = datetime(2023, 1, 3, tzinfo=UTC)
UNTIL = "2023-02-02T00:00:00+00:00"


@dataclass
class Noted:
    """A request as a step sees it."""

    request: TakedownRequest = field(
        default_factory=lambda: TakedownRequest("r-1", "a" * 32, "request-7", "a person", NOW.isoformat(), {}, 0)
    )

    def run(self, ids: list[str], *, context: Context, share: float = 1.0, stop: str | None = None) -> None:
        def say(what: str) -> None:
            if what == stop:
                raise KeyboardInterrupt

        terms = Takedown(withdraw_share=share)
        published.Marking(self.request, Gone(ids), context, terms, NOW, say).run()


def again(version: Version, *, context: Context) -> Version:
    return context.registry.version(version.name, version.version)


def taken_down(version: Version, *, context: Context) -> str | None:
    return again(version, context=context).tags.get("taken_down")


def test_a_version_is_tagged_and_its_list_loses_the_ids_and_it_stays_sound(context: Context, tmp_path: Path) -> None:
    ids = trained(context.root)
    one, other = add(context, knows=6), add(context, knows=6, records=ids[4:])
    noted = Noted()
    noted.run(ids[:3], context=context)
    assert noted.request.steps["models"] == {"unknown": 0, f"{NAME}/1": 3}
    assert taken_down(one, context=context) == "3" and taken_down(other, context=context) is None
    entry = enter(again(one, context=context), context=context, folder=tmp_path)
    assert entry.faults == {"files": [], "pickle": [], "card": []}, "files, files.json and journal agree"
    assert entry.pack is not None and entry.pack.records == frozenset(ids[3:])
    assert again(one, context=context).tags[DIGEST] == entry.found == registration(context.journal, one).files
    assert events(context)[-2:] == [("stale", 1, None), ("registered", None, 1)] and context.journal.verify() == 4
    disk = b"".join(p.read_bytes() for p in Path(one.source).rglob("*") if p.is_file())
    assert not [i for i in ids[:3] if i.encode() in disk]
    assert not [p for p in (context.settings.home / "registry").glob("*/*") if Gone(ids[:3]).within(p)]
    assert digest(Path(other.source)) == again(other, context=context).tags[DIGEST], "the other one is untouched"


def test_a_champion_is_loaded_after_takedowns_but_not_with_its_earlier_files(context: Context, tmp_path: Path) -> None:
    ids = trained(context.root)
    version = add(context, knows=6)
    promote.promote(NAME, 1, who="ada", why="a test", context=context)
    before = shutil.copytree(version.source, tmp_path / "before")
    cache = tmp_path / "cache"
    assert client.load(f"{NAME}@champion", cache=cache).files == version.digest
    for taken in (1, 2):
        Noted().run(ids[:taken], context=context)
        with pytest.warns(client.StaleModel, match="2023-02-02"):
            model = client.load(f"{NAME}@champion", cache=cache)
        assert (model.version, model.files) == (1, again(version, context=context).digest)
    shutil.rmtree(version.source)
    before.rename(version.source)
    with pytest.raises(FilesChanged), pytest.warns(client.StaleModel):
        client.load(f"{NAME}@champion", cache=tmp_path / "other")


def test_the_next_takedown_adds_to_the_count(context: Context) -> None:
    ids = trained(context.root)
    version = add(context, knows=6)
    Noted().run(ids[:3], context=context)
    Noted().run(ids[:5], context=context)
    assert taken_down(version, context=context) == "5"
    Noted().run(ids[:5], context=context)
    assert taken_down(version, context=context) == "5", "the same again changes nothing"
    assert [row.event for row in context.journal.rows(NAME)] == ["registered", "stale"] * 2 + ["registered"]


def test_over_the_share_the_champion_is_withdrawn_and_below_it_stays(context: Context) -> None:
    ids = trained(context.root)
    version = add(context, knows=6)
    promote.promote(NAME, 1, who="w", why="y", context=context)
    Noted().run(ids[:3], context=context, share=0.1)
    assert context.registry.alias(NAME, CHAMPION) == 1, "3 of 36 is less than a tenth"
    Noted().run(ids[:4], context=context, share=0.1)
    assert context.registry.alias(NAME, CHAMPION) is None
    row = context.journal.rows(NAME)[-1]
    assert (row.event, row.who, row.why) == (
        "withdrawn", "a person", "request-7: 4 of 36 training records are taken down"
    )  # fmt: skip
    assert taken_down(version, context=context) == "4"
    before = len(context.journal.rows(NAME))
    Noted().run(ids[:4], context=context, share=0.1)
    assert len(context.journal.rows(NAME)) == before


def test_a_version_is_stale_at_once_for_the_gate_and_for_consumers(context: Context) -> None:
    from pipelines.registry import show
    from pipelines.registry.promotion import gate
    from pipelines.registry.webhook import Watch

    ids = trained(context.root)
    add(context, knows=6)
    promote.promote(NAME, 1, who="ada", why="a test", context=context)
    watch = Watch.open(context.journal)
    watch.subscribe("https://127.0.0.1:1/hook", name=NAME)
    token = client.load(f"{NAME}@champion").token
    with pytest.raises(KeyboardInterrupt):
        # before a file is changed, and whatever a writer of tags does
        Noted().run(ids[:1], context=context, stop=f"{NAME}/1 changed")
    context.registry.client.delete_model_version_tag(NAME, "1", "digest")
    assert standing(context.journal, NAME).stale == {1: UNTIL}
    assert client.changed(NAME, token) == context.journal.last(NAME).digest != token
    watch.deliver()
    assert [json.loads(d.body)["type"] for d in watch.deliveries()] == ["model.stale"]
    [model] = show.gather(NAME, registry=context.registry, journal=context.journal)
    assert model["versions"][0]["is"] == ["champion", "stale until 2023-02-02"]
    assert show.summary(context.journal)[0]["stale"] == UNTIL
    # another version with the same records is judged by the journal, not by a tag
    add(context, knows=6)
    Noted().run(ids[:1], context=context)
    context.registry.client.set_model_version_tag(NAME, "2", "taken_down", "0")
    assert gate.judge(NAME, 2, context=context).reasons[0].startswith("stale: ")


def test_cut_short_after_the_files_and_repeated_it_is_sound(context: Context, tmp_path: Path) -> None:
    ids = trained(context.root)
    version = add(context, knows=6)
    noted = Noted()
    with pytest.raises(KeyboardInterrupt):
        noted.run(ids[:3], context=context, stop=f"{NAME}/1 changed")
    assert enter(version, context=context, folder=tmp_path / "a").faults["files"], "nothing says so yet"
    noted.run(ids[:3], context=context)
    assert enter(version, context=context, folder=tmp_path / "b").faults["files"] == []
    assert taken_down(version, context=context) == "3"
    assert [row.event for row in context.journal.rows(NAME)] == ["registered", "stale", "registered"]


def test_a_version_altered_elsewhere_loses_the_ids_and_is_not_trusted(context: Context, tmp_path: Path) -> None:
    ids = trained(context.root)

    def alter(folder: Path) -> None:
        (integrity.place(folder) / "words.json").write_text("{}")

    version = add(context, knows=6, after=alter)
    noted = Noted()
    noted.run(ids[:3], context=context)
    assert enter(version, context=context, folder=tmp_path).faults["files"]
    assert noted.request.promised == {} and [row.event for row in context.journal.rows(NAME)] == ["registered", "stale"]
    assert candidate.read_records(integrity.place(Path(version.source)) / integrity.RECORDS) == frozenset(ids[3:])


def test_an_open_move_is_reported_and_nothing_is_changed(context: Context) -> None:
    ids = trained(context.root)
    version = add(context, knows=6)

    def stop(step: str) -> None:
        if step == "intended":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        promote.promote(NAME, 1, who="w", why="y", context=context, say=stop)
    with refused("PromotionAhead"):
        Noted().run(ids[:3], context=context)
    assert taken_down(version, context=context) is None
    promote.promote(NAME, 1, who="w", why="y", context=context)
    Noted().run(ids[:3], context=context)
    assert taken_down(version, context=context) == "3"


def test_a_look_leaves_no_copy_and_a_version_that_does_not_say_is_counted(context: Context) -> None:
    ids = trained(context.root)
    add(context, knows=6)
    add(context, knows=6, change=lambda pack: (pack / integrity.RECORDS).unlink())
    assert published.look(Gone(ids[:2]), context=context) == {"unknown": 1, f"{NAME}/1": 2}
    assert not list((context.settings.home / "registry").glob("*"))


def test_a_takedown_goes_through_the_models(context: Context) -> None:
    from pipelines.takedown import takedown
    from pipelines.takedown.selection import Selection

    settings, ids = context.settings, trained(context.root)
    small_corpus.begin(settings, code=small_corpus.code_of(settings.home / "code", {}))
    version = add(context, knows=6)
    selection = Selection("a" * 32, frozenset(ids[:3]), {"records": 3})
    given = {"settings": settings, "vault": context.vault, "now": NOW, "registry": lambda: nullcontext(context)}
    told = takedown.dry_run(selection, **given)
    assert told["stores"]["models"] == {"unknown": 0, f"{NAME}/1": 3}
    receipt = takedown.Deletion(terms=Takedown(withdraw_share=0.5), **given).run(selection, reason="r-1", who="w")
    assert receipt.steps["models"] == {"unknown": 0, f"{NAME}/1": 3} and receipt.ended
    assert receipt.weights_due == UNTIL, "also of a model that only the registry has"
    assert taken_down(version, context=context) == "3"
