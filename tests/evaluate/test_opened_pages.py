"""Pages as people open them: in Chromium on a desk and a phone, light and dark, on paper, and through LaTeX.

It needs Debian's packages chromium, texlive-latex-recommended and npm (axe-core, of Deque Systems, from its registry).
"""

import base64
import json
import runpy
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.core.config.params import load
from pipelines.core.taxonomy import load as scheme_of
from pipelines.evaluate.analysis import analysis, features
from pipelines.evaluate.analysis.analysis import AnalysedItems
from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report import published, report
from pipelines.evaluate.report.page import Page
from pipelines.evaluate.report.published import ReportedCommit
from tests.evaluate import test_analysis_report, test_cradle_report, test_report
from tests.moderation import test_figures as moderation
from tests.small_corpus import ROOT

pytestmark = pytest.mark.faults

AXE = "axe-core@4.14.1"
SOURCE = {"subreddits": "r/SuicideMeme", "first_month": "2018-04", "last_month": "2022-12"}
WIDTHS = (1440, 390)
LOADED = 0.5  # seconds after which a page that loads nothing is drawn
# What one sees of a page that is too wide, and of words of plots that leave them or cover one another.
SEEN = """(() => {
  const box = element => element.getBoundingClientRect();
  const found = [...document.querySelectorAll('body *')]
    .filter(e => !e.closest('.wide') && !e.closest('svg') && box(e).right > innerWidth + 1)
    .map(e => 'too wide: ' + e.outerHTML.slice(0, 80));
  for (const svg of document.querySelectorAll('svg')) {
    const words = [...svg.querySelectorAll('text')], edge = box(svg), name = svg.getAttribute('aria-label');
    words.forEach((word, i) => {
      const a = box(word);
      if (a.right > edge.right + 1 || a.left < edge.left - 1 || a.bottom > edge.bottom + 1 || a.top < edge.top - 1)
        found.push(name + ': outside: ' + word.textContent);
      for (const other of words.slice(i + 1)) {
        const b = box(other), wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        if (wide > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
          found.push(name + ': ' + word.textContent + ' covers ' + other.textContent);
      }
    });
  }
  return found;
})()"""
CHECKED = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
  .filter(one => ['serious', 'critical'].includes(one.impact))
  .map(one => one.id + ': ' + one.nodes[0].html.slice(0, 120)))"""


def memes() -> Page:
    params = load(ROOT)
    models = {"google-bert_bert-base-uncased": (0.5, 2), "vit": (0.3, 1), "siglip": (0.7, 1)}
    return report.build(
        test_report.made(params, models=models, refused=2),
        corpus="memes",
        synthetic=False,
        analysis=test_analysis_report.described(),
        agreement=test_analysis_report.AGREEMENT,
        moderation=audited(),
        source=SOURCE,
    )


def audited() -> dict[str, Any]:
    """Return an audit with the paper's counts, scores of one system and small cells."""
    found: dict[str, Any] = json.loads(json.dumps(moderation.metrics()))
    few = {("None", True): 20, ("None", False): 3, ("Suicide ideation", True): 20, ("Suicide ideation", False): 20}
    found["systems"]["azure"] |= {"scale": "0 to 7", "scores": moderation.told(few)["scores"], "flag_from": 2}
    return {**found, "least": moderation.LEAST}


def posts(folder: Path) -> Page:
    params = load(ROOT, profile="sandbox")
    scheme, rng = scheme_of("cradle"), np.random.default_rng(7)
    names = [label.name for label in scheme.category().labels]
    items = [(f"r{i:03}", 0) for i in range(200)]
    texts = [f"today was {'rather ' * int(rng.integers(0, 90))}long, my plan is set" for _ in items]
    months = [f"{2018 + i // 48}-{1 + i % 12:02}" for i in range(200)]
    described = analysis.describe(
        AnalysedItems(tuple(items), tuple(f"u{i}" for i in range(200)), tuple(months), tuple(texts), None),
        gold={"labels": {item: frozenset(rng.choice(names, 1 + i % 2)) for i, item in enumerate(items)}},
        scheme=scheme,
        params=params,
        lexicons=features.open_all({}),
    )
    return report.build(
        test_cradle_report.made(folder, params),
        corpus="posts",
        synthetic=True,
        analysis={**described, "content": "texts", "taken_down": 0},
        source=SOURCE,
    )


def comparison() -> Page:
    params = load(ROOT)
    test = {"severity": {("r000", 0): frozenset({"None"})}}
    given: dict[str, Any] = {"date": "2026-11-25", "title": "Two", "synthetic": True, "test": test}
    given["scheme"] = scheme_of("figsim")
    a = ReportedCommit(
        commit="a" * 40,
        metrics=test_report.made(params, models={"bert": (0.3, 2), "vit": (0.3, 1)}),
        params=params.model_dump(mode="json"),
        **given,
    )
    changed = json.loads(json.dumps(a.params))
    changed["train"]["checkpoint_steps"] += 1
    metrics = test_report.made(params, models={"bert": (0.9, 2), "siglip": (0.6, 1)}, refused=2)
    other = {"severity": {("r001", 0): frozenset({"None"})}}
    return published.compared(
        a, replace(a, commit="b" * 40, metrics=metrics, params=changed, test=other), corpus="memes"
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    return {"memes": memes(), "posts": posts(tmp_path_factory.mktemp("posts")), "comparison": comparison()}


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "install", "--silent", "--ignore-scripts", "--prefix", str(folder), AXE], check=True)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not shutil.which("chromium"):
        pytest.skip("Chromium is not installed")
    started = runpy.run_path(str(ROOT / "docs" / "screenshots.py"))["browser"]
    with started(tmp_path_factory.mktemp("chromium")) as browser:
        browser.send("Page.enable")
        yield browser


def value_of(chromium: Any, expression: str) -> Any:
    given = {"returnByValue": True, "awaitPromise": True}
    return chromium.send("Runtime.evaluate", expression=expression, **given)["result"].get("value")


@pytest.mark.parametrize("name", ["memes", "posts", "comparison"])
def test_a_page_is_whole_and_accessible_at_every_width_and_theme(
    name: str, pages: dict[str, Page], chromium: Any, axe: str, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(report_page.html(pages[name]))
    for width in WIDTHS:
        for theme in ("light", "dark"):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            chromium.send("Emulation.setDeviceMetricsOverride", **size)
            chromium.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            chromium.send("Page.navigate", url=path.as_uri())
            time.sleep(LOADED)
            value_of(chromium, "document.querySelectorAll('details').forEach(each => each.open = true)")
            where = f"{name}, {width} pixels, {theme}"
            assert value_of(chromium, "document.documentElement.scrollWidth") == width, where
            assert value_of(chromium, SEEN) == [], where
            value_of(chromium, axe)
            assert value_of(chromium, CHECKED) == [], where


@pytest.mark.parametrize("name", ["memes", "posts", "comparison"])
def test_a_printed_page_cuts_no_table_off(name: str, pages: dict[str, Page], chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(report_page.html(pages[name]))
    chromium.send("Emulation.setEmulatedMedia", media="print", features=[])
    # A4 without its margins, upright and on its side, in CSS pixels
    for width, chosen in ((718, ":not(.broad)"), (1046, ".broad")):
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        chromium.send("Emulation.setDeviceMetricsOverride", **size)
        chromium.send("Page.navigate", url=path.as_uri())
        time.sleep(LOADED)
        tables = f"[...document.querySelectorAll('.wide{chosen}')]"
        cut = f"{tables}.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.getAttribute('aria-label'))"
        assert value_of(chromium, cut) == []
    chromium.send("Emulation.setEmulatedMedia", media="", features=[])
    printed = chromium.send("Page.printToPDF", preferCSSPageSize=True)["data"]
    assert base64.b64decode(printed).startswith(b"%PDF")


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="LaTeX is not installed")
@pytest.mark.parametrize("name", ["memes", "posts", "comparison"])
def test_latex_compiles_every_page_and_table(name: str, pages: dict[str, Page], tmp_path: Path) -> None:
    (tmp_path / "report.tex").write_text(report_page.latex(pages[name]))
    names = report_page.write_tables(pages[name], tmp_path / "tables")
    assert len(names) >= 10
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{array,booktabs}\begin{document}"
    inputs = "".join(rf"\input{{tables/{each}.tex}}\clearpage" for each in names)
    (tmp_path / "all.tex").write_text(head + inputs + r"\end{document}")
    for document in ("report", "all"):
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{document}.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode()[-2000:]
