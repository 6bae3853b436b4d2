"""A small Reddit behind the sandbox's server, and the corpora that were collected from it: posts and memes."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from PIL import Image

from crisis_corpus_sandbox.server import CLIENT_ID, CLIENT_SECRET, SandboxServer
from pipelines.collect.admission import row
from pipelines.collect.submission import Submission, parse
from pipelines.core.config.operate import Release
from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.config.settings import Settings
from pipelines.release import access, package
from pipelines.store import tables
from pipelines.store.vault.vault import Vault
from pipelines.workspace.git import git
from tests import small_corpus
from tests.built_once import built_once, one_at_a_time
from tests.ports import free_port
from tests.small_corpus import ROOT as REPO
from tests.small_corpus import write_table

NOW = datetime(2023, 2, 1, 9, tzinfo=UTC)
SECRET = bytes.fromhex("7e" * 64)
BEGIN = datetime(2022, 1, 3, 12, tzinfo=UTC)
AGREED = ("unanimous", "consensus", "unanimous", "none")
# numbers of posts that are not like the others
WITH_MAIL, BARE_LINK, IMPORTED = (14, 17, 19), 5, 7
POSTS, MEMES = 72, 40
TERMS = Release.model_validate(
    {
        "k": 3,
        "max_alone": 1,
        "max_joined": 1,
        "removal": {"every_days": 14, "at_least": 3, "at_most_days": 30},
        "licence": "For research only.",
        "contact": "team@example.org",
        "corpora": {
            "memes": {
                "form": "annotations",
                "title": "Small memes",
                "columns": ["figurative", "related", "severity", "month", "subreddit"],
            },
            "posts": {
                "form": "splits",
                "title": "Small posts",
                "columns": ["labels", "agreement", "month", "subreddit"],
            },
        },
    }
)


@dataclass(frozen=True)
class World:
    """Everything on disk below ``home``; ``items`` is Reddit as it was, by fullname, ``ids`` the record ids of it."""

    home: Path
    port: int
    settings: Settings
    params: Params
    vault: Vault
    items: Mapping[str, Mapping[str, Any]]

    @property
    def root(self) -> Path:
        return self.home / "clone"

    def record(self, fullname: str) -> str:
        return self.vault.record_id(fullname)

    def split(self, corpus: str) -> dict[tuple[str, int], str]:
        rows = tables.read(self.root / "snapshot" / corpus / "split" / "splits.parquet", name="splits").to_pylist()
        return {(r["record_id"], r["image"]): r["split"] for r in rows}

    def release(self, corpus: str, name: str, *, terms: Release = TERMS, **given: Any) -> dict[str, Any]:
        fixed = {"params": self.params, "settings": self.settings, "vault": self.vault, "root": self.root, "now": NOW}
        return package.run(corpus, terms=terms, name=name, **fixed | given)

    def approve(self, name: str) -> dict[str, Any]:
        given = {"settings": self.settings, "vault": self.vault, "now": NOW}
        return access.approve(name, who="A. Person", why="the board agreed", **given)

    def approved(self, corpus: str, name: str) -> Path:
        path = Path(self.release(corpus, name)["package"])
        self.approve(name)
        return path

    def folder(self, name: str) -> Path:
        return self.home / "releases" / name

    def key(self, name: str) -> Path:
        return self.folder(name) / f"{name}.key"

    def of(self, name: str, fullname: str) -> str:
        """Return the id of a post in a release."""
        return self.vault.record_id(self.record(fullname), domain=f"release/{name}")

    @contextmanager
    def reddit(
        self, changes: Mapping[str, Mapping[str, Any] | None] | None = None, **given: Any
    ) -> Iterator[SandboxServer]:
        """Serve the present Reddit: the original one with changes to some posts; ``None`` removes a post."""
        shown = {name: {**item, **(changes or {}).get(name, {})} for name, item in self.items.items()
                 if (changes or {}).get(name, {}) is not None}  # fmt: skip
        (self.home / "reddit" / "submissions.jsonl").write_text("".join(json.dumps(i) + "\n" for i in shown.values()))
        # the port is part of the pictures' addresses, and with them of the corpus that all workers share
        with one_at_a_time("release-port"), SandboxServer(self.home / "reddit", port=self.port, **given) as server:
            yield server

    @property
    def consumer(self) -> dict[str, str]:
        """The environment of a consumer with their own Reddit application."""
        address = f"http://127.0.0.1:{self.port}"
        return {
            "REDDIT_CLIENT_ID": CLIENT_ID,
            "REDDIT_CLIENT_SECRET": CLIENT_SECRET,
            "REDDIT_USER_AGENT": "python:test:v1",
            "REDDIT_URL": address,
            "REDDIT_OAUTH_URL": f"{address}/",
            "IMAGE_HOSTS": "127.0.0.1",
        }

    def hydrate(self, folder: Path, *more: str, key: Path, out: Path, **given: Any) -> subprocess.Popen[str]:
        """Start the package's own hydrate, isolated: nothing of ours can be imported."""
        command = [sys.executable, "-I", "-S", str(folder / "hydrate.py"), str(folder)]
        return subprocess.Popen(
            [*command, "--key", str(key), "--out", str(out), *more],
            env=self.consumer | given, cwd=self.home, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def fetched(self, folder: Path, *more: str, key: Path, out: Path, **given: Any) -> tuple[int, str, str]:
        """Run hydrate to its end; give exit status, output and errors."""
        child = self.hydrate(folder, *more, key=key, out=out, **given)
        said, wrong = child.communicate(timeout=60)
        return child.returncode, said, wrong

    def turned_away(self, folder: Path, *more: str, status: int = 65, said: str = "", **given: Any) -> None:
        """Check that hydrate ends with a status, and that its errors say this."""
        code, _, wrong = self.fetched(folder, *more, **given)
        assert code == status and said in wrong, wrong


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def split_rows(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Return the rows of a package of posts by split."""
    return {split: table(folder / f"{split}.csv") for split in ("train", "dev", "test")}


def listed(path: Path) -> set[str]:
    """Return the ids on a removal list."""
    return set(json.loads(path.read_text())["ids"])


def outcomes(out: Path) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the last outcome of each item, with its reason."""
    lines = [json.loads(line) for line in (out / "outcomes.jsonl").read_text().splitlines()]
    return {(line["id"], line["image"]): (line["outcome"], line["reason"]) for line in lines}


def make(home: Path) -> int:
    """Write Reddit and both corpora below ``home``; return the port that its pictures' addresses have."""
    port = free_port()
    items = {i["name"]: i for i in [*map(_post, range(POSTS)), *(_meme(n, port) for n in range(MEMES))]}
    reddit = home / "reddit"
    (reddit / "images").mkdir(parents=True)
    index = {}
    for name in {p for item in items.values() for p in pictures(item)}:
        Image.effect_noise((12, 12), 60).convert("RGB").save(reddit / "images" / name)
        index[name] = {"content_type": "image/jpeg", "behaviour": "ok"}
    (reddit / "images.json").write_text(json.dumps(index))
    (reddit / "items.json").write_text(json.dumps(items))
    with Vault.open(f"sqlite:///{home}/vault.sqlite", secret=SECRET) as vault:
        for corpus, prefix in (("posts", "t3_p"), ("memes", "t3_m")):
            own = {n: i for n, i in items.items() if n.startswith(prefix)}
            _collect(home / "clone", corpus=corpus, vault=vault, items=own)
    git("init", "--quiet", str(home / "clone"))
    git("commit", "--quiet", "--allow-empty", "--message", "data", cwd=home / "clone")
    return port


def made() -> tuple[Path, int]:
    """Make it once for all tests; return the folder and the port."""
    folder = built_once("release", lambda folder: (folder / "port").write_text(str(make(folder / "home"))))
    return folder / "home", int((folder / "port").read_text())


@contextmanager
def opened(made: Path, *, to: Path, port: int) -> Iterator[World]:
    """Give a copy of what :func:`make` wrote."""
    shutil.copytree(made, to)
    settings = Settings.from_env().model_copy(update={"home": to, "vault_url": f"sqlite:///{to}/vault.sqlite"})
    items = json.loads((to / "reddit" / "items.json").read_text())
    with Vault.open(settings.vault_url, secret=SECRET) as vault:
        yield World(to, port, settings, load_params(REPO, profile="sandbox"), vault, items)


def pictures(item: Mapping[str, Any]) -> list[str]:
    """Return the names of an item's pictures in the order of its record."""
    if item.get("is_gallery"):
        entries = item["gallery_data"]["items"]
        return [item["media_metadata"][e["media_id"]]["s"]["u"].rpartition("/")[2] for e in entries]
    return [item["url"].rpartition("/")[2]] if item.get("post_hint") == "image" else []


def _base(number: int, name: str, *, subreddit: str) -> dict[str, Any]:
    return {
        "name": name,
        "id": name[3:],
        "author": f"writer_{number % 36}",
        "subreddit": subreddit,
        "created_utc": int((BEGIN + timedelta(days=5 * number)).timestamp()),
        "title": f"Harbour notes {number} & more",
        "selftext": "",
        "removed_by_category": None,
        "over_18": False,
        "spoiler": False,
    }


def _post(number: int) -> dict[str, Any]:
    item = _base(
        number, f"t3_p{number:03d}", subreddit=("lonely", "Depression")[number % 2] if number > 2 else "selfharm"
    )
    words = f"On day {number} I walked by the river and counted {number * 7} boats\n\nbefore lunch was ready."
    if number in WITH_MAIL:
        words = (
            f"On day {number} I walked by the river; write to someone{number}@example.org if you saw {number} boats."
        )
    if number == BARE_LINK:
        item["title"], words = "Hi", "https://example.org/boats"
    return item | {"is_self": True, "selftext": words}


def _meme(number: int, port: int) -> dict[str, Any]:
    item = _base(number, f"t3_m{number:03d}", subreddit="SuicideMeme")
    if number % 5 == 4:
        shown = {f"k{i}": {"s": {"u": f"http://127.0.0.1:{port}/i/{number}_{i}.jpg"}} for i in (2, 0, 1)}
        return item | {
            "is_gallery": True,
            "gallery_data": {"items": [{"media_id": f"k{i}"} for i in range(3)]},
            "media_metadata": shown,
        }
    return item | {"post_hint": "image", "url": f"http://127.0.0.1:{port}/i/{number}.jpg"}


def _collect(root: Path, *, corpus: str, vault: Vault, items: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what collecting and the stages would leave, the content by the collector's own functions."""
    kinds = load_params(REPO, profile="sandbox").collect.scrub
    rows: dict[str, list[dict[str, Any]]] = {}
    found, splits, gold, silver = [], [], [], []
    for number, (fullname, item) in enumerate(sorted(items.items())):
        parsed = parse(item, raw=True, source="reddit", source_digest="d")
        assert isinstance(parsed, Submission)
        # as an import of a set without Reddit's ids names it
        name = "cradle:17" if corpus == "posts" and number == IMPORTED else fullname
        record_id, month = vault.record_id(name), f"{parsed.created:%Y-%m}"
        found.append((record_id, name, month))
        rows.setdefault(month, []).append(row(parsed, record_id=record_id, vault=vault, kinds=kinds))
        splits += [(record_id, image, number) for image in range(max(1, len(pictures(item))))]
    for month, plain in rows.items():
        fullnames = {record_id: name for record_id, name, of in found if of == month}
        small_corpus.admit(vault, fullnames, corpus=corpus, month=month, now=NOW)
        small_corpus.write_posts(root, plain, corpus=corpus, month=month, vault=vault)
    names = ("train", "train", "validation" if corpus == "memes" else "dev", "train", "test")
    out = []
    for record_id, image, number in splits:
        split, rest = names[number % len(names)], {"how": "truth", "round": None}
        out.append({"record_id": record_id, "image": image, "group": f"group-{number}", "split": split})
        gold += [
            {"record_id": record_id, "image": image, "category": category, "labels": labels} | rest
            for category, labels in _labels(corpus, number + image).items() if corpus == "memes" or split != "train"
        ]  # fmt: skip
        agreed = AGREED[number % len(AGREED)]
        labels = _labels("posts", number)["labels"]  # of none, too: as a fallback leaves them
        voted = {"category": "labels", "ensemble": "cradle", "labels": labels, "agreement": agreed, "how": "majority"}
        silver.append({"record_id": record_id, "image": image} | voted)
    write_table(root / "snapshot" / corpus / "split" / "splits.parquet", out, name="splits")
    write_table(root / "snapshot" / corpus / "gold" / "gold.parquet", gold, name="gold")
    if corpus == "posts":
        write_table(root / "snapshot" / corpus / "silver" / "cradle" / "silver.parquet", silver, name="silver")


def _labels(corpus: str, number: int) -> dict[str, list[str]]:
    if corpus == "posts":
        return {
            "labels": [["no_crisis"], ["selfharm_past", "domesticviolence_ongoing"], ["selfharm_ongoing"]][number % 3]
        }
    return {
        "figurative": [["Irony/sarcasm", "Metaphor"], []][number % 2],
        "severity": [["None", "Wish to be dead", "Suicide ideation"][number % 3]],
        "related": [["Harmful factors"], ["Protective factors", "Harmful factors"]][number % 2],
        "context": ["no-context-required"],
    }
