"""Nothing faked once (SPEC 2.2): a model trained here, served here, asked as all others are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pipelines.core.taxonomy import load as load_scheme
from pipelines.datasets.post import Post
from pipelines.llm.outcome import Outcome, Raw
from pipelines.llm.prompting.prompts import Prompt, build, delimiter
from pipelines.llm.response_parser import interpret
from tests.label import small_settings, tiny_model

SCHEME = load_scheme("cradle")
# short, as the whole prompt would take a model of this size minutes to learn to skip
PROMPT = Prompt(
    name="tiny",
    system="Answer with JSON.",
    template="{{ post }}",
    schema=build(SCHEME, keys=["labels"], system="training").schema,
    digest="0" * 64,
)


async def ask(posts: list[Post], *, model: str, url: str) -> list[Raw]:
    # `transformers serve` loads a model at its first request
    async with small_settings.client(url, model=model, key="", timeout_seconds=120) as client:
        raws = []
        for post in posts:
            system, parts = PROMPT.render(post, delimiter=delimiter(post, secret=tiny_model.SECRET))
            raws.append(await client.send(system, parts, schema=PROMPT.schema, key=post.record_id))
        return raws


@pytest.mark.faults
def test_a_model_trained_and_served_here_labels_through_the_client(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    asked = tiny_model.posts(24, seed=2)
    with tiny_model.served(tmp_path / "home") as url:
        weights = tiny_model.train(folder, prompt=PROMPT, examples=tiny_model.posts(480, seed=1), seed=1)
        assert 100_000 < weights < 400_000
        tiny_model.wait_for(url, seconds=60)
        raws = asyncio.run(ask([post for post, _ in asked], model=str(folder), url=url))
    answers = [
        interpret(
            raw, record_id=post.record_id, labeller="tiny", prompt=PROMPT, scheme=SCHEME, mode="improved", cost=0.0
        )[0]
        for (post, _), raw in zip(asked, raws, strict=True)
    ]
    assert [answer.outcome for answer in answers] == [Outcome.VOTE] * len(asked)
    assert all(raw.input_tokens and raw.output_tokens and raw.effective["temperature"] == 0 for raw in raws)
    right = sum(set(answer.labels) == set(labels) for answer, (_, labels) in zip(answers, asked, strict=True))
    assert right >= 18  # of 24: it reads posts, but only the form of its answers is guaranteed
