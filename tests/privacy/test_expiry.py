"""A model that was trained on a deleted record: trained again, and without weights when the deadline has passed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import yaml

from crisis_corpus import client
from crisis_corpus.journal import standing
from crisis_corpus.trusted import NoChampion, Withdrawn
from crisis_corpus.versions import CHAMPION, Version
from pipelines.core.config.operate import Takedown
from pipelines.models.fitting import training_records
from pipelines.registry.candidate import Context
from pipelines.registry.packaging.pack import refuse_deleted
from pipelines.registry.promotion import promote
from pipelines.registry.webhook import Watch
from pipelines.store import tables
from pipelines.store.vault import removals
from pipelines.takedown import receipts, takedown
from pipelines.takedown.selection import Selection
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests import small_corpus
from tests.privacy import used_corpus as used
from tests.privacy.test_learnt import NOW as TAKEN
from tests.privacy.test_learnt import Noted
from tests.privacy.used_corpus import EACH, NOW, House, fullname
from tests.refusals import refused
from tests.registry.small_registry import NAME, add, trained
from tests.small_corpus import sign
from tests.stages import reproduce, rerun

TERMS = Takedown(withdraw_share=0.01, weights_days=30)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A used corpus in which two models were trained: on all records of posts, and on those of test."""
    settings = used.copy(tmp_path / "home")
    with workspace(settings) as clone:
        path = clone.path / "dvc.yaml"
        shape = yaml.safe_load(path.read_text())
        shape["stages"]["train"] = {
            "foreach": ["all", "some"],
            "do": {
                "cmd": "python -m pipelines 'python -P stage.py train posts ${item}'",
                "deps": ["snapshot/posts/split"],
                "outs": ["snapshot/posts/fits/${item}"],
                "metrics": [{"metrics/posts/train-${item}.json": {"cache": False}}],
            },
        }
        path.write_text(yaml.safe_dump(shape))
        clone.commit("a stage of models", paths=["dvc.yaml"])
    sign(settings)
    with workspace(settings) as clone:
        clone.checkout("snapshot/posts/split")
        reproduce(clone, "train@all", "train@some")
        clone.commit("models", paths=["dvc.lock", "metrics"])
    with used.opened(settings) as house:
        yield house


def weights(house: House, name: str) -> list[Path]:
    """The objects of cache and remote with the weights of a model."""
    return [path for path in used.stored(house.settings) if path.read_bytes().startswith(f"weights of {name}".encode())]


def a_deletion(house: House) -> Selection:
    """The first record of posts that is in the list of one model only."""
    with workspace(house.settings) as clone:
        clone.checkout("snapshot/posts/fits")
        told = {n: training_records.read(clone.path / f"snapshot/posts/fits/{n}") for n in ("all", "some")}
    learnt = told["all"].keys() - told["some"].keys()
    names = [fullname("posts", n) for n in range(2 * EACH)]
    return house.select(records=[next(name for name in names if house.vault.record_id(name) in learnt)])


def test_a_model_that_learnt_from_a_deleted_record_is_trained_again_and_no_other(house: House) -> None:
    receipt = house.take_down(a_deletion(house), terms=TERMS)
    assert receipt.steps["repository"]["models"] == 1
    assert receipt.weights_due == (NOW + timedelta(days=30)).isoformat(timespec="seconds")
    with workspace(house.settings) as clone:
        assert rerun(clone) == ["quality@posts", "train@all"], "one measures what remains; nothing else runs again"


def test_weights_go_from_every_version_when_the_deadline_has_passed(house: House) -> None:
    with workspace(house.settings) as clone:
        clone.checkout("snapshot/posts/fits")
        folders = [clone.path / "snapshot/posts/fits" / name for name in ("all", "some")]
        lists = [json.loads((folder / tables.CARD).read_bytes())["train"]["digest"] for folder in folders]
    one, other, both = (takedown._trained(house.settings, lists=of) for of in ({lists[0]}, {lists[1]}, {*lists}))
    assert (one[1], other[1]) == ({"train@all"}, {"train@some"})
    assert both[1] == one[1] | other[1]
    assert both[0] > one[0] | other[0], "of a record in both lists: all of both models, also what they share"
    house.take_down(a_deletion(house), terms=TERMS)
    revisit = partial(house.revisit, terms=TERMS)
    assert revisit(now=NOW + timedelta(days=29)) == []
    assert len(weights(house, "all")) == 2
    [receipt] = revisit(now=NOW + timedelta(days=30))
    assert receipt.steps["weights"] == {
        "versions": 0, "objects": 1, "stages": 1, "moved": 0, "without_champion": 0
    }  # fmt: skip
    assert weights(house, "all") == [] and len(weights(house, "some")) == 2
    lock = yaml.safe_load(git("--git-dir", house.settings.repo, "show", "corpus:dvc.lock"))["stages"]
    assert "train@all" not in lock and "train@some" in lock
    assert revisit(now=NOW + timedelta(days=31)) == []
    with workspace(house.settings) as clone:
        clone.checkout("snapshot/posts/fits/some")
        reproduce(clone, "train@all")
        clone.commit("trained again", paths=["dvc.lock", "metrics"])
    assert revisit(now=NOW + timedelta(days=60)) == [], "the new model never saw the record"
    assert len(weights(house, "all")) == 2 and len(receipts.receipts(house.settings)) == 2


def test_a_list_that_a_takedown_shortened_hides_nothing(house: House) -> None:
    def judged() -> None:
        with workspace(house.settings) as clone:
            clone.checkout("snapshot/posts/fits")
            metrics = json.loads((clone.path / "metrics/posts/train-all.json").read_text())
            records = training_records.read(clone.path / "snapshot/posts/fits/all") or {}
        given = {"name": "crisis-posts", "model": "all", "where": "metrics", "vault": house.vault}
        refuse_deleted(records, metrics=metrics, **given)

    judged()
    selection = a_deletion(house)
    house.take_down(selection, terms=TERMS)
    with refused("LearntFromDeleted") as caught:
        judged()
    assert caught.value.fields["count"] == 1
    [row] = [r for r in removals.every(house.vault) if r.removed == 1][:1]
    with house.vault.database.writing() as connection:
        connection.exec_driver_sql("UPDATE removals SET removed = 7")
    with refused("RemovalAltered"):
        judged()
    with house.vault.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM removals")
    with refused("LineageAltered") as altered:
        judged()
    assert row.removed == 1 and not any(i in str(altered.value) for i in selection.records)


# -- registered models ------------------------------------------------------------------------------------------------


@pytest.fixture
def context(context: Context) -> Context:
    """Begin a repository for the registry."""
    small_corpus.begin(context.settings, code=small_corpus.code_of(context.settings.home / "code", {}))
    return context


def a_stale_champion(context: Context) -> Version:
    """Register a champion, a better version and an equal one; a record goes on which the first two were trained."""
    ids = trained(context.root)
    version = add(context, knows=6)
    promote.promote(NAME, 1, who="ada", why="a test", context=context)
    add(context, knows=6, records=ids[:6])
    add(context, knows=6, records=ids[4:])
    add(context, knows=1, records=ids[4:])
    Noted().run(ids[:3], context=context)
    assert standing(context.journal, NAME).stale.keys() == {1, 2}
    return version


def expire(context: Context, *, days: int = 30, stop: str | None = None) -> dict[str, int]:
    def say(what: str) -> None:
        if what == stop:
            raise KeyboardInterrupt

    given = {"settings": context.settings, "context": context}
    found = takedown.due(vault=context.vault, terms=TERMS, now=TAKEN + timedelta(days=days), **given)
    return found.counts | found.remove(opening=lambda name: nullcontext(context), say=say)


@pytest.mark.parametrize(
    "stop",
    [None, *(pytest.param(f"{NAME}/1 {step}", marks=pytest.mark.faults) for step in ("left", "withdrawn", "deleted"))],
)
def test_the_alias_moves_to_a_clean_version_through_the_gate_and_the_weights_go(
    context: Context, stop: str | None
) -> None:
    version = a_stale_champion(context)
    # so is every version after a kill between its withdrawal and its deletion
    promote.withdraw(NAME, 2, who="ada", why="a test", context=context)
    with pytest.warns(client.StaleModel):
        copy = client.download(f"{NAME}@champion")
    assert expire(context, days=29)["versions"] == 0 and context.registry.alias(NAME, CHAMPION) == 1
    if stop is not None:
        with pytest.raises(KeyboardInterrupt):
            expire(context, stop=stop)
    assert expire(context)["moved"] == (stop is None)
    # 4 is newer and fails the gate
    assert context.registry.alias(NAME, CHAMPION) == 3 and client.load(f"{NAME}@champion").stale is None
    assert [v.version for v in context.registry.versions(NAME)] == [3, 4]
    assert not list(Path(version.source).rglob("*")) and not copy.exists()
    events = [row.event for row in context.journal.rows(NAME)]
    assert events.count("promoted") == 2 and events.count("withdrawn") == 2
    with pytest.raises(Withdrawn, match="its weights are deleted"):
        client.load(f"{NAME}/1")
    assert not any(expire(context).values())


def test_without_a_clean_version_the_model_is_withdrawn_with_notice(context: Context) -> None:
    ids = trained(context.root)
    add(context, knows=6)
    promote.promote(NAME, 1, who="ada", why="a test", context=context)
    Noted().run(ids[:1], context=context)
    watch = Watch.open(context.journal)
    watch.subscribe("https://127.0.0.1:1/hook")
    assert expire(context)["without_champion"] == 1
    assert context.registry.alias(NAME, CHAMPION) is None and context.registry.versions(NAME) == []
    watch.deliver()
    assert [json.loads(d.body)["type"] for d in watch.deliveries()] == ["model.withdrawn"]
    with pytest.raises(NoChampion):
        client.load(f"{NAME}@champion")


def test_a_version_that_was_packed_before_and_registered_after_a_takedown_is_found(context: Context) -> None:
    ids = trained(context.root)
    context.vault.destroy(ids[:2], reason="request-7", now=TAKEN)
    add(context, knows=6, records=ids)
    given = {"settings": context.settings, "vault": context.vault, "terms": TERMS, "now": TAKEN}
    given["registry"] = lambda: nullcontext(context)
    [receipt] = takedown.Deletion(**given).revisit()
    assert receipt.steps["models"][f"{NAME}/1"] == 2 and standing(context.journal, NAME).stale.keys() == {1}
    assert receipt.weights_due == (TAKEN + timedelta(days=30)).isoformat(timespec="seconds")
    assert takedown.Deletion(**given).revisit() == []
