"""Mask personal data in text before anything is stored: addresses, numbers, accounts; optionally names and places.

Every kind has deterministic rules in one table, ``RULES``; each match becomes ``<kind>``. In case of doubt a rule masks
more, not less. Rules read a normalised copy (:mod:`pipelines.collect.reading`), and what they find is masked in the
text. Each rule is linear in the length of the text: patterns are possessive and tried once per run of characters.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import AddressValueError, IPv6Address
from typing import Any

from pipelines.collect.accounts import accounts, tags
from pipelines.collect.hosts import is_address
from pipelines.collect.phones import DIGIT_WORDS, in_words, phones
from pipelines.collect.reading import INVISIBLE, PROVIDER, Reading, Spans, has_one
from pipelines.core.errors import BadParams, ConfigError

Finder = Callable[[str], Spans]

_URL = re.compile(r"(?<![A-Za-z0-9+.\-])[A-Za-z0-9+.\-]++://(?:\[[0-9A-Fa-f:.%]*+\])?[^\s<>\[\]\"`|]++")
# a scheme that was broken or altered so that no program makes it a link
_BROKEN_URL = re.compile(
    r"(?<![^\W_])(?i:h(?:tt|xx)ps?)(?:\s?[:;]\s?[/\\]{1,3}\s?|[/\\]{2})(?=[\w-]{1,63}\.)[^\s<>\[\]\"`|]++"
)
# characters attached to a name are masked with it ("@a@b.example", "u/name/comments"), so that nothing readable is left
_GLUED = r"[\w@/.:%\\-]*+"
_EMAIL = re.compile(
    rf"""(?:\"[^\"\n@]{{1,64}}\"|(?<![\w.+%-])(?<![\w.+%-]')[\w.+%-]++(?:'[\w.+%-]++)*+)@
    (?:(?P<host>[\w-]++(?:\.[\w-]++)++)|[\w-]++(?:,\ ?|\.\ )(?:com|org|net)\b|(?i:{PROVIDER}(?:com)?)\b
    |\[[0-9A-Fa-f:.]{{3,45}}\])
    (?:[@/]{_GLUED}(?:'{_GLUED})*+)?""",
    re.VERBOSE,
)
_NAME = r"(?:[A-Za-z0-9_-]|\\[_-]){2,}+"
# other scripts write no space before a name
_BEFORE_NAME = r"(?<![A-Za-z0-9\u00c0-\u024f])"
# without a slash before, only what is no word
_ODD_NAME = r"(?=[A-Za-z]{0,20}[0-9_]|(?-i:[A-Z]?[a-z]{1,20}[A-Z]))"
_USER = re.compile(
    rf"(?:/(?:u|user)\\?/{{1,2}}|{_BEFORE_NAME}u\\?/{{1,2}}|{_BEFORE_NAME}(?:user/|u\ /\ ?|u/\ ){_ODD_NAME}"
    r"|(?<=[a-z])u/(?=[A-Za-z]{1,20}[0-9_]))"
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
    r"(?: to| is| was| version)*+[.:=]?\s?$",
    re.IGNORECASE,
)
_IP6 = re.compile(r"(?:(?<!\w)(?<!\w\.)(?=[0-9A-Fa-f]{0,4}:)|(?=::))[0-9A-Fa-f:.]++")
_BEHIND_IP6 = re.compile(rf"[%/@]{_GLUED}")
_HANDLE = re.compile(
    rf"(?:{_BEFORE_NAME}(?<![_@])|(?<=_)|(?<=\bRT)|(?<=\brt))(?:@++|@ (?=[A-Za-z]{{2,20}}[0-9_]))"
    rf"(?=[\d_.]*+[^\W\d_])\w{_GLUED}"
)
# a time, and what programming languages and chats write so
_NO_HANDLE = re.compile(
    r"@(?:\d{1,2}(?:[.:]\d\d)?[ap]m|property|override|media|import|keyframes|font-face|charset|supports|staticmethod|classmethod"
    r"|dataclass|deprecated|param|returns?|throws|author|since|test|component|injectable|autowired|app\.\w+|pytest[\w.]*"
    r"|cached?|use|forward|include|mixin|apply|layer|page|decorators?|everyone|here|all|mods?|channel)",
    re.IGNORECASE,
)
_CARD = re.compile(r"[2-6](?<![\w-][2-6])(?<![0-9][.,][2-6])[0-9]{3}(?:[ .-]?[0-9]){8,15}(?![\w-]|[.,][0-9])")
# Mastercard's second series is 2221 to 2720
_SECOND_SERIES, _FIRST, _LAST = 2, 2221, 2720
_IBAN = re.compile(
    r"[A-Z](?<!\w[A-Z])[A-Z][0-9]{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?(?!\w)", re.IGNORECASE
)
_GAP = re.compile("[ -]")
# Norway's
_SHORTEST_IBAN = 15
_ANGLE = r"\ ?°\ ?[0-9.]{1,8}\ ?(?:['\u2032]\ ?(?:[0-9.]{1,8}\ ?(?:\"|['\u2032]{2})\ ?)?)?"
_FRACTION = r"[+-]?[0-9]{1,3}\.[0-9]{4,10}"
_COORDINATES = re.compile(
    rf"""(?:(?<!\w)(?<!\w\.)(?:
        (?:[NS]\ ?)?{_FRACTION}(?:\ ?°)?(?:\ ?[NS]\b)?(?:\ ?[,;/]\ ?|\ )(?:[EW]\ ?)?{_FRACTION}(?:\ ?°)?(?:\ ?[EW]\b)?
        (?!\w|\.[0-9])
        |(?:[NS]\ ?)?[0-9]{{1,2}}{_ANGLE}[NS]?,?\ ?(?:[EW]\ ?)?[0-9]{{1,3}}{_ANGLE}(?:[EW]\b|(?!\w))
        |(?-i:[2-9CFGHJMPQRVWX]{{4,8}}\+[2-9CFGHJMPQRVWX]{{2,3}})(?!\w)
        |(?:lat|lon)g?(?:itude)?(?:\ is|\ was)?[\ :=]{{1,3}}(?P<one>{_FRACTION})(?!\w)
    ))""",
    re.IGNORECASE | re.VERBOSE,
)
_FINE = re.compile(r"[.°+](?:(?<=[°+])|[0-9]{4})")
# English, German, French, Spanish, Italian, Portuguese, Polish, Dutch
_MONTH = (
    r"(?:jan|ene|gen|sty|feb|f[ée]v|lut|mar|mär|maa|mrt|apr|avr|abr|kwi|may|mai|mag|mei|maj|jun|juin|giu|cze|jul|juil|lug"
    r"|lip|aug|ao[uû]|ago|sie|sep|set|wrz|oct|okt|ott|out|paź|nov|lis|dec|dez|d[ée]c|dic|gru)[^\W\d_]{0,7}\.?"
)
_DAY = r"[0-9]{1,2}(?:st|nd|rd|th|er|\.)?"
_YEAR = r"(?:,?\ (?:de\ |del\ )?[0-9]{4}\b)?"
_BIRTH = re.compile(
    rf"""(?<!\w)(?:born(?:\ on)?|d\.?o\.?b\.?|date\ of\ birth|birth\ ?(?:day|date)|b-?day
    |geboren|geb\.|geburts(?:tag|datum)|n[ée]e?|naissance|nato|nata|nascita|nac[ií](?:d[oa])?|nacimiento|cumple(?:años)?
    |nasci(?:d[oa])?|nascimento|aniversário|urodz(?:ony|ona|iny|iłem|iłam)|geboortedatum)
    (?:\ (?:is|was|on|am|ist|le|el|il|em|en|dnia|op|es|é|de|del|data))*+[\s:=-]{{0,3}}
    (?P<found>[0-9]{{1,4}}(?P<sign>[-./])[0-9]{{1,2}}(?:(?P=sign)[0-9]{{1,4}})?(?!\w)
        |{_MONTH}\ {_DAY}(?!\w){_YEAR}
        |{_DAY}(?:(?:\ of|\ de)?\ {_MONTH}{_YEAR}|-{_MONTH}-[0-9]{{2,4}}(?!\w)))""",
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
    gaps = ("", " ") if INVISIBLE.search(text) else ("",)
    for _ in range(_PASSES):
        before = counts.total()
        for gap in gaps:
            reading = Reading(text, gap=gap)
            for rule in rules:
                if has_one(rule.needs, text=reading.lowered) and (spans := rule.find(reading.copy)):
                    counts[rule.kind] += len(spans)
                    reading.mask(spans, placeholder=f"<{rule.kind.removesuffix('s')}>")
            text = reading.text
        if counts.total() == before:
            break
    else:
        for gap in gaps:
            reading = Reading(text, gap=gap)
            spans = _spans(_TANGLE, text=reading.copy)
            counts["removed"] += len(spans)
            reading.mask(spans, placeholder="<removed>")
            text = reading.text
    for rule in reviewed:
        if spans := rule.find(text):
            counts[f"{rule.kind}:review"] = len(spans)
    return text, dict(sorted(counts.items()))


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
        if text[at : at + 1] == "(":
            continue  # a call in a program
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


def _coordinates(text: str) -> Spans:
    if not _FINE.search(text):
        return []
    return [match.span(match.lastgroup or 0) for match in _COORDINATES.finditer(text)]


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
    if digits[0] == _SECOND_SERIES and not _FIRST <= int("".join(map(str, digits[:4]))) <= _LAST:
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[::-2]) + sum(doubled)) % 10 == 0


def _ibans(text: str) -> Spans:
    """Return the account numbers; words behind one look like more of its groups of four."""
    spans = []
    for match in _IBAN.finditer(text):
        ends = [match.end(), *(match.start() + gap.start() for gap in reversed([*_GAP.finditer(match.group())]))]
        end = next((end for end in ends if _is_iban(text[match.start() : end])), None)
        spans += [(match.start(), end)] if end else []
    return spans


def _is_iban(text: str) -> bool:
    compact = _GAP.sub("", text)
    return (
        len(compact) >= _SHORTEST_IBAN
        and int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1
    )


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
    Rule("handle", ("@",), _matching(_HANDLE, lambda match: not _NO_HANDLE.fullmatch(match.group()))),
    Rule("iban", _DIGITS, _ibans),
    Rule("card", tuple("23456"), _matching(_CARD, _is_card)),
    Rule("coordinates", (".", "°", "+"), _coordinates),
    Rule("discord", ("#", "discord", "<@"), tags),
    Rule("birth", _DIGITS, _births),
    Rule("handle", ("",), accounts),
    Rule("phone", _DIGITS, phones),
    Rule("phone", DIGIT_WORDS, in_words),
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
    rules = [phone if rule.find is phones and regions else rule for rule in RULES if rule.kind in options]
    reviewed = [rule for rule in rules if options[rule.kind] == "review"]
    return [rule for rule in rules if rule not in reviewed], reviewed
