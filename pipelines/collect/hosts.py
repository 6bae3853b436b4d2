"""Tell internet host names from file names, abbreviations, and sentences with a missing space."""

from __future__ import annotations

import re

_GENERIC = """
    com org net edu gov mil int info biz name pro mobi jobs travel museum coop aero asia tel post xxx app dev xyz site
    online store shop blog club live link chat social network media news video photos pics gallery tech cloud space
    website page wiki world today life health care help support community group team center foundation agency digital
    email games game fun lol art design studio stream tube audio band dating sexy porn adult cam webcam download click
    top icu vip win bid loan work works company ltd inc solutions systems services guru ninja rocks expert academy
    school university church
    onion bio buzz fyi moe lgbt рф укр 中国 みんな money cash fund gift events party bar cafe pub pizza fit yoga london
    berlin paris nyc
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
FILE = frozenset(_FILE.split())
NO_ADDRESS = FILE | frozenset(_WORD.split())
# "my-shop.me" and "shop24.me" are not two sentences
_NO_WORD = re.compile("[a-z]-[a-z0-9]|[a-z][0-9]")
# Even before a slash, these two are more often file extensions.
SOURCE = frozenset({"md", "py"})
# Names of products, not of hosts.
PRODUCTS = frozenset({"asp.net", "ado.net", "vb.net", "socket.io"})
# Second-level labels under which countries register names, such as co.in.
SECOND = frozenset({"ac", "co", "com", "edu", "gov", "net", "org"})


def is_address(host: str, *, alone: bool) -> bool:
    """Return whether ``host`` is an internet host name, rather than a file name, an abbreviation or two sentences.

    If a path or port follows (not ``alone``), nearly every domain ending counts.
    """
    lowered = host.lower()
    if lowered.startswith("www.") or lowered in PRODUCTS:
        return lowered not in PRODUCTS or not alone
    rest, _, ending = lowered.rpartition(".")
    if ending not in ENDINGS or not alone:
        return ending in ENDINGS and ending not in SOURCE
    if not (host[-len(ending) :].islower() or host.isupper()):
        return False
    above, _, second = rest.rpartition(".")
    if above and second in SECOND:
        return True
    if ending in NO_ADDRESS:
        return ending not in FILE and bool(_NO_WORD.search(second))
    return not (ending in COUNTRY and (len(second) == 1 or second.isdigit()))
