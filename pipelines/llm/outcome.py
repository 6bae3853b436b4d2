"""Turn a raw answer into labels or another outcome; no other module does this.

A refusal is never a vote: the five outcomes are distinguished here, once, and only ``vote`` carries labels. Repairs are
small, local and named (a code fence, a thinking block, the closing brace, repairs by the scheme's rules); everything
else is malformed. An object inside prose is also malformed, because the prose may retract it
("I would rather not judge this: {"labels": []}" must not become a vote for the empty set).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from pipelines.errors import LabellingError, TooManyFailed

if TYPE_CHECKING:
    from pipelines.llm.prompts import Prompt
    from pipelines.taxonomy.scheme import Category, Scheme

FENCE = re.compile(r"\A```[\w-]*\s*\n?(.*?)\s*(?:```)?\Z", re.DOTALL)
THINKING = re.compile(r"\A<think>.*?</think>\s*", re.DOTALL)
# prose that declines; only tested on text that is not JSON, so a miss changes a word in a report and never a vote
DECLINES = re.compile(
    r"\A\W*(?:(?:i(?:['\u2019]m| am)(?: really| so| very)? sorry)|sorry\b|i apologi[sz]e|unfortunately\b"
    r"|(?:i(?:['\u2019]m| am) (?:not able|unable|not comfortable))"
    r"|(?:i (?:can(?:['\u2019]t|not| not)|won['\u2019]t|will not|must decline|decline)))",
    re.IGNORECASE,
)
# the client's words for an answer of unknown shape, and for a post that exceeds the model's context
UNREADABLE, TOO_LONG = "unreadable", "too_long"


class Outcome(StrEnum):
    """The outcome of a request; one of DESIGN's five, of which only ``VOTE`` counts in an aggregate."""

    VOTE = "vote"
    ABSTAINED = "abstained"
    REFUSED = "refused"
    MALFORMED = "malformed"
    FAILED = "failed"


class Throttled(LabellingError):
    """The provider asks the client to wait; ``retry_after`` in seconds, ``None`` if it did not say how long."""

    message = "The provider asks the client to wait before the next request."
    remedy = "No action is needed: the request is repeated automatically."
    exit_code = 75


class Passing(LabellingError):
    """A temporary failure without an answer; ``reason`` is one word (``timeout``, ``connection``, ``server`` ...)."""

    message = "The provider gave no answer: {reason}."
    remedy = "No action is needed: the request is repeated automatically."
    exit_code = 75


@dataclass(frozen=True)
class Answer:
    """One row of the votes table. It has no text of a post and no raw answer, so it may be stored unencrypted.

    ``reason`` is one machine word, or the names of the repairs joined by ``+`` if the outcome is a repaired vote.
    ``labels`` are sorted, and empty unless the outcome is a vote; ``scores`` follow the order of the category's names.
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
        """Return the row of ``store.tables.SCHEMAS["votes"]``."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        scores = None if self.scores is None else list(self.scores)
        return values | {"outcome": str(self.outcome), "labels": list(self.labels), "scores": scores}


def counted(words: Iterable[str]) -> dict[str, int]:
    """Return how often each outcome or reason occurs, by name."""
    return dict(sorted(Counter(map(str, words)).items()))


def spent(answers: Collection[Answer]) -> dict[str, Any]:
    """Return the totals of answers for a stage's metrics.

    Returns:
        ``reasons`` (of outcomes other than a vote, and of repairs), ``repaired``, tokens and ``cost`` in US dollars.
    """
    return {
        "reasons": counted(answer.reason for answer in answers if answer.reason),
        "repaired": sum(answer.repaired for answer in answers),
        "input_tokens": sum(answer.input_tokens for answer in answers),
        "output_tokens": sum(answer.output_tokens for answer in answers),
        "cost": round(sum(answer.cost for answer in answers), 6),
    }


def check_failures(outcomes: Collection[Outcome], *, labeller: str, most: float) -> None:
    """Refuse the answers of a labeller if the share that failed is more than ``most`` (``votes.max_failed``).

    Raises:
        TooManyFailed: it is; the next run sends those requests again.
    """
    failed = sum(outcome is Outcome.FAILED for outcome in outcomes)
    if failed > most * len(outcomes):
        raise TooManyFailed(labeller=labeller, failed=failed, records=len(outcomes))


@dataclass(frozen=True)
class Raw:
    """A provider's answer as stored (sealed, because ``text`` may quote the post).

    ``finish`` is the finish reason (``stop``, ``length``, ``content_filter``, ``unreadable`` ...); ``refused`` the
    reason word of a refusal; ``effective`` the parameters actually sent; ``truncated`` whether the output reached its
    token limit.
    """

    text: str | None
    finish: str
    refused: str | None
    input_tokens: int
    output_tokens: int
    effective: dict[str, Any]
    truncated: bool = False

    def to_json(self) -> bytes:
        """Return the same bytes for the same answer; ASCII, so that even a lone surrogate is preserved."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Raw:
        """Return the answer that :meth:`to_json` wrote."""
        return cls(**json.loads(data))


class _TwiceError(ValueError):
    """An object has a key twice, so its value is ambiguous."""


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
    """Return the JSON object of an answer, the repairs applied, and the reason if there is no object.

    Repairs, ours unless named: ``thinking`` (a reasoning block before the answer), ``fence`` (the whole answer in a
    code fence) and ``brace`` (the closing brace that the stop sequence of SPEC 10 removes).
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
    """Return the outcome, reason, labels and rule repairs of one category's value."""
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
    """Return the object of an answer and its repairs, or the outcome and reason that apply to every category."""
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
    """Return one row per requested category of a raw answer, in the order of the prompt's schema.

    The scheme's rules are applied before the vote: (a) to (c) of SPEC 23 in ``paper`` mode, (a) to (e) in
    ``improved``. An unexpected key makes the whole answer malformed, a missing key only its own category. Tokens and
    ``cost`` (US dollars) are those of the one request: only the first row carries them, so that sums are right.
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
