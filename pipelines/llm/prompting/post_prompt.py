"""Build the prompt by which language models are asked about posts, as labellers and for their own scores (CRADLE B)."""

from __future__ import annotations

from pipelines.datasets.posts import SplitPosts
from pipelines.llm.prompting import own_prompts
from pipelines.llm.prompting.prompts import Prompt, PromptExample, System, build


def prompt_for(material: SplitPosts, *, system: System, secret: bytes, most: int | None = None) -> Prompt:
    """Return the prompt for labels of the scheme, with the posts of dev that the stage ``few_shot`` chose as examples.

    Args:
        material: the posts of a corpus, its gold and the chosen examples.
        system: the kind of model that is asked.
        secret: determines the delimiters around posts.
        most: the number of examples to show at most; ``None`` shows all that were chosen.
    """
    key = material.scheme.category().key
    shown = [r for r in material.examples if r in material.posts][:most]
    examples = [PromptExample(r, material.posts[r], {key: tuple(sorted(material.gold[r]))}) for r in shown]
    return build(
        material.scheme,
        keys=[key],
        system=system,
        examples=examples,
        secret=secret,
        mode=material.mode,
        own=own_prompts.read(material.prompts, root=material.root),
    )
