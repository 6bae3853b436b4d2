"""Compute the features of an item: length and words of its text by lexicon, and of its picture (FigSIM 4.3).

LIWC's dictionaries and the NRC lexicon are licensed and not part of this project: the user states the path of a copy
and, so that a changed file makes the stage run again, its SHA-256. A lexicon that cannot be used gives no features, and
a message that says why. The default list (``default.dic``) is this project's own: short, open, not validated.

A ``.dic`` file has the categories between two lines ``%`` (number, name), then one word per line with the numbers of
its categories; a word that ends with ``*`` means all words that begin so. LIWC's conditions for single words
(such as ``<of>131/125``) are not numbers and are skipped, and so are entries of several words; both are counted. A
``.dicx`` file of LIWC-22 is a table in CSV: a term, and ``X`` in the columns of its categories; terms with weights are
skipped. LIWC's four summary variables are not computed: their norms are not published. A line of the NRC lexicon
(word-level file) has a word, an emotion and 1 or 0.

FigSIM names brightness, HSV, contrast (standard deviation of grey) and faces by a Haar cascade; sharpness and text area
are ours. Pictures are first reduced to the same longer side, because sharpness and faces depend on the size.
"""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from pipelines.collect.read.words import words
from pipelines.core.config.label import LexiconFile

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
        if categories := self.words.get(word):
            return categories
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
    files = {DEFAULT: LexiconFile(path=str(OURS)), **{name: files.get(name, LexiconFile()) for name in (LIWC, NRC)}}
    return [_opened(name, file) for name, file in files.items()]


def _opened(name: str, file: LexiconFile) -> Opened:
    if file.path is None:
        what = "It is licensed and not part of this project; state the path of your copy in params.yaml"
        return Opened(name, None, message=f"{NAMES[name]} is missing. {what}, as analysis.lexicons.{name}.path.")
    key = f"analysis.lexicons.{name}"
    try:
        data = Path(file.path).read_bytes()
    except OSError as error:
        failed = f"cannot be read on this machine ({type(error).__name__}), so it has no features."
        reason = f"The file of {key}.path {failed}"
        return Opened(name, None, message=reason)
    digest = hashlib.sha256(data).hexdigest()
    if file.sha256 not in (None, digest):
        reason = f"The file of {key}.path has another SHA-256 than {key}.sha256: {digest}."
        return Opened(name, None, sha256=digest, message=reason)
    text = data.decode("utf-8-sig", errors="replace")
    read = nrc if name == NRC else dicx if Path(file.path).suffix.lower() == ".dicx" else dic
    lexicon = read(text.splitlines())
    if not lexicon.categories:
        form = "lines of a word, an emotion and 1 or 0" if name == NRC else "LIWC's format .dic or .dicx (not .pdf)"
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
        elif marks == 1 and (match := CATEGORY.match(line)):
            names[str(int(match[1]))] = match[2]
        elif marks == 2 and (parts := line.split()):
            numbers = [part for part in parts[1:] if part.isdigit()]
            categories = frozenset(names[n] for n in (str(int(number)) for number in numbers) if n in names)
            several = not parts[1:] or not (parts[1].isdigit() or parts[1].startswith(("(", "<")))
            skipped += several or not categories
            if categories and not several:
                entries.append((parts[0].casefold(), categories))
    return _lexicon(tuple(dict.fromkeys(names.values())), entries, skipped=skipped)


def dicx(lines: Iterable[str]) -> Lexicon:
    """Read a dictionary of LIWC-22."""
    names, *rows = [row for row in csv.reader(lines) if row] or [[]]
    names = [name.strip() for name in names[1:]]
    entries: list[tuple[str, frozenset[str]]] = []
    for term, *cells in rows:
        marks = [cell.strip().upper() for cell in cells]
        categories = frozenset(name for name, mark in zip(names, marks, strict=False) if mark == "X")
        if categories and len(term.split()) == 1 and set(marks) <= {"X", ""}:
            entries.append((term.strip().casefold(), categories))
    return _lexicon(tuple(dict.fromkeys(names)), entries, skipped=len(rows) - len(entries))


def nrc(lines: Iterable[str]) -> Lexicon:
    """Read the word-level file of the NRC emotion lexicon."""
    emotions_of: dict[str, set[str]] = {}
    names: dict[str, None] = {}
    for line in lines:
        parts = line.rstrip("\r\n").split("\t")
        if len(parts) == 3 and parts[2].strip() in ("0", "1"):
            names[parts[1].strip()] = None
            if parts[2].strip() == "1":
                emotions_of.setdefault(parts[0].strip().casefold(), set()).add(parts[1].strip())
    single = [(word, frozenset(emotions)) for word, emotions in emotions_of.items() if len(word.split()) == 1]
    return _lexicon(tuple(names), single, skipped=len(emotions_of) - len(single))


def _lexicon(names: tuple[str, ...], entries: Iterable[tuple[str, frozenset[str]]], *, skipped: int) -> Lexicon:
    words: dict[str, frozenset[str]] = {}
    stems: dict[str, frozenset[str]] = {}
    for entry, categories in entries:
        kind, key = (stems, entry[:-1]) if entry.endswith("*") else (words, entry)
        kind[key] = kind.get(key, frozenset()) | categories
    return Lexicon(names, words, stems, skipped)


LENGTH = ("words", "words_per_sentence", "letters_per_word")
# a line break ends a sentence: captions and titles have no full stop
SENTENCE = re.compile(r"[.!?…]+|\n+")


def text_features(
    texts: Sequence[str | None], *, lexicons: Sequence[Opened]
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return block -> feature -> values of the items, NaN where an item has no words.

    The block ``text`` has the number of words, which is 0 without words, words per sentence and letters per word; each
    lexicon is a block of percentages by category. A lexicon that could not be read has no block.
    """
    split = [words(text) if text else [] for text in texts]
    lengths = [_length(text or "", tokens) for text, tokens in zip(texts, split, strict=True)]
    blocks = {"text": _columns(LENGTH, lengths)}
    for opened in lexicons:
        if lexicon := opened.lexicon:
            rows = [lexicon.shares(tokens) if tokens else None for tokens in split]
            blocks[opened.name] = _columns(lexicon.categories, rows)
    return blocks


def _length(text: str, tokens: Sequence[str]) -> list[float]:
    sentences = sum(bool(words(part)) for part in SENTENCE.split(text))
    letters = sum(map(len, tokens))
    many = len(tokens)
    return [many, many / sentences if sentences else np.nan, letters / many if many else np.nan]


def _columns(names: Sequence[str], rows: Sequence[Sequence[float] | None]) -> dict[str, NDArray[np.float64]]:
    table = np.array([[np.nan] * len(names) if row is None else row for row in rows], float).reshape(-1, len(names))
    return {name: table[:, i] for i, name in enumerate(names)}


# Ours, in pixels: faces of a tenth of the picture or more. The cascade was trained on faces of 24 pixels.
SIDE = 320
SMALLEST_FACE = 32
# Ours: scales 1.2 apart take half the time of OpenCV's 1.1 (27 ms a meme in all); 5 neighbours give fewer false faces.
STEP, NEIGHBOURS = 1.2, 5
FEATURES = ("brightness", "hue", "saturation", "value", "contrast", "sharpness", "face", "text_area")
# FigSIM 4.3's own, of the picture in its own size
ORIGINAL = ("brightness", "hue", "saturation", "value", "contrast", "face")


class VisualFeatures:
    """Computes the features of one picture at a time."""

    def __init__(self) -> None:
        cv2.setNumThreads(1)
        cascade = Path(cv2.__file__).parent / "data" / "haarcascade_frontalface_default.xml"
        self._faces = cv2.CascadeClassifier(str(cascade))

    def of(self, data: bytes, *, text_area: float | None) -> list[float]:
        """Return the values of :data:`FEATURES`, all NaN if the bytes are no picture.

        Brightness, saturation, value and contrast are in 0..1, hue in degrees (the mean direction, weighted by
        saturation and value; NaN for a grey picture), sharpness is the variance of the Laplacian of grey in 0..1, face
        is 1 or 0, and ``text_area`` the share of the picture within boxes of text (NaN if unknown).
        """
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        if picture is None:
            return [math.nan] * len(FEATURES)
        scale = SIDE / max(picture.shape[:2])
        size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
        picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
        hsv = cv2.cvtColor(picture, cv2.COLOR_BGR2HSV).astype(np.float64)
        hue, saturation, value = hsv[..., 0] * np.pi / 90, hsv[..., 1] / 255, hsv[..., 2] / 255
        direction = (np.exp(1j * hue) * saturation * value).mean()
        light = grey.astype(np.float64) / 255
        faces = self._faces.detectMultiScale(
            grey, scaleFactor=STEP, minNeighbors=NEIGHBOURS, minSize=(SMALLEST_FACE, SMALLEST_FACE)
        )
        return [
            float(light.mean()),
            math.degrees(np.angle(direction)) % 360 if abs(direction) > 1e-9 else math.nan,
            float(saturation.mean()),
            float(value.mean()),
            float(light.std()),
            float(cv2.Laplacian(light, cv2.CV_64F).var()),
            float(len(faces) > 0),
            math.nan if text_area is None else text_area,
        ]

    def original(self, data: bytes) -> list[float]:
        """Return the values of :data:`ORIGINAL` of the picture in its own size (FigSIM 4.3), all NaN if it is none.

        Hue, in degrees, is the plain mean, and faces are found with OpenCV's defaults: the paper states no others.
        """
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        if picture is None:
            return [math.nan] * len(ORIGINAL)
        grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
        hue, saturation, value, _ = cv2.mean(cv2.cvtColor(picture, cv2.COLOR_BGR2HSV))
        light, contrast = (float(x.item()) / 255 for x in cv2.meanStdDev(grey))
        face = len(self._faces.detectMultiScale(grey)) > 0
        return [light, 2 * hue, saturation / 255, value / 255, contrast, float(face)]
