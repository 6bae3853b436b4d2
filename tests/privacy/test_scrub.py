"""What is scrubbed, what is left alone, and that neither repetition nor hostile text changes that."""

from __future__ import annotations

import importlib.util
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.collect import scrub as module
from pipelines.collect.scrub import KINDS, MODELLED, scrub
from pipelines.collect.scrub_score import CASES, score
from pipelines.core.errors import BadParams
from tests.refusals import refused

DETERMINISTIC = tuple(kind for kind in KINDS if kind not in MODELLED)

# by kind, parted by " | "
SPELLINGS = {
    "email": "jane.doe@example.org | j+tag_1@mail.example.co.uk | o'neil@example.com | admin@10.0.0.1 | "
    "a@b.museum | first.last@sub-domain.example.com",
    "phone": "+44 20 7946 0958 | +1 (555) 123-4567 | +15551234567 | 0044 20 7946 0958 | +49 (0)30 1234567 | "
    "(555) 123-4567 | (555)123-4567 | 555-123-4567 | 555.123.4567 | 555 123 4567 | 1-800-555-0199 | "
    "555-123-4567 ext. 89 | 020 7946 0958 | 030/1234567 | 06 12 34 56 78 | 06.12.34.56.78 | 07911123456 | "
    "98765 43210",
    "url": "https://example.com | http://example.com/a_(b)?c=d&e=f#g | ftp://files.example.org/x | "
    "HTTPS://EXAMPLE.COM/ | www.example.travel | example.com | sub.example.org/path | youtu.be/abc123 | "
    "example.co.in | discord.gg/abc | old.reddit.com/r/x/comments/y | reddit.com/u/somebody | "
    "http://[2001:db8::1]:80/x | münchen.de | localhost.example.net:8080",
    "user": "u/some_name | /u/some-name | U/Name99 | u/name\\_with\\_bars | /user/somebody | u/ab/m/multi",
    "subreddit": "r/somewhere | /r/SomeWhere | R/ab | r/some\\_where",
    "handle": "@somebody | @some.body | @_some_body9 | @9lives",
    "ip": "192.168.0.1 | 8.8.8.8:53 | 10.0.0.1/24 | 2001:db8::ff00:42:8329 | ::1 | fe80::1%eth0 | "
    "::ffff:10.0.0.1 | 1:2:3:4:5:6:7:8",
    "card": "4111 1111 1111 1111 | 5555-5555-5555-4444 | 378282246310005",
    "iban": "GB82 WEST 1234 5698 7654 32 | DE89370400440532013000",
    "coordinate": "48.85837, 2.29448 | 40°26'46\" N 79°58'56\" W",
    "discord": "some.name#1234",
}
KIND = {"coordinate": "coordinates"}
FOUND = {kind: texts.split(" | ") for kind, texts in SPELLINGS.items()}
LEFT_ALONE = [
    "in 2022, or 2019-2021, or the 1990s",
    "12/31/2022, 31.12.2022, 2022-12-31 and 2022-12-31T10:30:00Z",
    "at 10:30:15 or 7:45 p.m., @7pm, @10",
    "$1,000,000, $5551234567, € 1.000.000, 20 000 000 people, £ 0123456789",
    "1 000 000 000 and 123456789 and 1670000000 and 3.14159265358 and 0.123456789",
    "SSN-like 123-45-6789, no card 4111 1111 1111 1112, scores 3-4-5, lists 1 2 3 4 5 6 7 8 9",
    "call 988, or text HOME to 741741",
    "e.g. this, i.e. that, a.m., p.m., U.S., Ph.D., etc. and so on ...",
    "readme.md main.py photo.jpg archive.tar.gz node.js report.final.docx",
    "I was sad.So I left.It was over.The end",
    "v1.2.3.4 and 1.2.3 and 1.2.3.4.5 and 300.1.1.1",
    "std::vector, a::b, key: value, 16:9",
    "and/or, n/a, w/o, his/her, r/ and u/ alone, menu/items, user/password",
    "a@b, me @ home, @_@, 5 @ 3",
    "<email> <phone> <url> <user> <subreddit> <handle> <ip>",
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
@pytest.mark.parametrize("around", ["{}", "so {} and", "({})", "{}, then", "yes, {}.", '"{}"', "x\n{}\ny", "**{}**"])
def test_each_kind_is_replaced_in_any_position(kind: str, text: str, around: str) -> None:
    if (around, text) == ("**{}**", "u/ab/m/multi"):
        around = "_ {} _"
    scrubbed, counts = scrub(around.format(text), kinds=DETERMINISTIC)
    assert scrubbed == around.format(f"<{kind}>")
    assert counts == {KIND.get(kind, kind): 1}


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_only_looks_alike_stays(text: str) -> None:
    assert scrub(text, kinds=DETERMINISTIC) == (text, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call me at 5551234567", "call me at <phone>"),
        ("my number is 555-1234, text me", "my number is <phone>, text me"),
        ("WhatsApp: 1234 5678", "WhatsApp: <phone>"),
        ("5551234567 of them", "5551234567 of them"),
        ("on 01.02.2023 020 7946 0958 rang", "on 01.02.2023 <phone> rang"),
        ("555-123-4567/555-987-6543", "<phone>/<phone>"),
        ("[here](https://example.com/x) (see http://example.com/y).", "[here](<url>) (see <url>)."),
        ("try example.com.It works", "try <url>.It works"),
        ("mailto:a@example.com,b@example.com;", "mailto:<email>,<email>;"),
        ("u/one's post, not r/two's", "<user>'s post, not <subreddit>'s"),
        ("hi@example.com@other.example", "<email>"),
        ("1http://example.com/secret", "<url>"),
        ("\u200bhi j\u200bane@ex\u00adample.com\u200b!", "\u200bhi <email>!"),
        ("naïve ｊane＠ｅxample．com, ５５５-123-4567 ½", "naïve <email>, <phone> ½"),
        ("see example.com\u200bnow ㏂", "see <url>\u200bnow ㏂"),
        ("jane dot doe at example dot com (but the dot com years)", "<email> (but the dot com years)"),
        ("version 1.2.3.4 of 1.2.3.4", "version 1.2.3.4 of <ip>"),
        ("born on 3 March 1990, my insta is some.body", "born on <birth>, my insta is <handle>"),
    ],
)
def test_context_decides(text: str, expected: str) -> None:
    assert scrub(text, kinds=DETERMINISTIC)[0] == expected


def test_only_the_kinds_asked_for_are_replaced() -> None:
    text = "a@example.com or 555-123-4567"
    assert scrub(text, kinds=["phone"]) == ("a@example.com or <phone>", {"phone": 1})
    assert scrub(text, kinds=[]) == (text, {})


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BadParams, match="emial"):
        scrub("x", kinds=["emial"])


SETS = [CASES, *map(Path(__file__).with_name, ("scrub_tuning.yaml", "scrub_independent.yaml"))]


@pytest.mark.parametrize("path", SETS)
def test_recall_and_false_positives_on_the_generated_sets(path: Path) -> None:
    promised = ["email", "phone", "url", "user", "handle", "ip"]
    reached = score(lambda text: scrub(text, kinds=DETERMINISTIC)[0], kinds=promised, path=path)
    assert reached["all"]["recall"] >= 0.97
    assert reached["all"]["false_positives"] <= 0.01
    assert all(reached[kind]["precision"] >= 0.95 for kind in promised)


def test_national_formats_of_the_countries_asked_for() -> None:
    text = "612 34 56 78 or 22 12 34 56, not 100 200 300, 612345678 of them"
    assert scrub(text, kinds=["phone"]) == (text, {})
    assert scrub(text, kinds=["phone:ES+NO"])[0] == "<phone> or <phone>, not 100 200 300, 612345678 of them"


@pytest.mark.parametrize(
    ("kinds", "expected", "counts"),
    [
        (["names", "places"], "<name> of <place>", {"names": 1, "places": 1}),
        (["names:review", "places"], "Wren Osei of <place>", {"names:review": 1, "places": 1}),
        (["places:review"], "Wren Osei of Farmouth", {"places:review": 1}),
    ],
)
def test_names_and_places_are_masked_or_left_for_review(
    kinds: list[str], expected: str, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(text: str) -> SimpleNamespace:
        known = [("Wren Osei", "PERSON"), ("Farmouth", "GPE")]
        ents = [(text.find(word), text.find(word) + len(word), label) for word, label in known if word in text]
        return SimpleNamespace(ents=[SimpleNamespace(start_char=s, end_char=e, label_=label) for s, e, label in ents])

    monkeypatch.setattr(module, "_model", lambda: model)
    assert scrub("Wren Osei of Farmouth", kinds=kinds) == (expected, counts)


@pytest.mark.parametrize("entry", ["names:mask?", "phone:es", "email:review"])
def test_an_unknown_option_of_a_kind_is_refused(entry: str) -> None:
    with pytest.raises(BadParams, match=entry.partition(":")[0]):
        scrub("x", kinds=[entry])


@pytest.mark.skipif(importlib.util.find_spec("spacy") is not None, reason="the extra is installed here")
def test_names_without_the_extra_say_what_to_install() -> None:
    with refused("RecogniserMissing", match="pip install"):
        scrub("x", kinds=["names"])


PIECES = [text for texts in FOUND.values() for text in texts] + LEFT_ALONE
GLUE = ["", "", "call ", *" .,@/:-_()+10é\n<>\\#$'"]
mixtures = st.lists(st.sampled_from(PIECES) | st.sampled_from(GLUE) | st.text(max_size=4), max_size=14).map("".join)
dense = st.text(alphabet="a1 0.@/:-+()ur<>_\\#co,\u00a0é", max_size=60)


@settings(max_examples=400)
@given(mixtures | dense, st.sets(st.sampled_from(DETERMINISTIC)))
def test_scrubbing_twice_changes_nothing(text: str, kinds: set[str]) -> None:
    once, counts = scrub(text, kinds=sorted(kinds))
    assert scrub(once, kinds=sorted(kinds)) == (once, {})
    assert set(counts) <= kinds | {"removed"}
    assert scrub(text, kinds=sorted(kinds, reverse=True)) == (once, counts)


@given(st.lists(st.sampled_from([(k, t) for k, texts in FOUND.items() for t in texts]), max_size=8))
def test_pieces_in_prose_are_all_found_and_counted(pieces: list[tuple[str, str]]) -> None:
    text = " then; ".join(["start", *(text for _, text in pieces), "end"])
    scrubbed, counts = scrub(text, kinds=DETERMINISTIC)
    assert scrubbed == " then; ".join(["start", *(f"<{kind}>" for kind, _ in pieces), "end"])
    assert counts == {KIND.get(kind, kind): n for kind in sorted(FOUND) if (n := sum(k == kind for k, _ in pieces))}


TROUBLE = ["a", "1", "a@", "a'", "a.", "1 ", "1(", "((", "+1", "::", "a:", "://", "/u/", "@a", "@_", "a.com.", "www."]
TROUBLE += ["1.2.3.4 ", "a@b.co@", "u/ab/", "555-123-4567x", "\\_", "))(", "<url>", "call 1"]


@pytest.mark.parametrize("end", ["", "!x", "@x.com"])
@pytest.mark.parametrize("piece", TROUBLE)
def test_time_grows_with_length_and_no_faster(piece: str, end: str) -> None:
    # linear work takes less than a second; quadratic work on so many characters takes minutes at least
    size = 200_000 if end == "!x" else 20_000
    text = (piece * size)[: size - len(end)] + end
    before = time.process_time()
    assert len(scrub(text, kinds=DETERMINISTIC)[0]) <= 4 * size
    assert time.process_time() - before < 20


@pytest.mark.faults
def test_text_made_to_need_a_pass_for_each_piece_is_cut_short() -> None:
    hostile = " 06 12 34 56 78@_some_body9münchen.de8.8.8.8:53" * 5_000
    scrubbed, counts = scrub(hostile, kinds=DETERMINISTIC)
    assert counts["removed"] > 0
    assert not set(scrubbed) & set("0123456789@./:")
    assert scrub(scrubbed, kinds=DETERMINISTIC) == (scrubbed, {})


def test_repeated_mixtures_stay_linear_and_idempotent() -> None:
    rng = random.Random(5)
    for _ in range(20):
        unit = "".join(rng.choices([*PIECES, *GLUE], k=4))
        once, _ = scrub(unit * 1_000, kinds=DETERMINISTIC)
        assert scrub(once, kinds=DETERMINISTIC) == (once, {})
