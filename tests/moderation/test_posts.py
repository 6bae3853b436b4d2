"""Posts are audited by their crisis labels, with the text alone and without the words of a prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.config.settings import Settings
from pipelines.moderation import moderation, systems
from pipelines.moderation.wires import Wire
from pipelines.operate.plan import cost
from pipelines.report import moderation_tables, page
from tests.label.conftest import VendorHost
from tests.moderation.conftest import opened
from tests.train import small_posts as small

SIZES = {"train": 4, "dev": 8, "test": 8}


def test_posts_with_gold_are_audited_by_label(
    tmp_path: Path, vendors: VendorHost, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Wire, "characters", 120)
    sent: list[Any] = []
    serve = vendors.vendors.serve

    def seen(request: Any, *, body: bytes, **given: Any) -> None:
        sent.append(json.loads(body))
        serve(request, body=body, **given)

    monkeypatch.setattr(vendors.vendors, "serve", seen)
    with opened(tmp_path, vendors.server.address, monkeypatch) as (usual, vault):
        section = usual.moderation.model_copy(update={"systems": {"posts": ("openai", "llama-guard-3")}})
        params = usual.model_copy(update={"moderation": section})
        corpus = small.write(tmp_path, vault=vault, sizes=SIZES)
        labelled = [post for post in corpus.posts.values() if post.split != "train"]
        given: dict[str, Any] = {"params": params, "settings": Settings.from_env(), "vault": vault, "root": tmp_path}
        leaves = cost.run("posts", steps=["moderation"], **given)["leaves"]
        told = moderation.run("posts", **given)
    assert {(row["texts"], row["pictures"]) for row in leaves} == {(len(labelled), 0)}
    assert told["items"] == len(labelled) == told["systems"]["openai"]["outcomes"]["vote"]
    assert told["by"] == "labels"
    assert "no_crisis" in told["levels"]
    assert "trend" not in told["systems"]["openai"], "labels without an order have no trend"
    texts = [part["text"] for body in sent for part in body.get("input", ())]
    texts += [message["content"] for body in sent for message in body.get("messages", ())]
    assert len(texts) == 2 * len(labelled)
    assert all(len(text) <= 120 for text in texts) and any(systems.CUT in text for text in texts)
    titles = {post.title for post in labelled}
    assert all(any(text.startswith(title[:50]) for title in titles) for text in texts)
    [section] = moderation_tables.sections(told, scheme="cradle")
    assert page.Page("t", (), (section,))
    shown = json.dumps(told) + "".join(capfd.readouterr())
    assert not any(title in shown for title in titles)
