"""Find names of accounts of other services: announced ones ("my insta is …"), and tags such as "name#1234"."""

from __future__ import annotations

import re

from pipelines.collect.read.vocabulary import COMMON, rank
from pipelines.collect.read.words import words
from pipelines.collect.reading import Spans

# services, and words for an account
_SERVICE = (
    r"insta(?:gram+)?|instgram|ig|snap(?:chat)?|sc|kik|disc(?:ord)?|dc|telegram|tg|twitter|tik\s?tok|psn|xbox(?:\slive)?|gamer\s?tag|gt"
    r"|steam|twitch|reddit(?:or)?|user(?:\s?name)?|venmo|cash\s?app|pay\s?pal|signal|skype|wechat|wickr|threads|bluesky|bsky"
    r"|mastodon|tumblr|you\s?tube|yt|facebook|fb|messenger|line\sid|switch|friend\scode|minecraft|roblox|fortnite|epic"
    r"|riot|valorant|battle\s?(?:net|tag)|bnet|letterboxd|goodreads|strava|soundcloud|spotify|last\.?fm|github|gitlab"
    r"|pinterest|duolingo|patreon|ko-?fi|only\s?fans|etsy|depop|vinted|grindr|tinder|bumble|hinge|bereal|vsco|kakao(?:talk)?"
    r"|zalo|viber|weibo|ao3|wattpad|substack|lichess|ign|nick(?:name)?|acct|account|handle|alt|微信|微博|抖音|小红书|qq"
)
_FILLER = (
    r"me|my|id|name|user\s?name|user|handle|tag|account|acct|ign|fc|gt|is|was|as|at|on|it|it's|here|there|under|by|the"
    r"|called|games|on|i'm|im|c'est|heißt|heisst|heet|é|es|ist|est"
)
_ACCOUNT = re.compile(
    rf"""(?<![a-z0-9])(?:{_SERVICE})(?:'s)?\)?(?P<about>(?:\s(?:{_FILLER}|<[a-z]{{2,12}}>|\([^)\n]{{1,24}}\))(?![\w'])){{0,5}})
    (?:号|帳號|账号)?(?P<sign>是|は|\*{{0,3}}\s?[:=@>-]{{1,2}}\*{{0,3}}\s?|,?\s{{1,3}})["'“‘(]?
    (?P<found>(?-i:(?:[A-Z][a-z]{{1,14}}\ ){{1,2}}[0-9]{{1,4}}\b)
        |\$?(?:live:)?[a-z0-9_][a-z0-9_.-]{{2,31}}(?:\#[a-z0-9]{{3,5}})?)""",
    re.IGNORECASE | re.VERBOSE,
)
_IS_SERVICE = re.compile(_SERVICE, re.IGNORECASE)
_OWN = re.compile(
    r"\b(?:i|my|mine|our|add|find|follow|hit|dm|message|same|i'm|im|user\s?name|meu|mi)\b[^.\n]{0,24}$", re.IGNORECASE
)
_ADD_ME = re.compile(
    r"\b(?:add|find|follow|hmu|hit me up|dm|message|msg|reach|ping)(?: me| us)?(?: (?:on|at|via))?(?: my)?\s$",
    re.IGNORECASE,
)
_OWNING = 32
_CALLED = re.compile(r"\b(?:id|user|name|handle|tag|account|acct)$|name", re.IGNORECASE)
_SAYS = re.compile(r"\b(?:is|was|as|i'm|im|é|es|ist|est|c'est|heißt|heisst|heet)$", re.IGNORECASE)
# "3pm", "2nd", "v2", "1.5", "10-20k"
_MEASURE = re.compile(r"v?[0-9][0-9.,-]*[a-z]{0,3}", re.IGNORECASE)
_OF_NAMES = re.compile(r"[0-9_$]|(?-i:[a-z][A-Z])")
_PROSE = re.compile(r"(?:ed|ing|ly|ish|able)$")
_FEWEST_LETTERS = 4
_TAG = re.compile(
    r"""(?<![\w\#.])(?:(?:[A-Z][a-z]{1,14}\ ){1,2}|(?:(?<=\badd\ )|(?<=\bdm\ )|(?<=\bis\ )|(?<=[:=]\ ))[a-z]{2,15}\ )?
    (?P<name>[\w.]{2,32}+)\#(?:[0-9]{4,5}|(?=[A-Z0-9]{0,4}[A-Z])[A-Z0-9]{3,5})(?!\w)""",
    re.VERBOSE,
)
_SPACED_TAG = re.compile(r"\b(?:discord|disc)\b[ :]{1,3}(?P<found>[\w.]{2,32}+ ?# ?[0-9]{4})(?!\w)", re.IGNORECASE)
_NUMBER = re.compile(r"(?:<@[!&]?|\bdiscord\b[^0-9\n]{0,16})(?P<found>[0-9]{17,20})(?![0-9])", re.IGNORECASE)
_NUMBERED = frozenset(
    words("order issue room ticket case claim apt flat suite unit lot item page track bus pr bug gate")
)


def accounts(text: str) -> Spans:
    """Return where names of accounts stand that their service or a word for them announces."""
    return [span for match in _ACCOUNT.finditer(text) if (span := _name(match))]


def tags(text: str) -> Spans:
    """Return where tags and numbers of accounts stand, as Discord and makers of games use them."""
    found = [match.span() for match in _TAG.finditer(text) if match["name"].lower() not in _NUMBERED]
    found += [match.span("found") for pattern in (_SPACED_TAG, _NUMBER) for match in pattern.finditer(text)]
    return _apart(found)


def _apart(spans: Spans) -> Spans:
    apart: Spans = []
    for start, end in sorted(spans):
        if not apart or start >= apart[-1][1]:
            apart.append((start, end))
    return apart


def _name(match: re.Match[str]) -> tuple[int, int] | None:
    start, name = match.start("found"), match["found"].rstrip(".-")
    return (start, start + len(name)) if _is_name(name, match=match) else None


def _is_name(name: str, *, match: re.Match[str]) -> bool:
    if _IS_SERVICE.fullmatch(name) or _MEASURE.fullmatch(name) or not re.search("[a-z]", name, re.IGNORECASE):
        return False
    if match["sign"].endswith("@") or _OF_NAMES.search(name):
        return True
    stated = bool(match["sign"].strip(" ,*"))
    before = match.string[max(0, match.start() - _OWNING) : match.start()]
    own = bool(_OWN.search(before)) or bool(_CALLED.search(match["about"]))
    if len(parts := re.findall("[^.#:-]+", name)) > 1:
        return stated or own or not all(map(_is_common, parts))
    said = (own and bool(_SAYS.search(match["about"]))) or bool(_ADD_ME.search(before))
    return (stated or said) and len(name) >= _FEWEST_LETTERS and not _PROSE.search(name) and not _is_common(name)


def _is_common(word: str) -> bool:
    known = rank(word.lower())
    return known is not None and known < COMMON
