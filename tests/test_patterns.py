"""Every pattern of the product takes linear time, on strings that are built from the pattern to make it try again."""

from __future__ import annotations

import ast
import importlib
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from pipelines.collect import scrub
from pipelines.label import injection
from pipelines.llm import response_parser
from tests.small_corpus import ROOT

# the tree of a pattern has no public reader
parser, sre = (importlib.import_module(f"re.{name}") for name in ("_parser", "_constants"))

SEARCHING = {"search", "sub", "subn", "finditer", "findall", "split"}
# of the whole text or from its beginning, so that a pattern cannot begin anew at each place
ANCHORED = {"match", "fullmatch"}
# a repeat of at least this many times is as good as one without an end
MANY = 200
LONGEST = 16_000
# Of twice the length: linear is 2, quadratic 4. Less than these CPU seconds are not measured.
MOST, LEAST = 3.0, 0.02


def sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("pipelines", "crisis_corpus"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "label_studio/site" not in path.as_posix() and "re." in (text := path.read_text()):
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), ast.parse(text)


@cache
def patterns() -> dict[tuple[Any, int], set[str]]:
    """Return each pattern of a module, or in a call of ``re``, with its flags and the methods that are called on it."""
    uses, found = defaultdict[str, set[str]](set), defaultdict[tuple[Any, int], set[str]](set)
    named: list[tuple[str, re.Pattern[Any]]] = []
    for module, tree in sources():
        if "re" in {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}:
            for name, value in vars(importlib.import_module(module)).items():
                values = value.values() if isinstance(value, dict) else (value,)
                named += [(name, each) for each in values if isinstance(each, re.Pattern)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                uses[node.value.id if isinstance(node.value, ast.Name) else node.value.attr].add(node.attr)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first, method = node.args[0], node.func.attr
                if (
                    ast.unparse(node.func.value) == "re"
                    and isinstance(first, ast.Constant)
                    and method in SEARCHING | ANCHORED
                ):
                    found[first.value, 0].add(method)
    for name, pattern in named:
        found[pattern.pattern, pattern.flags] |= uses[name] & (SEARCHING | ANCHORED) or {"search"}
    return found


def sample(nodes: Any) -> str:
    """Return a text that these parts of a parsed pattern match, roughly: assertions are left out."""
    return "".join(_sample(op, av) for op, av in nodes)


def _sample(op: Any, av: Any) -> str:
    if op is sre.LITERAL:
        return chr(av)
    if op is sre.NOT_LITERAL:
        return "a" if av != ord("a") else "b"
    if op is sre.ANY:
        return "a"
    if op is sre.IN:
        return _member(av)
    if op is sre.BRANCH:
        return sample(av[1][0])
    if op is sre.SUBPATTERN:
        return sample(av[-1])
    if op is sre.ATOMIC_GROUP:
        return sample(av)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return sample(av[2]) * max(av[0], 1)
    return ""


def _member(items: Any) -> str:
    inverse = items[0][0] is sre.NEGATE
    group = re.compile("|".join(f"(?:{_one(*item)})" for item in items[inverse:]))
    places = [ord(c) for c in "a 0._-/@'\"[<\n\u00a0"] + [*range(0x3100), *range(0xE0000, 0xE0100)]
    return next(chr(c) for c in places if bool(group.fullmatch(chr(c))) != inverse)


def _one(op: Any, av: Any) -> str:
    names = {sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_WORD: r"\w"}
    names |= {sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_NOT_SPACE: r"\S", sre.CATEGORY_NOT_WORD: r"\W"}
    if op is sre.CATEGORY:
        return names[av]
    if op is sre.RANGE:
        return f"[{re.escape(chr(av[0]))}-{re.escape(chr(av[1]))}]"
    return re.escape(chr(av))


def repeats(nodes: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield what comes before each repeat of a pattern, and one turn of the repeat, of each of its alternatives."""
    for op, av in nodes:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            if av[1] >= MANY:
                yield before, sample(av[2])
            yield from repeats(av[2], before)
        elif op is sre.BRANCH:
            for branch in av[1]:
                yield from repeats(branch, before)
                yield before, sample(branch)
        elif op in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            yield from repeats(av[-1] if op is sre.SUBPATTERN else av, before)
        before += _sample(op, av)


def attacks(text: Any, flags: int) -> list[Callable[[int], Any]]:
    """Return builders of strings of a length: a repeat turned many times, also with its prefix, that then fails."""
    tree = parser.parse(text, flags)
    whole = sample(tree)
    units = {*repeats(tree), ("", whole), ("", whole[:-1]), ("", whole[:1]), *((whole[:-1], c) for c in " a0.")}
    units |= {("", before + unit) for before, unit in units}
    units = {(before, unit) for before, unit in units if unit}

    def built(before: str, unit: str, end: str) -> Callable[[int], Any]:
        def build(size: int) -> Any:
            made = before + unit * (size // len(unit)) + end
            return made.encode(errors="replace") if isinstance(text, bytes) else made

        return build

    return [built(*each, end) for each in sorted(units) for end in ("\x00", "é!")]


def spent(call: Callable[[Any], object], text: Any) -> float:
    begun = time.process_time()
    call(text)
    return time.process_time() - begun


def growth(call: Callable[[Any], object], build: Callable[[int], Any]) -> float:
    """Return by how much the time grows with twice the length, or 0 if it is linear or too little to measure."""
    size, before = 250, spent(call, build(250))
    while size < LONGEST:
        size *= 2
        after = spent(call, build(size))
        if after > LEAST and after > MOST * before:
            best = [min(spent(call, build(n)) for _ in range(3)) for n in (size // 2, size)]
            if best[1] > MOST * best[0]:
                return best[1] / best[0]
        before = after
    return 0.0


@pytest.mark.parametrize(("text", "flags"), sorted(patterns(), key=repr))
def test_no_pattern_takes_more_than_linear_time(text: Any, flags: int) -> None:
    pattern = re.compile(text, flags)
    calls = {
        "search": lambda given: list(pattern.finditer(given)),
        "match": pattern.match,
        "fullmatch": pattern.fullmatch,
    }
    for method in sorted({"search" if m in SEARCHING else m for m in patterns()[text, flags]}):
        for build in attacks(text, flags):
            assert growth(calls[method], build) == 0, f"{method} of {build(40)!a} and longer"


READERS: dict[str, tuple[Any, Callable[[str], object]]] = {
    "scrub": (
        scrub,
        lambda text: scrub.scrub(text, kinds=[kind for kind in scrub.KINDS if kind not in scrub.MODELLED]),
    ),
    "injection": (injection, injection.marks),
    "answer": (response_parser, response_parser.parse),
}


@pytest.mark.parametrize("name", READERS)
def test_what_reads_a_post_or_an_answer_takes_linear_time(name: str) -> None:
    """The parts of different patterns in one text, too: a host that is none, after which a path goes on."""
    module, call = READERS[name]
    values = [
        each for value in vars(module).values() for each in (value.values() if isinstance(value, dict) else [value])
    ]
    found = [value for value in values if isinstance(value, re.Pattern)]
    parts = sorted({sample(parser.parse(each.pattern, each.flags))[:12] for each in found})
    drawn = random.Random(3)
    texts = {"u/1.1.1.", *parts, *("".join(drawn.sample(parts, min(2, len(parts)))) for _ in range(30))}
    for unit in sorted(filter(None, texts)):
        assert growth(call, lambda size, unit=unit: unit * (size // len(unit))) == 0, f"{unit!a} again and again"
