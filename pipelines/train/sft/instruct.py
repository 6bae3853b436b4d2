"""The words that a causal model is tuned on and asked with: one conversation, one form of answer, nobody else's.

Training, prediction and the grammar of constrained decoding all take them from here, so that what a model sees when it
is asked is, token for token, what it saw before its answer when it was tuned.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from pipelines.datasets.post import Post
from pipelines.errors import BadParams, ConfigError
from pipelines.llm import prompts
from pipelines.llm.prompts import Prompt
from pipelines.taxonomy import Scheme, tiers_of
from pipelines.taxonomy.task import Task

# Ours. The labellers' delimiter depends on a secret, as their models do not know where a post ends unless they are
# told; a tuned one knows, the line is stripped from posts, and a fixed one keeps the instruction a shared prefix.
DELIMITER = "====="
# What stands for the middle of a post that is too long.
GAP = " […] "


class NoTemplate(ConfigError):
    """A base has no chat template, so there is no agreed way to ask it anything."""

    message = "The base '{base}' has no chat template that takes an instruction: {detail}."
    remedy = "Name an instruction-tuned base under models in params.yaml."


class NoRoom(ConfigError):
    """The instruction alone leaves no room for a post."""

    message = "The instruction takes {needed} tokens with the answer, and {max_length} are all there are."
    remedy = "Raise max_length of the model in params.yaml."


class _Written(Post):
    """A post whose text is written out already (``Example.text``)."""

    @cached_property
    def text(self) -> str:
        return self.body


def instruction(scheme: Scheme, *, category: str) -> Prompt:
    """Return the short prompt of fine-tuning (CRADLE, Figure 6; SPEC 24) for one category.

    Raises:
        UnknownCategory: the scheme has no such category.
    """
    return prompts.build(scheme, keys=[category], system="training")


def completion(labels: frozenset[str], *, task: Task) -> str:
    """Return the one answer that says ``labels``, such as ``{"labels": ["a", "b"]}``, in the scheme's order.

    Raises:
        BadParams: a label that the task does not know, or not exactly one where the task wants one.
    """
    unknown = len(labels - set(task.labels))
    if unknown or (task.kind == "single" and len(labels) != 1):
        detail = f"{unknown} labels are unknown" if unknown else "needs exactly one label"
        raise BadParams(where=f"labels ({task.key})", detail=detail)
    known = [label for label in task.labels if label in labels]
    return json.dumps({task.key: known[0] if task.kind == "single" else known}, ensure_ascii=False)


def read(answer: str, *, task: Task) -> frozenset[str] | None:
    """Return the labels of an answer, or ``None`` where it is not exactly what was asked for.

    Blanks and the order of the labels are free as in any JSON; another key, a label that is unknown, misspelt or said
    twice, an empty list where the scheme has a word for nothing, and that word in company are all refused (SPEC 23, (a)
    to (c)).
    """
    try:
        pairs = json.loads(answer, object_pairs_hook=lambda pairs: [tuple(pair) for pair in pairs])
    except (ValueError, RecursionError):
        return None
    # an object is a list of pairs here, so that a key said twice is seen; an array of strings has none
    if not isinstance(pairs, list) or len(pairs) != 1 or not isinstance(pairs[0], tuple) or pairs[0][0] != task.key:
        return None
    said = [pairs[0][1]] if task.kind == "single" else pairs[0][1]
    if not isinstance(said, list) or not all(isinstance(label, str) for label in said):
        return None
    checked = task.category.check(said, mode="strict", tiers=tiers_of("paper"))
    return None if checked.violations else checked.labels


def conversation(text: str, *, prompt: Prompt, tokenizer: Any, max_length: int, room: int) -> list[int]:
    """Return the tokens before the answer: system and user message by the base's own chat template.

    Thinking is off (SPEC 2.4, trap 9). Special tokens of the base are taken out of the post. A post that is too long
    loses its middle, never its ends: a title opens it, and what people ask for closes it (trap 3).

    Args:
        text: ``Post.text``.
        prompt: of :func:`instruction`.
        tokenizer: of the base, with its chat template.
        max_length: the most tokens of conversation and answer together.
        room: those of them that are kept free for the answer.

    Raises:
        NoTemplate: the base has no chat template.
        NoRoom: not even an empty post would fit.
    """
    return shortened(text, prompt=prompt, tokenizer=tokenizer, max_length=max_length, room=room)[0]


def shortened(text: str, *, prompt: Prompt, tokenizer: Any, max_length: int, room: int) -> tuple[list[int], bool]:
    """Return what :func:`conversation` does, and whether the post lost its middle."""
    text = _bare(text, tokenizer=tokenizer)
    limit = max_length - room
    whole = _ids(text, prompt=prompt, tokenizer=tokenizer)
    if len(whole) <= limit:
        return whole, False
    fitting = _ids("", prompt=prompt, tokenizer=tokenizer)
    if len(fitting) > limit:
        raise NoRoom(needed=len(fitting) + room, max_length=max_length)
    low, high = 0, len(text)
    while high - low > 1:
        kept = (low + high) // 2
        found = _ids(text[: -(-kept // 2)] + GAP + text[len(text) - kept // 2 :], prompt=prompt, tokenizer=tokenizer)
        if len(found) <= limit:
            low, fitting = kept, found
        else:
            high = kept
    return fitting, True


def _ids(text: str, *, prompt: Prompt, tokenizer: Any) -> list[int]:
    system, parts = prompt.render(_Written("", "", text), delimiter=DELIMITER)
    user = "".join(part for part in parts if isinstance(part, str))
    from jinja2.exceptions import TemplateError

    asked = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    for messages in (asked, [{"role": "user", "content": f"{system}\n\n{user}"}]):
        try:
            found = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=False, enable_thinking=False
            )
        except TemplateError:
            continue  # some know no system message and raise at one
        except ValueError:
            break
        return [int(i) for i in found]
    raise NoTemplate(base=_name(tokenizer), detail="it has none, or it refuses a user message")


_ADDED: WeakKeyDictionary[Any, re.Pattern[str] | None] = WeakKeyDictionary()


def _bare(text: str, *, tokenizer: Any) -> str:
    """Return the text without what this tokenizer would take for one of its own special tokens."""
    if tokenizer not in _ADDED:
        added = sorted({t for t in (*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens) if t.strip()})
        longest = sorted(added, key=len, reverse=True)
        _ADDED[tokenizer] = re.compile("|".join(map(re.escape, longest))) if longest else None
    pattern = _ADDED[tokenizer]
    return pattern.sub(" ", text) if pattern else text


def _name(tokenizer: Any) -> str:
    # a folder would tell where things lie on this machine
    name = str(tokenizer.name_or_path)
    return name if name.count("/") == 1 and not name.startswith("/") else "given"
