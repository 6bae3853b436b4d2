"""Turn a provider's raw answer into labels or another outcome; no other module does this.

A refusal is never a vote: the five outcomes are distinguished here, once, and only ``vote`` carries labels. Repairs are
small, local and named (a code fence, a thinking block, the closing brace, repairs by the scheme's rules); everything
else is malformed. An object inside prose is also malformed, because the prose may retract it
("I would rather not judge this: {"labels": []}" must not become a vote for the empty set). For the same reason an
answer without labels is a refusal if the reasoning before it declines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pipelines.llm.outcome import TOO_LONG, UNREADABLE, Answer, Outcome, Raw

if TYPE_CHECKING:
    from pipelines.core.taxonomy.scheme import Category, Scheme
    from pipelines.llm.prompts import Prompt

FENCE = re.compile(r"\A```[\w-]*+(.*)\Z", re.DOTALL)
THINKING = re.compile(r"\A<(think(?:ing)?)>(.*?)</\1>\s*", re.DOTALL | re.IGNORECASE)
# prose that declines; only tested on text that is not JSON, so a miss changes a word in a report and never a vote
APOLOGY = r"\A\W*(?:(?:i(?:['\u2019]m| am)(?: really| so| very)? sorry)|sorry\b|i apologi[sz]e"
DECLINES = re.compile(
    rf"{APOLOGY}|unfortunately\b|(?:i(?:['\u2019]m| am) (?:not able|unable|not comfortable))"
    r"|(?:i (?:can(?:['\u2019]t|not| not)|won['\u2019]t|will not|must decline|decline)))",
    re.IGNORECASE,
)
# the same in reasoning, where "I cannot tell" and "I can't label this as a crisis" decline nothing
DECLINES_TASK = re.compile(
    rf"{APOLOGY})|\b(?:i|we)(?:['\u2019](?:m|re)| am| are)?"
    r" (?:not able to|unable to|not comfortable|not going to|can(?:['\u2019]t|not| not)|won['\u2019]t|will not"
    r"|should(?:n['\u2019]t| not)|must not|(?:must |have to |will )?(?:decline|refuse))\b[^.!?\n]{0,40}?"
    r"\b(?:help|assist|engage|comply|continue|discuss|do this|process|request|task"
    r"|(?:answer|judg|label|classif|annotat)(?!\w*(?: \w+){0,3} (?:as|with)\b))"
    # without the task's name; in doubt there is no vote
    r"|\b(?:i|we)(?:['\u2019](?:m|re|ll|d|ve)| am| are| have to| must| will| should| would)?(?: rather)?"
    r" (?:refuse|refusing|declin(?:e|ing)|cannot comply|can['\u2019]t comply"
    r"|(?:not|n['\u2019]t)(?: be)? (?:allowed|permitted)|(?<=rather )not\b)"
    r"|\b(?:my|our|the|content|safety|usage) (?:polic(?:y|ies)|guidelines|rules) (?:forbids?|prohibits?|prevents?"
    r"|(?:do|does)(?: not|n['\u2019]t) (?:allow|permit))"
    r"|\b(?:violat\w{1,4}|breach\w{0,3}|against) (?:my|our|the|content|usage)"
    r"[^.!?\n]{0,30}\b(?:polic(?:y|ies)|guidelines)\b"
    r"|\bnot something (?:i|we) can\b"
    r"|\b(?:harmful|inappropriate|unsafe) (?:request\b"
    r"|(?:for me )?to (?:label|answer|judge|classify|annotate|process)\b)",
    re.IGNORECASE,
)


def declines(reasoning: str) -> bool:
    """Return whether a model's reasoning declines the task."""
    return DECLINES_TASK.search(reasoning) is not None


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
    """Parse the JSON object in an answer; return the object or ``None``, the repairs made, and why there is no object.

    The repairs are our own unless a SPEC section is named: ``thinking`` (a reasoning block before the answer),
    ``fence`` (the whole answer in a code fence) and ``brace`` (the closing brace that the stop sequence of SPEC 10
    removes).
    """
    repairs: list[str] = []
    rest = text.strip().removeprefix("\ufeff").strip()
    if without := THINKING.sub("", rest):
        repairs += ["thinking"] if without != rest else []
        rest = without
    if rest.startswith("```") and (fenced := FENCE.match(rest)):
        repairs.append("fence")
        rest = fenced[1].strip().removesuffix("```").strip()
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
    from pipelines.core.taxonomy import tiers_of

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


def overall(raw: Raw) -> tuple[dict[str, Any] | None, tuple[str, ...], Outcome, str]:
    """Return the object of an answer and its repairs, or the outcome and reason that apply to every category."""
    if raw.refused is not None:
        return None, (), Outcome.REFUSED, raw.refused
    if raw.text is None:
        named = raw.finish if raw.finish in (UNREADABLE, TOO_LONG) else "empty"
        return None, (), Outcome.MALFORMED, "truncated" if raw.truncated else named
    value, repairs, reason = parse(raw.text)
    if value is None and reason == "not_json" and DECLINES.match(THINKING.sub("", raw.text.strip())):
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
    """Return a provider's raw answer as one answer for each requested category, in the order of the prompt's schema.

    The scheme's rules are applied before the vote: (a) to (c) of SPEC 23 in ``paper`` mode, (a) to (e) in
    ``improved``. An unexpected key makes the whole answer malformed, a missing key only its own category. Tokens and
    ``cost`` (US dollars) are those of the one request: only the first row carries them, so that sums are right.
    """
    keys = list(prompt.schema["properties"])
    if raw.recorded is None:
        judged = _judged(raw, keys=keys, scheme=scheme, mode=mode)
    else:
        recorded = (raw.recorded[key] for key in keys)
        judged = ((Outcome(outcome), reason, repaired, labels) for outcome, reason, repaired, labels in recorded)
    return [
        Answer(
            record_id=record_id,
            labeller=labeller,
            category=key,
            prompt=prompt.digest,
            outcome=outcome,
            reason=reason,
            repaired=repaired,
            labels=tuple(labels),
            input_tokens=raw.input_tokens if index == 0 else 0,
            output_tokens=raw.output_tokens if index == 0 else 0,
            cost=cost if index == 0 else 0.0,
        )
        for index, (key, (outcome, reason, repaired, labels)) in enumerate(zip(keys, judged, strict=True))
    ]


def _judged(
    raw: Raw, *, keys: Sequence[str], scheme: Scheme, mode: Literal["paper", "improved"]
) -> Iterator[tuple[Outcome, str, bool, Sequence[str]]]:
    """Yield outcome, reason, whether it was repaired, and labels of each category."""
    value, repairs, outcome, reason = overall(raw)
    if value is not None and set(value) - set(keys):
        value, outcome, reason = None, Outcome.MALFORMED, "wrong_shape"
    thought = THINKING.match((raw.text or "").strip().removeprefix("\ufeff").strip())
    declined = thought is not None and declines(thought[2])
    for key in keys:
        labels: tuple[str, ...] = ()
        named: tuple[str, ...] = ()
        found, why = outcome, reason
        if value is not None and key not in value:
            found, why = Outcome.MALFORMED, "truncated" if raw.truncated else "wrong_shape"
        elif value is not None:
            category = scheme.category(key)
            found, why, labels, rules = _labels(value[key], category=category, mode=mode)
            if declined and found is Outcome.VOTE and not set(labels) - {category.none}:
                found, why, labels = Outcome.REFUSED, "model_refusal", ()
            named = tuple(dict.fromkeys((*repairs, *rules))) if found is Outcome.VOTE else ()
        yield found, "+".join(named) or why, bool(named), labels
