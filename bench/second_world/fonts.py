"""Find font files by role, so that captions are set in whatever families a machine has."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fontTools.ttLib import TTCollection, TTFont

FOLDERS = "CORPUS_BENCH_FONTS"  # more folders, separated by the system's path separator
_LATIN = set(map(ord, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:?'"))
# Hairlines cannot be read over a photograph even by people; a variable font repeats a static one.
_NEVER = re.compile(
    r"thin|hairline|extralight|variable|lastresort|quran|symbol|nonuni|dings|d05|cmex|cmmi|cmsy|stixsiz|mathtex", re.I
)
_ROLES = (
    ("mono", re.compile(r"mono|code|cmtt|courier", re.I)),
    ("hand", re.compile(r"comic|humor|amatic|lobster|fredoka|z003|cmti|italic|oblique|bolita|slanted|-it\b", re.I)),
    ("impact", re.compile(r"bebas|fjalla|narrow.*bold|cond.*bold|black|heavy|extrabold|league|anton|impact", re.I)),
    ("serif", re.compile(r"serif|stix|cmr|cmb|roman|c059|p052|bookman|amiri|myeongjo", re.I)),
)


@dataclass(frozen=True)
class Face:
    """One font file: its path, its family's name without weight, its role and the characters it has."""

    path: str
    family: str
    role: str
    characters: frozenset[int]


def _folders() -> list[Path]:
    found = [Path("/usr/share/fonts"), *(Path(p) for p in os.environ.get(FOLDERS, "").split(os.pathsep) if p)]
    if (spec := find_spec("matplotlib")) and spec.origin:
        found.append(Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf")
    return found


def _characters(path: Path) -> frozenset[int]:
    font = TTCollection(str(path), lazy=True).fonts[0] if path.suffix == ".ttc" else TTFont(str(path), lazy=True)
    return frozenset(font.getBestCmap() or ())


@cache
def faces() -> tuple[Face, ...]:
    """Return every usable face, one for each file name, in the order of the names."""
    files = {
        file.stem: file
        for folder in _folders()
        for suffix in ("ttf", "otf", "ttc")
        for file in sorted(folder.rglob(f"*.{suffix}"))
        if not _NEVER.search(file.stem)
    }
    found = []
    for stem, file in sorted(files.items()):
        characters = _characters(file)
        role = next((name for name, pattern in _ROLES if pattern.search(stem)), "sans")
        family = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.split(r"[-_ ]", stem)[0]).split()[0]
        if len(characters) > 60:
            found.append(Face(str(file), family, role, characters))
    return tuple(found)


def pick(rng: random.Random, text: str, roles: Sequence[str]) -> Face | None:
    """Return a face of one of these roles that has every character of the text; any role if none has; or None.

    A family is drawn first, so that one with eighteen weights does not crowd out the others.
    """
    needed = {ord(c) for c in text if not c.isspace()}
    able = [face for face in faces() if needed <= face.characters]
    if max(needed) < 0x250:  # a fallback font of a far script sets English badly
        able = [face for face in able if face.characters >= _LATIN] or able
        able = [face for face in able if face.role in roles] or able
    if not able:
        return None
    family = rng.choice(sorted({face.family for face in able}))
    return rng.choice([face for face in able if face.family == family])
