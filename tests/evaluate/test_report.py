"""The report: it says what the metrics say, needs nothing but itself, and its discrepancies hold when counted again."""

import json
import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from scipy.stats import fisher_exact

from pipelines.core import rows
from pipelines.core.config import params as params_module
from pipelines.core.config.params import Params
from pipelines.core.taxonomy import load
from pipelines.core.taxonomy.task import task_of, tasks_of
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report import recomputed, report, sections
from pipelines.evaluate.report.page import Page, PageSection, Points
from pipelines.evaluate.report.results import Results, arranged
from pipelines.metrics.label_tables import Sheet
from tests.contexts import context_of
from tests.evaluate import printed
from tests.evaluate.figsim_runs import add_row, write_gold, write_run
from tests.evaluate.printed import paper
from tests.refusals import refused

ROOT = Path(__file__).parents[2]
SCHEME = load("figsim")
LABELS: dict[str, list[frozenset[str]]] = {
    "figurative": [frozenset(), frozenset({"Metaphor"}), frozenset({"Irony/sarcasm", "Pun/Double meaning"})],
    "severity": [
        frozenset({name})
        for name in ("None", "Wish to be dead", "Suicide ideation", "Suicide planning", "Suicide death")
    ],
    "related": [frozenset(), frozenset({"Harmful factors"}), frozenset({"Protective factors"})],
    "modality": [frozenset({name}) for name in ("complementary", "text", "image")],
    "context": [frozenset({name}) for name in ("context-required", "no-context-required")],
}


@pytest.fixture(scope="module")
def settings() -> Params:
    return params_module.load(ROOT)


def made(settings: Params, *, models: Mapping[str, tuple[float, int]], refused: int = 0) -> dict[str, Any]:
    """Return real metrics of 60 invented memes: each model (share of right answers, runs) answers after gold."""
    rng = random.Random(3)
    items = [(f"r{i:03}", 0) for i in range(100)]
    split = {item: "test" if i < 60 else "validation" if i < 75 else "train" for i, item in enumerate(items)}
    labels = {key: {item: rng.choice(values) for item in items} for key, values in LABELS.items()}
    lost = dict.fromkeys(items[:refused], "refused")
    with TemporaryDirectory() as folder:
        write_gold(Path(folder), split, labels)
        for key in tasks_of(load("figsim")):
            for model, (share, runs) in models.items():
                for seed in range(runs):
                    said = {i: labels[key][i] if rng.random() < share else rng.choice(LABELS[key]) for i in items[:60]}
                    answers = {item: task_of(SCHEME, key).seen(given) for item, given in said.items()}
                    write_run(Path(folder), key, model, seed, answers, outcomes=lost)
        evaluate.run(context_of("memes", params=settings, root=Path(folder)), sampling=Sampling(resamples=200))
        return json.loads((Path(folder) / "metrics" / "memes" / "evaluate.json").read_text())


@pytest.fixture(scope="module")
def metrics(settings: Params) -> dict[str, Any]:
    return made(settings, models={"bert": (0.8, 2), "vit": (0.4, 2), "clip": (0.6, 1)}, refused=4)


@pytest.fixture(scope="module")
def text(metrics: dict[str, Any]) -> str:
    return report_page.markdown(report.build(metrics, corpus="memes", synthetic=False))


def write(metrics: Mapping[str, Any], root: Path) -> None:
    """Write metrics of memes to a clone that has the papers."""
    shutil.copytree(ROOT / "papers", root / "papers", dirs_exist_ok=True)
    path = root / "metrics" / "memes" / "evaluate.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(metrics))
    (root / rows.FILE).write_text((ROOT / rows.FILE).read_text())


class Reader(HTMLParser):
    """Reads a page as a browser does: what is open, what it points at, what it says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        if tag not in ("meta", "wbr"):
            self.open.append(tag)
        self.ids.add(found.get("id") or "")
        links = [found[name] or "" for name in ("href", "src", "action", "data") if name in found]
        # a shape of a chart that is used twice
        self.links += links if tag != "use" or not links[0].startswith("#") else []
        assert not any(name.startswith("on") for name in found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def rows_of(text: str, start: str) -> dict[str, list[str]]:
    """Return the rows of Markdown's first table after some words, or of the rest of a table: first cell -> others."""
    after = text[text.index(start) :]
    lines = after[after.index("\n|") :].strip().split("\n\n")[0].splitlines()
    lines = lines[0 if start.startswith("|") else 2 :]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    found: dict[str, list[str]] = {}
    for row in cells:
        found.setdefault(row[0], row[1:])
    return found


def test_a_row_says_whose_prompt_it_used_and_if_it_knows_of_test_errors(settings: Params, tmp_path: Path) -> None:
    names = ("gemini-3-pro-few", "gpt-5-mini-few", "gpt-5-mini-zero")
    write(made(settings, models=dict.fromkeys(names, (0.6, 1))), tmp_path)
    ours = {"digest": "a" * 64, "own": None, "learnt": []}
    told = dict(zip(names, (ours | {"own": "b" * 64}, ours, ours | {"learnt": ["FigSIM Table 12"]}), strict=True))
    for name, origin in told.items():
        for task, one in (("severity", origin), ("related", ours)):
            add_row(tmp_path, "memes", task, name, subset=None, seed=None)
            path = tmp_path / "metrics" / "memes" / f"predict-{task}-{name}.json"
            path.write_text(json.dumps({"prompt": one}))
    report.run(context_of("memes", params=settings, root=tmp_path))
    text = (tmp_path / "snapshot" / "memes" / "report" / "report.md").read_text()
    marks = [line.split(" | ")[1] for line in text.splitlines() if " | ours: " in line]
    assert [mark.removeprefix("ours: ") for mark in marks[:3]] == [
        "gpt-5-mini-zero; prompted; prompt has rules learnt from the paper's test errors",
        "gpt-5-mini-few; prompted",
        "gemini-3-pro-few; prompted; prompt of the team's own folder",
    ]
    lines = [line for line in text.splitlines() if line.startswith(("| gemini-3-pro-few | ", "| gpt-5-mini-zero | "))]
    assert any("| the team's | aaaaaaaaaaaa | bbbbbbbbbbbb | none |" in line for line in lines)
    assert any("| ours | aaaaaaaaaaaa | – | FigSIM Table 12 |" in line for line in lines)


def test_a_run_writes_both_files_and_prints_the_result(
    metrics: dict[str, Any], settings: Params, tmp_path: Path
) -> None:
    write(metrics, tmp_path)
    answer = report.run(context_of("memes", params=settings, root=tmp_path))
    folder = tmp_path / "snapshot" / "memes" / "report"
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.md", "tables"]
    assert [len(list(folder.glob(f"tables/*.{end}"))) for end in ("csv", "tex")] == [answer["tables"]] * 2
    severity = answer["best"]["severity"]
    assert severity["model"] == "bert"
    assert severity["macro_f1"] > severity["baselines"]["majority"]
    assert answer["models"] == {"figurative": 3, "severity": 3, "related": 3}
    assert (folder / "report.md").read_text().startswith("# The FigSIM benchmark\n")
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert report.run(context_of("memes", params=settings, root=tmp_path)) == answer
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_file_that_is_linked_to_the_cache_is_replaced(
    settings: Params, metrics: dict[str, Any], tmp_path: Path
) -> None:
    write(metrics, tmp_path)
    folder = tmp_path / "snapshot" / "memes" / "report"
    folder.mkdir(parents=True)
    (tmp_path / "object").write_text("an earlier report")
    (folder / "report.md").hardlink_to(tmp_path / "object")
    report.run(context_of("memes", params=settings, root=tmp_path))
    assert (tmp_path / "object").read_text() == "an earlier report"


def test_without_metrics_it_says_which_stage_is_missing(settings: Params, tmp_path: Path) -> None:
    with refused("NotEvaluated", match="evaluate@memes"):
        report.run(context_of("memes", params=settings, root=tmp_path))
    assert not (tmp_path / "snapshot").exists()


def test_the_page_is_whole_and_needs_nothing_else(metrics: dict[str, Any]) -> None:
    page = report.build(metrics, corpus="memes", synthetic=True)
    text = report_page.html(page)
    read = Reader(text)
    assert read.open == []
    assert not {"script", "iframe", "object", "form", "link", "img"} & set(read.tags)
    assert {link.removeprefix("#") for link in read.links} == {s.key for s in page.sections} <= read.ids
    assert not re.search(r"url\(|@import", text)
    assert [s.key for s in page.sections][-2:] == ["discrepancies", "reading"]
    assert read.tags.count("svg") == 3 + 3 + 3
    for words in ("Figure 4.", "Figure 7.", "Figure 8.", "Table 3", "Table 4", "Table 8", "Table 9", "Table 10"):
        assert words in read.text
    assert "Table 12" in read.text
    assert "synthetic" in read.text
    assert "Best by macro-F1" in read.text
    assert "r000" not in text


def test_figure_4_counts_what_the_metrics_count(metrics: dict[str, Any]) -> None:
    page = report.build(metrics, corpus="memes", synthetic=False)
    rows = rows_of(report_page.markdown(page), "Figure 4.")
    html = report_page.html(page)
    drawn = re.findall(
        r">([\d.]+) over<", html[html.index('aria-label="Figure 4') : html.index('aria-label="Figure 8')]
    )
    assert [float(n) for n in drawn] == [float(over.split("/")[0]) for _, over, _ in rows.values()]
    found = metrics["tasks"]["severity"]["models"]["bert"]["errors"]["by_label"]
    assert list(rows) == metrics["tasks"]["severity"]["labels"]
    for label, (_, over, under) in rows.items():
        for way, cell in (("over", over), ("under", under)):
            # two runs of which each counts half
            assert float(cell.split("/")[0]) == found[label][way]["count"] / 2
    assert rows["None"][2].startswith("0/")


def test_severity_is_also_scored_as_an_order(metrics: dict[str, Any], text: str) -> None:
    rows = rows_of(text, "**Suicide severity: As an order**")
    found = metrics["tasks"]["severity"]["models"]
    for name, (kappa, mae, _) in rows.items():
        figures = found[name]["valid"]["figures"]
        assert kappa.split()[0] == f"{figures['kappa']['mean']:.2f}"
        assert mae.split()[0] == f"{figures['mae']['mean']:.2f}"
    assert set(rows) == set(found)
    assert "Figurative phenomenon: As an order" not in text
    assert "synthetic" not in text, "real memes"


def test_the_best_model_is_a_of_every_pair_it_is_in(metrics: dict[str, Any], text: str) -> None:
    rows = rows_of(text, "Suicide severity: the best model against the others")
    assert set(rows) == {"bert against vit", "bert against clip"}
    pair = next(p for p in metrics["tasks"]["severity"]["pairs"] if (p["a"], p["b"]) == ("bert", "clip"))
    lead, _, alone, *_ = rows["bert against clip"]
    assert float(lead.split()[0]) == pytest.approx(100 * pair["macro_f1"]["value"], abs=0.051)
    assert alone == f"{pair['mcnemar']['a_only']} / {pair['mcnemar']['b_only']}"


def test_a_pair_that_is_turned_keeps_its_meaning(settings: Params) -> None:
    # the best is the second by name
    turned = made(settings, models={"alpha": (0.2, 1), "zeta": (0.9, 1)})
    text = report_page.markdown(report.build(turned, corpus="memes", synthetic=False))
    (row,) = rows_of(text, "Suicide severity: the best model against the others").items()
    pair = turned["tasks"]["severity"]["pairs"][0]
    assert row[0] == "zeta against alpha"
    value, low, high = (float(x) for x in re.findall(r"-?\d+\.\d", row[1][0]))
    assert low < value < high
    assert low > 0
    assert value == pytest.approx(-100 * pair["macro_f1"]["value"], abs=0.051)
    assert row[1][2] == f"{pair['mcnemar']['b_only']} / {pair['mcnemar']['a_only']}"


def test_refusals_are_counted_and_scored_both_ways(text: str) -> None:
    over_all = rows_of(text, "**Table 3: unanswered memes as wrong answers**")["BERT"]
    assert over_all[-1] == "8 refused"
    answered = next(line.split(" | ")[4] for line in text.splitlines() if " | ours: bert; " in line)
    assert float(answered.split("±")[0]) > float(over_all[2].split("±")[0])


def test_silver_of_several_categories_has_a_table_and_counts_for_each(metrics: dict[str, Any]) -> None:
    silver = {
        key: {
            "agreement_paper": {"train": {"unanimous": n, "none": 1}},
            "distributions": {"subset": {"labels": {"x": n}}},
        }
        for key, n in (("severity", 1), ("figurative", 3))
    }
    results = Results(arranged(metrics, scheme=SCHEME, silver={"categories": silver}), SCHEME)
    assert {sheet.title.partition(":")[0]: sheet.rows[0][1] for sheet in results.sheets("votes")} == {
        SCHEME.title_of("figurative"): "3/4 (75.0%)",
        SCHEME.title_of("severity"): "1/2 (50.0%)",
    }
    assert results.data["composition"]["subset"] == {"figurative": {"x": 3}, "severity": {"x": 1}}


def test_without_any_model_there_is_still_a_page(settings: Params) -> None:
    empty = made(settings, models={})
    page = report.build(empty, corpus="memes", synthetic=False)
    assert Reader(report_page.html(page)).open == []
    assert {"discrepancies", "set-up"} <= {s.key for s in page.sections}
    assert not {"pairs", "direction", "unanswered"} & {s.key for s in page.sections}


def test_a_model_that_answers_nothing_is_listed_and_never_best(settings: Params) -> None:
    mute = made(settings, models={"mute": (1.0, 1)}, refused=60)
    page = report.build(mute, corpus="memes", synthetic=False)
    assert Reader(report_page.html(page)).open == []
    assert "60 refused" in report_page.markdown(page)
    assert report.summary(mute)["best"]["severity"]["model"] is None


@pytest.mark.parametrize(
    ("rows", "html"),
    [
        ((("Group", "", ""), ("x", "1", "2")), '<tr class="g"><th scope="rowgroup" colspan="3">Group</th></tr>'),
        ((("x", "70.21 ± 0.82", "y"), ("z", "–", "3/7")), '<td class="n">70.21 ± 0.82</td><td>y</td>'),
    ],
)
def test_heading_rows_span_and_numbers_stand_to_the_right(rows: tuple[tuple[str, ...], ...], html: str) -> None:
    assert html in report_page.html(Page("t", (Sheet("t", ("a", "b", "c"), rows),), ()))


def test_heat_is_as_dark_as_its_value_and_undefined_has_none() -> None:
    cells, values = (("x", "7", "90", "–"), ("y", "8", "5", "100")), ((None, 0.9, None), (None, 0.05, 1.0))
    page = Page("t", (Sheet("t", ("a", "n", "b", "c"), cells, values=values),), ())
    text = report_page.html(page)
    assert '<td class="n">7</td><td class="n h" style="--h:90">90</td><td class="n">–</td>' in text
    assert '<td class="n h" style="--h:100">100</td>' in text
    assert Reader(text).open == []
    assert "| x | 7 | 90 | – |" in report_page.markdown(page)


def test_hostile_names_are_only_text() -> None:
    name = '<script>alert("x")</script> a|b [c](javascript:d) *e*\n# f'
    sheet = Sheet(name, (name, "n"), ((name, "1"),))
    page = Page(name, (name, Points((name,)), sheet), (PageSection("k", name, (replace(sheet, form="prose"),)),))
    read = Reader(report_page.html(page))
    assert "script" not in read.tags
    assert read.links == ["#k"]
    text = report_page.markdown(page)
    assert "\n# f" not in text
    assert r"[c]\(javascript" in text
    assert r"a\|b" in text
    assert not re.search(r"(?<!\\)<", text)


# ------------------------------------------------------------------ the paper's discrepancies, computed again


def said(where: str, *, claim: str, paper: str = "figsim") -> str:
    """Return what the table says was found; each claim is in it once."""
    (row,) = [r for r in printed.paper(paper).claims if r.where.startswith(where) and claim in r.claim]
    return " ".join(row.found.split())


# Table 2's flag rates for self-harm by severity; memes by severity (Table 8)
FLAGGED = {
    "Azure": (0.304, 0.271, 0.619, 0.560, 0.661, 0.633),
    "Llama": (0.304, 0.312, 0.386, 0.509, 0.428, 0.333),
    "OpenAI": (0.143, 0.243, 0.475, 0.497, 0.575, 0.500),
}
MEMES = (161, 189, 339, 163, 167, 30)


def trend(rates: tuple[float, ...]) -> float:
    """Return z of the Cochran-Armitage test, scores 0 to 5."""
    flagged = [round(rate * n) for rate, n in zip(rates, MEMES, strict=True)]
    total, share = sum(MEMES), sum(flagged) / sum(MEMES)
    statistic = sum(i * (x - n * share) for i, (x, n) in enumerate(zip(flagged, MEMES, strict=True)))
    spread = sum(i * i * n for i, n in enumerate(MEMES)) - sum(i * n for i, n in enumerate(MEMES)) ** 2 / total
    return statistic / sqrt(share * (1 - share) * spread)


def test_flag_rates_have_a_trend_and_do_not_rise_throughout() -> None:
    for rates in FLAGGED.values():
        assert list(rates) != sorted(rates)
    assert f"z = {trend(FLAGGED['OpenAI']):.1f} for OpenAI and {trend(FLAGGED['Llama']):.1f}" in said(
        "Section 4.4", claim="rises"
    )


def test_context_and_modality_are_no_harder_for_severity() -> None:
    p = fisher_exact([[5, 21], [50, 132]])[1]
    text = said("Section 5.3", claim="Context")
    assert f"p = {p:.2f}".replace("0.", ".") in text
    assert (f"({100 * 5 / 26:.0f} %)" in text, f"({100 * 50 / 182:.0f} %)" in text) == (True, True)
    # of 55 errors 4 are text-only and 3 image-only
    wrong = 55 - 4 - 3
    text = said("Section 5.3", claim="Text-only")
    assert f"{wrong} of 187" in text
    assert f"p = {fisher_exact([[4, 11], [wrong, 187 - wrong]])[1]:.1f}" in text
    assert f"({100 * wrong / 187:.0f} %)" in text


def test_table_12_is_over_the_wrong_and_shows_no_difference() -> None:
    table = {"irony": ((3, 7), (29, 48)), "metaphor": ((27, 49), (5, 6)), "pun": ((28, 49), (4, 6))}
    text, caption = said("Table 12, Appendix", claim="figurative"), said("Table 12, caption", claim="Rates")
    for name, ((low_a, n_a), (low_b, n_b)) in table.items():
        assert (low_a + low_b, n_a + n_b) == (32, 55)
        p = fisher_exact([[low_a, n_a - low_a], [low_b, n_b - low_b]])[1]
        printed = f"{p:.1f}" if p == 1 else f"{p:.2f}".replace("0.", ".")
        assert f"{printed} ({name})" in text
        assert f"{low_a} of {n_a} and {low_b} of {n_b}" in caption


def paper_rows() -> list[list[Any]]:
    """Return Table 3: key, name, then pairs of mean and ± of macro-F1 and weighted F1 for each task."""
    return [[key, paper("figsim").names[key], *cells] for key, cells in paper("figsim").tables["table_3"].rows.items()]


def test_commercial_models_are_not_ahead_by_weighted_f1_of_the_figurative_task() -> None:
    text = said("Section 5.2", claim="Commercial")
    weighted = {row[0]: row[3] and row[3][0] for row in paper_rows()}
    qwen = [weighted["qwen3-vl-zero"], weighted["qwen3-vl-few"]]
    below = ["claude-sonnet-4-5-few", "gemini-3-pro-zero", "gemini-3-pro-few"]
    assert max(weighted[name] for name in below) < min(qwen)
    for value in (*qwen, *(weighted[name] for name in below)):
        assert f"{value:.2f}" in text


def test_severity_is_below_content_in_six_of_twenty_rows() -> None:
    text = said("Section 5.2", claim="hardest")
    whole = [row for row in paper_rows() if None not in row]
    lower = [row[1] for row in whole if row[4] < row[6]]
    assert f"In {len(lower)} of the {len(whole)} rows" in text
    for name in lower:
        assert name.split()[0] in text


def test_a_standard_deviation_is_printed_twice_beside_none() -> None:
    text = said("Table 3", claim="Standard")
    pairs = [(row[1], *row[i : i + 2]) for row in paper_rows() for i in (2, 4, 6) if row[i]]
    twice = [(name, macro[1], weighted[1]) for name, macro, weighted in pairs if macro[1] == 6.79]
    assert [name for name, *_ in twice] == ["Llama-3.2 Vision zero-shot", "Qwen3-VL zero-shot"]
    for _, macro, weighted in twice:
        assert f"{macro:.2f}" in text
        assert f"± {weighted:.2f}" in text


def test_table_3_has_more_rows_than_configurations_are_said() -> None:
    assert f"has {len(paper_rows())} rows" in said("Section 1", claim="20 configurations")


def test_kappa_of_the_figurative_phenomenon_is_no_mean_of_what_is_printed() -> None:
    tables = paper("figsim").tables
    mean = recomputed.mean({label: {"kappa": row[0]} for label, row in tables["table_6"].rows.items()}, "kappa")
    text = said("Tables 1", claim=f"{tables['table_1'].rows['figurative'][0]:.2f}".replace("0.", "."))
    assert f"mean {mean:.3f}".replace("0.", ".") in text


def test_the_papers_numbers_stand_in_the_page(metrics: dict[str, Any]) -> None:
    text = report_page.html(report.build(metrics, corpus="memes", synthetic=False))
    for number in (
        "70.21±0.82",
        "80.685",
        "71.598",
        "58.513",
        "58.165",
        "3/7 (42.9%)",
        "29/48 (60.4%)",
        "16/26",
        "633",
    ):
        assert f">{number}<" in text


@pytest.mark.parametrize("name", ["figsim", "cradle"])
def test_every_discrepancy_names_its_place_claim_finding_and_source(name: str) -> None:
    assert len(paper(name).claims) == {"figsim": 15, "cradle": 14}[name]
    for row in paper(name).claims:
        assert row.where and row.claim and row.found
        assert row.source == "ours" or re.fullmatch(r"SPEC 1\.[1-6]", row.source)


def test_a_table_that_is_too_wide_for_an_upright_page_is_printed_on_its_side() -> None:
    def classes(letters: int, *, columns: int = 10) -> str:
        sheet = Sheet("t", tuple("c" * letters for _ in range(columns)), (("1",) * columns,))
        return re.findall('class="(wide[^"]*)"', report_page.html(Page("p", (sheet,), ())))[0]

    assert classes(8) == "wide"
    assert classes(12) == "wide broad"
    assert classes(30) == "wide broad huge"
    words = Sheet("t", ("several short words " * 20, "zero-shot-and-more " * 9), (("a", "b"),))
    assert 'class="wide"' in report_page.html(Page("p", (words,), ())), "lines break at spaces and hyphens"
    text = report_page.html(Page("p", (), ()))
    assert "@page broad{size:landscape}" in text and "section:has(>figure>.broad){page:broad}" in text


def test_all_content_is_in_the_main_landmark_and_an_empty_corner_is_no_header() -> None:
    text = report_page.html(Page("p", ("words", Sheet("t", ("", "n"), (("a", "1"),))), ()))
    body = text[text.index("<body>") :]
    assert body.startswith("<body><main><h1>p</h1>") and body.strip().endswith("</main></body></html>")
    assert "<tr><td></td><th" in text


def test_a_small_test_set_says_what_it_cannot_tell() -> None:
    task = {"title": "Support", "n": 40, "support": {"asks": 30, "offers": 10, "none": 0}, "models": {"bert": {}}}
    [said] = sections.limits(task, noun="posts")
    # 10 items: 50 % +- 26 (Wilson), and 6 of them are 60 points
    assert "40 posts" in said and "±15 points" in said and "below 15 points" in said
    assert "offers, has 10: ±26 points" in said and "below 60 points" in said
    assert not [*sections.limits(task | {"support": {"asks": 300}}, noun="posts")]
