"""Define the rules of a label scheme and the result of a check (:meth:`pipelines.taxonomy.scheme.Category.check`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]
Tier = Literal["improved", "soft"]
Mode = Literal["strict", "repair"]
TIERS = ("base", "improved", "soft")


def tiers_of(mode: Literal["paper", "improved"]) -> frozenset[str]:
    """Return the tiers of rules that a mode applies to labels before a vote: (a) to (c) or (a) to (e) of SPEC 27.

    The tier ``soft`` is in neither: rule (f) assumes that labels share an incident, and is applied only on request.
    """
    return frozenset({"base"} if mode == "paper" else {"base", "improved"})


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking a label set: its repaired labels, the repairs and the violations.

    ``repairs`` has one rule name per repair, sorted. ``violations`` has what remains wrong, sorted; if there are any in
    strict mode, ``labels`` is the input. ``unknown`` counts strings that the scheme does not know: they are violations
    in both modes and are never turned into a label.
    """

    labels: frozenset[str]
    repairs: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Preference:
    """A rule on two labels: the one whose attribute ``of`` is ``keep`` displaces the one whose is ``drop``.

    It applies to labels that have equal attributes ``same``. An example: of two labels of one crisis type, the one with
    time ``ongoing`` displaces the one with time ``past``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: Text
    tier: Tier
    same: tuple[Text, ...]
    of: Text
    keep: Text
    drop: Text

    def displaced(self, labels: Collection[str], *, attributes: Mapping[str, Mapping[str, str]]) -> set[str]:
        """Return those of ``labels`` that others displace by this rule; attributes that both lack count as equal."""

        def place(label: str) -> tuple[str | None, ...]:
            return tuple(attributes[label].get(a) for a in self.same)

        kept = {place(label) for label in labels if attributes[label].get(self.of) == self.keep}
        return {label for label in labels if attributes[label].get(self.of) == self.drop and place(label) in kept}


def normal(spelling: str) -> str:
    """Return the spelling of a label with its letters and digits only, in lower case, for comparison."""
    return "".join(c for c in spelling.casefold() if c.isalnum())
