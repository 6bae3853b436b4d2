"""Read lexicons, lists of words by category, in LIWC's format (``.dic``) or the NRC emotion lexicon's.

LIWC's dictionaries and the NRC lexicon are licensed and not part of this project: the user states the path of a copy
and, so that a changed file makes the stage run again, its SHA-256. A lexicon that cannot be used gives no features, and
a message that says why. The default list (``default.dic``) is this project's own: short, open, not validated.

A ``.dic`` file has the categories between two lines ``%`` (number, name), then one word per line with the numbers of
its categories; a word that ends with ``*`` means all words that begin so. LIWC's conditions for single words
(such as ``<of>131/125``) are not numbers and are skipped, and so are entries of several words; both are counted. A line
of the NRC lexicon (word-level file) has a word, an emotion and 1 or 0.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.config.annotate import LexiconFile

OURS = Path(__file__).with_name("default.dic")
LIWC, NRC, DEFAULT = "liwc", "nrc", "default"
TITLES = {
    DEFAULT: "this project's own open word list, which is not validated",
    LIWC: "the dictionary of analysis.lexicons.liwc",
    NRC: "the NRC emotion lexicon (EmoLex)",
}
NAMES = {LIWC: "A dictionary in LIWC's format", NRC: "The NRC emotion lexicon"}
# LIWC 2015 adds a longer name in brackets
CATEGORY = re.compile(r"\s*(\d+)\s+(\S+)")


@dataclass(frozen=True)
class Lexicon:
    """The words of each category, and the beginnings of words (``stems``).

    ``skipped`` counts entries that this project does not read: of several words, or with a condition only.
    """

    categories: tuple[str, ...]
    words: Mapping[str, frozenset[str]] = field(repr=False)
    stems: Mapping[str, frozenset[str]] = field(repr=False)
    skipped: int = 0

    def shares(self, words: Sequence[str]) -> list[float]:
        """Return the percentage of ``words``, at least one, in each category."""
        counts = dict.fromkeys(self.categories, 0)
        for word in words:
            for category in self._of(word):
                counts[category] += 1
        return [100 * n / len(words) for n in counts.values()]

    def _of(self, word: str) -> frozenset[str]:
        """Return the categories of a word: its own entry's, else those of the longest beginning that is listed."""
        if found := self.words.get(word):
            return found
        return next((self.stems[word[:n]] for n in range(len(word), 0, -1) if word[:n] in self.stems), frozenset())


@dataclass(frozen=True)
class Opened:
    """A lexicon, or why there is none (``message``); ``sha256`` is that of the file if there is one."""

    name: str
    lexicon: Lexicon | None
    sha256: str | None = None
    message: str | None = None


def open_all(files: Mapping[str, LexiconFile]) -> list[Opened]:
    """Return the default list and the lexicons that the user names, each read or with a message."""
    return [_opened(DEFAULT, OURS, None), *(_named(name, files.get(name, LexiconFile())) for name in (LIWC, NRC))]


def _named(name: str, given: LexiconFile) -> Opened:
    if given.path is None:
        what = "It is licensed and not part of this project; state the path of your copy in params.yaml"
        return Opened(name, None, message=f"{NAMES[name]} is missing. {what}, as analysis.lexicons.{name}.path.")
    return _opened(name, Path(given.path), given.sha256)


def _opened(name: str, path: Path, wanted: str | None) -> Opened:
    key = f"analysis.lexicons.{name}"
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (
            f"The file of {key}.path cannot be read on this machine ({type(error).__name__}), so it has no features."
        )
        return Opened(name, None, message=reason)
    digest = hashlib.sha256(data).hexdigest()
    if wanted not in (None, digest):
        reason = f"The file of {key}.path has another SHA-256 than {key}.sha256: {digest}."
        return Opened(name, None, sha256=digest, message=reason)
    text = data.decode("utf-8-sig", errors="replace")
    lexicon = nrc(text.splitlines()) if name == NRC else dic(text.splitlines())
    if not lexicon.categories:
        form = "lines of a word, an emotion and 1 or 0" if name == NRC else "LIWC's format .dic (not .dicx or .pdf)"
        return Opened(name, None, sha256=digest, message=f"The file of {key}.path has no category in {form}.")
    return Opened(name, lexicon, sha256=digest)


def dic(lines: Iterable[str]) -> Lexicon:
    """Read a dictionary in LIWC's format."""
    names: dict[str, str] = {}
    entries: list[tuple[str, frozenset[str]]] = []
    marks = skipped = 0
    for line in lines:
        if line.strip() == "%":
            marks += 1
        elif marks == 1 and (found := CATEGORY.match(line)):
            names[str(int(found[1]))] = found[2]
        elif marks == 2 and (parts := line.split()):
            numbers = [part for part in parts[1:] if part.isdigit()]
            categories = frozenset(names[n] for n in (str(int(number)) for number in numbers) if n in names)
            several = not parts[1:] or not (parts[1].isdigit() or parts[1].startswith(("(", "<")))
            skipped += several or not categories
            if categories and not several:
                entries.append((parts[0].casefold(), categories))
    return _lexicon(tuple(dict.fromkeys(names.values())), entries, skipped=skipped)


def nrc(lines: Iterable[str]) -> Lexicon:
    """Read the word-level file of the NRC emotion lexicon."""
    found: dict[str, set[str]] = {}
    names: dict[str, None] = {}
    for line in lines:
        parts = line.rstrip("\r\n").split("\t")
        if len(parts) == 3 and parts[2].strip() in ("0", "1"):
            names[parts[1].strip()] = None
            if parts[2].strip() == "1":
                found.setdefault(parts[0].strip().casefold(), set()).add(parts[1].strip())
    single = [(word, frozenset(emotions)) for word, emotions in found.items() if len(word.split()) == 1]
    return _lexicon(tuple(names), single, skipped=len(found) - len(single))


def _lexicon(names: tuple[str, ...], entries: Iterable[tuple[str, frozenset[str]]], *, skipped: int) -> Lexicon:
    words: dict[str, frozenset[str]] = {}
    stems: dict[str, frozenset[str]] = {}
    for entry, categories in entries:
        kind, key = (stems, entry[:-1]) if entry.endswith("*") else (words, entry)
        kind[key] = kind.get(key, frozenset()) | categories
    return Lexicon(names, words, stems, skipped)
