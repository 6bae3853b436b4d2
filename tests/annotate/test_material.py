"""What annotators are shown: the picture of a meme, the words of a post, and of a deleted record nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.annotate.rounds import material
from pipelines.annotate.rounds.adjudicate import AdjudicationCase
from pipelines.core.config.params import load
from pipelines.core.errors import SealBroken
from pipelines.store import tables
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault

PARAMS = load(Path(__file__).resolve().parents[2])
NOW = datetime(2023, 1, 2, tzinfo=UTC)
A, B, C = ("a" * 32, "b" * 32, "c" * 32)
PNG, JPEG = b"\x89PNG\r\n\x1a\n-picture", b"\xff\xd8\xff-picture"


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.open(f"sqlite:///{tmp_path}/vault.sqlite", secret=bytes(64)) as opened:
        opened.admit([(r, f"t3_{r[0]}") for r in (A, B, C)], corpus="memes", month="2022-11", now=NOW)
        yield opened


def write(path: Path, *, name: str, vault: Vault, rows: list[dict[str, object]]) -> None:
    whole = [{column: row.get(column) for column in tables.SCHEMAS[name].names} for row in rows]
    write_rows(whole, path, name=name, vault=vault)


@pytest.fixture
def root(tmp_path: Path, vault: Vault) -> Path:
    data = tmp_path / "data"
    first = [{"record_id": A, "image": i, "bytes": image} for i, image in enumerate((PNG, JPEG))]
    write(data / "memes/2022-11/images/000.parquet", name="images", vault=vault, rows=first)
    second = [{"record_id": B, "image": 0, "bytes": b"GIF89a", "text": "read from the picture"}]
    write(data / "memes/2022-12/images/000.parquet", name="images", vault=vault, rows=second)
    posts = [{"record_id": r, "title": f"Title {r[0]}", "body": f"Body {r[0]}"} for r in (A, B, C)]
    write(data / "posts/2022-11/posts.parquet", name="posts", vault=vault, rows=posts)
    return tmp_path


def test_a_meme_is_its_picture_and_nothing_else(root: Path, vault: Vault) -> None:
    wanted = {(B, 0): 1, (A, 1): 0}
    found = material.tasks("memes", items=wanted, cases=None, params=PARAMS, vault=vault, root=root)
    assert [(t.item, t.position, t.image, t.media_type) for t in found] == [
        ((A, 1), 0, JPEG, "image/jpeg"),
        ((B, 0), 1, b"GIF89a", "image/gif"),
    ]
    assert not any(t.text or t.sides or t.disputed for t in found)


def test_a_post_is_its_title_and_body(root: Path, vault: Vault) -> None:
    found = material.tasks("posts", items={(C, 0): 3}, cases=None, params=PARAMS, vault=vault, root=root)
    assert [(t.item, t.position, dict(t.text), t.image) for t in found] == [
        ((C, 0), 3, {"title": "Title c", "body": "Body c"}, None)
    ]


def test_an_adjudicator_sees_the_sides_of_the_case(root: Path, vault: Vault) -> None:
    case = AdjudicationCase((A, 0), ("labels",), ({"labels": ("rape_past",)}, {"labels": ("no_crisis",)}))
    items = {(A, 0): 0, (B, 0): 1}
    found = material.tasks("posts", items=items, cases={(A, 0): case}, params=PARAMS, vault=vault, root=root)
    assert [(t.disputed, t.sides) for t in found] == [(case.categories, case.sides), ((), ())]


@pytest.mark.parametrize("corpus", ["memes", "posts"])
def test_what_was_taken_down_or_is_not_there_is_left_out(root: Path, vault: Vault, corpus: str) -> None:
    vault.destroy([A], reason="request-1", now=NOW)
    items = {(A, 0): 0, (B, 0): 1, (B, 7): 2, ("d" * 32, 0): 3}
    found = material.tasks(corpus, items=items, cases=None, params=PARAMS, vault=vault, root=root)
    assert [t.item for t in found] == [(B, 0)]


def test_content_of_another_place_is_never_shown(root: Path, vault: Vault) -> None:
    path = root / "data/memes/2022-11/images/000.parquet"
    table = tables.read(path, name="images")
    swapped = table.set_column(table.schema.get_field_index("image"), "image", table["image"].take([1, 0]))
    tables.write(swapped, path, name="images")
    with pytest.raises(SealBroken):
        material.tasks("memes", items={(A, 0): 0}, cases=None, params=PARAMS, vault=vault, root=root)


def test_a_picture_is_known_by_its_first_bytes() -> None:
    assert [material.media_type(b) for b in (PNG, JPEG, b"RIFF0000WEBP", b"<svg>")] == [
        "image/png",
        "image/jpeg",
        "image/webp",
        "application/octet-stream",
    ]
