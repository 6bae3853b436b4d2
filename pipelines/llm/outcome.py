"""What became of one question to one labeller, and the only place where a raw answer turns into labels.

A refusal is never a vote: the five outcomes are told apart here, once, and only ``vote`` carries labels.
What is mended is small, local and named (a code fence, a thinking block, the closing brace, what the scheme's rules
mend); everything else is malformed. An object that stands in prose is malformed too: the prose may take it back
("I would rather not judge this: {"labels": []}" must not become a vote for the empty set).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pipelines.llm.prompts import Prompt
    from pipelines.taxonomy.scheme import Category, Scheme

FENCE = re.compile(r"\A```[\w-]*\s*\n?(.*?)\s*(?:```)?\Z", re.DOTALL)
THINKING = re.compile(r"\A<think>.*?</think>\s*", re.DOTALL)
# prose in which a model declines; only asked about text that is no JSON, so a miss costs a word in a report, no vote
DECLINES = re.compile(
    r"\A\W*(?:(?:i(?:['\u2019]m| am)(?: really| so| very)? sorry)|sorry\b|i apologi[sz]e|unfortunately\b"
    r"|(?:i(?:['\u2019]m| am) (?:not able|unable|not comfortable))"
    r"|(?:i (?:can(?:['\u2019]t|not| not)|won['\u2019]t|will not|must decline|decline)))",
    re.IGNORECASE,
)
# what a client calls an answer of unknown shape, and a post that a model has no room for
UNREADABLE, TOO_LONG = "unreadable", "too_long"


class Outcome(StrEnum):
    """What became of a question; DESIGN's five, of which ``VOTE`` alone counts in an aggregate."""

    VOTE = "vote"
    ABSTAINED = "abstained"
    REFUSED = "refused"
    MALFORMED = "malformed"
    FAILED = "failed"


@dataclass(frozen=True)
class Answer:
    """One row of the votes table: no text of a post and no raw answer, so that it may lie open.

    ``reason`` is one machine word, or the names of the repairs joined by ``+`` where the outcome is a repaired vote.
    ``labels`` are sorted and empty unless the outcome is a vote; ``scores`` follow the category's names.
    """

    record_id: str
    labeller: str
    category: str
    prompt: str
    outcome: Outcome
    reason: str = ""
    repaired: bool = False
    labels: tuple[str, ...] = ()
    scores: tuple[float, ...] | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def row(self) -> dict[str, Any]:
        """Return the row of ``store.tables.VOTES``."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        scores = None if self.scores is None else list(self.scores)
        return values | {"outcome": str(self.outcome), "labels": list(self.labels), "scores": scores}


@dataclass(frozen=True)
class Raw:
    """What a provider answered, as it is kept (sealed, for ``text`` may quote the post).

    ``finish`` is the finish reason (``stop``, ``length``, ``content_filter``, ``unreadable`` ...); ``refused`` the
    reason word of a refusal; ``effective`` the parameters that were really sent; ``truncated`` whether the output
    ran into its cap of tokens.
    """

    text: str | None
    finish: str
    refused: str | None
    input_tokens: int
    output_tokens: int
    effective: dict[str, Any]
    truncated: bool = False

    def to_json(self) -> bytes:
        """Return the same bytes for the same answer; ASCII, so that even a lone surrogate survives."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Raw:
        """Return the answer that :meth:`to_json` wrote."""
        return cls(**json.loads(data))


class _TwiceError(ValueError):
    """A key stands in an object twice: which one is meant nobody knows."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _TwiceError
    return values


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except _TwiceError:
        raise
    except (ValueError, RecursionError):
        return None


def parse(text: str) -> tuple[dict[str, Any] | None, tuple[str, ...], str]:
    """Return the one JSON object of an answer, the repairs it took, and, without one, the reason there is none.

    Repairs, ours unless named: ``thinking`` (a reasoning block before the answer), ``fence`` (the whole answer in a
    code fence) and ``brace`` (the closing brace that the stop sequence of SPEC 10 swallows).
    """
    repairs: list[str] = []
    rest = text.strip().removeprefix("\ufeff").strip()
    if without := THINKING.sub("", rest):
        repairs += ["thinking"] if without != rest else []
        rest = without
    if rest.startswith("```") and (fenced := FENCE.match(rest)):
        repairs.append("fence")
        rest = fenced[1].strip()
    if not rest:
        return None, (), "empty"
    try:
        value = _load(rest)
        if value is None and rest.startswith("{") and (value := _load(rest + "}")) is not None:
            repairs.append("brace")
    except _TwiceError:
        return None, (), "wrong_shape"
    if isinstance(value, dict):
        return value, tuple(repairs), ""
    return None, (), "not_json" if value is None and rest != "null" else "wrong_shape"


def _labels(
    value: Any, *, category: Category, mode: Literal["paper", "improved"]
) -> tuple[Outcome, str, tuple[str, ...], tuple[str, ...]]:
    """Return outcome, reason, labels and rule repairs of one category's value."""
    from pipelines.taxonomy import tiers_of

    if category.kind == "single":
        value = [value] if isinstance(value, str) else None
    if not isinstance(value, list) or not all(isinstance(label, str) for label in value):
        return Outcome.MALFORMED, "wrong_shape", (), ()
    checked = category.check(value, mode="repair", tiers=tiers_of(mode))
    if checked.unknown:
        return Outcome.MALFORMED, "unknown_label", (), ()
    if checked.violations:
        return Outcome.MALFORMED, "rule_violation", (), ()
    return Outcome.VOTE, "", tuple(sorted(checked.labels)), checked.repairs


def _overall(raw: Raw) -> tuple[dict[str, Any] | None, tuple[str, ...], Outcome, str]:
    """Return the object of an answer and its repairs, or the outcome and reason that hold for every category."""
    if raw.refused is not None:
        return None, (), Outcome.REFUSED, raw.refused
    if raw.text is None:
        named = raw.finish if raw.finish in (UNREADABLE, TOO_LONG) else "empty"
        return None, (), Outcome.MALFORMED, "truncated" if raw.truncated else named
    value, repairs, reason = parse(raw.text)
    if value is None and reason == "not_json" and DECLINES.match(raw.text):
        return None, (), Outcome.REFUSED, "model_refusal"
    if value is None:
        return None, (), Outcome.MALFORMED, "truncated" if raw.truncated else reason
    return value, repairs, Outcome.VOTE, ""


def interpret(
    raw: Raw,
    *,
    record_id: str,
    labeller: str,
    prompt: Prompt,
    scheme: Scheme,
    mode: Literal["paper", "improved"],
    cost: float,
) -> list[Answer]:
    """Turn a raw answer into one row for each category that was asked about, in the order of the prompt's schema.

    Rules of the scheme are applied before the vote, (a) to (c) of SPEC 23 in ``paper`` mode, (a) to (e) in
    ``improved``. Keys beyond those asked for make the whole answer malformed, a missing one its own category alone.
    Tokens and ``cost`` (US dollars) are those of the one request: the first row carries them, so that sums are right.
    """
    keys = list(prompt.schema["properties"])
    value, repairs, outcome, reason = _overall(raw)
    if value is not None and set(value) - set(keys):
        value, outcome, reason = None, Outcome.MALFORMED, "wrong_shape"
    answers = []
    for index, key in enumerate(keys):
        labels: tuple[str, ...] = ()
        named: tuple[str, ...] = ()
        found, why = outcome, reason
        if value is not None and key not in value:
            found, why = Outcome.MALFORMED, "truncated" if raw.truncated else "wrong_shape"
        elif value is not None:
            found, why, labels, rules = _labels(value[key], category=scheme.category(key), mode=mode)
            named = tuple(dict.fromkeys((*repairs, *rules))) if found is Outcome.VOTE else ()
        answers.append(
            Answer(
                record_id=record_id,
                labeller=labeller,
                category=key,
                prompt=prompt.digest,
                outcome=found,
                reason="+".join(named) or why,
                repaired=bool(named),
                labels=labels,
                input_tokens=raw.input_tokens if index == 0 else 0,
                output_tokens=raw.output_tokens if index == 0 else 0,
                cost=cost if index == 0 else 0.0,
            )
        )
    return answers
