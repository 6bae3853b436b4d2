"""Render the page: arrange what a user may see, and fill the template."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from corpus_view import attention, page_text
from corpus_view.attention import Runs, SeenRun
from dvc_airflow import settings
from dvc_airflow.settings import OF_CORPUS, named

Json = Mapping[str, Any]

HERE = Path(__file__).resolve().parent / "page"
# State of a month -> its sign, its word. Signs and words differ, so that colour carries nothing alone.
STATES = {
    "collected": ("✓", "collected"),
    "gap": ("◐", "incomplete"),
    "failed": ("✕", "failed"),
    "running": ("…", "being collected"),
    "missing": ("!", "missing"),
    "before": ("·", "not collected"),
    "open": ("○", "not over yet"),
}
# A year with no other state is folded.
UNTOUCHED = ("before", "open")
WORDS = {
    "states": STATES,
    "kinds": attention.KINDS,
    "outcomes": ("vote", "refused", "abstained", "malformed", "failed"),
}
UNLABELLED = {"unlabelled": "not labelled by people", "pending": "undecided", "unfit": "found unfit by people"}
# Step -> the counts of what came in and of what stayed, and those of what was excluded with the reason.
FUNNEL: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "collect": ("submissions", "kept", {}),
    "dedupe": ("items", "kept", {"dropped": "near-duplicate", "taken_down": "taken down"}),
    "sample": ("candidates", "taken", {"left": "not drawn"}),
    "gold": ("sampled", "records", UNLABELLED),
    "split": ("", "", {"excluded": "without the labels that the split needs", "withheld": "withheld"}),
}


def environment() -> Environment:
    """Return the templates' environment: everything that is printed is escaped and cleaned."""
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=page_text.clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= page_text.FILTERS
    return made


def model(summary: Summary, *, runs: Runs, now: datetime) -> dict[str, Any]:
    """Return the values of the template: all sections that the user may see."""
    content = summary.found
    corpora, commits, origin = (content.get(name, {}) for name in ("corpora", "commits", "origin"))
    sources = {file: commits[commit] for file, commit in origin.items()}
    shown = {
        corpus: {**part, "calendar": calendar(corpus, part, runs=runs, sources=sources, now=now)}
        for corpus, part in corpora.items()
        if runs.sees(*(f"{corpus}_{kind}" for kind in OF_CORPUS))
    }
    used = {commit for file, commit in origin.items() if file.split("/")[1] in shown}
    listed = [commit for key, commit in commits.items() if key in used or len(shown) == len(corpora)]
    mlflow = page_text.web(content.get("mlflow"))
    return {
        "written": content.get("written"),
        "commit": content.get("commit"),
        "now": now,
        "ago": partial(page_text.ago, now=now),
        "passed": partial(page_text.passed, now=now),
        "attention": attention.items(summary, runs=runs, shown=shown, now=now),
        "corpora": shown,
        "funnel": funnel,
        "last_run": content.get("last_run"),
        "sources": sources,
        "paused": sorted(runs.paused),
        "budget": content.get("budget") if any(part.get("votes") for part in shown.values()) else None,
        "registry": content.get("registry", {}) if runs.sees("promote") else None,
        "deletions": content.get("takedowns") if runs.sees("deletion_sweep", "takedown") else None,
        "sweep": runs.latest.get(named("deletion_sweep")),
        "releases": content.get("releases") if runs.sees("release") else None,
        "mlflow": mlflow,
        "tracked": {name: run for name, run in content.get("tracked", {}).items() if mlflow and name in shown},
        "commits": sorted(listed, key=lambda commit: str(commit["at"]), reverse=True),
        "words": WORDS,
        "erasure_days": attention.ERASURE_DAYS,
    }


def calendar(corpus: str, part: Json, *, runs: Runs, sources: Json, now: datetime) -> list[dict[str, Any]]:
    """Return the months of a corpus by year, newest year first, with state, counts, gap and link of each."""
    months: Json = part.get("months", {})
    first = min((key for key, month in months.items() if month["published"]), default=None)
    rows = []
    for key in _keys(part, months, now=now):
        month, run = months.get(key, {}), runs.months.get((named(f"{corpus}_collect"), key))
        commit = sources.get(f"data/{corpus}/{key}", {})
        rows.append(
            {
                **{"published": False, "gap_hours": None, "records": 0, "deleted": 0, **month},
                "key": key,
                "state": _state(key, month, run=run, first=first, now=now),
                "href": run.href if run else page_text.run_page(commit.get("run")),
                "commit": commit.get("commit"),
            }
        )
    years = [(year, list(of_year)) for year, of_year in groupby(rows, key=lambda month: month["key"][:4])]
    return [
        {"year": year, "months": of_year, "shown": any(month["state"] not in UNTOUCHED for month in of_year)}
        for year, of_year in reversed(years)
    ]


def _keys(part: Json, months: Json, *, now: datetime) -> list[str]:
    first, last = part.get("period") or (None, None)
    present = f"{now:%Y-%m}"
    first, last = min(filter(None, (first, *months)), default=present), max(filter(None, (last or present, *months)))
    begin, end = (12 * int(key[:4]) + int(key[5:]) - 1 for key in (first, last))
    # a period of more than a century is an error of its file
    return [f"{number // 12}-{number % 12 + 1:02}" for number in range(begin, min(end + 1, begin + 1200))]


def _state(key: str, month: Json, *, run: SeenRun | None, first: str | None, now: datetime) -> str:
    if run and run.state in ("failed", "queued", "running"):
        return "failed" if run.state == "failed" else "running"
    if month.get("published"):
        return "gap" if month.get("gap_hours") else "collected"
    if key >= f"{now:%Y-%m}":
        return "open"
    return "missing" if first is not None and key > first else "before"


def funnel(part: Json) -> Iterator[dict[str, Any]]:
    """Yield the steps from submissions to the split: what came in, what stayed, and why the rest was excluded."""
    for step, (came, stayed, reasons) in FUNNEL.items():
        if not (counts := dict(part.get("funnel", {}).get(step) or {})):
            continue
        if step == "sample":
            counts["left"] = counts.get("candidates", 0) - counts.get("taken", 0)
        elif step == "gold":
            # `records` are those with gold; the others of the sample have none, or were found unfit
            counts["sampled"] = sum(counts.get(key, 0) for key in ("records", "without", "unfit"))
            counts["unlabelled"] = counts.get("without", 0) - counts.get("pending", 0)
        sizes: Json = counts.get("sizes", {})
        excluded = counts["dropped"] if step == "collect" else {word: counts.get(k) for k, word in reasons.items()}
        yield {
            "step": step,
            "in": counts.get(came),
            "out": sum(sizes.values()) if sizes else counts.get(stayed),
            "sizes": sizes,
            "items": counts.get("items") if step == "collect" else None,
            "excluded": dict(sorted(((k, n) for k, n in excluded.items() if n), key=lambda row: (-row[1], row[0]))),
            "file": "quality" if step == "collect" else step,
        }


# That of `pipelines.operate.summary`.
VERSION = 1
# What commands change, where it is on this host, and the seconds within which the summary follows.
CHANGED, FOLLOWS = ("journal.sqlite", "takedowns", "releases", "corpus.git/refs/heads/corpus"), 120.0
# A summary is some 100 bytes for a month and 200 for a row of the journal; a larger file is not one.
LARGEST = 32 * 1024 * 1024
UNREADABLE = "The summary of the corpus cannot be read ({})."


@dataclass(frozen=True)
class Summary:
    """The content of the summary, or why there is none (``fault``); ``changed``: when the corpus has changed since."""

    found: dict[str, Any]
    fault: str = ""
    changed: datetime | None = None


class SummaryFile:
    """The summary file of a home; its content is parsed once for each change of the file."""

    def __init__(self, home: Path = settings.HOME) -> None:
        self.path = home / "summary" / "corpus.json"
        self._of_state = lru_cache(maxsize=1)(self._parsed)

    def read(self) -> Summary:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return Summary({}, "There is no summary of the corpus yet.")
        except OSError as error:
            return Summary({}, UNREADABLE.format(type(error).__name__))
        found, newest = self._of_state(stat.st_ino, stat.st_mtime_ns, stat.st_size), self._newest()
        # the listener writes the summary some seconds after the change
        late = newest - stat.st_mtime > FOLLOWS
        return replace(found, changed=datetime.fromtimestamp(newest, tz=UTC)) if late else found

    def _newest(self) -> float:
        places = (self.path.parents[1] / name for name in CHANGED)
        return max((place.stat().st_mtime for place in places if place.exists()), default=0.0)

    def _parsed(self, _inode: int, _changed: int, size: int) -> Summary:
        if size > LARGEST:
            return Summary({}, "The summary of the corpus is too large to be one.")
        try:
            content = json.loads(self.path.read_bytes())
        except (OSError, ValueError) as error:
            return Summary({}, UNREADABLE.format(type(error).__name__))
        if not isinstance(content, dict) or content.get("version") != VERSION:
            return Summary({}, "Another version of the software wrote the summary of the corpus.")
        return Summary(content)
