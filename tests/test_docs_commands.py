"""Every command that README and docs print exists, with its options; blocks without a ``needs`` marker run.

A block of commands has the language ``sh`` or ``bash``. ``<!-- needs: demo -->`` before it states that a new repository
is not enough: the demo's (``demo``), accounts or servers (``cloud``), a GPU (``gpu``), Docker (``docker``) or downloads
(``network``).
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.small_checkout import checkout

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference")]
NEEDS = {"demo", "cloud", "gpu", "docker", "network"}
FENCE = re.compile(r"^( *)```(\w*) *$")
MARKER = re.compile(r"^ *<!-- needs: ([\w, ]+) -->$")
COMMAND = re.compile(r"(\.venv/bin/)?(corpus|make|airflow|dvc|git|export|python3?|curl|cd) ")
# Programs of others that pages print; `corpus` and `make` are checked word by word.
OTHERS = {
    ".",
    "airflow",
    "aws",
    "cat",
    "cd",
    "curl",
    "dvc",
    "export",
    "git",
    "mkdir",
    "mlflow",
    "pg_dump",
    "pg_restore",
    "python",
    "python3",
    "read",
    "set",
    "sha256sum",
    "source",
}


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
                above = next((text for text in reversed(lines[: number - 1]) if text.strip()), "")
                marker = MARKER.match(above)
                start, indent, language, needs = number, len(fence[1]), fence[2], marker[1] if marker else ""
            elif fence:
                text = "\n".join(text[indent:] for text in lines[start : number - 1])
                found.append(Block(str(page.relative_to(ROOT)), start, language, needs, text))
                start = 0
    return found


BLOCKS = blocks()
SHELL = [block for block in BLOCKS if block.language in ("sh", "bash")]
UNMARKED = [block for block in SHELL if not block.needs]


@pytest.fixture(scope="module")
def commands() -> dict[tuple[str, ...], Any]:
    return dict(runpy.run_path(str(ROOT / "docs" / "reference.py"))["commands"]())


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.language], ids=str)
def test_blocks_of_commands_have_a_language(block: Block) -> None:
    assert not COMMAND.match(block.text), "write ```sh, and a marker `needs: ...` if it cannot run in a new repository"


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_markers_and_programs_are_known(block: Block) -> None:
    assert set(filter(None, block.needs.split(", "))) <= NEEDS
    programs = {words[0].removeprefix(".venv/bin/") for words in block.words}
    assert programs <= OTHERS | {"corpus", "make"}, "add a program of others to OTHERS"


@pytest.mark.parametrize("block", SHELL, ids=str)
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
            assert not getattr(command, "commands", None) or not words or words[0].startswith("-"), (
                f"no command {words[0]}"
            )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a checkout with a new corpus repository, and the environment in which `corpus` is a command."""
    folder = tmp_path_factory.mktemp("docs")
    code = checkout(folder / "checkout", smaller=lambda profile: None)
    (folder / "bin").mkdir()
    (folder / "bin" / "corpus").write_text(f'#!/bin/sh\nexec {sys.executable} -m pipelines "$@"\n')
    (folder / "bin" / "corpus").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CORPUS_", "MLFLOW_"))}
    environment |= {"CORPUS_HOME": str(folder / "home"), "PYTHONPATH": str(code), "HOME": str(folder),
                    "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
                    "GIT_AUTHOR_NAME": "docs", "GIT_AUTHOR_EMAIL": "docs@example.org",
                    "GIT_COMMITTER_NAME": "docs", "GIT_COMMITTER_EMAIL": "docs@example.org"}  # fmt: skip
    subprocess.run(["corpus", "init"], cwd=code, env=environment, check=True, capture_output=True)
    return code, environment


@pytest.mark.faults  # two minutes
@pytest.mark.parametrize("block", UNMARKED, ids=str)
def test_unmarked_blocks_run(block: Block, place: tuple[Path, dict[str, str]]) -> None:
    code, environment = place
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=code, env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                          check=False)  # fmt: skip
    assert done.returncode == 0, f"mark the block, or correct it: {done.stderr[-600:]}"
