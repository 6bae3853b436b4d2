"""Read a text as the scrubber's rules do: disguises of addresses and numbers undone, each character traced to the text.

Compatibility forms are folded and invisible characters dropped; entities, escapes and spelled signs ("[at]", "punto")
become the sign.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from pipelines.collect.hosts import COUNTRY, NO_ADDRESS
from pipelines.collect.read.words import words

Spans = list[tuple[int, int]]

_PLAIN = re.compile(r"[\t\n\r -~]*+")
_ODD = re.compile(r"([^\t\n\r -~])")
INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# letters and symbols without a shape; other characters of no width have a category of their own
_FILLERS = "\u115f\u1160\u3164\uffa0\u2800"
# beyond NFKC: punctuation that stands for a sign of an address
_SIGNS = str.maketrans("\u3002\u2010\u2011\u2012\u2015\u2212\u2019\u2044\u2215", ".-----'//")


class _Folding(dict[str, str]):
    """The form in which rules read a character, made on first use; empty for marks and invisible characters."""

    def __missing__(self, char: str) -> str:
        category = unicodedata.category(char)
        if category in {"Mn", "Me", "Cf"} or char in _FILLERS or (category == "Cc" and char not in "\t\n\r"):
            folded = ""
        else:
            plain = unicodedata.normalize("NFKC", char).translate(_SIGNS)
            folded = "".join(str(unicodedata.decimal(c, c)) for c in plain if unicodedata.category(c) != "Mn") or " "
        self[char] = folded
        return folded


_FOLDED = _Folding()
_LISTED = COUNTRY - NO_ADDRESS | {"com", "org", "net", "edu", "gov", "info", "app", "me", "it", "in"}
_ENDS = rf"(?:{'|'.join(sorted(_LISTED))})\b"
_PROVIDERS = words("gmail googlemail yahoo hotmail outlook live icloud aol gmx protonmail proton tutanota zoho")
PROVIDER = rf"(?:{'|'.join(_PROVIDERS)})"
_NO_LABEL = r"(?!(?:the|a|an|this|that|every|each|any|some|my|your|his|her|their|our|one)\b)"
# "at" and "dot" in English, German, French, Spanish, Italian, Portuguese, Polish and Dutch
_AT, _DOT = "(?:at|ät|arroba|chiocciola|chez|malpa|małpa|apenstaartje)", "(?:dot|punkt|punto|point|ponto|kropka|punt)"
# ways to write "@", "." and ":" of an address: "[at]", "(dot)", "name at host dot com", "1 . 2 . 3 . 4"
_BRACKETED = re.compile(
    rf"[\[({{<]{{1,3}}\s?(?:(?P<at>a|@|{_AT})|(?P<dot>\.|{_DOT})|(?P<colon>:))\s?[\])}}>]{{1,3}}", re.IGNORECASE
)
# Markdown's escapes, HTML's entities and percent-encoded signs, and letters in place of a digit between digits
_ESCAPED = re.compile(
    r"""\\(?P<plain>[_*~.\#@/-])|(?P<at>%40|&\#0*64;|&\#x0*40;|&commat;)|(?P<dot>%2e|&\#0*46;|&period;)
    |(?P<line>%5f|&\#0*95;|&lowbar;|(?<=\w)\ underscore\ (?=\w))|(?P<slash>(?<=\w)\ slash\ (?=\w))
    |(?<=[0-9])(?P<one>[Il|])(?=[0-9])
    |(?<=[0-9])(?P<zero>[oO])(?=[0-9]|[-. ][0-9oO])
    |(?<=[0-9][-. ])(?P<null>[oO])(?=[0-9])""",
    re.IGNORECASE | re.VERBOSE,
)
_LETTER_DIGIT = re.compile(r"[0-9][-. ]?[oOIl|]")
_MEANT = {"at": "@", "dot": ".", "colon": ":", "line": "_", "slash": "/", "one": "1", "zero": "0", "null": "0"}
_SPELLED = re.compile(
    rf"""(?<=\w)(?:
        (?P<at>\s@\s(?=[\w-]{{1,63}}(?:\.\w|\s(?:{_DOT}|\.)\s))
            |(?:\s@\s?|@\s)(?={PROVIDER}\.|[\w-]{{1,63}}\.(?:com|org|net|edu)\b)
            |(?:\s{_AT}\s|_at_|-at-){_NO_LABEL}(?={PROVIDER}(?:\.|\s{_DOT}\s)|[\w-]{{1,63}}(?:\s(?:{_DOT}|\.)\s|[_-]dot[_-]))
            |_at_(?=[\w-]{{1,63}}\.\w)
            |(?P<cued>\sat\s)(?![\w.+-]{{1,64}}@)(?=[\w-]{{1,63}}\.[a-z]))
        |(?:\s\.|(?<=www)\.\s|\.\s(?=\w{{2,3}}/))(?={_ENDS}|(?<=www..)\w)
        |(?:\s(?:{_DOT}|\.)\s|_dot_|-dot-)(?={_ENDS}|[\w-]{{1,63}}\s{_DOT}\s{_ENDS}|[\w.-]{{1,63}}\s?(?:@|at\b|[\[({{]))
        |(?<=www)\sdot\s
        |(?<=[0-9])\s(?:dot|\.)\s(?=[0-9])
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# every spelled sign is one of these or has one of these behind it
_SPELLINGS: tuple[str, ...] = (
    "dot",
    " . ",
    " .com",
    " .org",
    " .net",
    " .co",
    " @",
    "@ ",
    " punkt ",
    " punto ",
    " point ",
    " ponto ",
    " kropka ",
    " punt ",
    "_at_",
    "www. ",
    ". com/",
    ". org/",
    ". net/",
    "mail",
    "contact",
    "write",
)
_SPELLINGS += (" at yahoo", " at outlook", " at icloud", " at proton", " at aol", " at gmx", " at live.", " at zoho")
_OPENS = re.compile(r"\b(?:the|a|an|this|that|every|each|any|some|my|of|whole|big|old|dot)$", re.IGNORECASE)
_OPENING = 8
_WRITES = re.compile(
    r"\b(?:e-?mail|mail|contact|write)(?: (?:me|us|him|her|to|is))?[: ]{1,2}[\w.+-]{1,40}$", re.IGNORECASE
)
_WRITING = 64


class Reading:
    """A text as rules read it: compatibility forms folded, invisible characters gone or a space, disguises undone.

    ``originals`` holds what stands in the text for each character of ``copy``, so masking needs no offsets.
    """

    def __init__(self, text: str, *, gap: str) -> None:
        self.copy, self.lead = text, ""
        self.originals = list(text) if _PLAIN.fullmatch(text) else self._folded(text, gap=gap)
        if (
            "\\" in text
            or "&" in text
            or "%" in text
            or " underscore " in text.lower()
            or " slash " in text.lower()
            or _LETTER_DIGIT.search(self.copy)
        ):
            meant = [(*m.span(), m["plain"] or _MEANT[str(m.lastgroup)]) for m in _ESCAPED.finditer(self.copy)]
            self._replace(meant, instead=self._together)
        if spans := [span for m in _BRACKETED.finditer(self.copy) if (span := _sign(m))]:
            self._replace(spans, instead=self._together)
        if has_one(_SPELLINGS, text=self.copy.lower()):
            found = [m for m in _SPELLED.finditer(self.copy) if not self._is_phrase(m)]
            self._replace([(*m.span(), "@" if m["at"] else ".") for m in found], instead=self._together)
        self.lowered = self.copy.lower()

    def _folded(self, text: str, *, gap: str) -> list[str]:
        plain, *rest = _ODD.split(text)
        copy, originals = [plain], list(plain)
        for char, plain in zip(rest[::2], rest[1::2], strict=True):
            if folded := _FOLDED[char] or (gap if INVISIBLE.match(char) else ""):
                copy.append(folded)
                originals += [char, *[""] * (len(folded) - 1)]
            elif originals:
                originals[-1] += char
            else:
                self.lead += char
            copy.append(plain)
            originals += plain
        self.copy = "".join(copy)
        return originals

    def _is_phrase(self, match: re.Match[str]) -> bool:
        """Return whether a spelled sign is a word of prose, as in "the dot com years" and "I work at example.com"."""
        start = match.start()
        if match["cued"]:
            return not _WRITES.search(self.copy, max(0, start - _WRITING), start)
        return match.group().lower() in {" dot ", " point ", " punt ", " ."} and bool(
            _OPENS.search(self.copy, max(0, start - _OPENING), start)
        )

    def mask(self, spans: Spans, *, placeholder: str) -> None:
        """Replace these spans of the copy by a placeholder, in the text too."""
        whole = []
        for start, end in spans:
            # never from within what one character folds to
            first = next(at for at in range(start, -1, -1) if self.originals[at] or not at)
            whole.append((first, end, placeholder))
        self._replace(whole, instead=lambda start, end: list(placeholder))

    def _together(self, start: int, end: int) -> list[str]:
        return ["".join(self.originals[start:end])]

    def _replace(self, spans: list[tuple[int, int, str]], *, instead: Callable[[int, int], list[str]]) -> None:
        copy, originals, done = [], [], 0
        for start, end, new in spans:
            copy += [self.copy[done:start], new]
            originals += [*self.originals[done:start], *instead(start, end)]
            done = end
        self.copy = "".join([*copy, self.copy[done:]])
        self.originals = [*originals, *self.originals[done:]]

    @property
    def text(self) -> str:
        """The text, with what was masked."""
        return self.lead + "".join(self.originals)


def _sign(match: re.Match[str]) -> tuple[int, int, str] | None:
    """Return where a sign in brackets stands, with a space on each side, and the sign, unless nothing precedes it."""
    (start, end), text = match.span(), match.string
    start -= text[start - 1 : start].isspace()
    end += text[end : end + 1].isspace()
    return (start, end, _MEANT[str(match.lastgroup)]) if text[start - 1 : start].isalnum() else None


def has_one(signs: tuple[str, ...], *, text: str) -> bool:
    for sign in signs:  # noqa: SIM110 (each text asks every rule, and any() takes twice as long)
        if sign in text:
            return True
    return False
