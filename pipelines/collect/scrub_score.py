"""Measure the scrubber: recall and precision by kind on generated strings with and without personal data."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CASES = Path(__file__).with_name("scrub_cases.yaml")
# ours: of each of the two sets
STRINGS = 400
SEED = 52
_SLOT = re.compile(r"\{(\w+)\}")
_PLACEHOLDER = re.compile(r"<[a-z]+>")


@dataclass(frozen=True)
class Case:
    """A generated string: ``personal`` is what has to be masked between ``before`` and ``after``, if anything has."""

    kind: str
    before: str
    personal: str
    after: str

    @property
    def text(self) -> str:
        """The whole string."""
        return self.before + self.personal + self.after

    def is_masked(self, scrubbed: str) -> bool:
        """Return whether no letter or digit of what is personal is left."""
        inner = scrubbed.removeprefix(self.before).removesuffix(self.after)
        return scrubbed != self.text and not any(sign.isalnum() for sign in _PLACEHOLDER.sub("", inner))


def cases(group: str, *, count: int = STRINGS, seed: int = SEED, path: Path = CASES) -> Iterator[Case]:
    """Yield ``count`` cases of a group, ``personal`` or ``harmless``: kinds in turn, and of each its forms in turn."""
    declared = _declared(path)
    drawn = random.Random(f"{seed}/{group}")  # noqa: S311
    kinds = list(declared[group])
    for at in range(count):
        kind, turn = kinds[at % len(kinds)], at // len(kinds)
        forms = declared[group][kind]
        form = _filled(forms[turn % len(forms)], slots=declared["slots"], drawn=drawn)
        before, personal, after = "", form, ""
        if "[[" in form:
            before, _, rest = form.partition("[[")
            personal, _, after = rest.partition("]]")
        elif group == "personal":
            before, _, after = drawn.choice(declared["around"]).partition("{}")
        yield Case(kind, before, personal, after)


def score(scrub: Callable[[str], str], *, kinds: Sequence[str], path: Path = CASES) -> dict[str, dict[str, float]]:
    """Return recall and precision by kind, of the strings that the kinds asked for are about.

    A string counts as found if nothing of what is personal in it is left, whichever placeholder replaced it. A
    placeholder in a harmless string is a false positive of the placeholder's kind.
    """
    total, found, false = Counter[str](), Counter[str](), Counter[str]()
    for case in cases("personal", path=path):
        if case.kind in kinds:
            total[case.kind] += 1
            found[case.kind] += case.is_masked(scrub(case.text))
    harmless = list(cases("harmless", path=path))
    altered = 0
    for case in harmless:
        scrubbed = scrub(case.text)
        altered += scrubbed != case.text
        new = Counter(_PLACEHOLDER.findall(scrubbed)) - Counter(_PLACEHOLDER.findall(case.text))
        false.update(name.strip("<>") for name in new)
    numbers = {
        kind: {
            "strings": total[kind],
            "recall": round(found[kind] / total[kind], 3),
            "precision": round(found[kind] / max(1, found[kind] + false[kind]), 3),
        }
        for kind in sorted(total)
    }
    numbers["all"] = {
        "strings": total.total(),
        "recall": round(found.total() / max(1, total.total()), 3),
        "false_positives": round(altered / len(harmless), 3),
    }
    return numbers


@cache
def _declared(path: Path) -> dict[str, Any]:
    declared: dict[str, Any] = yaml.safe_load(path.read_text())
    return declared


def _filled(form: str, *, slots: dict[str, list[str]], drawn: random.Random) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name.isdigit():
            return "".join(drawn.choices("0123456789", k=int(name)))
        if name == "o":
            return str(drawn.randrange(1, 255))
        if name == "h":
            return f"{drawn.randrange(0x1000, 0xFFFF):x}"
        return drawn.choice(slots[name]) if name in slots else match[0]

    return _SLOT.sub(fill, form)
