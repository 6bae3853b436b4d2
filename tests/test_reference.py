"""The generated reference and picture have every Dag, stage, command, parameter, table and error."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.cli.parts import named, registries
from pipelines.core.config.params import read_params, texts_below
from pipelines.store.tables import CONTRACTS
from tests.dags.test_dags import EXPECTED

ROOT = Path(__file__).resolve().parents[1]
# CORPUS_<PROVIDER>_KEY and _URL are described as a pattern; INTERNAL: set by one process of the project for another.
PATTERN = re.compile(r"CORPUS_(OPENAI|ANTHROPIC|GOOGLE|LOCAL)_(KEY|URL)$")
INTERNAL = {"CORPUS_DIES_WITH_PARENT", "CORPUS_FORKED", "CORPUS_SFT_GIVEN"}
INTERNAL |= {"CORPUS_AIRFLOW_GUARD", "CORPUS_MLFLOW_ARTIFACTS", "CORPUS_MLFLOW_STORE"}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "reference.py"))


@pytest.fixture(scope="module")
def pages(reference: dict[str, Any]) -> dict[str, str]:
    written: dict[str, str] = reference["pages"]()
    return written


def headings(page: str) -> set[str]:
    return set(re.findall(r"^##+ (.+)$", page, re.MULTILINE))


def test_every_dag_has_a_schedule_and_tasks(pages: dict[str, str]) -> None:
    parts = {part.partition("\n")[0]: part for part in pages["dags.md"].split("\n## ")[1:]}
    assert set(parts) == EXPECTED
    for name, part in parts.items():
        assert re.search(r"^(Schedule|Triggered by): .+\.$", part, re.MULTILINE), name
        assert "| task | purpose | tasks |" in part, name


def test_every_command_and_option_is_listed(reference: dict[str, Any], pages: dict[str, str]) -> None:
    for path, command in reference["commands"]():
        if command.hidden:
            continue
        assert " ".join(("corpus", *path)) in headings(pages["commands.md"])
        options = {given.opts[0] for given in command.params if given.opts[0].startswith("-")} - {"--help"}
        assert all(f"`{option}`" in pages["commands.md"] for option in options)


def test_every_parameter_is_listed(pages: dict[str, str]) -> None:
    values = read_params(ROOT)
    assert set(values) == headings(pages["parameters.md"])
    for name, section in values.items():
        found = re.findall(rf"^\| `{name}\.?([^`]*)`", pages["parameters.md"], re.MULTILINE)
        listed = {key.removesuffix("[]") for key in found}
        named = any(key.startswith("<name>") for key in listed) or listed == {""}
        assert named or set(section or {}) <= {re.split(r"[.\[]", key)[0] for key in listed}, name


def test_the_sections_show_their_comments(pages: dict[str, str]) -> None:
    for text in texts_below(ROOT).values():
        assert all(line.rstrip() in pages["parameters.md"] for line in text.splitlines())


def test_every_table_and_column_is_listed(pages: dict[str, str]) -> None:
    assert set(CONTRACTS) == headings(pages["tables.md"])
    for contract in CONTRACTS.values():
        assert contract.about in pages["tables.md"]
        for column in contract.columns:
            assert f"| `{column.name}` |" in pages["tables.md"]
            assert all(f"`{value}`" in pages["tables.md"] for value in column.accepted_values)
    assert "| `hamming` | int16 | 0 to 64; may be null | differing bits |" in pages["tables.md"]


def test_the_page_of_takedowns_lists_every_store(reference: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "takedown.md").read_text()
    assert page.partition("|---|---|---|---|\n")[2] == reference["store_rows"](), "make docs"


def test_every_part_is_listed_with_what_its_class_owes(pages: dict[str, str]) -> None:
    found = {text.partition("\n")[0]: text for text in pages["parts.md"].split("\n## ")[1:]}
    every = {**registries(), **named()}
    assert found.keys() == every.keys()
    for section, parts in every.items():
        assert all(f"`{name}`" in found[section] for name in parts.names({})) and f"`{parts.group}`" in found[section]
        assert all(f"def {method}(" in found[section] for method in getattr(parts.base, "__abstractmethods__", ()))


def test_every_error_is_listed_with_its_remedy(reference: dict[str, Any], pages: dict[str, str]) -> None:
    listed = reference["errors"]()
    assert {"UnknownName", "GitFailed", "BadParams", "UnknownModel"} <= set(listed)
    for code, error in listed.items():
        assert f"| `{code}` | {error['exit_code']} |" in pages["errors.md"], code
    # of sysexits.h, and 79 for what waits for labels: by them a caller decides whether to try again, to ask a person or
    # to change something
    assert {error["exit_code"] for error in listed.values()} <= {64, 65, 66, 69, 70, 75, 77, 78, 79}


def test_every_variable_of_the_code_is_described(pages: dict[str, str]) -> None:
    described = pages["parts.md"] + "".join(
        (ROOT / "docs" / name).read_text() for name in ("configuration.md", "airflow.md")
    )
    described += " ".join(f"CORPUS_LABEL_STUDIO{end}" for end in ("_URL", "_KEY"))
    used = set(re.findall(r'\benv\("([A-Z_]+)"', (ROOT / "pipelines/core/config/settings.py").read_text()))
    used = {f"CORPUS_{name}" for name in used}
    for folder in ("pipelines", "plugins", "dags"):
        for path in (ROOT / folder).rglob("*.py"):
            used |= set(re.findall(r"""["'](CORPUS_[A-Z_]*[A-Z])["']""", path.read_text()))
    missing = {name for name in used - INTERNAL if name not in described and not PATTERN.match(name)}
    assert not missing, "describe them in the table of docs/configuration.md"


def test_the_site_is_complete_and_makes_no_requests(tmp_path: Path, pages: dict[str, str]) -> None:
    builder = ROOT / ".docs" / "bin" / "zensical"
    if not builder.exists():
        pytest.skip("there is no .docs; `make docs` installs it from docs.lock")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "docs" / "reference").mkdir(exist_ok=True)
    for name, text in pages.items():
        (tmp_path / "docs" / "reference" / name).write_text(text)
    subprocess.run([builder, "build", "--strict"], cwd=tmp_path, check=True, capture_output=True)
    for page in (tmp_path / "docs").rglob("*.md"):
        if page.parent.name == "log":
            continue
        assert (tmp_path / "site" / page.relative_to(tmp_path / "docs")).with_suffix(".html").exists()
    elsewhere = re.compile(r"<(script|img|iframe)[^>]*src=\"?https?:|<link[^>]*href=\"?https?:")
    for page in (tmp_path / "site").rglob("*.html"):
        assert not elsewhere.search(page.read_text()), page.name


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    named = set(re.findall(r"[\w/-]+\.md", nav))
    apart = ("reference/", "log/")
    assert {p for p in pages if not p.startswith(apart)} == {p for p in named if not p.startswith("reference/")}


def test_the_committed_picture_is_the_present_graph_with_every_stage_and_dag() -> None:
    committed = (ROOT / "docs" / "images" / "flow.svg").read_text()
    drawn = runpy.run_path(str(ROOT / "docs" / "flow.py"))["svg"]()
    assert committed == drawn, "run `make docs` and commit docs/images/flow.svg"
    texts = [text.text or "" for text in ET.fromstring(committed).iter("{http://www.w3.org/2000/svg}text")]
    words = {word for text in texts for word in text.replace(",", "").split()}
    words |= {word.replace("*", corpus) for word in words for corpus in ("memes", "posts")}
    assert yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].keys() <= words
    assert words >= EXPECTED
