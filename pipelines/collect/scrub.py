"""Mask addresses, numbers and names of persons in text before anything is stored.

Every kind has one deterministic recogniser; each match becomes ``<kind>``. In case of doubt a rule masks more, not
less. Each rule is linear in the length of the text: patterns are possessive and tried once per run of characters.

Telephone numbers are found by the pattern of their digit groups, never by length alone: numbers are read once, left to
right, as runs of groups (``(555) 123-4567`` is ``555``, ``123``, ``4567``); a run is then divided into dates, telephone
numbers and the rest. The rules are ours, based on ITU-T E.123 and E.164.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any

from pipelines.core.errors import BadParams, ConfigError

_RUN = re.compile(r"(?:\+[(]?|(?<![^\W_])[(]{0,2})[0-9]++(?:[)]?[ \u00a0]?[-./\u2010-\u2013(]?[ \u00a0]?[(]?[0-9]++)*+")
_GROUP = re.compile(r"[0-9]++")
_MONEY_BEFORE = re.compile(r"[$€£¥₹][ \u00a0]?[+(]?$")
_MONEY_AFTER = re.compile(r"[ \u00a0]?(?:[€£$¥₹%]|(?:usd|eur|gbp|dollars?|euros?|bucks|pounds)\b)", re.IGNORECASE)
# a word that announces a number, within a few words before it
_CUE = re.compile(
    r"(?<!<)\b(?:call|phone|ph|tel|telephone|mobile|cell|whatsapp|sms|text|fax|dial|my number)\b[^0-9\n]{0,16}$",
    re.IGNORECASE,
)
_CUE_CHARACTERS = 32
_EXTENSION = re.compile(r"[ \u00a0]?(?:x|ext\.?)[ \u00a0]?[0-9]{1,5}\b", re.IGNORECASE)
_EXIT = re.compile("00[1-9]")
_TRUNK = re.compile("0[1-9]")
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")
# E.164: at most 15 digits including the country code; no international number in use has fewer than 8.
_INTERNATIONAL = range(8, 16)
# National numbers with their trunk 0: Germany's longest have 12 digits; France's have 9 without the 0.
_NATIONAL = range(9, 13)
_ANNOUNCED = range(7, 16)
_MOST_GROUPS = 8
_BETWEEN = " \u00a0-./)\u2010\u2011\u2012\u2013"


@dataclass(frozen=True, slots=True)
class _DigitGroup:
    start: int
    end: int
    digits: str
    before: str


def _phones(text: str) -> list[tuple[int, int]]:
    """Return the (start, end) positions of the telephone numbers in ``text``, in order and without overlap."""
    numbers: list[tuple[int, int]] = []
    if not _GROUP.search(text):  # the search for runs takes ten times as long
        return numbers
    for run in _RUN.finditer(text):
        if run.end() - run.start() >= 7:
            numbers += _cut(text, start=run.start(), end=run.end())
    return numbers


def _cut(text: str, *, start: int, end: int) -> list[tuple[int, int]]:
    groups, before = [], start
    for match in _GROUP.finditer(text, start, end):
        groups.append(_DigitGroup(match.start(), match.end(), match.group(), text[before : match.start()]))
        before = match.end()
    if text[end : end + 1].isalnum() and not _EXTENSION.match(text, end):
        groups.pop()  # "4567px" is not a group of a number
    if not groups:
        return []
    numbers: list[tuple[int, int]] = []
    money = _MONEY_BEFORE.search(text, max(0, groups[0].start - 4), groups[0].start)
    announced = bool(_CUE.search(text, max(0, groups[0].start - _CUE_CHARACTERS), groups[0].start))
    at, continued = (1, True) if money else (0, False)
    while at < len(groups):
        here = groups[at : at + _MOST_GROUPS]
        length = _date(here)
        if not length:
            length = _phone(here, announced=announced and at == 0, continued=continued)
            if length and not _MONEY_AFTER.match(text, here[length - 1].end):
                numbers.append(_span(text, first=here[0], last=here[length - 1]))
        # "1 020 300 400" is one number in groups of three, not "1" and a telephone number
        continued = not length and len(here[0].digits) <= 3
        at += length or 1
    return numbers


def _date(groups: list[_DigitGroup]) -> int:
    """Return 3 if the groups start with a date of three groups, else 0."""
    if len(groups) < 3 or groups[1].before not in {"-", ".", "/"} or groups[1].before != groups[2].before:
        return 0
    if len(groups) > 3 and groups[3].before == groups[2].before:
        return 0
    first, middle, last = (g.digits for g in groups[:3])
    year, *rest = (first, middle, last) if len(first) == 4 else (last, middle, first)
    fits = all(len(d) <= 2 and 1 <= int(d) <= 31 for d in rest) and (len(year) == 2 or bool(_YEAR.fullmatch(year)))
    return 3 if fits else 0


def _phone(groups: list[_DigitGroup], *, announced: bool, continued: bool) -> int:
    """Return the number of groups of the telephone number at the start, or 0 if there is none."""
    first = groups[0]
    if "+" in first.before or _EXIT.match(first.digits):
        if length := _longest(groups, allowed=_INTERNATIONAL):
            return length
    elif length := _north_american(groups):
        return length
    if _TRUNK.match(first.digits) and not continued and (length := _longest(groups, allowed=_NATIONAL)):
        return length
    sizes = [len(g.digits) for g in groups[:2]]
    if sizes == [5, 5] and first.digits[0] in "6789" and groups[1].before in {" ", "-"}:
        return 2  # India
    if announced and (length := _longest(groups, allowed=_ANNOUNCED)):
        return 0 if all(_YEAR.fullmatch(g.digits) for g in groups[:length]) else length
    return 0


def _north_american(groups: list[_DigitGroup]) -> int:
    trunk = 1 if groups[0].digits == "1" and len(groups) > 1 else 0
    rest = groups[trunk : trunk + 3]
    sizes = tuple(len(g.digits) for g in rest)
    if rest[0].digits[0] in "01":
        return 0
    if sizes == (3, 3, 4):
        return trunk + 3
    if sizes[:2] == (3, 7) and (")" in rest[1].before or "-" in rest[1].before):
        return trunk + 2
    return 2 if trunk and sizes[0] == 10 and "-" in rest[0].before else 0


def _longest(groups: list[_DigitGroup], *, allowed: range) -> int:
    """Return the largest number of groups, up to the next date, whose total number of digits is ``allowed``."""
    best = total = 0
    for count, group in enumerate(groups, start=1):
        if count > 1 and _date(groups[count - 1 :]):
            break
        total += len(group.digits)
        if total in allowed:
            best = count
    return best


def _span(text: str, *, first: _DigitGroup, last: _DigitGroup) -> tuple[int, int]:
    start = first.start - len(first.before.lstrip(_BETWEEN))
    end = last.end
    if extension := _EXTENSION.match(text, end):
        end = extension.end()
    # keep a bracket around the whole number in the text
    while text[start] == "(" and text.count("(", start, end) > text.count(")", start, end):
        start += 1
    return start, end


Finder = Callable[[str], list[tuple[int, int]]]

_URL = re.compile(r"(?<![A-Za-z0-9+.\-])[A-Za-z0-9+.\-]++://(?:\[[0-9A-Fa-f:.%]*+\])?[^\s<>\[\]\"`|]++")
# characters attached to a name are masked with it ("@a@b.example", "u/name/comments"), so that nothing readable is left
_GLUED = r"[\w@/.:%\\-]*+"
_EMAIL = re.compile(
    rf"(?<![\w.+%-])(?<![\w.+%-]')[\w.+%-]++(?:'[\w.+%-]++)*+@(?P<host>[\w-]++(?:\.[\w-]++)++)(?:[@/]{_GLUED}(?:'{_GLUED})*+)?"
)
_NAME = r"(?:[A-Za-z0-9_-]|\\[_-]){2,}+"
_USER = re.compile(rf"(?:/(?:u|user)/|(?<!\w)u/){_NAME}{_GLUED}", re.IGNORECASE)
_SUBREDDIT = re.compile(rf"(?:/r/|(?<!\w)r/){_NAME}{_GLUED}", re.IGNORECASE)
_HOST = re.compile(r"(?<![\w@/\\-])[\w-]++(?:\.[\w-]++)++")
_REST = re.compile(r"(?:/|:[0-9]|[?#]\w)[^\s<>\[\]\"`|]*+")
_DIGIT = re.compile("[0-9]")
_IP4 = re.compile(rf"(?<![\w.])(?P<ip>[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}})(?![0-9]|\.[0-9])(?:[:/@%\w]{_GLUED})?")
_IP6 = re.compile(r"(?:(?<![\w.])(?=[0-9A-Fa-f]{0,4}:)|(?=::))[0-9A-Fa-f:.]++")
_BEHIND_IP6 = re.compile(rf"[%/@]{_GLUED}")
_HANDLE = re.compile(rf"(?<![\w@])@++(?=[\d_.]*+[^\W\d_])\w{_GLUED}")
_TIME = re.compile(r"@\d{1,2}[ap]m", re.IGNORECASE)
_AFTER_URL = ".,;:!?'\"*_~}\\-"
_AFTER_NAME = ".:-\\"
# The longest text form of an IPv6 address, with an embedded IPv4 address.
_IP6_CHARACTERS = 45
_PASSES = 16
_TANGLE = re.compile(r"(?<![^\s<>])[^\s<>0-9@./:]*+[0-9@./:][^\s<>]*+")
# The most labels of an address within dotted words.
_LABELS = 6


def scrub(text: str, *, kinds: Sequence[str]) -> tuple[str, dict[str, int]]:
    """Replace personal data of these ``kinds`` in ``text`` by placeholders; return the text and the matches by kind.

    Passes are repeated until nothing is found, so scrubbing a result again changes nothing. Adversarial text may yield
    new matches in every pass: after sixteen, every word with a digit or one of ``@./:`` becomes ``<removed>``, so that
    no recogniser can match any more. ``names`` (of persons) needs spaCy and an English model.
    """
    if unknown := set(kinds) - set(KINDS):
        raise BadParams(where="collect.scrub", detail=f"unknown kinds {sorted(unknown)}, known are {', '.join(KINDS)}")
    counts: Counter[str] = Counter()
    for _ in range(_PASSES):
        before = counts.total()
        for kind, needed, find in _FINDERS:
            if kind in kinds and needed in text and (spans := find(text)):
                counts[kind] += len(spans)
                text = _replace(text, spans=spans, placeholder=f"<{kind.removesuffix('s')}>")
        if counts.total() == before:
            return text, dict(sorted(counts.items()))
    text, counts["removed"] = _TANGLE.subn("<removed>", text)
    return text, dict(sorted(counts.items()))


def _replace(text: str, *, spans: list[tuple[int, int]], placeholder: str) -> str:
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], placeholder]
        done = end
    return "".join([*parts, text[done:]])


def _links(text: str) -> list[tuple[int, int]]:
    spans = []
    for match in _URL.finditer(text):
        address = match.group()
        unpaired = address.count(")") - address.count("(")
        end = len(address)
        while end and (address[end - 1] in _AFTER_URL or (address[end - 1] == ")" and unpaired > 0)):
            unpaired -= address[end - 1] == ")"
            end -= 1
        spans.append((match.start(), match.start() + max(end, address.index("://") + 3)))
    return spans


def _emails(text: str) -> list[tuple[int, int]]:
    spans = []
    for match in _EMAIL.finditer(text):
        ending = match["host"].rpartition(".")[2]
        if (len(ending) >= 2 and not ending.isdigit()) or _valid(IPv4Address, text=match["host"]):
            spans.append((match.start(), _end(match)))
    return spans


def _hosts(text: str) -> list[tuple[int, int]]:
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


def _within(host: str, *, offset: int) -> list[tuple[int, int]]:
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


def _ip4(text: str) -> list[tuple[int, int]]:
    if not _DIGIT.search(text):
        return []
    return [(m.start(), _end(m)) for m in _IP4.finditer(text) if _valid(IPv4Address, text=m["ip"])]


def _ip6(text: str) -> list[tuple[int, int]]:
    spans = []
    at = 0
    while match := _IP6.search(text, at):
        address, at = match.group().rstrip("."), match.end()
        if address.endswith(":") and not address.endswith("::"):
            address = address[:-1]
        wordy = text[at : at + 1].isalnum() or text[at : at + 1] == "_" or not re.search("[0-9]", address)
        if not wordy and len(address) <= _IP6_CHARACTERS and _valid(IPv6Address, text=address):
            end = match.start() + len(address)
            if behind := _BEHIND_IP6.match(text, end):
                end = at = _end(behind)
            spans.append((match.start(), end))
    return spans


def _handles(text: str) -> list[tuple[int, int]]:
    return [(m.start(), _end(m)) for m in _HANDLE.finditer(text) if not _TIME.fullmatch(m.group())]


def _people(text: str) -> list[tuple[int, int]]:
    spans = [(e.start_char, e.end_char) for e in _entities()(text).ents if e.label_ == "PERSON"]
    return [(start, end) for start, end in spans if not {"<", ">"} & set(text[start:end])]


@cache
def _entities() -> Any:
    try:
        return importlib.import_module("spacy").load("en_core_web_sm")
    except (ImportError, OSError):
        raise ConfigError(
            "RecogniserMissing",
            kind="names",
            package="spaCy and its model en_core_web_sm",
            command="pip install 'crisis-corpus[names]' && python -m spacy download en_core_web_sm",
        ) from None


def _named(pattern: re.Pattern[str]) -> Finder:
    return lambda text: [(match.start(), _end(match)) for match in pattern.finditer(text)]


def _end(match: re.Match[str]) -> int:
    return match.start() + len(match.group().rstrip(_AFTER_NAME))


def _valid(kind: Callable[[str], object], *, text: str) -> bool:
    try:
        kind(text)
    except AddressValueError:
        return False
    return True


# The order matters: kinds that contain others come first (a link has hosts, names and numbers in it), numbers last.
# The second entry is a string that every match contains; texts without it are not searched.
_FINDERS: list[tuple[str, str, Finder]] = [
    ("url", "://", _links),
    ("email", "@", _emails),
    ("url", ".", _hosts),
    ("user", "/", _named(_USER)),
    ("subreddit", "/", _named(_SUBREDDIT)),
    ("ip", ":", _ip6),
    ("ip", ".", _ip4),
    ("handle", "@", _handles),
    ("phone", "", _phones),
    ("names", "", _people),
]
KINDS = tuple(dict.fromkeys(kind for kind, _, _ in _FINDERS))


_GENERIC = """
    com org net edu gov mil int info biz name pro mobi jobs travel museum coop aero asia tel post xxx app dev xyz site
    online store shop blog club live link chat social network media news video photos pics gallery tech cloud space
    website page wiki world today life health care help support community group team center foundation agency digital
    email games game fun lol art design studio stream tube audio band dating sexy porn adult cam webcam download click
    top icu vip win bid loan work works company ltd inc solutions systems services guru ninja rocks expert academy
    school university church money cash fund gift events party bar cafe pub pizza fit yoga london berlin paris nyc
"""
_COUNTRY = """
    ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc cd
    cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr ga gd ge
    gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh
    ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw
    mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa sb
    sc sd se sg sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua ug uk
    us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw
"""
_FILE = "md py cs mk ml mm pl ps rs sh st tf"
_WORD = """
    ad am an as at be by do id im in info is it la ma me mo my name no pa post re so to us works work today life help
    support health care team group fun art game games money gift party live link page news school church world top win
    video design company foundation center community email photos pics stream band adult
"""
GENERIC = frozenset(_GENERIC.split())
COUNTRY = frozenset(_COUNTRY.split())
ENDINGS = GENERIC | COUNTRY
# Endings that are also file extensions, and words that follow a missing space ("sad.so").
NO_ADDRESS = frozenset(_FILE.split()) | frozenset(_WORD.split())
# Even before a slash, these two are more often file extensions.
SOURCE = frozenset({"md", "py"})
# Second-level labels under which countries register names, such as co.in.
SECOND = frozenset({"ac", "co", "com", "edu", "gov", "net", "org"})


def is_address(host: str, *, alone: bool) -> bool:
    """Return whether ``host`` is an internet host name, rather than a file name, an abbreviation or two sentences.

    If a path or port follows (not ``alone``), nearly every domain ending counts.
    """
    lowered = host.lower()
    if lowered.startswith("www."):
        return True
    rest, _, ending = lowered.rpartition(".")
    if ending not in ENDINGS:
        return False
    if not alone:
        return ending not in SOURCE
    if not (host[-len(ending) :].islower() or host.isupper()):
        return False
    above, _, second = rest.rpartition(".")
    if above and second in SECOND:
        return True
    short = ending in COUNTRY and (len(second) == 1 or second.isdigit())
    return not short and ending not in NO_ADDRESS
