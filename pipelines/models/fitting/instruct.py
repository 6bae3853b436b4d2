"""Build the conversations that a causal model is tuned on and prompted with, and read the labels in its answers.

Training, prediction and the grammar of constrained decoding all use this module, so that the prompt at prediction is,
token for token, the prompt that the model was tuned on.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pipelines.core.errors import BadParams, ConfigError
from pipelines.core.taxonomy import Scheme, tiers_of
from pipelines.core.taxonomy.task import Task
from pipelines.datasets.post import Post
from pipelines.llm import prompts
from pipelines.llm.own_prompts import OwnPrompts
from pipelines.llm.prompts import Prompt

# Ours. The labellers' delimiter depends on a secret, as their models must be told where a post ends; a tuned model has
# learned it, the line is stripped from posts, and a fixed delimiter keeps the instruction a common prefix.
DELIMITER = "====="
# Of a model's folder: the messages that the model was tuned on, where they are a team's own.
FILE = "prompt.json"
# Replaces the middle of a post that is too long.
GAP = " […] "


class _Written(Post):
    """A post whose text is already rendered (``Example.text``)."""

    @cached_property
    def text(self) -> str:
        return self.body


def instruction(scheme: Scheme, *, category: str, own: OwnPrompts | None = None, tuned: Path | None = None) -> Prompt:
    """Return the short fine-tuning prompt for one category of labels (CRADLE, Figure 6; SPEC 24).

    Args:
        own: a team's own texts, used where they have this prompt.
        tuned: the folder of a fine-tuned model, which has the messages that it was tuned on if they are a team's own.
    """
    prompt = prompts.build(scheme, keys=[category], system="training", mode="paper", own=own)
    if tuned is None or not (tuned / FILE).is_file():
        return prompt
    return replace(prompt, **json.loads((tuned / FILE).read_text(encoding="utf-8")))


def store(prompt: Prompt, folder: Path) -> None:
    """Write a team's prompt into the folder of the model that was tuned on it; ours follow from the scheme."""
    if prompt.own is not None:
        texts = {name: getattr(prompt, name) for name in ("system", "template", "digest", "own")}
        (folder / FILE).write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def completion(labels: frozenset[str], *, task: Task) -> str:
    """Return the answer that a model learns for ``labels``, in the scheme's order: ``{"labels": ["a", "b"]}``."""
    unknown = len(labels - set(task.labels))
    if unknown or (task.kind == "single" and len(labels) != 1):
        detail = f"{unknown} labels are unknown" if unknown else "needs exactly one label"
        raise BadParams(where=f"labels ({task.key})", detail=detail)
    known = [label for label in task.labels if label in labels]
    return json.dumps({task.key: known[0] if task.kind == "single" else known}, ensure_ascii=False)


def read(answer: str, *, task: Task) -> frozenset[str] | None:
    """Return the labels in a model's answer, or ``None`` if the answer does not have exactly the required format.

    Whitespace and the order of the labels are free, as in any JSON. Refused are: another key; an unknown, misspelt or
    repeated label; an empty list if the scheme has a label for none; and that label together with others (SPEC 23, (a)
    to (c)).
    """
    try:
        pairs = json.loads(answer, object_pairs_hook=lambda pairs: [tuple(pair) for pair in pairs])
    except (ValueError, RecursionError):
        return None
    # objects are lists of pairs here, so that repeated keys are seen; an array of strings has no pairs
    if not isinstance(pairs, list) or len(pairs) != 1 or not isinstance(pairs[0], tuple) or pairs[0][0] != task.key:
        return None
    said = [pairs[0][1]] if task.kind == "single" else pairs[0][1]
    if not isinstance(said, list) or not all(isinstance(label, str) for label in said):
        return None
    checked = task.category.check(said, mode="strict", tiers=tiers_of("paper"))
    return None if checked.violations else checked.labels


def conversation(text: str, *, prompt: Prompt, tokenizer: Any, max_length: int, room: int, least: int = 0) -> list[int]:
    """Return the tokens of the prompt for a post: system and user message in the base model's own chat template.

    Thinking is off (SPEC 2.4, trap 9). Special tokens of the base model are removed from the post. A post that is too
    long loses its middle, never its ends: the title is at the beginning, and requests are at the end (trap 3).

    Args:
        max_length: the maximum number of tokens of conversation and answer together.
        room: the number of these tokens that is reserved for the answer.
        least: the number of tokens that a post gets at least, beyond ``max_length`` if the instruction is long.
    """
    return shortened(text, prompt=prompt, tokenizer=tokenizer, max_length=max_length, room=room, least=least)[0]


def shortened(
    text: str, *, prompt: Prompt, tokenizer: Any, max_length: int, room: int, least: int = 0
) -> tuple[list[int], bool]:
    """Return the prompt's tokens (see :func:`conversation`), and whether the middle of the post had to be removed."""
    text = _bare(text, tokenizer=tokenizer)
    limit = max_length - room
    whole = _ids(text, prompt=prompt, tokenizer=tokenizer)
    if len(whole) <= limit:
        return whole, False
    fitting = _ids("", prompt=prompt, tokenizer=tokenizer)
    if least and len(whole) <= (limit := max(limit, len(fitting) + least)):
        return whole, False
    if len(fitting) > limit:
        raise ConfigError("NoRoom", needed=len(fitting) + room, max_length=max_length)
    low, high = 0, len(text)
    while high - low > 1:
        kept = (low + high) // 2
        ids = _ids(text[: -(-kept // 2)] + GAP + text[len(text) - kept // 2 :], prompt=prompt, tokenizer=tokenizer)
        if len(ids) <= limit:
            low, fitting = kept, ids
        else:
            high = kept
    return fitting, True


def _ids(text: str, *, prompt: Prompt, tokenizer: Any) -> list[int]:
    system, parts = prompt.render(_Written("", "", text), delimiter=DELIMITER)
    user = "".join(part for part in parts if isinstance(part, str))
    from jinja2.exceptions import TemplateError

    if not system and tokenizer.chat_template is None:
        return [int(i) for i in tokenizer(user)["input_ids"]]
    asked = [{"role": role, "content": content} for role, content in (("system", system), ("user", user)) if content]
    for messages in (asked, [{"role": "user", "content": f"{system}\n\n{user}"}]):
        try:
            ids = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=False, enable_thinking=False
            )
        except TemplateError:
            continue  # some templates raise an error at a system message
        except ValueError:
            break
        return [int(i) for i in ids]
    # do not reveal local paths: name a base only if it looks like a Hugging Face id
    name = str(tokenizer.name_or_path)
    base = name if name.count("/") == 1 and not name.startswith("/") else "given"
    raise ConfigError("NoTemplate", base=base, detail="there is none, or it rejects a user message")


_ADDED: WeakKeyDictionary[Any, re.Pattern[str] | None] = WeakKeyDictionary()


def _bare(text: str, *, tokenizer: Any) -> str:
    if tokenizer not in _ADDED:
        added = sorted({t for t in (*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens) if t.strip()})
        longest = sorted(added, key=len, reverse=True)
        _ADDED[tokenizer] = re.compile("|".join(map(re.escape, longest))) if longest else None
    pattern = _ADDED[tokenizer]
    return pattern.sub(" ", text) if pattern else text
