"""What annotators are shown: the picture of a meme, the words of a post, and of a deleted record nothing."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipelines.annotate.backends import AnnotationTask, Item
from pipelines.annotate.rounds import desk
from pipelines.annotate.rounds.adjudicate import AdjudicationCase
from pipelines.core.config.params import load
from pipelines.core.errors import SealBroken
from pipelines.datasets.post import media_type
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from tests import small_corpus
from tests.small_corpus import NOW, ROOT

A, B, C = ("a" * 32, "b" * 32, "c" * 32)
PNG, JPEG = b"\x89PNG\r\n\x1a\n-picture", b"\xff\xd8\xff-picture"
Tasks = Callable[..., list[AnnotationTask]]


@pytest.fixture
def tasks(tmp_path: Path, vault: Vault) -> Tasks:
    small_corpus.admit(vault, {r: f"t3_{r[0]}" for r in (A, B, C)}, corpus="memes", month="2022-11")
    given = {"corpus": "memes", "vault": vault}
    first = [{"record_id": A, "image": i, "bytes": image} for i, image in enumerate((PNG, JPEG))]
    small_corpus.write_images(tmp_path, [first], month="2022-11", **given)
    second = [{"record_id": B, "image": 0, "bytes": b"GIF89a", "text": "read from the picture"}]
    small_corpus.write_images(tmp_path, [second], month="2022-12", **given)
    posts = [{"record_id": r, "title": f"Title {r[0]}", "body": f"Body {r[0]}"} for r in (A, B, C)]
    small_corpus.write_posts(tmp_path, posts, corpus="posts", month="2022-11", vault=vault)

    def of(corpus: str, items: Mapping[Item, int], cases: Mapping[Item, AdjudicationCase] | None = None) -> object:
        return desk.task_list(corpus, items=items, cases=cases, params=load(ROOT), vault=vault, root=tmp_path)

    return of


def test_a_meme_is_its_picture_and_nothing_else(tasks: Tasks) -> None:
    found = tasks("memes", {(B, 0): 1, (A, 1): 0})
    assert [(t.item, t.position, t.image, t.media_type) for t in found] == [
        ((A, 1), 0, JPEG, "image/jpeg"),
        ((B, 0), 1, b"GIF89a", "image/gif"),
    ]
    assert not any(t.text or t.sides or t.disputed for t in found)


def test_a_post_is_its_title_and_body_and_an_adjudicator_sees_the_sides_of_the_case(tasks: Tasks) -> None:
    case = AdjudicationCase((C, 0), ("labels",), ({"labels": ("rape_past",)}, {"labels": ("no_crisis",)}))
    found = tasks("posts", {(C, 0): 3, (B, 0): 4}, {(C, 0): case})
    assert [(t.item, t.position, t.text["title"], t.text["body"], t.image) for t in found] == [
        ((C, 0), 3, "Title c", "Body c", None),
        ((B, 0), 4, "Title b", "Body b", None),
    ]
    assert [(t.disputed, t.sides) for t in found] == [(case.categories, case.sides), ((), ())]


@pytest.mark.parametrize("corpus", ["memes", "posts"])
def test_what_was_taken_down_or_is_not_there_is_left_out(tasks: Tasks, vault: Vault, corpus: str) -> None:
    vault.destroy([A], reason="request-1", now=NOW)
    found = tasks(corpus, {(A, 0): 0, (B, 0): 1, (C, 7): 2, ("d" * 32, 0): 3})
    assert [t.item for t in found] == [(B, 0)]


def test_content_of_another_place_is_never_shown(tasks: Tasks, tmp_path: Path) -> None:
    path = tmp_path / "data/memes/2022-11/images/000.parquet"
    table = tables.read(path, name="images")
    swapped = table.set_column(table.schema.get_field_index("image"), "image", table["image"].take([1, 0]))
    tables.write(swapped, path, name="images")
    with pytest.raises(SealBroken):
        tasks("memes", {(A, 0): 0})


def test_a_picture_is_known_by_its_first_bytes() -> None:
    kinds = {b"RIFF0000WEBP": "image/webp", PNG: "image/png", b"<svg>": None}
    assert {image: media_type(image) for image in kinds} == kinds
