"""A post is what its writer wrote, in the papers' form; its digest tells contents apart and betrays none."""

import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.datasets.post import Post

SHEET = (
    "For any crisis present, mark whether it is Ongoing or Past. "
    "**Leave a row blank if that crisis type is not present.**"
)
PARTS = st.tuples(st.text(), st.text(), st.lists(st.binary(), max_size=3).map(tuple))


def test_text_is_in_the_papers_form():
    assert Post("r", " A walk ", "It rained.\nThen not. ").text == "Title: A walk Text: It rained.\nThen not."


SPACED = [SHEET.replace(" ", "\n"), SHEET.replace("Past. ", "Past.\n\n")]


@pytest.mark.parametrize("sheet", [SHEET, SHEET.lower(), SHEET.replace("**", ""), *SPACED, SHEET.partition(" **")[0]])
def test_form_boilerplate_is_stripped_and_counted(sheet):
    post = Post("r", f"A walk {sheet}", f"It rained. {sheet}")
    assert post.text == "Title: A walk Text: It rained."
    assert post.strips == 2
    assert sheet in post.body


@given(st.text(), st.text())
def test_what_has_no_boilerplate_stays_whole(title, body):
    post = Post("r", title, body)
    assert post.strips == 0
    assert post.text == f"Title: {title.strip()} Text: {body.strip()}"


def test_a_long_run_that_nearly_is_boilerplate_is_read_in_linear_time():
    assert Post("r", "", "for any crisis present, mark whether it is " * 2000 + " " * 40_000).strips == 0


@given(PARTS, PARTS)
def test_digests_agree_exactly_where_contents_do(left, right):
    digests = [Post(r, *parts).content_digest(secret=b"s") for r, parts in (("a", left), ("b", right))]
    assert (digests[0] == digests[1]) == (left == right)


def test_a_digest_needs_the_secret_and_no_part_can_run_into_the_next():
    post = Post("r", "ab", "c", (b"d",))
    assert post.content_digest(secret=b"s") != post.content_digest(secret=b"t")
    for other in (Post("r", "a", "bc", (b"d",)), Post("r", "ab", "cd")):
        assert other.content_digest(secret=b"s") != post.content_digest(secret=b"s")
    plain = {hashlib.sha256(b"abcd").hexdigest(), hmac.new(b"", b"abcd", hashlib.sha256).hexdigest()}
    assert post.content_digest(secret=b"s") not in plain


def test_half_a_character_does_not_stop_it():
    body = json.loads('"\\ud83d"')
    assert len(Post("r", "t", body).content_digest(secret=b"s")) == 64


def test_no_repr_quotes_a_post():
    assert repr(Post("r", "private title", "private body", (b"private image",))) == "Post(record_id='r')"
