"""A successor of a retired model is a row of its own in every table and drawing, and never the paper's row."""

import copy
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.params import Params, load
from pipelines.evaluate import evaluate
from pipelines.evaluate.model_scores import Sampling
from pipelines.evaluate.report import page as report_page
from pipelines.evaluate.report import report
from pipelines.models.kind import weights
from tests.contexts import context_of
from tests.evaluate.posts_runs import gold_of, write_gold, write_run
from tests.evaluate.printed import paper as paper_of
from tests.small_corpus import ROOT

OLDER, NEWER = "claude-sonnet-4-20250514", "claude-sonnet-4-6"
TWO = Sampling(resamples=20, seed=1)


def measured(root: Path, *, params: Params) -> dict[str, Any]:
    test = gold_of("test", n=12)
    write_gold(root, {"test": test})
    wrong = {record: frozenset({"no_crisis"}) for record in test}
    for key, said in {"claude": test, "gpt": wrong, "cradle": test}.items():
        write_run(root, f"untuned/{key}", {"test": said})
    return evaluate.run(context_of("posts", params=params, root=root), sampling=TWO)


def with_model(params: Params, model: str) -> Params:
    claude = params.labellers["claude"].model_copy(update={"model": model})
    return params.model_copy(update={"labellers": {**params.labellers, "claude": claude}})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    params = load(ROOT, profile="cradle")
    return {m: measured(tmp_path_factory.mktemp("posts"), params=with_model(params, m)) for m in (OLDER, NEWER)}


@pytest.fixture(scope="module")
def pages(both: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {m: report_page.markdown(report.build(both[m], corpus="posts", synthetic=False)) for m in both}


def rows_of(page: str, title: str) -> list[list[str]]:
    lines = page.split(f"**{title}")[1].split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_papers_own_model_prints_in_its_row(pages: dict[str, str]) -> None:
    page = pages[OLDER]
    for title in ("Table 4", "Table 13", "Table 16"):
        assert ["Claude-4-Sonnet", "ours: claude; votes"] in [row[:2] for row in rows_of(page, title)]
    assert NEWER not in page


def test_a_successor_prints_apart_with_its_weights(pages: dict[str, str]) -> None:
    page = pages[NEWER]
    for title in ("Table 4", "Table 13", "Table 16"):
        rows = [row[:2] for row in rows_of(page, title)]
        assert ["Claude-4-Sonnet", "ours: claude; votes"] not in rows and ["Claude-4-Sonnet", "paper"] in rows
        assert f"claude ({NEWER})" in [row[0] for row in rows]
        assert ["GPT-5", "ours: gpt; votes"] in rows
    # the ensemble has another member, so it is another ensemble
    assert "ours: cradle" not in page and f"cradle (gpt-5 + {NEWER} + gemini-2.5-pro)" in page


def test_only_names_differ(both: dict[str, dict[str, Any]]) -> None:
    expected = copy.deepcopy(both[OLDER])
    models = expected["tasks"]["labels"]["models"]
    models["claude"]["base"], models["cradle"]["base"] = NEWER, f"gpt-5 + {NEWER} + gemini-2.5-pro"
    assert both[NEWER] == expected


@pytest.mark.parametrize("paper", ["figsim", "cradle"])
def test_every_entry_of_params_is_its_rows_model(paper: str) -> None:
    params = load(ROOT, profile=paper)
    for key in paper_of(paper).weights:
        assert paper_of(paper).stands_for(key, base=weights(params, key)), key
        assert not paper_of(paper).stands_for(key, base="another/model")
        assert all(paper_of(paper).stands_for(key, base=base) for base in ("tiny:bert + tiny:resnet", None))
