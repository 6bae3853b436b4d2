"""Type the page *Your corpus* as a team does, in a checkout and a home of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.own import content, pictures
from tests.test_docs_commands import SHELL, Block, Place, environment_of, run_block, scratch

PAGE = "docs/corpus.md"
# of pictures on loopback, which no real corpus reads
LOOPBACK = "images: {fetch: {hosts: [127.0.0.1], allow_http: true, allow_loopback: true, timeout_seconds: 5}}\n"
PRINTED = {"--content": "texts", "--subreddits": "depression,lonely", "--id-column": "post", "--label-column": "kind"}
# A month or a benchmark beside other work on two cores.
PATIENCE = 1800.0
# Two homes under one secret give the same record ids.
SECRET = "5e" * 64


@dataclass(frozen=True)
class Team:
    """What a team has beside its checkout, and the words that it types in place of the page's."""

    typed: tuple[str, str, str, str]
    inputs: Callable[[Path], list[str]]
    profile: str = ""
    model: str = "small-text"


TEXTS = Team(("texts", content.BOARD, "post", "kind"), lambda folder: ["The chain slipped again.", "It works now."])
IMAGES = Team(
    ("images", pictures.PICTURES, "item", "arrangement"),
    lambda folder: [str(path) for path in sorted((folder / "pictures").glob("*.png"))[:2]],
    profile=LOOPBACK,
    model="small-image",
)


@contextmanager
def files(team: Team, folder: Path) -> Iterator[content.Truth]:
    """Write the dumps of a team and its labels; serve its pictures."""
    folder.mkdir(parents=True)
    if team is not IMAGES:
        yield content.texts(folder, seed=11)
        return
    with pictures.serving(folder, 0) as port:
        yield pictures.images(folder, port=port, seed=11)


@dataclass
class Desk:
    """A checkout of a team with its environment, and the shell in which the page is typed."""

    team: Team
    given: Path
    place: Place

    @classmethod
    def of(cls, team: Team, folder: Path, *, given: Path) -> Desk:
        """Make a checkout below ``folder``, with the files in ``given`` beside it."""
        code = scratch(folder)
        shutil.copytree(given, folder / "dumps")
        (folder / "dumps" / "labels.csv").rename(folder / "labels.csv")
        environment = environment_of(code) | {"CORPUS_SECRET": SECRET}
        return cls(team, given, (code, environment))

    def again(self, folder: Path) -> Desk:
        """Return another checkout and home of the team, with the same files and the same secret."""
        return Desk.of(self.team, folder, given=self.given)

    @property
    def code(self) -> Path:
        """The checkout."""
        return self.place[0]

    def type(self, *needs: str, begin: str = "", end: str = "", without: str = "") -> None:
        """Run the blocks of the page that need one of these: from the one with a text to that before another text."""
        blocks = [block for block in SHELL if block.page == PAGE and block.needs in needs]
        first = next(n for n, block in enumerate(blocks) if begin in block.text)
        last = next((n for n, block in enumerate(blocks) if end and end in block.text), len(blocks))
        for block in blocks[first:last]:
            if not (without and without in block.text):
                self.run(block)

    def run(self, block: Block) -> None:
        """Run a block as printed, but for the words of the team."""
        text = block.text
        for (option, printed), typed in zip(PRINTED.items(), self.team.typed, strict=True):
            text = text.replace(f"{option} {printed}", f"{option} {typed}")
        run_block(replace(block, text=text), self.place, state=self.code.parent / "shell", timeout=PATIENCE)
        if "corpus new" in text:
            profile = self.code / "corpora" / "forum" / "profile.yaml"
            profile.write_text(profile.read_text() + self.team.profile)

    def corpus(self, *argv: str) -> str:
        """Run a command and return what it prints on stdout."""
        done = subprocess.run(
            ["corpus", *argv], cwd=self.code, env=self.place[1], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"corpus {argv[:3]}: {done.stderr[-800:]}"
        return done.stdout
