"""What people are shown: the paper's tables for any ensemble, from metrics alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.label import votes_report
from pipelines.metrics.label_sets import NAMES
from pipelines.metrics.label_tables import Distribution
from tests.small_corpus import own_scheme

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers.json").read_text())["table11"]
SIZES = {
    "train_consensus": ("cons", 4181, {1: 3746, 2: 405, 3: 27, 4: 3}),
    "train_unanimous": ("unan", 3058, {1: 2872, 2: 175, 3: 9, 4: 2}),
    "dev": ("dev", 420, {1: 398, 2: 21, 3: 1}),
    "test": ("test", 600, {1: 539, 2: 53, 3: 7, 4: 1}),
}
SCORES = dict.fromkeys(NAMES, 0.7816)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "metrics" / "posts"
    folder.mkdir(parents=True)
    score = {"n": 600, "n_valid": 586, "valid": SCORES, "all": dict.fromkeys(NAMES, 0.7633)}
    row = {**score, "interval": {name: [0.7, 0.8] for name in NAMES}}
    lead = {"value": 0.0233, "low": 0.001, "high": 0.04, "probability": 0.98}
    agreed = {
        "test": {"unanimous": 411, "consensus": 163, "none": 26},
        "train": {"unanimous": 3058, "consensus": 1123, "none": 106},
    }
    category = {
        "agreement": agreed,
        "agreement_paper": {split: {**counts, "differs": 0} for split, counts in agreed.items()},
        "posterior": {},
        "distributions": {
            name: Distribution(n, {label: counts[key] for label, counts in KNOWN.items()}, sizes).plain()
            for name, (key, n, sizes) in SIZES.items()
        },
        "violations": {"gold": {"rape_before_harassment": 2}, "gpt": {}},
        "refusals": {"rape_past": {"gold": 62, "gpt": 0, "claude": 0, "gemini": 7}},
        "comparison": {
            "claude": {"kind": "member", **row},
            "label_set_majority": {"kind": "aggregate", **row, "best_member": "claude", "lead": lead},
        },
        "test": {"gemini": score, "ensemble": score},
        "by_agreement": {
            split: {name: {"n": 10, "exact": n} for name, n in (("unanimous", 9), ("consensus", 5), ("none", 2))}
            for split in ("dev", "test")
        },
    }
    silver = {
        "ensemble": "cradle",
        "members": ["gpt", "claude", "gemini"],
        "scheme": "cradle",
        "records": 4887,
        "agreement": agreed,
        "queue": {"records": 132, "unread": 0, "reasons": {"no_majority": 132, "injection": 0}},
        "categories": {"labels": category},
    }
    votes = {"records": 4887, "outcomes": {"vote": 4873, "refused": 14}, "reasons": {}, "repaired": 3, "cost": 12.5}
    flips = {"n": 120, "flip_rate": 0.025, "lost_severity": 1}
    (folder / "silver-cradle.json").write_text(json.dumps(silver))
    (folder / "votes-gemini.json").write_text(json.dumps(votes))
    (folder / "injection_test-cradle.json").write_text(json.dumps({"detected": 9, "categories": {"labels": flips}}))
    return tmp_path


def shown(root: Path) -> str:
    console = Console(record=True, width=200)
    console.print(*(sheet.rich() for sheet in votes_report.sheets(votes_report.gather(root, "posts"))))
    return console.export_text()


def test_the_papers_figures_appear(corpus: Path) -> None:
    text = shown(corpus)
    for figure in ("3,058 (71.3%)", "163 (27.2%)", "26 (4.3%)", "186 (27.8%)", "94.76", "209 (31.2%)"):
        assert figure in text
    for figure in ("1,160 (24.95%)", "4,649 (1.11)", "89.60", "46.30", "15.12"):
        assert figure in text
    # refused of 62 posts with rape_past; scores over valid answers and over all, the lead, the flip rate
    for figure in ("7 (11.3%)", "rape before harassment", "n=586", "0.7633", "+0.023 (p 0.98)", "0.0250"):
        assert figure in text
    sheet = next(s for s in votes_report.sheets(votes_report.gather(corpus, "posts")) if "agreement between" in s.title)
    assert sheet.columns == ("Agreement", "Train", "Test")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_word_is_readable_in_a_narrow_terminal(corpus: Path, width: int) -> None:
    console = Console(record=True, width=width)
    gathered = votes_report.gather(corpus, "posts")
    for sheet in votes_report.sheets(gathered):
        console.print(*sheet.parts(width))
    text = console.export_text()
    assert "…" not in text and "Abstained" in text and "Labeller" in text
    overview = list(votes_report.sheets(gathered, everything=False))
    assert len(overview) < len(list(votes_report.sheets(gathered))) and overview[0].title == "Answers"


def test_the_tables_of_a_team_s_scheme(corpus: Path) -> None:
    path = corpus / "metrics" / "posts" / "silver-cradle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"scheme": own_scheme(corpus, like="cradle")}))
    gathered = votes_report.gather(corpus, "posts")
    assert len(list(votes_report.sheets(gathered, root=corpus))) > len(
        list(votes_report.sheets(gathered, everything=False))
    )


def test_the_summary_for_status_and_before_anything_is_labelled(corpus: Path, tmp_path: Path) -> None:
    gathered, nothing = (votes_report.gather(root, "posts") for root in (corpus, tmp_path / "empty"))
    assert votes_report.summary(gathered) == {
        "by_labeller": {"gemini": {"vote": 4873, "refused": 14}},
        "ensembles": {"cradle": {"unanimous": 3469, "consensus": 1286, "none": 132}},
        "cost": 12.5,
    }
    assert not list(votes_report.sheets(nothing))
    assert votes_report.summary(nothing) == {"by_labeller": {}, "ensembles": {}, "cost": 0}
