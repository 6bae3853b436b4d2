"""The report of a commit, and the comparison of two: read from the corpus repository, written to the user's folder."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.core.config.params import load, texts_below
from pipelines.core.config.settings import Settings
from pipelines.core.taxonomy import load as load_scheme
from pipelines.evaluate.report import published, report
from pipelines.evaluate.report.results import arranged
from pipelines.store.vault.vault import Vault
from pipelines.workspace.clone import workspace
from pipelines.workspace.git import git
from pipelines.workspace.stages import _keep
from tests.contexts import context_of
from tests.evaluate.test_report import LABELS, Reader, made, rows_of
from tests.refusals import refused
from tests.small_corpus import ROOT, SHELL, begin, code_of, gold_rows, write_examples, write_table

CODE = SHELL | {
    **{name: (ROOT / name).read_text() for name in ("dvc.yaml", "rows.yaml")},
    **texts_below(ROOT),
    "pipelines/libraries.yaml": (ROOT / "pipelines" / "libraries.yaml").read_text(),
    "snapshot/.gitignore": "*\n!.gitignore\n",
    **{f"papers/{path.name}": path.read_text() for path in (ROOT / "papers").glob("*.yaml")},
}
TEST = {(f"r{i:03}", 0): "test" for i in range(60)}
GOLD = {item: {key: values[i % len(values)] for key, values in LABELS.items()} for i, item in enumerate(TEST)}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A corpus repository with three commits: no metrics, weak models, and better ones with one test meme less."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS_HOME", str(folder / "var"))
        settings = Settings.from_env()
        settings.home.mkdir()
        code = code_of(folder / "code", CODE)
        shutil.copytree(ROOT / ".dvc" / "plots", code / ".dvc" / "plots")
        git("add", "--all", cwd=code)
        git("commit", "--quiet", "-m", "the form of plots", cwd=code)
        begin(settings, code=code)
        params = load(ROOT)
        with workspace(settings) as clone:
            commits = {"empty": clone.head}
        weak = made(params, models={"bert": (0.3, 2), "vit": (0.3, 1)})
        commits["weak"] = commit(settings, weak, gold=GOLD)
        other = {item: labels for item, labels in GOLD.items() if item != ("r000", 0)}
        other[("r001", 0)] = {**other[("r001", 0)], "severity": frozenset({"Suicide death"})}
        strong = made(params, models={"bert": (0.9, 2), "siglip": (0.6, 1)}, refused=2)
        commits["strong"] = commit(settings, strong, gold=other)
    return folder / "var", commits


def commit(
    settings: Settings, metrics: dict[str, Any], *, gold: Mapping[tuple[str, int], Mapping[str, frozenset[str]]]
) -> str:
    """Commit metrics of memes, what DVC shows of them, and the tables of the split, as the stages do."""
    Vault.create(settings).close()
    with workspace(settings) as clone:
        path = clone.path / "metrics" / "memes" / "evaluate.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(metrics))
        report.write_dvc_data(arranged(metrics, scheme=load_scheme("figsim")), corpus="memes", root=clone.path)
        folder = clone.path / "snapshot" / "memes"
        rows = [{"record_id": r, "image": i, "group": r, "split": "test"} for r, i in gold]
        write_table(folder / "split" / "splits.parquet", rows, name="splits")
        write_table(folder / "gold" / "gold.parquet", gold_rows(gold), name="gold")
        write_examples(folder, ["r059"])
        outs = {name: _keep(clone, f"snapshot/memes/{name}", stage=name) for name in ("split", "gold", "few_shot")}
        files = [file for name in outs for file in (folder / name).rglob("*.parquet")]
        clone.objects.push([*(out["md5"] for out in outs.values()), *(clone.objects.put(file) for file in files)])
        clone.write_lock({f"{name}@memes": {"cmd": "x", "outs": [out]} for name, out in outs.items()})
        made = clone.commit("memes")
    assert made
    return made


@pytest.fixture
def settings(home: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CORPUS_HOME", str(home[0]))
    return Settings.from_env()


@pytest.fixture
def commits(home: tuple[Path, dict[str, str]]) -> dict[str, str]:
    return home[1]


def test_the_newest_commit_is_reported_with_its_tables(
    settings: Settings, commits: dict[str, str], tmp_path: Path
) -> None:
    told = published.write("memes", settings=settings, to=tmp_path / "out")
    assert told["commit"] == commits["strong"]
    text = Path(told["file"]).read_text()
    assert "siglip" in text and "vit" not in Reader(text).text.split()
    assert len(list((tmp_path / "out" / "tables").glob("*.tex"))) == told["tables"] > 10
    with workspace(settings) as clone:
        assert report.run(context_of("memes", params=load(clone.path), root=clone.path))
        assert (clone.path / "snapshot/memes/report/report.html").read_text() == text, "the stage's page is the same"


@pytest.mark.parametrize(("form", "name", "begins"), [("md", "report.md", "# "), ("latex", "report.tex", "\\document")])
def test_an_earlier_commit_in_another_format(
    settings: Settings, commits: dict[str, str], tmp_path: Path, form: str, name: str, begins: str
) -> None:
    told = published.write("memes", settings=settings, to=tmp_path, form=form, commit=commits["weak"][:9])
    assert (told["commit"], told["file"]) == (commits["weak"], str(tmp_path / name))
    text = (tmp_path / name).read_text()
    assert text.startswith(begins) and "vit" in text and "siglip" not in text


def test_latex_needs_no_character_that_it_cannot_set(settings: Settings, tmp_path: Path) -> None:
    published.write("memes", settings=settings, to=tmp_path, form="latex")
    text = (tmp_path / "report.tex").read_text()
    assert text.isascii() or all("À" <= c <= "ÿ" for c in text if not c.isascii())
    for kind in ("tabular", "itemize", "document"):
        assert text.count(f"\\begin{{{kind}}}") == text.count(f"\\end{{{kind}}}") > 0


def test_two_commits_are_compared_model_by_model(settings: Settings, commits: dict[str, str], tmp_path: Path) -> None:
    told = published.write("memes", settings=settings, to=tmp_path, form="md", against=commits["weak"])
    assert (told["commit"], told["against"]) == (commits["strong"], commits["weak"])
    text = (tmp_path / "comparison.md").read_text()
    assert f"A is commit {commits['weak'][:12]}" in text and f"B is commit {commits['strong'][:12]}" in text
    rows = rows_of(text, "**Suicide severity: macro-F1**")
    a, b, apart = (float(cell.split()[0]) for cell in rows["bert"])
    assert b > a and apart == pytest.approx(b - a, abs=0.11)
    assert rows["vit"][1:] == ["–", "–"] and rows["siglip"][0] == "–"
    published.write("memes", settings=settings, to=tmp_path / "html", against=commits["weak"])
    page = Reader((tmp_path / "html" / "comparison.html").read_text())
    assert "script" not in page.tags and all(link.startswith("#") for link in page.links)
    assert "r001" not in page.text


def test_a_note_says_by_how_many_items_the_tests_differ(
    settings: Settings, commits: dict[str, str], tmp_path: Path
) -> None:
    published.write("memes", settings=settings, to=tmp_path, form="md", against=commits["weak"])
    text = (tmp_path / "comparison.md").read_text()
    assert "not comparable item by item" in text
    assert "suicide severity: 58 in both, 1 only in A, 0 only in B, 1 with other gold labels" in text
    assert "| Figurative phenomenon | 58 | 1 | 0 | 0 |" in text
    same = tmp_path / "same"
    published.write("memes", settings=settings, to=same, form="md", against=commits["strong"])
    assert "the same at both commits, so scores are comparable" in (same / "comparison.md").read_text()


def test_tables_that_are_gone_make_the_tests_unknown(settings: Settings, commits: dict[str, str]) -> None:
    with workspace(settings) as clone:
        whole = published._version("memes", clone)
        shutil.rmtree(clone.path / "snapshot" / "memes")
        lost = re.sub("[0-9a-f]{32}", "0" * 32, (clone.path / "dvc.lock").read_text())
        (clone.path / "dvc.lock").write_text(lost)
        gone = published._version("memes", clone)
    assert whole.test is not None and gone.test is None
    page = published.compared(gone, whole, corpus="memes")
    assert any("not known whether both tests are the same" in getattr(block, "text", "") for block in page.blocks)


def test_parameters_of_other_corpora_and_of_people_are_not_compared(settings: Settings) -> None:
    with workspace(settings) as clone:
        version = published._version("memes", clone)
    other = json.loads(json.dumps(version.params))
    other["train"]["checkpoint_steps"] += 1
    other["split"]["posts"]["version"] += 1
    other["train"]["rows"]["posts"]["seeds"] = [1]
    other["predict"]["rows"]["posts"] = []
    other["consents"] = {"openai": {"approved_by": "a person"}}
    changed = published.ReportedCommit(**{**vars(version), "params": other})
    [found] = published._parameters(version, changed, corpus="memes")
    assert [row[0] for row in found.rows] == ["train.checkpoint_steps"]  # type: ignore[union-attr]


def test_a_commit_without_metrics_names_those_that_have_some(settings: Settings, commits: dict[str, str]) -> None:
    with refused("NotPublished", match=f"such as {commits['strong'][:7]}"):
        published.write("memes", settings=settings, to=Path("/nowhere"), commit=commits["empty"])
    with refused("NotPublished", match="first run the Dag that ends with evaluate@posts"):
        published.write("posts", settings=settings, to=Path("/nowhere"))
    with refused("UnknownName", match="There is no commit 'main~9'"):
        published.write("memes", settings=settings, to=Path("/nowhere"), commit="main~9")


def test_metrics_of_other_code_are_an_error_with_a_next_step(settings: Settings) -> None:
    with workspace(settings) as clone:
        (clone.path / "metrics/memes/evaluate.json").write_text('{"scores": {}}')
        with (
            refused("MetricsOutdated", match=r"'scheme' is missing.*corpus upgrade"),
            published._readable("memes", clone),
        ):
            published._report("memes", clone)


def test_the_interval_of_a_difference_is_movers() -> None:
    def cell(mean: float, low: float | None, high: float | None) -> dict[str, float | None]:
        return {"mean": mean, "low": low, "high": high}

    found = published.difference(cell(0.5, 0.4, 0.6), cell(0.7, 0.6, 0.8))
    assert found is not None
    assert (found["low"], found["high"]) == pytest.approx((0.2 - 0.02**0.5, 0.2 + 0.02**0.5))
    # Newcombe 1998, table II (a): 56/70 less 48/80 by Wilson's intervals is .2 (.0524 to .3339)
    found = published.difference(cell(0.6, 0.4904, 0.7005), cell(0.8, 0.6925, 0.8769))
    assert found is not None
    assert (found["low"], found["high"]) == pytest.approx((0.0524, 0.3339), abs=6e-4)
    assert published.difference(cell(0.5, None, None), cell(0.7, 0.6, 0.8)) == {
        "value": pytest.approx(0.2), "low": None, "high": None
    }  # fmt: skip
    assert published.difference(None, cell(0.7, 0.6, 0.8)) is None


def test_the_command_says_what_to_give(settings: Settings, tmp_path: Path) -> None:
    def told(*argv: str) -> str:
        done = CliRunner().invoke(app, ["report", "memes", *argv], standalone_mode=False)
        return str(getattr(done.exception, "message", done.exception)) if done.exception else done.stdout

    assert "--format, --commit and --against need it" in told("--against", "x")
    (tmp_path / "paper.tex").touch()
    assert "exists already" in told("--to", str(tmp_path))
    found = json.loads(told("--to", str(tmp_path / "new"), "--format", "md"))
    assert Path(found["file"]).read_text().startswith("# ")


def test_dvc_shows_few_numbers_and_plots_without_errors(settings: Settings, tmp_path: Path) -> None:
    def dvc(*argv: str) -> Any:
        done = subprocess.run([sys.executable, "-m", "dvc", *argv], cwd=clone.path, capture_output=True, check=True)
        assert not done.stderr.strip(), done.stderr.decode()
        return json.loads(done.stdout)

    with workspace(settings) as clone:
        began = time.monotonic()
        [shown] = dvc("metrics", "show", "--json").values()
        assert set(shown["data"]) == {"metrics/all-corpora/summary/memes.json"}, "of what no stage wrote, no error"
        numbers = shown["data"]["metrics/all-corpora/summary/memes.json"]["data"]
        assert (numbers["test"], numbers["models"]) == (60, 2)
        assert set(numbers["macro_f1"]) == {"figurative", "severity", "related"}
        plots = dvc("plots", "show", "--json", "--out", str(tmp_path))
        assert set(plots) == {"data"}
        drawn = {name: plot for name, [plot] in plots["data"].items()}
        assert set(drawn) == {f"metrics/all-corpora/{kind}/memes.json" for kind in ("labels", "scores")}
        points = drawn["metrics/all-corpora/scores/memes.json"]["content"]["data"]["values"]
        found = {point["model"]: point["macro_f1"] for point in points}
        assert found["Suicide severity: bert"] == numbers["macro_f1"]["severity"] > found["Suicide severity: Majority"]
        assert '"type": "bar"' in json.dumps([plot["content"] for plot in drawn.values()])
        assert time.monotonic() - began < 60
