"""Resolve takedown criteria to records: every kind of criterion, over every version, and invalid ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.core.config.params import load
from pipelines.core.errors import BadParams
from pipelines.store.vault.vault import Vault
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.selection import Criteria, Selection, _near, select
from pipelines.workspace.clone import workspace
from tests.privacy import used_corpus as used
from tests.privacy.used_corpus import EACH, fullname

REPO = Path(__file__).resolve().parents[2]
ALL = range(2 * EACH)


class Desk:
    def __init__(self, objects: Objects, vault: Vault) -> None:
        self.vault, self._objects, self._params = vault, objects, load(REPO)

    def __call__(self, **asked: Any) -> Selection:
        return select(Criteria(**asked), vault=self.vault, objects=self._objects, params=self._params)

    def ids(self, corpus: str, *numbers: int) -> set[str]:
        return {self.vault.record_id(fullname(corpus, n)) for n in numbers}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    settings = used.copy(tmp_path_factory.mktemp("selection") / "home")
    with used.vault_of(settings) as vault, workspace(settings) as clone, Objects.opened(clone) as objects:
        yield Desk(objects, vault)


@pytest.mark.parametrize(
    "post",
    [
        "p00003",
        "t3_p00003",
        " T3_P00003 ",
        "https://www.reddit.com/r/Quiet/comments/p00003/a_title/?utm_source=share",
        "https://old.reddit.com/comments/p00003",
        "https://reddit.com/gallery/p00003",
        "https://redd.it/p00003",
        "https://www.reddit.com/user/somebody/comments/p00003/",
    ],
)
def test_a_post_by_any_of_its_names(post: str, ask: Desk) -> None:
    assert ask(records=[post]).records == ask.ids("posts", 3)


def test_an_id_of_a_record_and_a_file_of_posts(ask: Desk, tmp_path: Path) -> None:
    [known] = ask.ids("memes", 1)
    (tmp_path / "ids.txt").write_text(f"{known}\n\nt3_p00002\n")
    found = ask(files=[tmp_path / "ids.txt"])
    assert found.records == {known} | ask.ids("posts", 2) and found.counts["records"] == 2
    assert found.key == ask(records=["p00002", known]).key, "how it was said makes no other request"
    by_id = ask(records=sorted(found.records))
    assert (by_id.key, by_id.records) == (found.key, found.records)


def test_files_and_the_standard_input_name_authors_and_pictures_too(
    ask: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [known] = ask.ids("memes", 1)
    lines = f" u/Author-2 \n{known}\n{'0' * 64}\n"
    (tmp_path / "asked.txt").write_text(lines)
    monkeypatch.setattr("sys.stdin", StringIO(lines))
    expected = ask(records=[known], authors=["Author-2"], images=["0" * 64])
    assert expected.counts["authors"] > 1 and expected.counts["records"] == 1
    for path in (tmp_path / "asked.txt", Path("-")):
        found = ask(files=[path])
        assert (found.key, found.records, found.counts) == (expected.key, expected.records, expected.counts)


def test_a_post_that_was_never_seen_is_selected(ask: Desk) -> None:
    assert ask(records=["zzzzzz"]).records == {ask.vault.record_id("t3_zzzzzz")}


def test_authors_subreddits_and_sources_over_all_months(ask: Desk) -> None:
    two = [n for n in ALL if n % 5 == 2]
    assert ask(authors=["u/Author-2"]).records == ask.ids("memes", *two) | ask.ids("posts", *two)
    odd = [n for n in ALL if n % 2]
    assert ask(subreddits=["r/suicidewatch"]).records == ask.ids("memes", *odd) | ask.ids("posts", *odd)
    plain, other = ask(authors=["author-2"], subreddits=["SuicideWatch"]), ask(authors=["author-2"])
    assert ask(authors=["u/Author-2"], subreddits=["r/suicidewatch"]).key == plain.key != other.key
    fourth = [n for n in ALL if n % 4 == 0]
    found = ask(sources=["reddit"])
    assert found.records == ask.ids("memes", *fourth) | ask.ids("posts", *fourth)
    assert found.counts["sources"] == len(found.records) == 2 * len(fourth)


def test_a_picture_takes_its_reposts_and_what_looks_like_it_only_when_asked(ask: Desk) -> None:
    same = [n for n in ALL if n % 7 == 1]
    found = ask(images=[f"{1:064x}"])
    assert found.records == ask.ids("memes", *same)
    # fingerprints differ by 9 bits a step: within 12 are the neighbours
    near = ask.ids("memes", *[n for n in ALL if n % 7 in (0, 2)])
    assert found.near == near and found.counts["near"] == len(near) and found.counts["near_taken"] == 0
    assert not any(record in repr(found) for record in found.records | near), "a log has no ids"
    taken = ask(images=[f"{1:064x}"], near=True)
    assert taken.records == found.records | near and taken.key != found.key


class Files:
    """Objects that are files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def digests(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir())

    def file(self, digest: str) -> Any:
        return nullcontext(self._folder / digest)


def test_each_hash_of_a_picture_tells_its_likeness(tmp_path: Path) -> None:
    code, far = 0b1011, 2**64 - 1
    hashes = {
        "fingerprint": [far, None, far, code],
        "inner_fingerprint": [code, far, None, None],
        "outer_fingerprint": [None, code ^ 1, far, None],
    }
    columns = {name: pa.array(values, pa.uint64()) for name, values in hashes.items()}
    pq.write_table(pa.table({"record_id": ["a", "b", "c", "d"], **columns}), tmp_path / "images")
    objects: Any = Files(tmp_path)
    assert _near(set(), {code}, objects=objects, radius=1) == {"a", "b", "d"}
    assert _near({"d"}, set(), objects=objects, radius=0) == {"a", "d"}


def test_a_picture_as_a_file(ask: Desk, tmp_path: Path) -> None:
    buffer = BytesIO()
    Image.effect_noise((64, 64), 80).convert("RGB").save(buffer, format="PNG")
    (tmp_path / "picture.png").write_bytes(buffer.getvalue())
    found = ask(images=[str(tmp_path / "picture.png")])
    assert found.records == frozenset() and found.counts["images"] == 0
    (tmp_path / "no.png").write_bytes(b"no picture")
    with pytest.raises(BadParams, match="not_an_image"):
        ask(images=[str(tmp_path / "no.png")])


@pytest.mark.parametrize(
    "asked",
    [{}, {"near": True}, {"records": ["not a post"]}, {"records": ["https://example.org/x"]}, {"images": ["/no/file"]}],
)
def test_what_is_not_understood_is_refused_without_quoting_it(asked: dict[str, Any], ask: Desk) -> None:
    with pytest.raises(BadParams) as caught:
        ask(**asked)
    assert not any(
        str(value) in str(caught.value) for values in asked.values() if values is not True for value in values
    )


def test_what_only_an_old_version_holds_is_found(tmp_path: Path) -> None:
    settings = used.copy(tmp_path / "home")
    with workspace(settings) as clone:
        for pointer in (clone.path / "data" / "posts" / "2022-12").rglob("*.dvc"):
            pointer.unlink()
        clone.commit("a month leaves", paths=["data"])
    with used.opened(settings) as house:
        found, late = house.select(authors=["author-4"]), {"posts": (19,)}
        assert house.ids(late).keys() <= found.records
        house.take_down(found)
        assert house.left(late) == []
