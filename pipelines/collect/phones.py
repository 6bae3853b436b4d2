"""Find telephone numbers by the pattern of their digit groups, never by length alone.

Numbers are read once, left to right, as runs of groups (``(555) 123-4567`` is ``555``, ``123``, ``4567``); a run is
then divided into dates, telephone numbers and the rest. The rules are ours, based on ITU-T E.123 and E.164.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.collect.read.words import words

_BEFORE_RUN = r"(?:(?<![A-Za-z\u00c0-\u024f0-9])|(?<=\bph)|(?<=\btel))"
_RUN = re.compile(
    rf"(?:\+[(]?|{_BEFORE_RUN}[(]{{0,2}})[0-9]++"
    r"(?:[)]?[ \u00a0]?[-./_\u2010-\u2015\u2022\u00b7(]?[ \u00a0]?[(]?[0-9]++)*+"
)
_GROUP = re.compile(r"[0-9]++")
# the digits of the shortest number, as near to each other as in a run
_ENOUGH = re.compile(r"[0-9](?:[^0-9]{0,5}[0-9]){6}")
_MONEY_BEFORE = re.compile(r"[$€£¥₹][ \u00a0]?[+(]?$")
_MONEY_AFTER = re.compile(r"[ \u00a0]?(?:[€£$¥₹%]|(?:usd|eur|gbp|dollars?|euros?|bucks|pounds)\b)", re.IGNORECASE)
# a word that announces a number, within a few words before it
_NUMBERED = "".join(
    rf"(?<!\b{word} )"
    for word in words(
        "order case tracking ticket reference ref account serial part model item invoice policy flight id"
    )
)
_CUE = re.compile(
    rf"""(?<!<)(?:\b(?:call|phone|ph|tel|telephone|mobile|mob|cell|whatsapp|whats\s?app|wa|wpp|zap|sms|te?xt|fax|dial
    |ring|hp|(?:my|cell|phone)\ (?:num|no|nr|digits|\#)|digits\ are|hmu|hit\ me\ up|reach\ (?:me|us|him|her)
    |message\ me|imessage|viber|{_NUMBERED}(?:number|n[uú]mero|num[eé]ro|nummer|numer)|cel|fijo|fixe|festnetz|celu
    |celular|m[oó]vil|tel[eé]fono|telefon[eo]?|t[eé]l[eé]phone|t[eé]l|handy|mobil|kom[oó]rka|ll[aá]ma(?:me|r|dme)?
    |appelle[zr]?|zadzwoń|dzwoń|contacto?|marca|escr[ií]be(?:me)?|ruf|ligue|liga|chiama(?:mi)?)
    (?:\b|(?<=\#))|\b(?:тел|звоните|позвони|номер)|电话|手机|微信|電話|携帯|连系|전화)[^0-9\n]{{0,24}}$""",
    re.IGNORECASE | re.VERBOSE,
)
_CUE_AFTER = re.compile(
    r"""[,;.:]?\ (?:(?:please\ )?(?:call|text|txt|ring|whatsapp)\ (?:me|us|or)\b
    |(?<=[,;]\ )(?:call|text)\ (?:any|when)|(?:pe|par)\ call\b|call\ kar
    |(?:is|was)\ (?:my|his|her|our|their)\ (?:new\ |cell\ |work\ |phone\ )?(?:number|cell|phone|mobile|digits)\b
    |(?:es|é|e|est|ist|is|to)\ (?:mi|meu|mon|meine?|mijn|il\ mio|m[oó]j)\b
    |(?:on\ )?whatsapp\b|звоните|chama\b|llama)""",
    re.IGNORECASE | re.VERBOSE,
)
# what is announced as another number
_OTHER_NUMBER = re.compile(
    r"\b(?:order|tracking|case|ticket|invoice|serial|isbn(?:-1[03])?|model|part|item|reference|confirmation|policy)"
    r"(?: (?:number|no|num|nr|id)\b)?(?: is| was)?[.:#]{0,2} ?#?$",
    re.IGNORECASE,
)
_CUE_CHARACTERS = 44
_EXTENSION = re.compile(r"[ \u00a0]?(?:x|ext\.?)[ \u00a0]?[0-9]{1,5}\b", re.IGNORECASE)
# "1800 555 0199", "1300 975 707"
_SERVICE = re.compile("1[389]00")
_EXIT = re.compile("00(?:[1-9]|$)")
_TRUNK = re.compile("0[1-9]")
# a digit in words; "double" and the like stand for one more
_WORD_DIGITS = dict.fromkeys(words("zero oh one two three four five six seven eight nine double triple hundred"), 1)
_TENS = (
    "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty"
)
_WORD_DIGITS |= dict.fromkeys([*words(_TENS), "seventy", "eighty", "ninety"], 2)
DIGIT_WORDS = tuple(_WORD_DIGITS)
_WORD_DIGIT = rf"(?:{'|'.join(sorted(_WORD_DIGITS, key=len, reverse=True))}|[0-9]{{1,4}})(?!\w)"
_COUNTED = re.compile(r"one\W+two\W+three|three\W+two\W+one", re.IGNORECASE)
_WORDS = re.compile(rf"(?<!\w){_WORD_DIGIT}(?:[-,. ]{{1,3}}{_WORD_DIGIT})++", re.IGNORECASE)
_FEWEST_WORDS = 3
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")
# E.164: at most 15 digits including the country code; no international number in use has fewer than 8.
_INTERNATIONAL = range(8, 16)
# National numbers with their trunk 0: Germany's longest have 12 digits; France's have 9 without the 0.
_NATIONAL = range(9, 13)
_ANNOUNCED = range(7, 16)
_MOST_GROUPS = 16
# characters of a run that libphonenumber is shown
_LONGEST_RUN = 100
_BETWEEN = " \u00a0-./_)\u2010\u2011\u2012\u2013\u2014\u2015\u2022\u00b7"


@dataclass(frozen=True, slots=True)
class _DigitGroup:
    start: int
    end: int
    digits: str
    before: str


def phones(text: str, *, regions: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Return the (start, end) positions of the telephone numbers in ``text``, in order and without overlap.

    ``regions`` are countries (ISO 3166) whose national formats count as well, by the plans of libphonenumber.
    """
    numbers: list[tuple[int, int]] = []
    if not _ENOUGH.search(text):  # the search for runs takes ten times as long
        return numbers
    for run in _RUN.finditer(text):
        if run.end() - run.start() >= 7 and not _OTHER_NUMBER.search(
            text, max(0, run.start() - _CUE_CHARACTERS), run.start()
        ):
            own = _cut(text, start=run.start(), end=run.end())
            numbers += own or _national(text, start=run.start(), end=run.end(), regions=regions)
    return numbers


def _national(text: str, *, start: int, end: int, regions: Sequence[str]) -> list[tuple[int, int]]:
    """Return the numbers of a run that have the grouping of their country, or no grouping behind a cue."""
    if not regions or _MONEY_BEFORE.search(text, max(0, start - 4), start) or _MONEY_AFTER.match(text, end):
        return []
    from phonenumbers import Leniency, PhoneNumberMatcher

    run = text[start : min(end, start + _LONGEST_RUN)]
    announced = _is_announced(text, start=start, end=end)
    for region in regions:
        matches = PhoneNumberMatcher(run, region, leniency=Leniency.STRICT_GROUPING)
        spans = [(start + m.start, start + m.end) for m in matches if announced or not m.raw_string.isdigit()]
        if spans:
            return spans
    return []


def in_words(text: str) -> list[tuple[int, int]]:
    """Return the numbers that are written in words, all or in part, but no counting aloud."""
    found = []
    for match in _WORDS.finditer(text):
        parts = re.findall("[a-z]+|[0-9]+", match.group().lower())
        spoken = [_WORD_DIGITS[part] for part in parts if part in _WORD_DIGITS]
        digits = sum(spoken) + sum(len(part) for part in parts if part.isdigit())
        if len(spoken) >= _FEWEST_WORDS and digits in _ANNOUNCED and not _COUNTED.search(match.group()):
            found.append(match.span())
    return found


def _is_announced(text: str, *, start: int, end: int) -> bool:
    return bool(_CUE.search(text, max(0, start - _CUE_CHARACTERS), start) or _CUE_AFTER.match(text, end))


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
    announced = _is_announced(text, start=groups[0].start, end=groups[-1].end)
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
    elif length := _north_american(groups) or _area_in_brackets(groups):
        return length
    if _TRUNK.match(first.digits) and not continued and (length := _longest(groups, allowed=_NATIONAL)):
        return length
    sizes = [len(g.digits) for g in groups[:2]]
    if sizes == [5, 5] and first.digits[0] in "6789" and groups[1].before in {" ", "-"}:
        return 2  # India
    if announced and (length := _longest(groups, allowed=_ANNOUNCED)):
        return 0 if all(_YEAR.fullmatch(g.digits) for g in groups[:length]) else length
    return 0


def _area_in_brackets(groups: list[_DigitGroup]) -> int:
    """Return the groups of a number with its area in brackets, behind Russia's 8 or another trunk, or nothing."""
    area = 1 if len(groups[0].digits) == 1 and len(groups) > 1 else 0
    rest = groups[area : area + 5]
    if len(rest) < 2 or "(" not in rest[0].before or ")" not in rest[1].before or _YEAR.fullmatch(rest[1].digits):
        return 0
    length = _longest(rest, allowed=_NATIONAL)
    return area + length if length > 1 and len(rest[0].digits) in range(2, 6) else 0


def _north_american(groups: list[_DigitGroup]) -> int:
    sizes = tuple(len(g.digits) for g in groups[:3])
    if [len(g.digits) for g in groups] == [1] * 10 and groups[0].digits not in "01":
        return 10  # "5 5 5 1 2 3 4 5 6 7"
    if sizes in {(4, 3, 4), (4, 3, 3)} and _SERVICE.match(groups[0].digits):
        return 3
    trunk = 1 if groups[0].digits == "1" and len(groups) > 1 else 0
    rest = groups[trunk : trunk + 3]
    sizes = tuple(len(g.digits) for g in rest)
    if rest[0].digits[0] in "01":
        return 0
    if sizes == (3, 3, 4):
        return trunk + 3
    if sizes[:2] == (3, 7) and rest[1].digits[0] not in "01":
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
