"""A corpus repository under a paper's profile and an overlay for small machines, with imported data."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crisis_corpus_sandbox import component
from crisis_corpus_sandbox.reddit import label_quotas, narratives
from crisis_corpus_sandbox.server import SandboxServer
from crisis_corpus_sandbox.vendors.vendors import Vendors
from pipelines.annotate.imports import imports
from pipelines.core.config.params import load, overlay, parse
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.store.vault.vault import Vault
from pipelines.workspace import repository
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from tests import small_corpus
from tests.annotate.published_sets import CODES
from tests.small_checkout import checkout
from tests.train import small_memes

ROOT = small_corpus.ROOT
NOW = datetime(2023, 1, 2, tzinfo=UTC)
SIZES = {"figsim": {"train": 36, "val": 12, "test": 12}, "cradle": {"train": 36, "dev": 12, "test": 12}}


@dataclass(frozen=True)
class SmallProfile:
    """A paper's profile with its overlay, the folder of its corpus repository, and the server with all providers."""

    paper: str
    settings: Settings
    checkout: Path
    server: SandboxServer

    @property
    def name(self) -> str:
        return f"{self.paper}-small"

    @property
    def corpus(self) -> str:
        return {"figsim": "memes", "cradle": "posts"}[self.paper]


def values(paper: str) -> dict[str, Any]:
    """Return the paper's profile with the overlay."""
    whole = parse((ROOT / "profiles" / f"{paper}.yaml").read_text(), where=paper)
    return overlay(whole, parse((ROOT / "tests" / "profiles" / f"{paper}.yaml").read_text(), where="overlay"))


@contextmanager
def made(home: Path, *, paper: str) -> Iterator[SmallProfile]:
    """Create the corpus repository, serve every provider on loopback, and import files as the paper published them."""
    (home / "vendors").mkdir(parents=True)
    (home / "vendors" / "submissions.jsonl").touch()
    server = SandboxServer(home / "vendors", vendors=Vendors(home / "vendors", seed=7))
    with pytest.MonkeyPatch.context() as patch, server:
        patch.setenv("CORPUS_HOME", str(home / "var"))
        patch.setenv("CORPUS_SECRET", small_corpus.SECRET)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for name, value in component.variables(int(server.address.rpartition(":")[2])).items():
            patch.setenv(name, value)
        settings = Settings.from_env()
        place = checkout(home / "checkout")
        profile = place / "profiles" / f"{paper}-small.yaml"
        profile.write_text(json.dumps(values(paper)))
        git("add", "--all", cwd=place)
        git("commit", "--quiet", "-m", "the profile", cwd=place)
        repository.init(settings, checkout=place, profile=profile.stem)
        found = SmallProfile(paper, settings, place, server)
        {"figsim": _memes, "cradle": _posts}[paper](found, home)
        yield found


def _import(profile: SmallProfile, path: Path) -> None:
    with workspace(profile.settings) as clone, Vault.existing(profile.settings) as vault:
        imports.run(
            profile.corpus, files=[path], mapping=profile.paper, params=load(clone.path),
            settings=profile.settings, vault=vault, now=NOW,
        )  # fmt: skip


def _memes(profile: SmallProfile, home: Path) -> None:
    """Collect a month of pictures, and import their labels and splits in FigSIM's shape."""
    rng, categories = Random(7), load_scheme("figsim").categories
    codes = {(key, label.name): label.code for key, c in categories.items() for label in c.labels}
    parts = [split for split, size in SIZES["figsim"].items() for _ in range(size)]
    memes = [small_memes._meme(n, split, rng=rng, shows="both") for n, split in enumerate(parts)]
    month = "2022-12"
    with workspace(profile.settings) as clone, Vault.existing(profile.settings) as vault:
        names = {vault.record_id(meme.fullname): meme for meme in memes}
        small_corpus.admit(vault, {r: meme.fullname for r, meme in names.items()}, corpus="memes", month=month)
        posts = [
            {"record_id": r, "author_id": vault.author_id(f"author-{n}"), "created": NOW.replace(day=1 + n % 28),
             "kind": "image", "subreddit": "SuicideMeme", "title": f"Title {n}", "body": "", "media": "[]"}
            for n, r in enumerate(names)
        ]  # fmt: skip
        images = [
            {"record_id": r, "image": 0, "sha256": f"{n:064x}", "bytes": meme.image, "text": meme.text or "",
             "words": len((meme.text or "").split()), "fingerprint": rng.getrandbits(64),
             "fingerprint_id": "phash-1", "ocr_engine": "none"}
            for n, (r, meme) in enumerate(names.items())
        ]  # fmt: skip
        paths = [small_corpus.write_posts(clone.path, posts, corpus="memes", month=month, vault=vault)]
        paths += small_corpus.write_images(clone.path, [images], corpus="memes", month=month, vault=vault)
        clone.add(paths)
        clone.commit(f"data(memes): {month}", paths=["data"])
    path = home / "figsim.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["permalink", "split", *CODES])
        for meme in memes:
            given = {codes[key, label] for key, labels in meme.labels.items() for label in labels or {"None"}}
            flags = [int(code in given) for code in CODES]
            out.writerow([f"/r/SuicideMeme/comments/{meme.fullname[3:]}/x/", meme.split, *flags])
    _import(profile, path)


def _posts(profile: SmallProfile, home: Path) -> None:
    """Import posts with labels and splits in CRADLE's shape."""
    rng = Random(7)
    parts = [split for split, size in SIZES["cradle"].items() for _ in range(size)]
    path = home / "cradle.jsonl"
    with path.open("w") as file:
        for split, labels in zip(parts, label_quotas.cradle(len(parts), rng=rng), strict=True):
            told = narratives.write(labels, rng=rng, words=40)
            row = {"title": told.title, "text": told.body, "labels": sorted(labels), "split": split}
            file.write(json.dumps(row) + "\n")
    _import(profile, path)
