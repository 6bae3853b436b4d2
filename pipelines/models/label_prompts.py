"""Build the prompts by which models that are not fitted here are asked: as labellers, about one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pipelines.datasets import items
from pipelines.datasets.example import Item, LabelSet
from pipelines.datasets.items import SplitItems
from pipelines.datasets.post import Post
from pipelines.llm import own_prompts
from pipelines.llm import prompt_examples as examples
from pipelines.llm.outcome import Outcome, Raw
from pipelines.llm.pictures import picture
from pipelines.llm.prompts import LEAST_SHARE, Mode, Prompt, PromptExample, System, build
from pipelines.llm.response_parser import interpret
from pipelines.models.kind import Desk


def pictured(desk: Desk) -> bool:
    return "image" in items.CONTENTS[desk.params.corpora[desk.corpus].content].inputs


def sent(posts: Mapping[Item, Post], *, desk: Desk) -> dict[Item, Post]:
    """Return items as labellers receive them: in mode ``paper``, a picture without the words read from it (T11)."""
    words = desk.params.votes.mode == "improved"
    return {item: picture(post, words=words) for item, post in posts.items()} if pictured(desk) else dict(posts)


def chosen(desk: Desk, *, most: int | None = None) -> list[PromptExample]:
    """Return the items that the stage ``few_shot`` chose, at most ``most``, with their gold."""
    split = SplitItems.read(desk.corpus, params=desk.params, vault=desk.vault, root=desk.root)
    shown = [item for item in split.examples if item in split.posts][:most]
    posts = sent({item: split.posts[item] for item in shown}, desk=desk)
    return examples.chosen(split, keys=[desk.task.key], posts=posts)


def evaluation_prompt(
    desk: Desk, *, system: System, shown: Sequence[PromptExample] | None = None, mode: Mode | None = None
) -> Prompt:
    """Return the labellers' prompt for the task; ``shown`` are its examples, by default all that were chosen.

    ``mode`` is by default that of the labellers.
    """
    return build(
        desk.scheme,
        keys=[desk.task.key],
        system=system,
        examples=chosen(desk) if shown is None else shown,
        secret=desk.settings.secret(),
        mode=mode or desk.params.votes.mode,
        own=own_prompts.read(desk.params.prompts, root=desk.root),
    )


def freely(desk: Desk, *, max_length: int, max_new_tokens: int, mode: Mode | None = None) -> dict[str, Any]:
    """Return the options of a generator that answers the labellers' prompt freely; items are shortened as theirs."""
    mode = mode or desk.params.votes.mode
    prompt = evaluation_prompt(desk, system="open", mode=mode)
    options = {"max_length": max_length, "max_new_tokens": max_new_tokens, "least": int(max_length * LEAST_SHARE)}
    return options | {"prompt": prompt, "reader": partial(read, prompt=prompt, desk=desk, mode=mode)}


def read(text: str, *, prompt: Prompt, desk: Desk, mode: Mode) -> tuple[str, LabelSet]:
    """Return outcome and labels of an answer, read by the labellers' rules."""
    raw = Raw(text=text, finish="stop", refused=None, input_tokens=0, output_tokens=0, effective={})
    by: dict[str, Any] = {"scheme": desk.scheme, "mode": mode}
    [answer] = interpret(raw, record_id="", labeller=desk.model, prompt=prompt, cost=0.0, **by)
    return str(answer.outcome), frozenset(answer.labels if answer.outcome is Outcome.VOTE else ())
