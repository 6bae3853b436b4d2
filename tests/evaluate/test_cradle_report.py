"""The page of posts: it says what the metrics say, shows what is beyond the paper, and needs no paper for a scheme."""

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.core.config.params import Params
from pipelines.core.config.params import load as load_params
from pipelines.core.taxonomy import OWN, load, path_of
from pipelines.core.taxonomy.task import task_of
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.evaluate.report import charts, report
from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report import parts as report_parts
from tests.contexts import context_of
from tests.evaluate import printed
from tests.evaluate.posts_runs import TASK, Sets, gold_of, write_gold, write_run
from tests.evaluate.test_report import Reader, rows_of
from tests.refusals import refused

REPO = Path(__file__).resolve().parents[2]
FEW = Sampling(resamples=50, seed=1)
NO = frozenset({"no_crisis"})
SPENT = {"records": 60, "seconds": 30.0, "input_tokens": 6000, "output_tokens": 600, "cost": 0.6}
GOLD = {"test": gold_of("test", n=36), "dev": gold_of("dev", n=36)}
ACTIVE, PASSIVE = "suicideideation_active_ongoing", "suicideideation_passive_ongoing"
ABUSE = frozenset({"childabuse_endangerment_past"})


@pytest.fixture(scope="module")
def params() -> Params:
    return load_params(REPO, profile="sandbox")


def made(root: Path, params: Params) -> dict[str, Any]:
    """Return metrics of a tuned model with probabilities, its base, a labeller that refuses, and gold itself."""
    write_gold(root, GOLD)
    # every sixth post is passive today: the first two are said to be active, the third both; harm is said to be past
    test = dict(GOLD["test"])
    passive = [r for r, labels in test.items() if labels == {PASSIVE}]
    test |= dict.fromkeys(passive[:2], frozenset({ACTIVE})) | {passive[2]: frozenset({ACTIVE, PASSIVE})}
    test["test001"] = frozenset({"selfharm_past"})
    # and of the twelve posts without a crisis two are said to be child abuse
    test |= {"test000": ABUSE, "test006": ABUSE}
    said: dict[str, Sets] = {"test": test, "dev": GOLD["dev"]}
    scores = {r: [0.9 if x in labels else 0.1 for x in TASK.labels] for s in said.values() for r, labels in s.items()}
    write_run(root, "finetuned/consensus/tiny-causal", said, scores=scores, spent=SPENT)
    nothing = {split: dict.fromkeys(sets, NO) for split, sets in GOLD.items()}
    write_run(root, "untuned/tiny-causal-zero", nothing, spent={**SPENT, "seconds": None, "cost": 0})
    lost = {r: "refused" for r, labels in GOLD["test"].items() if "rape_past" in labels}
    lost |= {"test000": "malformed"}
    write_run(root, "untuned/gpt", GOLD, lost=lost)
    write_run(root, "untuned/cradle", GOLD)
    return evaluate.run(context_of("posts", params=params, root=root), sampling=FEW)


@pytest.fixture(scope="module")
def metrics(params: Params, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return made(tmp_path_factory.mktemp("posts"), params)


@pytest.fixture(scope="module")
def text(metrics: dict[str, Any]) -> str:
    return report_page.markdown(report.build(metrics, corpus="posts", synthetic=True))


def test_a_run_writes_both_files_with_the_silvers_agreement(params: Params, tmp_path: Path) -> None:
    made(tmp_path, params)
    agreed = {"unanimous": 11, "consensus": 5, "none": 4}
    silver = {
        "members": ["gpt", "claude", "gemini"],
        "categories": {"labels": {"agreement": {"train": agreed}, "agreement_paper": {"train": agreed}}},
    }
    silver["categories"]["labels"]["distributions"] = {}
    (tmp_path / "metrics/posts/silver-cradle.json").write_text(json.dumps(silver))
    shutil.copytree(REPO / "papers", tmp_path / "papers")
    answer = report.run(context_of("posts", params=params, root=tmp_path))
    assert answer["best"]["labels"]["model"] == "cradle"
    assert answer["models"] == {"labels": 4}
    folder = tmp_path / "snapshot" / "posts" / "report"
    found = (folder / "report.md").read_text()
    assert found.startswith("# The crisis benchmark\n")
    assert rows_of(found, "**Table 5")["All three agree"] == ["paper", "3,058/4,287 (71.3%)", "411/600 (68.5%)"]
    assert "| All three agree | ours | 11/20 (55.0%) | – |" in found
    assert rows_of(found, "**Fine-tuning (appendix F)**")["Epochs"][:4] == ["paper", "3", "3", "3"]
    assert rows_of(found, "**Settings in params.yaml")["epochs"] == ["12"]


def test_a_corpus_that_fits_no_model_has_a_report(params: Params, tmp_path: Path) -> None:
    made(tmp_path, params)
    shutil.copytree(REPO / "papers", tmp_path / "papers")
    nothing = params.model_copy(update={"train": params.train.model_copy(update={"rows": {}})})
    assert report.run(context_of("posts", params=nothing, root=tmp_path))["models"] == {"labels": 4}


def test_the_page_is_whole_and_needs_nothing_else(metrics: dict[str, Any]) -> None:
    page = report.build(metrics, corpus="posts", synthetic=True)
    html = report_page.html(page)
    read = Reader(html)
    assert read.open == []
    assert not {"script", "iframe", "object", "form", "link", "img"} & set(read.tags)
    assert {link.removeprefix("#") for link in read.links} == {s.key for s in page.sections} <= read.ids
    assert not re.search(r"url\(|@import", html)
    assert [s.key for s in page.sections] == [
        "results", "labels", "tuning", "pairs", "direction", "unanswered", "mixed-up", "over-extension", "severity",
        "cost", "calibration", "dev", "set-up", "discrepancies", "reading",
    ]  # fmt: skip
    for number in (4, 5, 8, 11, 12, 13, 14, 15, 16):
        assert f"Table {number}: " in read.text
    assert read.tags.count("svg") == 4  # macro-F1, F1 by label, over and under, reliability
    assert "synthetic posts" in read.text
    assert not re.search(r"test0\d\d|dev0\d\d", html)
    assert "memes" not in read.text and "Best by macro-F1" not in read.text
    assert "Models on test, with 95 % intervals" in read.text.split("Table 4: ")[0], "every model at the top"


def test_the_scoreboard_of_one_task_has_exact_match_too(metrics: dict[str, Any]) -> None:
    [sheet] = printed.results("cradle", metrics).sheets("models_of_one_task")
    assert sheet.columns == ("Model", "", "Exact match", "Macro-F1", "Micro-F1", "Weighted F1")
    rows = {row[0]: row[1:] for row in sheet.rows}
    # twelve of 36 have no crisis; of 36 answers of the tuned model six are wrong
    assert rows["tiny-causal-zero"][:2][0] == "local"
    assert rows["tiny-causal-zero"][1].startswith("33.3 [")
    assert rows["tiny-causal-consensus"][1].startswith("83.3 [")
    assert rows["Most frequent set"][:2] == ("baseline", "33.3")


def test_active_and_passive_ongoing_and_past_are_counted(text: str) -> None:
    level = rows_of(text, "**Active and passive confused")["tiny-causal-consensus"]
    assert [cell.split(" [")[0] for cell in level] == ["0/6 (0.0%)", "2/6 (33.3%)", "0/6 (0.0%)", "1/6 (16.7%)"]
    assert "[" not in level[0]
    assert "[" in level[1]
    time = rows_of(text, "**Ongoing and past confused")["tiny-causal-consensus"]
    # gold has ongoing 6 self-harm, 6 active and 6 passive; past 6 self-harm, 6 rape and 6 child abuse
    assert [cell.split(" [")[0] for cell in time][:2] == ["1/18 (5.6%)", "0/18 (0.0%)"]
    best = rows_of(text, "**Level by type, cradle")
    assert best["suicide ideation, ongoing: passive"] == ["0", "6", "0", "0"]
    assert best["all types: active"][0] == "6"


def test_child_abuse_that_gold_lacks_is_counted_with_what_gold_has(text: str) -> None:
    row = rows_of(text, "**Over-extension of child abuse**")["tiny-causal-consensus"]
    assert row[0].startswith("2/30 (6.7%) [")
    assert row[1].startswith("2/8 (25.0%) [")
    assert row[2] == "no_crisis 2/12"
    types = rows_of(text, "**Predicted without it in gold, by type**")
    assert types["child abuse"][2].startswith("2/30 (6.7%)")


def test_what_is_missed_is_weighed_by_severity(text: str, metrics: dict[str, Any]) -> None:
    found = rows_of(text, "**Labels found, by severity**")["tiny-causal-consensus"][1:]
    # of severity 3: 6 active; 2: 6 self-harm (one lost) and 6 passive (two lost); 1: 18 of the past
    assert [cell.split(" [")[0] for cell in found[1:]] == ["6/6 (100.0%)", "9/12 (75.0%)", "18/18 (100.0%)"]
    weighted = (3 * 6 + 2 * 9 + 18) / (3 * 6 + 2 * 12 + 18)
    assert found[0].startswith(f"{100 * weighted:.1f} [")
    missed = rows_of(text, "**Crises missed, and false alarms**")
    assert [cell.split(" [")[0] for cell in missed["tiny-causal-consensus"]] == [
        "0/24 (0.0%)", "1/24 (4.2%)", "2/12 (16.7%)",
    ]  # fmt: skip
    assert missed["tiny-causal-zero"][0] == "24/24 (100.0%)"


def test_refusals_are_reported_by_label_beside_the_papers(text: str, metrics: dict[str, Any]) -> None:
    made = printed.sheet("cradle", "table_12_labels", metrics)
    theirs, ours = (dict(zip(made.columns[2:], row[2:], strict=True)) for row in made.rows)
    assert (theirs["rape_past"], ours["rape_past"]) == ("7/62 (11.3%)", "6/6 (100.0%)")
    assert ours["no_crisis"].startswith("1/12 (8.3%) [")
    assert (theirs[ACTIVE], ours[ACTIVE]) == ("0/54 (0.0%)", "0/6 (0.0%)")
    assert ours["rape_ongoing"] == "–"
    assert "| 29/36 |" in text and "| 1 malformed, 6 refused |" in text


def test_cost_latency_dev_and_floors_are_told(text: str) -> None:
    rows = rows_of(text, "**Cost of prediction**")
    assert rows["tiny-causal-consensus"] == ["60", "0.5000", "100", "10", "0.6000", "10.0000"]
    assert rows["tiny-causal-zero"][1] == "–"
    assert "gpt" not in rows
    assert rows_of(text, "**On dev")["tiny-causal-zero"][:2] == ["36", "33.3"]
    assert rows_of(text, "**On dev")["cradle"][1] == "100.0"


def test_tuning_is_set_against_its_base(text: str) -> None:
    row = rows_of(text, "**Table 8")["tiny-causal-consensus"]
    assert row[:2] == ["ours", "83.33 (+50.00)"]
    assert re.fullmatch(r"[01]\.\d{3} \([01]\.\d{3}\)", row[-1])


def test_calibration_is_drawn_where_there_are_probabilities(text: str, metrics: dict[str, Any]) -> None:
    rows = rows_of(text, "**Calibration, mean over the labels**")
    assert list(rows) == ["tiny-causal-consensus"]
    found = metrics["tasks"]["labels"]["models"]["tiny-causal-consensus"]["calibration"]
    low, high = found["intervals"]["ece"]
    assert rows["tiny-causal-consensus"][:2] == ["36", f"{found['ece']:.4f} [{low:.4f}, {high:.4f}]"]
    assert rows_of(text, "**Brier score by label**").keys() == set(TASK.labels)
    seen = rows_of(text, "**Reliability of tiny-causal-consensus's probabilities")
    assert sum(int(row[-1]) for row in seen.values()) == 36 * 15


def test_a_floor_is_reported_with_its_alert_and_without(params: Params, tmp_path: Path) -> None:
    scheme = yaml.safe_load(path_of("cradle").read_text())
    scheme["name"] = "floors"
    scheme["categories"]["labels"]["recall_floors"] = {PASSIVE: 0.9, "rape_ongoing": 0.5}
    (tmp_path / OWN).mkdir()
    (tmp_path / OWN / "floors.yaml").write_text(yaml.safe_dump(scheme))
    posts = params.corpora["posts"].model_copy(update={"scheme": "floors"})
    metrics = made(tmp_path, params.model_copy(update={"corpora": {**params.corpora, "posts": posts}}))
    [sheet] = printed.results("cradle", metrics).sheets("floors")
    rows = {row[0]: row[1:] for row in sheet.rows}
    tuned = rows[f"tiny-causal-consensus: {PASSIVE}"]
    # four of six are right as labels; the alert is from dev's probabilities
    assert tuned[0] == "90"
    assert tuned[1].startswith("4/6 (66.7%)")
    assert tuned[2] == "6"
    assert tuned[4] == f"{100 * 0.05 ** (1 / 6):.1f}, without guarantee of the floor"
    assert tuned[6].split(" (")[0].endswith("/36"), "recall is reported with the rate of alerts"
    assert tuned[-1] == "not below the guarantee", "six positives of test are enough for what six of dev guarantee"
    assert rows[f"cradle: {PASSIVE}"][2:] == ("–",) * 7
    assert rows["cradle: rape_ongoing"][1] == "–"  # no record has it


def test_the_heat_has_every_model_beside_the_papers_ensemble(metrics: dict[str, Any]) -> None:
    heat = report_parts.heat(printed.results("cradle", metrics).tasks["labels"], paper={"paper": {"no_crisis": 0.914}})
    assert heat is not None
    assert heat.columns[:2] == ("Label", "Gold")
    assert set(heat.columns[2:]) == {"cradle", "gpt", "tiny-causal-consensus", "tiny-causal-zero", "paper"}
    rows = {row[0]: dict(zip(heat.columns, row, strict=True)) for row in heat.rows}
    assert rows["no_crisis"]["paper"] == "91"
    assert rows["no_crisis"]["cradle"] == "100"
    assert rows["rape_ongoing"]["cradle"] == "–"  # no record has it: not 0
    for row, values in zip(heat.rows, heat.values, strict=True):
        assert [cell != "–" for cell in row[2:]] == [value is not None for value in values[1:]]


def test_without_any_model_there_is_still_a_page(params: Params, tmp_path: Path) -> None:
    write_gold(tmp_path, GOLD)
    empty = evaluate.run(context_of("posts", params=params, root=tmp_path), sampling=FEW)
    page = report.build(empty, corpus="posts", synthetic=False)
    assert Reader(report_page.html(page)).open == []
    keys = {s.key for s in page.sections}
    assert {"results", "discrepancies", "set-up", "reading"} <= keys
    assert not {"pairs", "mixed-up", "cost", "calibration", "dev"} & keys
    assert "is not a replication" in report_page.markdown(page)


def test_a_model_that_answers_nothing_is_listed(params: Params, tmp_path: Path) -> None:
    write_gold(tmp_path, GOLD)
    lost = {r: "failed" for sets in GOLD.values() for r in sets}
    write_run(tmp_path, "untuned/gpt", GOLD, lost=lost)
    mute = evaluate.run(context_of("posts", params=params, root=tmp_path), sampling=FEW)
    page = report.build(mute, corpus="posts", synthetic=False)
    assert Reader(report_page.html(page)).open == []
    found = report_page.markdown(page)
    assert "36 failed" in found
    made = printed.sheet("cradle", "table_12_labels", mute)
    assert dict(zip(made.columns, made.rows[-1], strict=True))[ACTIVE] == "6/6 (100.0%)"


def test_another_scheme_needs_no_paper(params: Params, tmp_path: Path) -> None:
    rng = random.Random(2)
    labels = task_of(load("cssrs"), "severity").labels
    people = {f"user{i:02d}": frozenset({rng.choice(labels)}) for i in range(60)}
    write_gold(tmp_path, {"test": people}, category="severity")
    said = {r: label if rng.random() < 0.7 else frozenset({labels[0]}) for r, label in people.items()}
    write_run(tmp_path, "untuned/mine", {"test": said}, task="severity")
    values = params.model_dump()
    values["corpora"]["posts"]["scheme"] = "cssrs"
    metrics = evaluate.run(context_of("posts", params=Params.model_validate(values), root=tmp_path), sampling=FEW)
    page = report.build(metrics, corpus="posts", synthetic=False)
    html, found = report_page.html(page), report_page.markdown(page)
    assert Reader(html).open == []
    assert not re.search(r"\| paper|the paper|Table \d|GPT-5|Gemini", found)
    assert {"results", "labels", "set-up", "reading"} <= {s.key for s in page.sections}
    assert "over-extension" not in {s.key for s in page.sections}
    assert "user0" not in html
    [sheet] = printed.Results(printed.arranged(metrics, scheme=load("cssrs")), load("cssrs")).sheets(
        "models_of_one_task"
    )
    assert sheet.columns[2:] == ("Exact match", "Macro-F1", "Weighted F1")


THIRD = """
name: Third
scheme: cssrs
sections: {results: Table 1}
names: {mine: A model of theirs, theirs: Another}
tables:
  table_1:
    like: scores
    title: "Table 1: models"
    each: {task: [severity], figure: [macro_f1, exact]}
    rows: {mine: [50.0, [40.0, 1.5]], theirs: [60.0, null]}
  table_2:
    like: counts
    title: "Table 2: people by label"
    each: {category: [severity], split: [test]}
    rows: {Attempt: [45]}
"""


def test_a_third_paper_is_one_file(params: Params, tmp_path: Path) -> None:
    people = {f"user{i:02d}": frozenset({"Attempt" if i % 2 else "Ideation"}) for i in range(20)}
    write_gold(tmp_path, {"test": people}, category="severity")
    write_run(tmp_path, "untuned/mine", {"test": people}, task="severity")
    values = params.model_dump()
    values["corpora"]["posts"]["scheme"] = "cssrs"
    metrics = evaluate.run(context_of("posts", params=Params.model_validate(values), root=tmp_path), sampling=FEW)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "third.yaml").write_text(THIRD)
    found = report_page.markdown(report.build(metrics, corpus="posts", synthetic=False, root=tmp_path))
    assert "## Results of all models (Table 1)" in found
    assert rows_of(found, "**Table 1: models**")["A model of theirs"][:3] == ["paper", "50.0", "40.0±1.5"]
    assert "| A model of theirs | ours: mine | 40.0 [40.0, 40.0] | 100.0 [100.0, 100.0] | 20/20 |" in found
    assert "| Another | paper | 60.0 | – | – |" in found and "ours: theirs" not in found
    assert rows_of(found, "**Table 2: people by label**")["Attempt"] == ["paper", "45"]
    assert "| Attempt | ours | 10 |" in found
    for right, wrong, told in (
        ("title:", "titel:", r"tables.table_1.titel"),
        ("[60.0, null]", "[60.0, 1, 2]", r"theirs have more cells than the 2 columns"),
    ):
        (tmp_path / "papers" / "third.yaml").write_text(THIRD.replace(right, wrong))
        with refused("BadPaper", match=told):
            report.build(metrics, corpus="posts", synthetic=False, root=tmp_path)


def test_reliability_draws_every_bin_at_its_place() -> None:
    drawn = charts.reliability([(0.25, 0.5, 100), (1, 0, 1)], title="t")
    paths = re.findall(r'<path d="([^"]*)" style="fill: var\(--blue\); fill-opacity', drawn)
    dots = [[float(x) for x in re.findall(r"M ([\d.]+) ([\d.]+)", path)[0]] for path in paths]
    # a path begins at the lowest point of its circle, whose area is in proportion to the answers or the least
    assert dots == [pytest.approx([56 + 75, 12 + 150 + 14], abs=0.1), pytest.approx([56 + 300, 12 + 300 + 3], abs=0.1)]
    assert "fill-opacity" not in charts.reliability([], title="t")
