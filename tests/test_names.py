"""The product knows no corpus, scheme or paper by name: its code has no such string, and neither do its messages."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PRODUCT = Path(__file__).resolve().parents[1] / "pipelines"
NAMES = re.compile(r"(?<![a-z])(memes|figsim|figurative|cradle)(?![a-z])", re.IGNORECASE)
# Posts are what Reddit has, too: in prose the word has spaces beside it, in a name it is alone or part of a path or id.
POSTS = re.compile(r"^posts$|[_./@=`'-]posts\b|\bposts(?:[_/@=`'-]|\.\w)")
# Addresses of other programs, and words that M3H's own prompt has.
FOREIGN = {"/api/posts/search", "figurative understanding"}


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings of the code that are no docstring, and those identifiers that are no plain English."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value
        for name in ("name", "arg", "attr"):
            if isinstance(value := getattr(node, name, None), str) and NAMES.search(value.replace("_", " ")):
                yield getattr(node, "lineno", 0), value


def named(text: str) -> bool:
    return text not in FOREIGN and bool(NAMES.search(text.replace("_", " ")) or POSTS.search(text))


def test_a_name_is_found_wherever_it_stands_and_a_post_of_reddit_is_none() -> None:
    for text in (
        "memes",
        "such as memes",
        "sample.memes.size",
        "posts",
        "crisis-posts@champion",
        "`corpus plan posts`",
        "dedupe@posts",
        "posts_collect",
        "has_figurative",
        "profiles/cradle.yaml",
        "a FigSIM",
    ):
        assert named(text), text
    for text in ("take down all posts of this user", "posts by name", "that its posts can be read", "% of posts)"):
        assert not named(text), text


def test_no_string_of_the_code_names_a_corpus_a_scheme_or_a_paper() -> None:
    found = [
        f"{path.relative_to(PRODUCT.parent)}:{line}: {text[:60]!r}"
        for path in sorted(PRODUCT.rglob("*.py"))
        for line, text in strings(ast.parse(path.read_text()))
        if named(text)
    ]
    assert not found, "rename it, or let the scheme, the profile or the paper declare it:\n" + "\n".join(found)


def test_no_message_names_a_corpus_a_scheme_or_a_paper() -> None:
    catalogue = tomllib.loads((PRODUCT / "core" / "errors.toml").read_text())
    texts = {
        (code, key): text
        for codes in catalogue.values()
        for code, entry in codes.items()
        for key, text in entry.items()
        if isinstance(text, str)
    }
    assert [place for place, text in texts.items() if named(text)] == []
    pages = [path for path in PRODUCT.rglob("*.jinja") if NAMES.search(path.read_text())]
    assert pages == []
