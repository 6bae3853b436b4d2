"""Mask personal data in text before anything is stored: addresses, numbers, accounts; optionally names and places.

Every kind has deterministic rules in one table, ``RULES``; each match becomes ``<kind>``. In case of doubt a rule masks
more, not less. Rules read a normalised copy of the text (``_Reading``), and what they find is masked in the text. Each
rule is linear in the length of the text: patterns are possessive and tried once per run of characters.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import AddressValueError, IPv6Address
from typing import Any

from pipelines.collect.hosts import is_address
from pipelines.collect.phones import phones
from pipelines.collect.read.words import words
from pipelines.core.errors import BadParams, ConfigError

Spans = list[tuple[int, int]]
Finder = Callable[[str], Spans]

_PLAIN = re.compile(r"[\t\n\r -~]*+")
_ODD = re.compile(r"([^\t\n\r -~])")
_INVISIBLE = re.compile(
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
_ENDS = r"(?:com|org|net|edu|gov|io|co|info|me|de|uk|fr|ca|us|app|dev|tv|gg)\b"
_PROVIDERS = words("gmail googlemail yahoo hotmail outlook live icloud aol gmx protonmail proton tutanota zoho")
_PROVIDER = rf"(?:{'|'.join(_PROVIDERS)})"
_NO_LABEL = r"(?!(?:the|a|an|this|that|every|each|any|some|my|your|his|her|their|our|one)\b)"
# ways to write "@", "." and ":" of an address: "[at]", "(dot)", "name at host dot com", "1 . 2 . 3 . 4"
_BRACKETED = re.compile(r"[\[({<]{1,3}\s?(?P<sign>a|at|ät|dot|[@.:])\s?[\])}>]{1,3}", re.IGNORECASE)
_SPELLED = re.compile(
    rf"""(?<=\w)(?:
        (?P<at>\s@\s(?=[\w-]{{1,63}}(?:\.\w|\s(?:dot|\.)\s))
            |(?:\sat\s|_at_|-at-){_NO_LABEL}(?={_PROVIDER}\.|[\w-]{{1,63}}(?:\s(?:dot|\.)\s|[_-]dot[_-]))
            |_at_(?=[\w-]{{1,63}}\.\w)
            |(?P<cued>\sat\s)(?=[\w-]{{1,63}}\.[a-z]))
        |(?:\s\.|(?<=www)\.\s|\.\s(?=\w{{2,3}}/))(?={_ENDS}|(?<=www..)\w)
        |(?:\s(?:dot|\.)\s|_dot_|-dot-)(?={_ENDS}|[\w-]{{1,63}}\sdot\s{_ENDS}|[\w.-]{{1,63}}\s?(?:@|at\b|[\[({{]))
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
    " @ ",
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


class _Reading:
    """A text as rules read it: compatibility forms folded, invisible characters gone or a space, disguises undone.

    ``originals`` holds what stands in the text for each character of ``copy``, so masking needs no offsets.
    """

    def __init__(self, text: str, *, gap: str) -> None:
        self.copy, self.lead = text, ""
        self.originals = list(text) if _PLAIN.fullmatch(text) else self._folded(text, gap=gap)
        if spans := [span for m in _BRACKETED.finditer(self.copy) if (span := _sign(m))]:
            self._replace(spans, instead=self._together)
        if _has_one(_SPELLINGS, text=self.copy.lower()):
            found = [m for m in _SPELLED.finditer(self.copy) if not self._is_phrase(m)]
            self._replace([(*m.span(), "@" if m["at"] else ".") for m in found], instead=self._together)
        self.lowered = self.copy.lower()

    def _folded(self, text: str, *, gap: str) -> list[str]:
        plain, *rest = _ODD.split(text)
        copy, originals = [plain], list(plain)
        for char, plain in zip(rest[::2], rest[1::2], strict=True):
            if folded := _FOLDED[char] or (gap if _INVISIBLE.match(char) else ""):
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
        return match.group().lower() in {" dot ", " ."} and bool(
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
    sign = {"a": "@", "at": "@", "ät": "@", "dot": "."}.get(match["sign"].lower(), match["sign"])
    return (start, end, sign) if text[start - 1 : start].isalnum() else None


_URL = re.compile(r"(?<![A-Za-z0-9+.\-])[A-Za-z0-9+.\-]++://(?:\[[0-9A-Fa-f:.%]*+\])?[^\s<>\[\]\"`|]++")
# a scheme that was broken or altered so that no program makes it a link
_BROKEN_URL = re.compile(
    r"(?<![^\W_])(?i:h(?:tt|xx)ps?)(?:\s?[:;]\s?[/\\]{1,3}\s?|[/\\]{2})(?=[\w-]{1,63}\.)[^\s<>\[\]\"`|]++"
)
# characters attached to a name are masked with it ("@a@b.example", "u/name/comments"), so that nothing readable is left
_GLUED = r"[\w@/.:%\\-]*+"
_EMAIL = re.compile(
    rf"""(?:\"[^\"\n@]{{1,64}}\"|(?<![\w.+%-])(?<![\w.+%-]')[\w.+%-]++(?:'[\w.+%-]++)*+)@
    (?:(?P<host>[\w-]++(?:\.[\w-]++)++)|(?i:{_PROVIDER})\b|\[[0-9A-Fa-f:.]{{3,45}}\]|[\w-]++(?:,|\.\ )(?:com|org|net)\b)
    (?:[@/]{_GLUED}(?:'{_GLUED})*+)?""",
    re.VERBOSE,
)
_NAME = r"(?:[A-Za-z0-9_-]|\\[_-]){2,}+"
_BEFORE_NAME = r"(?<![^\W_])"
_USER = re.compile(
    rf"(?:/(?:u|user)\\?/{{1,2}}|{_BEFORE_NAME}u\\?/{{1,2}}|{_BEFORE_NAME}(?:user/|u\ ?/\ )(?=[A-Za-z]{{0,20}}[0-9_]))"
    rf"{_NAME}{_GLUED}",
    re.IGNORECASE,
)
_SUBREDDIT = re.compile(rf"(?:/r/|{_BEFORE_NAME}r\\?/){_NAME}{_GLUED}", re.IGNORECASE)
_HOST = re.compile(r"(?:(?<![\w@/\\-])|(?<=//))[\w-]++(?:\.[\w-]++)++")
_REST = re.compile(r"(?:[/\\](?![_*-])|:[0-9]|[?#]\w)[^\s<>\[\]\"`|]*+")
_IP4 = re.compile(
    rf"(?P<ip>[0-9](?<!\w[0-9])(?<!\w\.[0-9])[0-9]{{0,2}}(?:\.[0-9]{{1,3}}){{3}})(?![0-9]|\.[0-9])(?:[:/@%\w]{_GLUED})?"
)
_VERSION = re.compile(
    r"\b(?:v|ver|versions?|firmware|build|releases?|updated?|patch|drivers?|sections?|chapter|sdk|api|ios|android)"
    r"(?: to)?[.:=]?\s?$",
    re.IGNORECASE,
)
_IP6 = re.compile(r"(?:(?<!\w)(?<!\w\.)(?=[0-9A-Fa-f]{0,4}:)|(?=::))[0-9A-Fa-f:.]++")
_BEHIND_IP6 = re.compile(rf"[%/@]{_GLUED}")
_HANDLE = re.compile(
    rf"(?:(?<![\w@])|(?<=_)|(?<=\bRT)|(?<=\brt))(?:@++|@ (?=[A-Za-z]{{2,20}}[0-9_]))(?=[\d_.]*+[^\W\d_])\w{_GLUED}"
)
_TIME = re.compile(r"@\d{1,2}[ap]m", re.IGNORECASE)
_ACCOUNT = re.compile(
    r"""(?<![^\W_])(?:insta(?:gram)?|ig|snap(?:chat)?|sc|kik|discord|telegram|tg|twitter|tik\ ?tok|psn|xbox|gamertag|
    steam|twitch|reddit(?:or)?|user\ ?name|user|venmo|cash\ ?app|signal|skype|wechat|wickr|threads|bluesky|
    tumblr|youtube|facebook|fb|messenger)
    (?:\s(?:me|id|name|user\ ?name|handle|tag|account|is|as|at|on)\b){0,3}\s?[:=@-]{0,2}\s?
    (?P<found>[a-z_][\w.-]{3,31})""",
    re.IGNORECASE | re.VERBOSE,
)
_LIKE_ACCOUNT = re.compile(r"[0-9_.](?:(?<=[A-Za-z_][0-9])|(?<=_)|(?<=[A-Za-z]\.)(?=[A-Za-z]))")
_CARD = re.compile(r"[3-6](?<![\w-][3-6])(?<!\w[.,][3-6])[0-9]{3}(?:[ -]?[0-9]){8,15}(?![\w-]|[.,][0-9])")
_IBAN = re.compile(r"[A-Z](?<!\w[A-Z])[A-Z][0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_COORDINATES = re.compile(
    r"""(?<!\w)(?<!\w\.)(?:
        (?:[NS]\ ?)?[+-]?[0-9]{1,2}\.[0-9]{4,10}(?:\ ?°)?(?:\ ?[NS]\b)?(?:\ ?,\ ?|\ )
        (?:[EW]\ ?)?[+-]?[0-9]{1,3}\.[0-9]{4,10}(?:\ ?°)?(?:\ ?[EW]\b)?(?!\w|\.[0-9])
        |[0-9]{1,2}\ ?°\ ?[0-9.]{1,8}\ ?(?:['\u2032]\ ?(?:[0-9.]{1,8}\ ?(?:\"|['\u2032]{2})\ ?)?)?[NS]\b,?\ ?
        [0-9]{1,3}\ ?°\ ?[0-9.]{1,8}\ ?(?:['\u2032]\ ?(?:[0-9.]{1,8}\ ?(?:\"|['\u2032]{2})\ ?)?)?[EW]\b
    )""",
    re.VERBOSE,
)
_FINE = re.compile(r"[.°](?:(?<=°)|[0-9]{4})")
_DISCORD = re.compile(r"(?<![\w#.])(?P<name>[\w.]{2,32}+)#[0-9]{4}(?!\w)")
_NUMBERED = frozenset(words("order issue room ticket case claim apt flat suite unit lot item page track bus pr bug"))
_MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_BIRTH = re.compile(
    rf"""(?<!\w)(?:born(?:\ on)?|d\.?o\.?b\.?|date\ of\ birth|birth\ ?(?:day|date)|b-?day)
    (?:\ (?:is|was|on)){{0,2}}[\ :=-]{{0,3}}
    (?P<found>[0-9]{{1,4}}(?P<sign>[-./])[0-9]{{1,2}}(?:(?P=sign)[0-9]{{1,4}})?(?!\w)
        |{_MONTH}\ [0-9]{{1,2}}(?:st|nd|rd|th)?\b(?:,?\ [0-9]{{4}}\b)?
        |[0-9]{{1,2}}(?:st|nd|rd|th)?(?:\ of)?\ {_MONTH}(?:,?\ [0-9]{{4}}\b)?)""",
    re.IGNORECASE | re.VERBOSE,
)
_AFTER_URL = ".,;:!?'\"*_~}\\-"
_AFTER_NAME = ".:-\\"
# The longest text form of an IPv6 address, with an embedded IPv4 address.
_IP6_CHARACTERS = 45
_PASSES = 16
_TANGLE = re.compile(r"(?<![^\s<>])[^\s<>0-9@./:]*+[0-9@./:][^\s<>]*+")
# The most labels of an address within dotted words.
_LABELS = 6
_DIGIT = re.compile("[0-9]")
_REGIONS = re.compile(r"[A-Z]{2}(?:\+[A-Z]{2})*+")


def scrub(text: str, *, kinds: Sequence[str]) -> tuple[str, dict[str, int]]:
    """Replace personal data of these ``kinds`` in ``text`` by placeholders; return the text and the matches by kind.

    ``phone:ES+NO`` adds the national formats of countries. ``names`` and ``places`` need spaCy and an English model;
    ``names:review`` leaves them in the text and counts them, so that people can look at the record.

    Passes are repeated until nothing is found, so scrubbing a result again changes nothing. Adversarial text may yield
    new matches in every pass: after sixteen, every word with a digit or one of ``@./:`` becomes ``<removed>``, so that
    no recogniser can match any more.
    """
    rules, reviewed = _chosen(tuple(kinds))
    counts: Counter[str] = Counter()
    # an invisible character parts two words or stands within one
    gaps = ("", " ") if _INVISIBLE.search(text) else ("",)
    for _ in range(_PASSES):
        before = counts.total()
        for gap in gaps:
            reading = _Reading(text, gap=gap)
            for rule in rules:
                if _has_one(rule.needs, text=reading.lowered) and (spans := rule.find(reading.copy)):
                    counts[rule.kind] += len(spans)
                    reading.mask(spans, placeholder=f"<{rule.kind.removesuffix('s')}>")
            text = reading.text
        if counts.total() == before:
            break
    else:
        for gap in gaps:
            reading = _Reading(text, gap=gap)
            spans = _spans(_TANGLE, text=reading.copy)
            counts["removed"] += len(spans)
            reading.mask(spans, placeholder="<removed>")
            text = reading.text
    for rule in reviewed:
        if spans := rule.find(text):
            counts[f"{rule.kind}:review"] = len(spans)
    return text, dict(sorted(counts.items()))


def _has_one(signs: tuple[str, ...], *, text: str) -> bool:
    for sign in signs:  # noqa: SIM110 (each text asks every rule, and any() takes twice as long)
        if sign in text:
            return True
    return False


def _links(text: str) -> Spans:
    spans = []
    for match in _URL.finditer(text):
        end = _trimmed(match.group())
        spans.append((match.start(), match.start() + max(end, match.group().index("://") + 3)))
    return spans


def _broken_links(text: str) -> Spans:
    return [(match.start(), match.start() + _trimmed(match.group())) for match in _BROKEN_URL.finditer(text)]


def _trimmed(address: str) -> int:
    """Return the length of an address without the punctuation of the sentence, and without a bracket that it ends."""
    unpaired = address.count(")") - address.count("(")
    end = len(address)
    while end and (address[end - 1] in _AFTER_URL or (address[end - 1] == ")" and unpaired > 0)):
        unpaired -= address[end - 1] == ")"
        end -= 1
    return end


def _hosts(text: str) -> Spans:
    spans = []
    at = 0
    while match := _HOST.search(text, at):
        host, at = match.group(), match.end()
        # only its beginning: of a host that is none, the rest is read again for the next one
        rest = _REST.match(text, at, at + 2)
        if is_address(host, alone=not rest or rest.group()[0] in "?#"):
            at = whole.end() if (whole := _REST.match(text, at)) else at
            address = text[match.start() : at].rstrip(_AFTER_URL + ")")
            spans.append((match.start(), match.start() + len(address)))
        else:
            spans += _within(host, offset=match.start())
    return spans


def _within(host: str, *, offset: int) -> Spans:
    """Return the addresses within dotted words, as a missing space may join one to a sentence ("example.com.It")."""
    spans, labels, at = [], host.split("."), 0
    while at < len(labels) - 1:
        for count in range(min(_LABELS, len(labels) - at), 1, -1):
            address = ".".join(labels[at : at + count])
            if is_address(address, alone=True):
                spans.append((offset, offset + len(address)))
                break
        else:
            address, count = labels[at], 1
        offset += len(address) + 1
        at += count
    return spans


def _ip6(text: str) -> Spans:
    spans = []
    at = 0
    while match := _IP6.search(text, at):
        address, at = match.group().rstrip("."), match.end()
        if address.endswith(":") and not address.endswith("::"):
            address = address[:-1]
        wordy = text[at : at + 1].isalnum() or text[at : at + 1] == "_" or not re.search("[0-9]", address)
        if not wordy and len(address) <= _IP6_CHARACTERS and _is_ip6(address):
            end = match.start() + len(address)
            if behind := _BEHIND_IP6.match(text, end):
                end = at = _end(behind)
            spans.append((match.start(), end))
    return spans


def _accounts(text: str) -> Spans:
    if "@" not in text and not _LIKE_ACCOUNT.search(text):  # the search for names of services takes ten times as long
        return []
    return [match.span("found") for match in _ACCOUNT.finditer(text) if _is_account(match)]


def _is_account(match: re.Match[str]) -> bool:
    behind_at = match.string[match.start("found") - 1] == "@"
    return behind_at or bool(_LIKE_ACCOUNT.search(match["found"]))


def _coordinates(text: str) -> Spans:
    return _spans(_COORDINATES, text=text) if _FINE.search(text) else []


def _births(text: str) -> Spans:
    return [match.span("found") for match in _BIRTH.finditer(text)] if _DIGIT.search(text) else []


def _entities(text: str, *, labels: frozenset[str]) -> Spans:
    spans = [(e.start_char, e.end_char) for e in _model()(text).ents if e.label_ in labels]
    return [(start, end) for start, end in spans if not {"<", ">"} & set(text[start:end])]


@cache
def _model() -> Any:
    try:
        return importlib.import_module("spacy").load("en_core_web_sm")
    except (ImportError, OSError):
        raise ConfigError(
            "RecogniserMissing",
            kind="names and places",
            package="spaCy and its model en_core_web_sm",
            command="pip install 'crisis-corpus[names]' && python -m spacy download en_core_web_sm",
        ) from None


def _spans(pattern: re.Pattern[str], *, text: str) -> Spans:
    return [match.span() for match in pattern.finditer(text)]


def _matching(pattern: re.Pattern[str], valid: Callable[[re.Match[str]], bool] = bool) -> Finder:
    """Return a finder of a pattern's valid matches, without the signs of a sentence at their ends."""
    return lambda text: [(match.start(), _end(match)) for match in pattern.finditer(text) if valid(match)]


def _end(match: re.Match[str]) -> int:
    return match.start() + len(match.group().rstrip(_AFTER_NAME))


def _is_email(match: re.Match[str]) -> bool:
    ending = (match["host"] or ".com").rpartition(".")[2]
    return (len(ending) >= 2 and not ending.isdigit()) or _in_octets(match["host"])


def _is_ip4(match: re.Match[str]) -> bool:
    versioned = _VERSION.search(match.string, max(0, match.start() - 16), match.start())
    return not versioned and _in_octets(match["ip"])


def _in_octets(address: str) -> bool:
    parts = address.split(".")
    return len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts)


def _is_ip6(address: str) -> bool:
    try:
        IPv6Address(address)
    except AddressValueError:
        return False
    return True


def _is_card(match: re.Match[str]) -> bool:
    digits = [int(sign) for sign in match.group() if sign.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[::-2]) + sum(doubled)) % 10 == 0


def _is_iban(match: re.Match[str]) -> bool:
    compact = match.group().replace(" ", "")
    return int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to find strings of a kind. Every match has one of ``needs``; texts without them are not searched."""

    kind: str
    needs: tuple[str, ...]
    find: Finder


_DIGITS = tuple("0123456789")
# The order matters: kinds that contain others come first (a link has hosts, names and numbers in it), numbers last.
RULES = (
    Rule("url", ("://",), _links),
    Rule("url", ("ttp", "xxp"), _broken_links),
    Rule("email", ("@",), _matching(_EMAIL, _is_email)),
    Rule("url", (".",), _hosts),
    Rule("user", ("u/", "r/", "u\\/", "u /"), _matching(_USER)),
    Rule("subreddit", ("r/", "r\\/"), _matching(_SUBREDDIT)),
    Rule("ip", (":",), _ip6),
    Rule("ip", (".",), _matching(_IP4, _is_ip4)),
    Rule("handle", ("@",), _matching(_HANDLE, lambda match: not _TIME.fullmatch(match.group()))),
    Rule("iban", _DIGITS, _matching(_IBAN, _is_iban)),
    Rule("card", tuple("3456"), _matching(_CARD, _is_card)),
    Rule("coordinates", (".", "°"), _coordinates),
    Rule("discord", ("#",), _matching(_DISCORD, lambda match: match["name"].lower() not in _NUMBERED)),
    Rule("birth", ("born", "birth", "dob", "o.b", "bday", "b-day"), _births),
    Rule("handle", ("",), _accounts),
    Rule("phone", _DIGITS, phones),
    Rule("names", ("",), partial(_entities, labels=frozenset({"PERSON"}))),
    Rule("places", ("",), partial(_entities, labels=frozenset({"GPE", "LOC", "FAC"}))),
)
KINDS = tuple(dict.fromkeys(rule.kind for rule in RULES))
# kinds that a model finds, which "review" counts and leaves in the text
MODELLED = ("names", "places")


@cache
def _chosen(kinds: tuple[str, ...]) -> tuple[list[Rule], list[Rule]]:
    """Return the rules of these kinds that mask, and those that only count."""
    options = {kind: option for kind, _, option in (entry.partition(":") for entry in kinds)}
    wrong = sorted(
        entry
        for entry in kinds
        for kind, colon, option in [entry.partition(":")]
        if kind not in KINDS
        or (colon and not (option == "review" if kind in MODELLED else kind == "phone" and _REGIONS.fullmatch(option)))
    )
    if wrong:
        known = f"{', '.join(KINDS)}, phone:GB+IE (countries), names:review, places:review"
        raise BadParams(where="collect.scrub", detail=f"unknown kinds {wrong}, known are {known}")
    if regions := options.get("phone"):
        phone = Rule("phone", _DIGITS, partial(phones, regions=regions.split("+")))
    rules = [phone if rule.kind == "phone" and regions else rule for rule in RULES if rule.kind in options]
    reviewed = [rule for rule in rules if options[rule.kind] == "review"]
    return [rule for rule in rules if rule not in reviewed], reviewed
