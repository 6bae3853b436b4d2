"""Every command that README and docs print exists, with its options; all blocks of commands run, but those listed.

A block of commands has the language ``sh`` or ``bash``. ``<!-- needs: demo -->`` before it states that a new repository
is not enough: the demo's (``demo``, tests/test_docs_demo.py), a folder of dumps (``dump``, tests/test_docs_dumps.py;
``own``, ``airflow``, ``people``, tests/own), accounts or servers (``cloud``), a GPU (``gpu``) or Docker (``docker``).
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.workspace.git import git
from tests.small_checkout import checkout

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = (path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("reference", "log"))
PAGES = [ROOT / "README.md", *sorted(WRITTEN)]
# `demo`: tests/test_docs_demo.py; `dump`: tests/test_docs_dumps.py; `own`, `airflow`, `people`: tests/own.
NEEDS = {"demo", "dump", "own", "airflow", "people", "cloud", "gpu", "docker"}
# The blocks that do not run in a test, by page.
NOT_RUN = {
    "docs/airflow.md": 1,
    "docs/configuration.md": 1,
    "docs/howto/backup.md": 3,
    "docs/howto/containers.md": 3,
    "docs/howto/gpu.md": 1,
    "docs/howto/monitoring.md": 1,
    "docs/howto/papers.md": 2,
    "docs/corpus.md": 1,
    "docs/howto/reddit.md": 1,
    "docs/howto/served.md": 1,
    "docs/howto/storage.md": 2,
}
# A checkout, and the environment in which `corpus` is its command.
Place = tuple[Path, dict[str, str]]
FENCE = re.compile(r"^( *)```(\w*) *$")
SPAN = re.compile(r"(?<!`)`(corpus [^`]+)`")
MARKER = re.compile(r"^ *<!-- needs: ([\w, ]+) -->$")
COMMAND = re.compile(r"(\.venv/bin/)?(corpus|make|airflow|dvc|git|export|python3?|curl|cd) ")
# Restores the shell of the block before, and keeps that of a block.
KEEPING = """[ ! -e {state} ] || . {state}
{text}
{{
    export -p
    for name in $(compgen -v | grep "^[a-z]" || true); do declare -p "$name"; done
    echo cd "$(printf %q "$PWD")"
}} > {state}
"""
# Programs of others that pages print; `corpus` and `make` are checked word by word.
OTHERS = re.compile(
    r"mv|\.|airflow|aws|cat|cd|consumer/bin/python|curl|docker|dvc|export|find|git|grep|helm|kill|kubectl|mkdir|mlflow|"
    "pg_dump|pg_restore|python3?|read|set|sha256sum|source|vllm|xargs"
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    needs: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def words(self) -> list[list[str]]:
        """The commands of the block, without comments, texts fed to them, assignments and redirections."""
        text = re.sub(r"<<'(\w+)'\n.*?\n\1$", "", self.text, flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "SUBSTITUTED", text)
        text = re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE).replace("\\\n", " ").replace("\n", " ;\n")
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|<>")
        lexer.whitespace_split, lexer.commenters = True, ""
        found: list[list[str]] = [[]]
        for word in lexer:
            if set(word) <= set(";&|"):
                found.append([])
            elif found[-1] or not re.match(r"\w+=", word):
                found[-1].append(word)
        return [words for words in found if words]


def blocks() -> list[Block]:
    """Return all fenced blocks of README and docs."""
    found = []
    for page in PAGES:
        lines = page.read_text().splitlines()
        start, language, indent, needs = 0, "", 0, ""
        for number, line in enumerate(lines, 1):
            fence = FENCE.match(line)
            if fence and not start:
                marker = MARKER.match(next((text for text in reversed(lines[: number - 1]) if text.strip()), ""))
                start, indent, language, needs = number, len(fence[1]), fence[2], marker[1] if marker else ""
            elif fence:
                text = "\n".join(text[indent:] for text in lines[start : number - 1])
                found.append(Block(str(page.relative_to(ROOT)), start, language, needs, text))
                start = 0
    return found


def spans() -> list[Block]:
    """Return the commands of `corpus` in sentences and tables of README and docs."""
    found = []
    for page in PAGES:
        text, name = page.read_text(), str(page.relative_to(ROOT))
        for span in SPAN.finditer(text):
            found.append(Block(name, text.count("\n", 0, span.start()) + 1, "sh", "", " ".join(span[1].split())))
    return found


BLOCKS = blocks()
SHELL = [block for block in BLOCKS if block.language in ("sh", "bash")]
SPANS = spans()
UNMARKED = [block for block in SHELL if not block.needs]


def scratch(folder: Path) -> Path:
    """Return a checkout with the environment of this one, which `make` takes for installed, and an upstream."""
    code = checkout(folder / "upstream")
    git("clone", "--quiet", str(code), str(folder / "checkout"), cwd=folder)
    code = folder / "checkout"
    for name in (".venv", ".label-studio", ".docs"):
        if (ROOT / name / "bin").exists():
            (code / name).symlink_to((ROOT / name).resolve())
    with (code / ".git" / "info" / "exclude").open("a") as file:
        file.writelines(f"{path}\n" for path in (".venv", ".label-studio", ".docs", "/*.csv"))
    for path in (code / "pyproject.toml", *code.glob("*/pyproject.toml"), *code.glob("*.lock")):
        os.utime(path, (0, 0))
    return code


def environment_of(code: Path) -> dict[str, str]:
    """Return the environment in which `corpus` is the checkout's, and all of its state below the checkout's parent."""
    folder = code.parent
    (folder / "bin").mkdir()
    (folder / "bin" / "corpus").write_text(f'#!/bin/sh\nexec {sys.executable} -m pipelines "$@"\n')
    (folder / "bin" / "corpus").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CORPUS_", "MLFLOW_"))}
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return environment | {"CORPUS_HOME": str(code / "var"), "PYTHONPATH": str(code), "HOME": str(folder), "PATH": path,
                          "GIT_AUTHOR_NAME": "docs", "GIT_AUTHOR_EMAIL": "docs@example.org",
                          "GIT_COMMITTER_NAME": "docs", "GIT_COMMITTER_EMAIL": "docs@example.org"}  # fmt: skip


def run_block(block: Block, place: Place, *, state: Path | None = None, timeout: float = 300) -> None:
    """Run a block as printed in the checkout; ``state`` is a script that restores the shell of the block before it."""
    code, environment = place
    text = block.text if state is None else KEEPING.format(state=state, text=block.text)
    with (code.parent / "output").open("w+") as output:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=code, env=environment, check=False,
                              stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout)  # fmt: skip
        output.seek(0)
        assert done.returncode == 0, f"{block}: mark the block, or correct it: {output.read()[-6000:]}"


def run_page(
    page: str, place: Place, *, needs: set[str], before: Callable[[Block], None] = str, index: str | None = None
) -> None:
    """Run the blocks of a page in order as in one terminal, without those that need anything else.

    ``before`` is called with each block before it runs; ``index`` is a page whose shell, at its end, this page begins
    with.
    """
    shells = place[0].parent / "shells"
    shells.mkdir(exist_ok=True)
    state = shells / page.replace("/", "-")
    state.unlink(missing_ok=True)
    if index not in (None, page):
        state.write_bytes((shells / str(index).replace("/", "-")).read_bytes())
    for block in SHELL:
        if block.page == page and set(filter(None, block.needs.split(", "))) <= needs:
            before(block)
            run_block(block, place, state=state, timeout=3600)


@pytest.fixture(scope="module")
def commands() -> dict[tuple[str, ...], Any]:
    return dict(runpy.run_path(str(ROOT / "docs" / "reference.py"))["commands"]())


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.language], ids=str)
def test_blocks_of_commands_have_a_language(block: Block) -> None:
    assert not COMMAND.match(block.text), "write ```sh, and a marker `needs: ...` if it cannot run in a new repository"


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_markers_and_programs_are_known(block: Block) -> None:
    assert set(filter(None, block.needs.split(", "))) <= NEEDS
    programs = {words[0].removeprefix(".venv/bin/") for words in block.words} - {"corpus", "make"}
    assert all(map(OTHERS.fullmatch, programs)), "add a program of others to OTHERS"


@pytest.mark.parametrize("block", [*SHELL, *SPANS], ids=str)
def test_commands_and_options_exist(block: Block, commands: dict[tuple[str, ...], Any]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for program, *words in block.words:
        if program == "make":
            assert {word for word in words if "=" not in word} <= targets
        elif program.removeprefix(".venv/bin/") == "corpus":
            path: tuple[str, ...] = ()
            while words and (*path, words[0]) in commands:
                path = (*path, words.pop(0))
            command = commands[path]
            known = {"--help"} | {name for given in command.params for name in [*given.opts, *given.secondary_opts]}
            unknown = {word for word in words if word.startswith("-")} - known
            assert path or unknown <= {"--version"}, f"corpus has no command {words[:1]}"
            assert not unknown, f"corpus {' '.join(path)} has no option {unknown}"
            group = getattr(command, "commands", None)
            assert not group or not words or words[0].startswith("-"), f"no command {words[0]}"


def test_the_blocks_that_do_not_run_are_listed() -> None:
    apart = {"cloud", "gpu", "docker"}
    assert Counter(block.page for block in SHELL if apart & set(block.needs.split(", "))) == NOT_RUN


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a checkout with a new corpus repository, and the environment in which `corpus` is a command."""
    code = scratch(tmp_path_factory.mktemp("docs"))
    environment = environment_of(code)
    subprocess.run(["corpus", "init"], cwd=code, env=environment, check=True, capture_output=True)
    return code, environment


@pytest.mark.faults  # two minutes
@pytest.mark.parametrize("block", UNMARKED, ids=str)
def test_unmarked_blocks_run(block: Block, place: Place) -> None:
    run_block(block, place)
