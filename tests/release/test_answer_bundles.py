"""Bundles of answers: exported by the command, the store deleted, imported again, while the vendor answers nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from crisis_corpus.formats import UnknownFormat
from pipelines.core import rows
from pipelines.core.config.params import load, overlay, read_params
from pipelines.core.config.settings import Settings
from pipelines.label import votes
from pipelines.llm.outcome import Outcome
from pipelines.models import predict
from pipelines.release import answer_bundles
from pipelines.release.answer_bundles import BundleFolder, RecordedAnswer
from pipelines.store import tables
from pipelines.store.answers import AnswerStore, AnswersUnavailable, sealed
from pipelines.store.vault.keyring import Signer
from pipelines.store.vault.vault import Vault
from pipelines.takedown.redaction import Gone
from pipelines.takedown.stores import Case, stores
from tests.commands import answered
from tests.contexts import context_of
from tests.json_server import Request, completion, json_server
from tests.refusals import refused
from tests.train import small_posts as small

SIZES = {"train": 12, "dev": 6, "test": 6}
RUNS = 2
OTHER = "7d" * 64
STORE = next(store for store in stores() if store.name == "answer bundles")


@dataclass
class FickleVendor:
    """A vendor that votes, thinks aloud, refuses or talks, by the digest of the question; it counts the questions."""

    url: str = ""
    down: bool = False
    asked: int = 0
    manners: set[int] = field(default_factory=set)

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        self.asked += 1
        if self.down:
            return 500, {"error": {"message": "retired"}}
        text = json.dumps(request.body["messages"][-1])
        manner = hashlib.sha256(text.encode()).digest()[0] % 5
        self.manners.add(manner)
        quoted = json.dumps({"labels": ["no_crisis"]})
        said = [
            quoted,
            f"<think>It reads {text[-90:-40]!r}</think>```json\n{quoted}\n```",
            None,
            f"It says {text[-90:-40]}",
            json.dumps({"labels": [text[-90:-40]]}),
        ][manner]
        message = {"content": said, "refusal": "no" if said is None else None}
        return 200, completion(message, model=request.body["model"], tokens=(1000 + manner, 10))


@dataclass
class Team:
    """A team's home and clone, in which it labels the same posts."""

    home: Path
    secret: str
    vendor: FickleVendor
    patch: pytest.MonkeyPatch
    examples: int = 1

    def __post_init__(self) -> None:
        self.enter()
        with self.vault() as vault:
            self.posts = small.write(self.root, vault=vault, sizes=SIZES, examples=self.examples).posts
        self.set({})

    @property
    def root(self) -> Path:
        return self.home / "clone"

    @property
    def settings(self) -> Settings:
        return Settings.from_env()

    def vault(self) -> Vault:
        return Vault.open(self.settings.vault_url, secret=self.settings.secret())

    def enter(self) -> None:
        """Let commands work as this team, in its clone."""
        for name in ("ANSWERS_URL", "VAULT_URL"):
            self.patch.delenv(f"CORPUS_{name}", raising=False)
        self.patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        for name, value in {"HOME": str(self.home), "SECRET": self.secret, "LOCAL_URL": self.vendor.url}.items():
            self.patch.setenv(f"CORPUS_{name}", value)
        self.root.mkdir(parents=True, exist_ok=True)
        self.patch.chdir(self.root)

    def set(self, changed: dict[str, Any]) -> None:
        """Write the parameters and rows of the clone."""
        asked = {"kind": "prompted", "labeller": "judge", "examples": self.examples, "runs": RUNS}
        own = {
            "labellers": {
                "judge": {
                    "kind": "remote",
                    "provider": "local",
                    "system": "open",
                    "model": "Qwen3-8B",
                    "price": {"input": 1.3, "output": 2.7},
                }
            },
            "providers": {"local": {"max_retries": 0, "timeout_seconds": 10.0, "ready_seconds": 0}},
            "votes": {"labellers": {"posts": ["judge"]}, "budget_usd": 100, "max_failed": 0},
            "models": {"asked": asked},
            "predict": {"rows": {"posts": ["asked"]}},
        }
        values = overlay(read_params(small.REPO), overlay(own, changed))
        (self.root / "params.yaml").write_text(yaml.safe_dump(values))
        (self.root / rows.FILE).write_text(rows.text(load(), root=self.root))

    def label(self) -> dict[str, bytes]:
        """Run the stages that ask the labeller; return the bytes of their tables and metrics."""
        with self.vault() as vault:
            given: dict[str, Any] = {"params": load(), "settings": self.settings, "vault": vault, "root": self.root}
            votes.run(context_of("posts", row="judge", **given))
            predict.run(context_of("posts", row="labels-asked", **given))
        folders = ("snapshot/posts/votes/judge", "snapshot/posts/predictions", "metrics")
        paths = [path for folder in folders for path in (self.root / folder).rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in sorted(paths)}

    def votes(self) -> dict[str, tuple[Any, ...]]:
        """Return what each post was labelled with, by fullname, without ids of this team."""
        found = tables.read(self.root / "snapshot/posts/votes/judge/votes.parquet", name="votes").to_pylist()
        kept = ("outcome", "reason", "repaired", "labels", "input_tokens", "output_tokens", "cost")
        return {self.posts[row["record_id"]].fullname: tuple(map(str, map(row.get, kept))) for row in found}

    def export(self, name: str = "answers.json", *more: str) -> dict[str, Any]:
        return answered("answers", "export", "posts", "--model", "judge", str(self.home / name), *more)

    def forget(self) -> None:
        """Delete the store of answers and what was made of it."""
        for path in self.home.glob("answers.sqlite*"):
            path.unlink()

    def stored(self) -> int:
        with AnswerStore.open(self.settings.answers_url) as answers:
            return answers.naming(self.posts.keys())

    def take_down(self, record_id: str) -> int:
        """Destroy a record in the vault and in the store of bundles; return what that counted before."""
        with self.vault() as vault:
            case = Case(gone=Gone([record_id]), settings=self.settings, vault=vault, now=small.NOW)
            before = STORE.count(case)["records"]
            vault.destroy([record_id], reason="request-7", now=small.NOW)
            STORE.erase(case)
            STORE.erase(case)
            assert STORE.count(case) == {"records": 0}
        return before


@pytest.fixture
def vendor() -> Iterator[FickleVendor]:
    made = FickleVendor()
    with json_server(made.answer) as address:
        made.url = f"{address}/v1"
        yield made


@pytest.fixture
def team(tmp_path: Path, vendor: FickleVendor, monkeypatch: pytest.MonkeyPatch) -> Team:
    return Team(tmp_path / "one", small.small_corpus.SECRET, vendor, monkeypatch)


def brought(file: str, *more: str) -> dict[str, Any]:
    return answered("answers", "import", file, *more)


def test_tables_are_equal_to_the_last_digit_after_the_store_was_deleted(team: Team, vendor: FickleVendor) -> None:
    before = team.label()
    assert vendor.manners == set(range(5)) and len(before) >= 4
    asked, kept = vendor.asked, team.stored()
    made = team.export()
    assert made["requests"] == 1 + RUNS and made["unanswered"] == 0 and made["entries"] == asked
    team.forget()
    vendor.down = True
    dry = brought(made["file"])
    assert dry["matched"] == made["entries"] and dry["excluded"] == {} and dry["unanswered"] == 0
    assert not dry["stored"] and team.stored() == 0
    assert brought(made["file"], "--write") == dry | {"stored": True}
    assert team.label() == before and vendor.asked == asked
    again = brought(made["file"], "--write")
    assert again["stored_before"] == again["matched"] == made["entries"] and team.stored() == kept
    assert team.label() == before
    with AnswerStore.open(team.settings.answers_url) as answers:
        assert answers.spent() == (0, 0), "what another store paid is not booked again"


def test_a_bundle_has_no_words_and_no_ids_of_the_corpus(team: Team, vendor: FickleVendor) -> None:
    team.label()
    made = team.export()
    text, key = Path(made["file"]).read_text(), json.loads(Path(made["key"]).read_text())
    for record_id, post in team.posts.items():
        assert record_id not in text and post.fullname not in text
        assert not any(words in text for words in (post.title, *post.body.split(". ")) if len(words) > 12)
    assert key["key"] not in text and Path(made["file"]).stat().st_mode & 0o077 == 0
    assert "refused" in text and '"unknown_label"' in text
    assert json.loads(Path(team.export("other.json")["file"]).read_text())["entries"][0]["item"] not in text
    with pytest.raises(ValidationError, match="only a vote"):
        RecordedAnswer(outcome=Outcome.REFUSED, reason="model_refusal", repaired=False, labels=("no_crisis",))


def test_another_team_matches_the_items_by_the_key_of_the_bundle(
    team: Team, vendor: FickleVendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Team(tmp_path / "first", small.small_corpus.SECRET, vendor, monkeypatch, examples=0)
    first.label()
    made, told = first.export(), first.votes()
    other = Team(tmp_path / "other", OTHER, vendor, monkeypatch, examples=0)
    assert not other.posts.keys() & first.posts.keys()
    asked, vendor.down = vendor.asked, True
    with refused("BundleRefused", match="unknown"):
        brought(made["file"])
    found = brought(made["file"], "--key", made["key"], "--write")
    assert found["matched"] == made["entries"] and found["unanswered"] == 0
    other.label()
    assert other.votes() == told and vendor.asked == asked


def test_what_is_not_that_bundle_is_refused(team: Team, vendor: FickleVendor) -> None:
    team.label()
    made, second = team.export(), team.export("second.json")
    file, key = Path(made["file"]), Path(made["key"])
    team.forget()
    whole, held = file.read_text(), json.loads(key.read_text())
    entry = json.loads(whole)
    entry["entries"][0]["cost"] += 1
    file.write_text(json.dumps(entry))
    with refused("BundleRefused", match="altered"):
        brought(str(file), "--write")
    stranger = team.home / "stranger.json"
    stranger.write_text(json.dumps(held | {"signer": Signer(bytes.fromhex(OTHER), purpose="answers").public.hex()}))
    file.write_text(whole)
    with refused("BundleRefused", match="did not sign"):
        brought(str(file), "--key", str(stranger))
    with refused("BundleRefused", match="another bundle"):
        brought(str(file), "--key", second["key"])
    file.write_text(json.dumps(json.loads(whole) | {"format": 2}))
    with pytest.raises(UnknownFormat):
        brought(str(file))
    file.write_text(whole[:-40])
    with refused("BundleRefused", match="JSON"):
        brought(str(file))
    assert team.stored() == 0


def test_a_takedown_reaches_files_and_the_removal_list(
    team: Team, vendor: FickleVendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.label()
    made, moved = team.export(), team.export("moved.json")
    old = Path(made["file"]).read_text()
    Path(moved["file"]).rename(team.home / "elsewhere.json")
    [state, _] = [each.state() for each in BundleFolder.all(team.settings)]
    gone = min(record_id for record_id, post in team.posts.items() if post.split == "train")
    put = BundleFolder.put
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        # killed after the files were written
        patch.setattr(BundleFolder, "put", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        answer_bundles.remove([gone], settings=team.settings)
    assert BundleFolder.put is put and team.take_down(gone) == 2
    assert state.records[gone] not in json.dumps(json.loads(Path(made["file"]).read_text())["entries"])
    ids = {
        each.folder.name: each.key().read(each.folder / "removal.json").removed
        for each in BundleFolder.all(team.settings)
    }
    assert {name: len(listed) for name, listed in ids.items()} == {made["bundle"]: 1, moved["bundle"]: 1}
    assert ids[made["bundle"]] == (state.records[gone],) or ids[moved["bundle"]] == (state.records[gone],)
    for each in BundleFolder.all(team.settings):
        assert gone not in (each.folder / "bundle.json").read_text()
    # older copies, where the list is here, where it is handed over, and where the record is only unknown
    Path(made["file"]).write_text(old)
    team.forget()
    assert brought(made["file"], "--write")["excluded"] == {"removed": 1}
    assert brought(str(team.home / "elsewhere.json"))["excluded"] == {"removed": 1}
    folder = Path(made["key"]).parent
    folder.rename(team.home / "handed")
    handed = ("--key", str(team.home / "handed/key.json"))
    assert brought(made["file"], *handed)["excluded"] == {"unknown_or_deleted": 1}
    listed = brought(made["file"], *handed, "--removal", str(team.home / "handed/removal.json"))
    assert listed["excluded"] == {"removed": 1}
    with AnswerStore.open(team.settings.answers_url) as answers:
        assert answers.naming([gone]) == 0


def test_other_months_prompts_and_contents_do_not_match(team: Team, vendor: FickleVendor) -> None:
    team.label()
    with refused("NothingAnswered"):
        team.export("none.json", "--month", "2019-01")
    part, made = team.export("month.json", "--month", small.MONTHS[0]), team.export()
    assert 0 < part["entries"] < made["entries"]
    team.forget()
    assert brought(part["file"])["unanswered"] == made["entries"] - part["entries"]
    changed = {
        "votes": {"labellers": {"posts": ["judge"]}, "budget_usd": 100, "max_failed": 0, "max_output_tokens": 77}
    }
    team.set(changed)
    found = brought(made["file"], "--write")
    assert found["matched"] == 0 and found["excluded"] == {"other_request": made["entries"]} and team.stored() == 0
    team.set({})
    record_id, post = next((r, p) for r, p in team.posts.items() if p.split == "train")
    with team.vault() as vault:
        rows_ = [
            {"record_id": r, "title": p.title, "body": p.body + (" Edited." * (r == record_id))}
            for r, p in list(team.posts.items())[:: len(small.MONTHS)]
        ]
        small.small_corpus.write_posts(team.root, rows_, corpus="posts", month=small.MONTHS[0], vault=vault)
    assert post.fullname == "t3_p0" and brought(made["file"])["excluded"] == {"other_content": 1}


def test_an_import_stores_all_of_its_answers_or_none(team: Team) -> None:
    [one, two, *_] = team.posts
    with team.vault() as vault, AnswerStore.open(team.settings.answers_url) as answers:
        under = vault.keys([one, two])
        made = [sealed(str(n) * 64, record_id=r, under=under[r], data=b"{}") for n, r in enumerate((one, two))]
        with pytest.raises(AnswersUnavailable):
            spoilt: Any = (made[1][0], None, made[1][2])
            answers.add([(made[0], 1), (spoilt, 2)])
        assert answers.naming([one, two]) == 0
        answers.add([(each, 1) for each in made])
        answers.add([((made[0][0], two, made[1][2]), 5)])
        assert answers.get(["0" * 64], vault=vault)["0" * 64].cost == 1, "an answer of the store's own stays"
