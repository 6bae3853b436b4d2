"""The Corpus page: what it shows first, what it never shows, and that all text of others is escaped."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from corpus_view import page_plugin, page_view
from corpus_view.attention import OF_ALL, Question, Runs, SeenRun, dag_ids
from corpus_view.page_text import ago, clean, path, web
from corpus_view.page_view import Summary, SummaryFile
from pipelines.core.config.settings import Settings
from pipelines.operate import summary as written
from pipelines.release.release_store import DRAFT
from tests.dags.test_dags import EXPECTED

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2023, 3, 15, 12, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>'\"&\N{RIGHT-TO-LEFT OVERRIDE}\n"
NEWEST, OLDER = "a" * 40, "b" * 40
ALL = frozenset(dag_ids(["memes", "posts"]))


def summary(**changes: Any) -> dict[str, Any]:
    """A summary with two corpora, as commands write it; months of memes: one collected, one with a gap."""
    months = {
        "2022-11": {"published": True, "gap_hours": None, "records": 1200, "deleted": 3},
        "2022-12": {"published": True, "gap_hours": 30.5, "records": 80, "deleted": 0},
    }
    found = {
        "version": page_view.VERSION,
        "written": (NOW - timedelta(hours=1)).isoformat(),
        "commit": NEWEST,
        "commits": {
            NEWEST: {"commit": NEWEST, "at": NOW.isoformat(), "subject": "data(memes): 2022-12",
                     "run": "memes_collect/backfill__2022-12"},
            OLDER: {"commit": OLDER, "at": NOW.isoformat(), "subject": "snapshot(posts): quality", "run": None},
        },
        "origin": {"data/memes/2022-12": NEWEST, "metrics/memes/quality.json": NEWEST,
                   "metrics/posts/votes-gpt.json": OLDER},
        "corpora": {
            "memes": {
                "period": ["2022-11", None],
                "months": months,
                "funnel": {"collect": {"submissions": 1300, "kept": 1280, "items": 1290, "dropped": {"deleted": 20}}},
                "rounds": [{"round": "pilot", "phase": "pilot", "status": "open", "opened": NOW.isoformat(),
                            "closed": None, "reason": None, "gold": None, "size": 50, "sufficient": None,
                            "agreement": {"severity": {"items": 40,
                                                       "alpha": {"value": 0.61, "low": 0.5, "high": 0.7},
                                                       "kappa": {"value": None, "low": None, "high": None}}}}],
            },
            "posts": {
                "period": ["2023-01", "2023-02"],
                "months": {},
                "votes": {"gpt": {"outcomes": {"vote": 95, "refused": 5}, "reasons": {"content_filter": 5},
                                  "cost": 0.41, "records": 100}},
                "silver": {"cradle": {"records": 100,
                                      "agreement": {"train": {"unanimous": 60, "consensus": 30, "none": 10}},
                                      "queue": {"records": 10, "reasons": {"no_majority": 10}}}},
                "models": {"crisis-posts": {"version": 3, "items": 200, "alerts": {"rape_past": 4},
                                            "labels": {"rape_past": 2},
                                            "drift": {"months": 2, "exceeded": {"2022-12": ["rape_past"]},
                                                      "newest": {"month": "2022-12", "exceeded": ["rape_past"],
                                                                 "quantities": {"rape_past":
                                                                                {"month": 0.5, "test": 0.1}}}}}},
            },
        },
        "budget": {"limit": 20.0, "paid": 19.5, "reserved": 0.0},
        "registry": {"crisis-posts": {"champion": 3, "open": None, "stale": {}, "withdrawn": [], "rows": 1,
                                      "runs": {"3": {"run": "r3", "data_commit": OLDER}},
                                      "journal": [{"number": 1, "at": NOW.isoformat(), "event": "promoted",
                                                   "from": 2, "to": 3, "who": "anna", "why": "better"}]}},
        "takedowns": {"open": [{"request": "abc-1", "begun": (NOW - timedelta(days=31)).isoformat(), "ended": None,
                                "records": 2, "done": ["tombstone"], "commit": None, "weights_due": None,
                                "reason": "case-7", "pending": {"mlflow": "RegistryUnavailable"}}],
                      "done": 0, "receipts": [], "due": {"memes": 4}, "sweep_hours": 48, "tombstones": 3,
                      "records": 1280,
                      "swept": {"memes": {"last": (NOW - timedelta(hours=60)).isoformat(), "first_seen": None}}},
        "releases": [{"release": "memes-1", "corpus": "memes", "status": DRAFT, "drafted": NOW.isoformat(),
                      "approved": None, "who": None, "records": 5, "withdrawn": 0}],
        "mlflow": "https://mlflow.example.org",
        "tracked": {"memes": {"run": "t1", "report": "https://mlflow.example.org/#/report"}},
    }  # fmt: skip
    return found | changes


def test_gold_is_what_people_labelled_of_the_sample() -> None:
    gold = {"records": 120, "without": 120, "unfit": 3, "pending": 5, "outside": 7, "labels": 137}
    [row] = page_view.funnel({"funnel": {"gold": gold}})
    assert (row["in"], row["out"]) == (243, 120)
    assert row["excluded"] == {"not labelled by people": 115, "undecided": 5, "found unfit by people": 3}


def test_counts_that_a_takedown_leaves_are_said_to_be_those_of_the_last_run() -> None:
    assert "<p>of the last run</p>" in page(summary(last_run="of the last run"))


def test_every_table_has_a_caption() -> None:
    text = page(summary())
    assert text.count("<table") == text.count("<caption") > 5


def page(found: dict[str, Any], *, runs: Runs | None = None, fault: str = "", changed: datetime | None = None) -> str:
    template = page_view.environment().get_template("page.html")
    return template.render(page_view.model(Summary(found, fault, changed), runs=runs or Runs(known=ALL), now=NOW))


class Parsed(HTMLParser):
    """Tags with attributes, and the text of the first list."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data.split()
        self.text += data

    @property
    def links(self) -> list[str]:
        return [str(attrs["href"]) for tag, attrs in self.tags if tag == "a"]


def attention(text: str) -> list[str]:
    """The lines of the first section, as a reader gets them."""
    [part] = re.findall(r'<ul class="attention">(.*?)</ul>', text, re.DOTALL)
    return [" ".join(Parsed(line).text.split()) for line in part.split("</li>")[:-1]]


def test_the_page_begins_with_what_failed_then_what_waits_each_with_what_to_do() -> None:
    run = SeenRun("memes_collect", "backfill__1", "failed", NOW, key="2023-01", task="images")
    asked = Question("promote", "Promote version 4?", NOW, "../dags/promote/runs/r/tasks/approve/required_actions")
    late = SeenRun("deletion_sweep", "scheduled__1", "running", NOW)
    runs = Runs(known=ALL, failed=(run,), late=(late,), questions=(asked,), months={("memes_collect", "2023-01"): run},
                paused=frozenset({"deletion_sweep"}))  # fmt: skip
    lines = attention(page(summary(), runs=runs))
    order = [re.match(r"Failed|Late|Waits for a person|Check", line)[0] for line in lines]
    assert order == sorted(order, key=["Failed", "Late", "Waits for a person", "Check"].index)
    for words in (
        "Failed memes_collect of 2023-01 failed at task images (0 min ago) Read the log",
        "Failed Takedown abc-1 is not complete after 31.0 days; not cleared: mlflow",
        "Late Run of deletion_sweep has missed its deadline",
        "Late Dag deletion_sweep is paused",
        "Late The last complete deletion sweep of memes is older than 48 h",
        "Waits for a person Promote version 4?",
        "Waits for a person Round pilot of memes: annotators",
        "Waits for a person 10 records of posts that the ensemble cradle leaves to people",
        "Waits for a person Release memes-1 is a draft",
        "Check Month 2023-02 of memes is missing Collect them with a backfill. airflow backfill create",
        "Check 1 month of memes with gaps, 30.5 h in all",
        "Check Predictions of crisis-posts drifted in 2022-12: rape_past",
        "Check $ 19.50 of the labelling budget of $ 20.00 are used",
    ):
        assert [line for line in lines if line.startswith(words)], words


def test_nothing_to_do_is_said() -> None:
    assert "nothing waits for a person" in page(summary(corpora={}, takedowns={}, releases=[], registry={}))


def test_a_month_says_its_state_in_words_and_links_to_its_run_and_commit() -> None:
    running = SeenRun("memes_collect", "r1", "running", NOW, key="2023-02")
    text = page(summary(), runs=Runs(known=ALL, months={("memes_collect", "2023-02"): running}))
    months = re.findall(r'<li class="(\w+)">(.*?)</li>', text, re.DOTALL)
    said = {(state, " ".join(Parsed(body).words)) for state, body in months}
    assert ("collected", "memes 2022- 11 ✓ collected 1,200 records 3 deleted") in said or (
        "collected", "2022- 11 ✓ collected 1,200 records 3 deleted") in said  # fmt: skip
    assert ("gap", "memes 2022- 12 ◐ incomplete 80 records 30.5 h gap") in said
    assert ("missing", "2023- 01 ! missing") in said
    assert ("running", "memes 2023- 02 … being collected") in said
    assert ("open", "2023- 03 ○ not over yet") in said
    links = Parsed(text).links
    assert "../dags/memes_collect/runs/backfill__2022-12" in links and f"#commit-{NEWEST[:12]}" in links
    assert "../dags/memes_collect/runs/r1" in links


def test_every_link_inside_the_page_has_its_target() -> None:
    parsed = Parsed(page(summary()))
    ids = {attrs["id"] for _, attrs in parsed.tags if "id" in attrs}
    inner = {link.removeprefix("#") for link in parsed.links if link.startswith("#")}
    assert inner and not inner - ids
    assert len(ids) == len([1 for _, attrs in parsed.tags if "id" in attrs])


def test_figures_are_shown_with_rates() -> None:
    words = " ".join(Parsed(page(summary())).words)
    assert "collect 1,300 1,280 (1,290 items) deleted 20" in words
    assert "severity 40 0.61 [0.50, 0.70] undefined" in words
    assert "gpt 100 95 (95.0 %) 5 (5.0 %) 0 0 0 content_filter 5 $ 0.4100" in words
    assert "cradle 100 60 (60.0 %) 30 (30.0 %) 10 (10.0 %) 10 no_majority 10" in words
    assert "rape_past 4 2.0 % 2 1.0 % 50.0 % 10.0 % drifted" in words
    assert "$ 19.50 paid and $ 0.00 reserved of $ 20.00, 97.5 %" in words


def spoiled(value: Any, *, keys: bool = True) -> Any:
    """Replace every text of a summary, names included, that is not read as a number, date or commit."""
    if isinstance(value, dict):
        return {key: spoiled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [spoiled(inner) for inner in value]
    return HOSTILE if isinstance(value, str) and not re.match(r"\d{4}-|[0-9a-f]{40}$", value) else value


def test_text_of_others_is_escaped_wherever_it_is_shown() -> None:
    found = spoiled(summary()) | {"version": 1}
    found["corpora"]["memes"]["funnel"]["collect"]["dropped"] = {HOSTILE: 1}
    found["corpora"]["posts"]["votes"][HOSTILE] = found["corpora"]["posts"]["votes"].pop("gpt")
    found["corpora"]["posts"]["models"][HOSTILE] = found["corpora"]["posts"]["models"].pop("crisis-posts")
    found["registry"][HOSTILE] = found["registry"].pop("crisis-posts")
    run = SeenRun("memes_collect", HOSTILE, "failed", NOW, key=HOSTILE, task=HOSTILE)
    question = Question("promote", HOSTILE, NOW, path("dags", "promote", "runs", HOSTILE))
    text = page(found, runs=Runs(known=ALL, failed=(run,), questions=(question,)))
    parsed = Parsed(text)
    assert [attrs for tag, attrs in parsed.tags if tag == "script"] == [{"src": "page.js", "defer": None}]
    assert "alert(1)" in text and "<script>alert" not in text and "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    assert not [name for _, attrs in parsed.tags for name in attrs if name.startswith("on") or name == "style"]
    assert all(link.startswith(("#", "../", "page.", "icon")) for link in parsed.links), parsed.links


def test_an_address_that_is_none_of_the_web_makes_no_link() -> None:
    bad = summary(mlflow="javascript:alert(1)", tracked={"memes": {"run": "1", "report": "javascript:alert(2)"}})
    assert "javascript:" not in page(bad)
    assert web("https://a.example/x") and not web("javascript:alert(1)") and not web("https://[") and not web(None)


def test_nothing_is_loaded_from_elsewhere() -> None:
    for name in ("page.html", "page.css", "page.js", "refused.html", "icon.svg", "icon-dark.svg"):
        text = (page_view.HERE / name).read_text()
        assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}, name
        assert "url(" not in text and "@import" not in text, name
    loaded = [attrs.get("src") or attrs.get("href") for tag, attrs in Parsed(page(summary())).tags
              if tag in ("script", "link", "img")]  # fmt: skip
    assert set(loaded) == {"page.js", "page.css", "icon.svg"}


def test_only_what_a_user_may_read_is_shown() -> None:
    seen = page(summary(), runs=Runs(known=frozenset({"posts_dataset"})))
    assert "posts" in seen and "memes" not in seen and "abc-1" not in seen and "anna" not in seen
    assert NEWEST[:12] not in re.sub(r"<header>.*?</header>", "", seen, flags=re.DOTALL)
    assert "#registry" not in seen and "#deletions" not in seen


def test_a_summary_that_is_missing_or_of_another_version_says_what_to_do(tmp_path: Path) -> None:
    file = SummaryFile(tmp_path)
    for text in (None, "{", '{"version": 999}', "[]"):
        if text is not None:
            file.path.parent.mkdir(exist_ok=True)
            file.path.write_text(text)
        found = file.read()
        assert not found.found and found.fault
        assert "corpus status --write" in page(found.found, fault=found.fault)


def test_a_changed_summary_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    file = SummaryFile(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text(json.dumps(summary()))
    assert file.read() is file.read()
    file.path.write_text(json.dumps(summary(commit=OLDER, written="")))
    assert file.read().found["commit"] == OLDER


def test_a_change_after_the_summary_is_said_with_the_command(tmp_path: Path) -> None:
    file = SummaryFile(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text(json.dumps(summary()))
    (tmp_path / "journal.sqlite").touch()
    assert file.read().changed is None, "a task has just changed it, and the summary follows"
    at = NOW.timestamp()
    os.utime(file.path, (at, at))
    found = file.read()
    assert found.changed and found.changed > NOW
    text = page(found.found, changed=found.changed)
    assert "corpus status --write" in text and "has changed the corpus since" in text


def test_page_and_writer_agree_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_HOME", str(tmp_path))
    assert written.place(Settings.from_env()) == SummaryFile(tmp_path).path
    assert written.VERSION == page_view.VERSION


def test_the_page_knows_every_dag() -> None:
    assert dag_ids(["memes", "posts"]) >= EXPECTED
    assert set(OF_ALL) == {path.stem for path in (ROOT / "dags").glob("*.py")} - {"corpora"}


def test_airflow_loads_the_plugin_alone() -> None:
    ignored = set((ROOT / "plugins/corpus_view/.airflowignore").read_text().split())
    modules = {path.name for path in (ROOT / "plugins/corpus_view").glob("*.py")}
    assert modules - ignored == {"__init__.py", "page_plugin.py"}
    view = page_plugin.CorpusPage.external_views[0]
    assert not view["href"].startswith("/") and view["href"] == f"{page_plugin.NAME}/"


def test_times_and_text_are_readable() -> None:
    assert ago(NOW - timedelta(minutes=5), now=NOW) == "5 min ago"
    assert ago(NOW + timedelta(hours=5), now=NOW) == "in 5.0 h" and ago("no date", now=NOW) == "–"
    assert len(clean("x" * 5000)) == 501 and clean("a\x00b") == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("part", ["../../x", "a/b", "javascript:x", "?a#b"])
def test_a_part_of_an_address_stays_a_part(part: str) -> None:
    assert path("dags", part).count("/") == 2 and not set("?#:") & set(path(part))
