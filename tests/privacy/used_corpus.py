"""A small corpus that was used for a while: two months in three commits, a round, answers, checkpoints, copies."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from pipelines.annotate import manifest as manifests
from pipelines.annotate.backends import AnnotationTask, Queue
from pipelines.annotate.backends.files import Files
from pipelines.annotate.form import build_form
from pipelines.annotate.manifest import RoundManifest
from pipelines.core.config.operate import Takedown
from pipelines.core.config.params import FILES, Params, load
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.store import tables
from pipelines.store.answers import AnswerStore, BatchJob, LedgerChange, sealed
from pipelines.store.seal import write_rows
from pipelines.store.vault.vault import Vault
from pipelines.takedown import receipts, takedown
from pipelines.takedown.object_versions import Objects
from pipelines.takedown.redaction import Gone
from pipelines.takedown.rewrite import Pointers
from pipelines.takedown.selection import Criteria, Selection, select
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests import small_corpus
from tests.built_once import built_once
from tests.small_corpus import MONTHS, NOW, SECRET, full
from tests.stages import reproduce

__all__ = ["MONTHS", "NOW", "SECRET"]
REPO = Path(__file__).resolve().parents[2]
EACH = 12
# a keeper of a cluster of each corpus, and one that is in neither the first shard nor the first month
WHO = {"memes": (0, 3, 2 * EACH - 1), "posts": (0, 5)}
STAGES = {
    "dedupe": {"deps": ["data/${item.corpus}"], "metrics": [{"metrics/${item.corpus}/dedupe.json": {"cache": False}}]},
    "split": {"deps": ["data/${item.corpus}", "snapshot/${item.corpus}/dedupe"]},
    "quality": {
        "deps": ["snapshot/${item.corpus}/split"],
        "outs": [],
        "metrics": [{"metrics/${item.corpus}/quality.json": {"cache": False}}],
    },
    "votes": {"deps": ["data/${item.corpus}", "snapshot/${item.corpus}/split"]},
    "silver": {"deps": ["data/${item.corpus}", "snapshot/${item.corpus}/votes"]},
    "agreement": {"deps": ["annotations/${item.corpus}"]},
}


def settings_of(home: Path) -> Settings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(home))
        return Settings.from_env()


def vault_of(settings: Settings) -> Vault:
    return Vault.open(settings.vault_url, secret=bytes.fromhex(SECRET))


def fullname(corpus: str, number: int) -> str:
    return f"t3_{corpus[0]}{number:05d}"


def word(corpus: str, number: int) -> str:
    """The word that only this post has."""
    return f"lantern{corpus}{number:05d}quietly"


def picture(number: int) -> bytes:
    return f"picture-{number:05d}-".encode() * 20


def begin(home: Path) -> Settings:
    """Make it, and everything that it leaves around it."""
    settings = settings_of(home)
    stages = {"stages": {name: _stage(name, shape) for name, shape in STAGES.items()}}
    files = (
        small_corpus.ANNOTATED
        | small_corpus.SHELL
        | {
            "dvc.yaml": small_corpus.staged(yaml.safe_dump(stages)),
            "stage.py": Path(__file__).with_name("stage.py").read_text(),
            ".gitignore": "/ran/\n__pycache__/\n",
        }
    )
    code = small_corpus.code_of(home / "code", files)
    small_corpus.begin(settings, code=code)
    shutil.rmtree(code)
    with vault_of(settings) as vault:
        for at, month in enumerate(MONTHS):
            with workspace(settings) as clone:
                clone.add(_month(clone.path, month=month, numbers=range(at * EACH, (at + 1) * EACH), vault=vault))
                if at == 0:
                    clone.add(_round(clone.path, settings=settings, vault=vault))
                reproduce(clone, *(["dedupe@posts", "split@posts"] if at == 0 else []))
                clone.commit(f"data: {month}", paths=["data", "annotations", "dvc.lock", "metrics"])
        _around(settings, vault=vault)
    return settings


def _stage(name: str, shape: Mapping[str, object]) -> dict[str, object]:
    labelled = name == "votes"
    corpora = {"votes": ["posts"], "silver": ["posts"], "agreement": ["memes", "posts"]}.get(name, ["memes", "posts"])
    matrix = {"corpus": corpora} | ({"labeller": ["one", "two"]} if labelled else {})
    more = " ${item.labeller}" if labelled else ""
    out = f"snapshot/${{item.corpus}}/{name}" + ("/${item.labeller}" if labelled else "")
    cmd = f"python -P stage.py {name} ${{item.corpus}}{more}"
    return {"matrix": matrix, "cmd": cmd, "outs": [out], **shape}


def _month(root: Path, *, month: str, numbers: range, vault: Vault) -> list[Path]:
    written = []
    for corpus in ("memes", "posts"):
        names = {n: fullname(corpus, n) for n in numbers}
        ids = {n: vault.record_id(name) for n, name in names.items()}
        small_corpus.admit(vault, {ids[n]: names[n] for n in numbers}, corpus=corpus, month=month)
        posts = [
            {
                "record_id": ids[n],
                "author_id": vault.author_id(f"author-{n % 5}"),
                "subreddit": "SuicideWatch" if n % 2 else "Quiet",
                "created": NOW,
                "kind": "image",
                "title": f"A {word(corpus, n)} in a window",
                "body": "and nothing else",
                "source": "dump" if n % 4 else "reddit",
            }
            for n in numbers
        ]
        written.append(small_corpus.write_posts(root, posts, corpus=corpus, month=month, vault=vault))
        if corpus == "memes":
            # two shards: one of them has no record that is taken down
            shards = [
                [
                    {
                        "record_id": ids[n],
                        "image": 0,
                        "sha256": f"{n % 7:064x}",
                        "fingerprint": (1 << (n % 7) * 9) - 1,
                        "bytes": picture(n),
                        "text": word(corpus, n),
                    }
                    for n in numbers
                    if n % 2 == shard
                ]
                for shard in (0, 1)
            ]
            written += small_corpus.write_images(root, shards, corpus=corpus, month=month, vault=vault)
    return written


def _round(root: Path, *, settings: Settings, vault: Vault) -> list[Path]:
    folder = manifests.folder(root, "memes", "calibration")
    manifest = RoundManifest.model_validate(
        {
            "corpus": "memes", "round": "calibration", "protocol": "figsim", "phase": "calibration", "scheme": "figsim",
            "scheme_digest": "1" * 16, "guideline_version": 1, "guideline": "2" * 16, "seed": 1, "size": EACH,
            "overlap": EACH, "batch_size": 10, "annotators": ["annotator-1"], "adjudicator": "adjudicator-1",
            "backend": "files", "daily_cap": 50, "gold": True, "agreement": True, "splits": None, "draw": "sample",
            "against": [], "base": "c" * 40, "status": "open", "opened": NOW,
        }
    )  # fmt: skip
    manifests.write(manifest, folder / manifests.FILE)
    ids = [vault.record_id(fullname("memes", n)) for n in range(EACH)]
    assigned = [
        full("assignments", record_id=r, image=0, annotator="annotator-1", round="calibration", batch=0, position=at)
        for at, r in enumerate(ids)
    ]
    write_rows(assigned, folder / "assignments.parquet", name="assignments", vault=vault)
    backend, queue = Files(settings.annotation_files, clock=lambda: NOW), Queue("memes/calibration", "annotator-1")
    form = build_form(load_scheme("figsim"), title="t", content="images", warning="w", contacts=())
    backend.prepare(queue, form=form)
    backend.add(
        queue,
        tasks=[
            AnnotationTask(
                item=(r, 0), position=at, text={"text": word("memes", at)}, image=picture(at), media_type="image/png"
            )
            for at, r in enumerate(ids)
        ],
    )
    # the labels of two published datasets: the lines of the first are in git, as imports left them once
    lines = [f"{vault.record_id(fullname('posts', n))},0,test\n" for n in range(EACH)]
    labels = [root / "annotations" / "posts" / name / "splits.csv" for name in ("earlier", "set")]
    for path in labels:
        path.parent.mkdir(parents=True)
        path.write_text("record_id,image,split\n" + "".join(lines))
    pointer = root / "data" / "posts" / MONTHS[0] / "records.parquet.dvc"
    mark = hashlib.sha256(pointer.read_bytes()).hexdigest()[:16]
    said = {"pointers": {str(pointer.relative_to(root).with_suffix("")): mark}}
    (root / "annotations" / "posts" / "set" / "import.json").write_text(json.dumps(said))
    # a model of another project, queried elsewhere
    brought = [json.dumps({"record_id": vault.record_id(fullname("posts", n)), "labels": []}) for n in range(EACH)]
    (settings.annotation_files / "theirs.jsonl").write_text("\n".join(brought) + "\n")
    return [folder / "assignments.parquet", labels[1]]


def _around(settings: Settings, *, vault: Vault) -> None:
    ids = {n: vault.record_id(fullname("posts", n)) for n in range(2 * EACH)}
    keys = vault.keys(ids.values())
    with AnswerStore.open(settings.answers_url) as answers:
        for n, record_id in ids.items():
            answer = sealed(f"{n:064x}", record_id=record_id, under=keys[record_id], data=b"an answer")
            answers.write([LedgerChange(pay=3, answer=answer)])
        answers.begin(BatchJob("batch-1", {f"{n:064x}": ids[n] for n in range(4)}, 5), labeller="one")
    for name in ("resume/memes-2022-12", "train/memes/severity-bert-1/checkpoint-000000001/model.safetensors"):
        (settings.home / name).parent.mkdir(parents=True, exist_ok=True)
        (settings.home / name).write_bytes(b"\x00" * 64)
    # a clone of a process that is long gone
    dead = settings.home / "scratch" / f"{os.uname().nodename}-4194999-x" / "corpus"
    dead.mkdir(parents=True)
    (dead / "left.json").write_text(json.dumps(sorted(ids.values())))
    for number in (1, 2):
        copy = settings.home / "registry" / f"{number:064x}"
        copy.mkdir(parents=True)
        whose = [ids[n] for n in range(EACH)] if number == 1 else [ids[2 * EACH - 1]]
        tables.pq.write_table(pa.table({"record_id": whose}), copy / "records.parquet")


def copy(home: Path) -> Settings:
    """Copy the corpus, which is built once for all tests, for a test that changes it."""
    shutil.copytree(built_once("used-corpus", begin), home)
    return settings_of(home)


def copy_with_params(home: Path) -> Settings:
    """Return a copy of the used corpus with this project's parameters on its branch."""
    settings = copy(home)
    with workspace(settings) as clone:
        for name in FILES:
            shutil.copy(small_corpus.ROOT / name, clone.path)
        clone.commit("params", paths=[*FILES])
    return settings


def live(settings: Settings) -> dict[str, str]:
    """Every file that the tip names, by its path: the digest of its bytes."""
    with workspace(settings) as clone, Objects.opened(clone) as objects:
        return Pointers(clone.path, objects=objects).files()


def stored(settings: Settings) -> Iterator[Path]:
    """Every object of cache and remote."""
    for place in (settings.cache, Path(settings.remote)):
        yield from (path for path in (place / "files").rglob("*") if path.is_file())


def naming(settings: Settings, ids: set[str]) -> list[Path]:
    """The objects of any version that name one of these."""
    gone = Gone(ids)
    return [path for path in stored(settings) if gone.within(path)]


@dataclass
class House:
    """A used corpus with its vault open."""

    settings: Settings
    vault: Vault
    params: Params

    def ids(self, who: Mapping[str, tuple[int, ...]] = WHO) -> dict[str, tuple[str, int]]:
        return {self.vault.record_id(fullname(c, n)): (c, n) for c, numbers in who.items() for n in numbers}

    def left(self, who: Mapping[str, tuple[int, ...]] = WHO) -> list[Path]:
        """Return the objects that name one of these posts."""
        return naming(self.settings, set(self.ids(who)))

    def tip(self) -> str:
        return git("--git-dir", self.settings.repo, "rev-parse", "corpus")

    def select(self, **asked: Any) -> Selection:
        with workspace(self.settings) as clone, Objects.opened(clone) as objects:
            return select(Criteria(**asked), vault=self.vault, objects=objects, params=self.params)

    def posts(self, who: Mapping[str, tuple[int, ...]] = WHO) -> Selection:
        return self.select(records=[fullname(c, n) for c, numbers in who.items() for n in numbers])

    def take_down(self, selection: Selection, **more: Any) -> receipts.TakedownRequest:
        asked = {"reason": more.pop("reason", "request-7"), "who": more.pop("who", "a person")}
        return self._deletion(more).run(selection, **asked)

    def revisit(self, **more: Any) -> list[receipts.TakedownRequest]:
        return self._deletion(more).revisit()

    def _deletion(self, more: Mapping[str, Any]) -> takedown.Deletion:
        terms = {"terms": Takedown(withdraw_share=0.01), "now": NOW, **more}
        return takedown.Deletion(settings=self.settings, vault=self.vault, **terms)


@contextmanager
def opened(settings: Settings) -> Iterator[House]:
    with vault_of(settings) as vault:
        yield House(settings, vault, load(REPO))
