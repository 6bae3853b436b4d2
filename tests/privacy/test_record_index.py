"""The index of records: a takedown reads the objects that name its records, and no state of the index hides one."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from pipelines.core.config.operate import Takedown
from pipelines.core.config.settings import Settings
from pipelines.takedown.object_versions import Objects, RecordIndex
from pipelines.takedown.redaction import Gone, ids_in
from pipelines.takedown.selection import Selection
from pipelines.workspace.clone import workspace
from pipelines.workspace.objects import file_digest
from tests.privacy import used_corpus as used
from tests.privacy.used_corpus import EACH, NOW, fullname
from tests.refusals import refused

TERMS = Takedown(withdraw_share=0.01, scan_days=28)


def path_of(place: Path | str, digest: str) -> Path:
    return Path(place) / "files" / "md5" / digest[:2] / digest[2:]


def pushed(file: Path, place: Path | str) -> str:
    """Store a file as an object, as a process without the index does; return its digest."""
    digest = file_digest(file)
    path_of(place, digest).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, path_of(place, digest))
    return digest


class Used:
    """A used corpus and one of its records; ``truth`` are the objects that name it, found by reading all of them."""

    def __init__(self, home: Path) -> None:
        self.settings = used.copy(home)
        self.index = RecordIndex.of(self.settings)
        self.folder = home / "object_index"
        with used.vault_of(self.settings) as vault:
            self.record = vault.record_id(fullname("posts", 0))
            self.other = vault.record_id(fullname("posts", 2 * EACH - 1))
        self.gone = Gone([self.record])
        self.truth = self.read_all()

    def read_all(self) -> set[str]:
        return {f"{path.parent.name}{path.name}" for path in used.naming(self.settings, {self.record})}

    def named(self, gone: Gone | None = None) -> set[str]:
        with workspace(self.settings) as clone, Objects.opened(clone) as objects:
            return set(objects.named(gone or self.gone))

    def build(self) -> None:
        """Index every object: none of them names this record."""
        assert self.named(Gone(["f" * 32])) == set()

    def entries(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if len(path.name) == 32)

    def take_down(self) -> None:
        with used.opened(self.settings) as house:
            house.take_down(Selection(self.record, frozenset([self.record]), {"records": 1}), terms=TERMS)


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Used]:
    yield Used(tmp_path / "home")


def test_a_takedown_reads_only_the_objects_that_name_its_record(corpus: Used) -> None:
    corpus.build()
    others = {f"{p.parent.name}{p.name}" for p in used.stored(corpus.settings) if p.suffix != ".dir"} - corpus.truth
    for path in (path_of(place, d) for d in others for place in (corpus.settings.cache, corpus.settings.remote)):
        path.unlink(missing_ok=True)
        path.write_bytes(b"PAR1")
    assert corpus.named() == corpus.truth
    corpus.index.clear(now=NOW)
    with refused("ObjectUnreadable"):
        corpus.named()


def test_the_entries_of_a_takedown_leave_with_their_objects_and_name_the_record_no_more(corpus: Used) -> None:
    corpus.build()
    wanted = corpus.index.digests_of([corpus.record])
    assert {p.name for p in corpus.entries() if corpus.index.names(p.name, wanted)} == corpus.truth
    corpus.take_down()
    assert corpus.read_all() == set()
    assert corpus.entries() and not [p.name for p in corpus.entries() if corpus.index.names(p.name, wanted)]
    assert corpus.record not in "".join(p.name + p.read_bytes().hex() for p in corpus.folder.iterdir())
    assert {path.stat().st_mode & 0o777 for path in corpus.entries()} == {0o600}


Damage = Callable[[Path, Used], object]


def rewritten(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path, _: path.write_bytes(change(path.read_bytes()))


def exchanged(path: Path, corpus: Used) -> None:
    """Put the entry of an object in its place that names no record."""
    harmless = next(p for p in corpus.entries() if p.name not in corpus.truth and p != path and p.is_file())
    shutil.copy(harmless, path)


def forged(path: Path, corpus: Used) -> None:
    """Write an entry for other bytes with another secret."""
    forger = RecordIndex(corpus.folder, secret=b"\x01" * 64)
    forger._write(path.name, b"")


def a_folder(path: Path, _corpus: Used) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Damage] = {
    "emptied": rewritten(lambda _: b""),
    "halved": rewritten(lambda data: data[: len(data) // 2]),
    # what is left is whole digests
    "shortened": rewritten(lambda data: data[:32]),
    "altered": rewritten(lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "exchanged": exchanged,
    "forged": forged,
    "missing": lambda path, _: path.unlink(),
    "a folder": a_folder,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_forged_index_hides_nothing(damage: str, corpus: Used) -> None:
    corpus.build()
    for digest in corpus.truth:
        DAMAGES[damage](corpus.folder / digest, corpus)
    assert corpus.named() == corpus.truth


def test_a_takedown_reaches_everything_with_every_entry_damaged(corpus: Used) -> None:
    corpus.build()
    for path, damage in zip(corpus.entries(), cycle(DAMAGES.values()), strict=False):
        damage(path, corpus)
    corpus.take_down()
    assert corpus.read_all() == set()


def test_an_object_is_found_that_a_process_pushed_without_the_index(corpus: Used, tmp_path: Path) -> None:
    corpus.build()
    pq.write_table(pa.table({"note": ["none", f"see {corpus.record}, please"]}), table := tmp_path / "t")
    (text := tmp_path / "x.json").write_text(f'{{"a": "{corpus.record}#0"}}')
    new = {pushed(table, corpus.settings.cache), pushed(text, corpus.settings.remote)}
    assert corpus.named() == corpus.truth | new
    corpus.take_down()
    assert corpus.read_all() == set()


def test_bytes_that_are_not_the_objects_own_are_not_indexed(corpus: Used, tmp_path: Path) -> None:
    digest = next(d for d in corpus.truth if path_of(corpus.settings.remote, d).exists())
    cached = path_of(corpus.settings.cache, digest)
    cached.unlink()
    cached.write_text("nothing")
    corpus.build()  # from the remote's copy, which is whole
    cached.unlink()
    assert corpus.named() == corpus.truth


def test_a_full_disk_costs_the_index_only(corpus: Used) -> None:
    corpus.folder.write_text("a file: nothing can be written below it")
    assert corpus.named() == corpus.truth


def test_a_name_in_another_form_is_searched_in_every_object(corpus: Used, tmp_path: Path) -> None:
    pq.write_table(pa.table({"record_id": ["cradle-17"]}), table := tmp_path / "t")
    digest = pushed(table, corpus.settings.cache)
    corpus.build()
    assert corpus.named(Gone(["cradle-17", corpus.record])) == {*corpus.truth, digest}


def index_again(home: Path) -> None:
    settings = used.settings_of(home)
    gone = Gone(["f" * 32])
    while True:
        with workspace(settings) as clone, Objects.opened(clone) as objects:
            RecordIndex.of(settings).clear(now=NOW)
            objects.named(gone)


def test_processes_may_index_at_once_and_be_killed(corpus: Used) -> None:
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=index_again, args=(corpus.settings.home,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        time.sleep(0.7)
        assert worker.is_alive() and corpus.named() == corpus.truth
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
    (corpus.folder / f".{'a' * 32}.1.half").write_bytes(b"of a killed process")
    assert corpus.named() == corpus.truth
    assert {len(path.name) for path in corpus.folder.iterdir()} <= {32, len("scanned")}


def revisited(settings: Settings, *, days: int) -> list[str]:
    with used.opened(settings) as house:
        return [receipt.reason for receipt in house.revisit(terms=TERMS, now=NOW + timedelta(days=days))]


@pytest.mark.faults  # three takedowns
def test_the_sweep_reads_every_object_when_the_last_scan_is_long_ago(corpus: Used, tmp_path: Path) -> None:
    corpus.take_down()
    assert revisited(corpus.settings, days=0) == []
    (late := tmp_path / "x.json").write_text(f'["{corpus.record}"]')
    place = path_of(corpus.settings.cache, digest := pushed(late, corpus.settings.cache))
    # an entry that is authentic but wrong, as a defect of this software could leave
    corpus.index._write(digest, b"")
    assert revisited(corpus.settings, days=27) == [] and place.exists()
    assert revisited(corpus.settings, days=28) == ["revisit"] and not place.exists()
    assert revisited(corpus.settings, days=29) == []


@pytest.mark.parametrize("damage", ["altered", "missing", "halved"])
def test_a_scan_is_due_if_the_time_of_the_last_one_is_not_known_for_sure(damage: str, corpus: Used) -> None:
    due = partial(corpus.index.is_due, now=NOW + timedelta(days=1), days=28)
    corpus.index.clear(now=NOW)
    assert not due()
    DAMAGES[damage](corpus.folder / "scanned", corpus)
    assert due()
    corpus.index.clear(now=NOW + timedelta(days=400))
    assert due(), "a time to come is no time of a scan"


IDS = [f"{n:032x}" for n in (7, 2**90, 2**128 - 1)]
PARTS = st.sampled_from([*IDS, *(i.upper() for i in IDS), IDS[0][:31], "#0", "/", "ab", "", "\n", "é", "x"])
TEXTS = st.lists(PARTS, max_size=5).map("".join)


@hypothesis(max_examples=40, deadline=None)
@given(about=st.lists(TEXTS, min_size=1, max_size=4), texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_the_index_knows_every_id_that_a_search_finds(
    about: list[str], texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    rows = [about[at % len(about)] for at in range(4)]
    cells = [texts[at % len(texts)] for at in range(4)]
    columns = {
        "record_id": rows, "cluster": cells, "labels": [[cell, None] for cell in cells],
        "kind": pa.array(cells).dictionary_encode(), "large": pa.array(cells, pa.large_string()), "image": range(4),
    }  # fmt: skip
    pq.write_table(pa.table(columns), folder / "table")
    (folder / "text").write_text("record_id,x\n" + "\n".join([*rows, *cells]))
    for path in (folder / "table", folder / "text"):
        known = ids_in(path)
        blocks = {known[at : at + 16].hex() for at in range(0, len(known), 16)}
        assert {i for i in IDS if Gone([i]).within(path)} == blocks & set(IDS)
